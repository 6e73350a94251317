"""Non-interference of what is on topics: records with their places, keys and headers, and the
markers of deliveries."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from meanstream.streaming.kafka.writing.kafka_sink import KafkaSinks
from tests.noninterference.comparison import Compared, Seen, nothing_differs
from tests.noninterference.kafka_worlds import agents_to_topics, rounds_from_topic, rounds_to_topics
from tests.noninterference.rounds_worlds import CHANGES, charged_as
from tests.servers.conftest import broker_address, new_topic

__all__ = ["broker_address", "new_topic"]

NewTopic = Callable[..., str]


def assert_all_is_seen(seen: Seen, *roles: str) -> None:
    assert (seen["killed: exit code"], seen["continued: exit code"]) == (b"1", b"0")
    for role in roles:
        assert b"event" in seen[f"topic {role}"], role
    assert b"topic" in seen["deliveries"]


def test_unreleased_values_of_an_agent_change_no_record_of_others(
    tmp_path: Path, broker_address: str, new_topic: NewTopic
) -> None:
    first = agents_to_topics(tmp_path / "first", 3, broker_address, new_topic)
    other = agents_to_topics(tmp_path / "other", 3, broker_address, new_topic, unreleased=1e300)
    assert_all_is_seen(first, "estimates", "releases", "population", "dead_letters")
    assert nothing_differs(first, other)


def test_private_deliveries_among_the_public_ones_are_caught(
    tmp_path: Path, broker_address: str, new_topic: NewTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Twin: dead letters of rounds were numbered and counted in the group of the public topics."""
    together = property(lambda _: False, lambda *_: None)
    monkeypatch.setattr(KafkaSinks, "_private_apart", together, raising=False)
    with charged_as({}):
        first, other = (
            rounds_to_topics(tmp_path / str(how), 30, broker_address, new_topic, how)
            for how in (None, "rejected")
        )
    assert "deliveries" in Compared(first, other)


_usual: list[tuple[Seen, dict[Any, Any]]] = []


@pytest.fixture
def usual(tmp_path: Path, broker_address: str, new_topic: NewTopic) -> tuple[Seen, dict[Any, Any]]:
    """What is seen of the world that the others are compared with, once per worker; and what was
    charged in it."""
    if not _usual:
        charged: dict[Any, Any] = {}
        with charged_as(charged):
            _usual.append(
                (rounds_to_topics(tmp_path / "usual", 30, broker_address, new_topic, None), charged)
            )
    return _usual[0]


@pytest.mark.parametrize("how", CHANGES)
def test_what_a_user_sends_changes_no_record(
    how: str,
    usual: tuple[Seen, dict[Any, Any]],
    tmp_path: Path,
    broker_address: str,
    new_topic: NewTopic,
) -> None:
    first, charged = usual
    with charged_as(charged):
        other = rounds_to_topics(tmp_path / how, 30, broker_address, new_topic, how)
    assert_all_is_seen(first, "estimates", "reports", "notices")
    assert nothing_differs(first, other)


def test_neither_does_what_it_sends_to_a_topic(
    tmp_path: Path, broker_address: str, new_topic: NewTopic
) -> None:
    told: dict[Any, Any] = {}
    with charged_as(told):
        first, *others = (
            rounds_from_topic(tmp_path / str(how), 12, broker_address, new_topic, how)
            for how in (None, *CHANGES)
        )
    assert (first["killed: exit code"], first["continued: exit code"]) == (b"1", b"0")
    assert first["file means.jsonl"].count(b"\n") >= 2
    assert nothing_differs(first, *others)

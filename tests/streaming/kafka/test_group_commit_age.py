"""How long others have not been told where a store stands."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError

from meanstream.streaming.kafka.claims import ownership
from meanstream.streaming.kafka.claims.ownership import RENEW_SECONDS, GroupOffsets
from meanstream.streaming.kafka.connection.kafka_location import KafkaLocation
from meanstream.streaming.kafka.reading.several_topics import TopicReaders


def test_the_age_grows_while_a_broker_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = SimpleNamespace(now=100.0)
    monkeypatch.setattr(ownership.time, "monotonic", lambda: clock.now)
    sent: list[Any] = []
    consumer: Any = SimpleNamespace(commit=lambda **offsets: sent.append(offsets))
    group = GroupOffsets(KafkaLocation.parse("kafka://b:1/t?group=g"), "store")
    assert group.age is None

    group.note({"0": 5})
    group.send(consumer)
    clock.now = 103.0
    assert group.age == 3.0  # no answer yet

    group.on_commit(None, [])
    clock.now = 110.0
    assert group.age == 7.0

    # A foreign consumer has taken the group.
    group.note({"0": 9})
    group.send(consumer)
    group.on_commit(KafkaError(KafkaError.UNKNOWN_MEMBER_ID), [])
    clock.now = 2000.0
    assert group.age == 1897.0

    # A quiet group is committed again, so that its age has a bound.
    group.on_commit(None, [])
    clock.now += RENEW_SECONDS - 1
    group.send(consumer)
    assert len(sent) == 3
    clock.now += 1
    group.send(consumer)
    assert len(sent) == 3  # unchanged, and sent less than so long ago


@pytest.mark.parametrize(
    ("ages", "age"), [((None, None), None), ((3.0, None), 3.0), ((3.0, 900.0), 900.0)]
)
def test_of_several_topics_the_oldest_counts(
    ages: tuple[float | None, ...], age: float | None
) -> None:
    readers: Any = SimpleNamespace(_readers=[SimpleNamespace(commit_age=one) for one in ages])
    assert TopicReaders.commit_age.fget(readers) == age  # type: ignore[attr-defined]

"""Rounds on a real broker: samples from a topic, reports and estimates to topics, exactly once
after a death."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition

from meanstream.pipelines.commands.run.run_rounds import run_rounds_engine
from meanstream.pipelines.options.rounds_options import RoundsOptions
from meanstream.streaming.crash import CrashPoint, Moment
from tests.pipelines.command_line import SECRET, arguments, meanstream
from tests.streaming.support.dying import DieAt, Died

PARTITIONS = 3
ROLES = ("sink", "reports", "notices", "dead_letters")
COMMON: dict[str, Any] = {
    "name": "weekly",
    "lower": 0.0,
    "upper": 10.0,
    "epsilon": 2.0,
    "window": "1h",
    "user_budget": 4.0,
}
POINTS = (
    (CrashPoint.COMMIT, Moment.AFTER),
    (CrashPoint.CHARGE_LEDGER, Moment.AFTER),
    (CrashPoint.WRITE_RELEASES, Moment.AFTER),
    (CrashPoint.WRITE_ESTIMATES, Moment.AFTER),
    (CrashPoint.COMMIT_TRANSACTION, Moment.BEFORE),
    (CrashPoint.COMMIT_TRANSACTION, Moment.AFTER),
    (CrashPoint.MARK_DELIVERY, Moment.BEFORE),
)


def records(n: int = 400) -> list[bytes]:
    """Samples over four hours, of twenty users; every fiftieth cannot be read."""
    rng = np.random.default_rng(7)
    values, users = rng.uniform(0, 10, n), rng.integers(0, 20, n)
    return [
        b"{"
        if i % 50 == 49
        else json.dumps(
            {"user": f"u{users[i]}", "value": values[i], "time": 1.7e9 + 36 * i}
        ).encode()
        for i in range(n)
    ]


def committed(address: str, topic: str) -> list[bytes]:
    """Values of the committed records of a topic of one partition."""
    settings = {"bootstrap.servers": address, "group.id": "test", "enable.partition.eof": True}
    consumer = Consumer(
        {**settings, "isolation.level": "read_committed", "enable.auto.commit": False}
    )
    consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
    values: list[bytes] = []
    end = time.monotonic() + 30
    while time.monotonic() < end:
        message = consumer.poll(1.0)
        if message is not None and message.error():
            break
        if message is not None:
            values.append(message.value())
    consumer.close()
    return values


@pytest.fixture
def new_source(broker_address: str, new_topic: Callable[..., str]) -> Callable[[], str]:
    """Each store needs a topic of its own: it would be refused one that another store reads."""

    def make() -> str:
        topic = new_topic(PARTITIONS)
        producer = Producer({"bootstrap.servers": broker_address})
        for i, value in enumerate(records()):
            producer.produce(topic, value, partition=i % PARTITIONS)
        assert producer.flush(30) == 0
        return f"kafka://{broker_address}/{topic}"

    return make


@pytest.fixture(scope="session")
def reference(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[bytes]]:
    """The same records from a file, to files."""
    folder = tmp_path_factory.mktemp("reference")
    (folder / "samples.jsonl").write_bytes(b"\n".join(records()) + b"\n")
    place = {role: folder / f"{role}.jsonl" for role in ROLES}
    named = {
        "source": folder / "samples.jsonl",
        "store": folder / "file.db",
        **COMMON,
        **place,
        "quiet": True,
    }
    assert (
        meanstream(
            "run", "rounds", *arguments(named), environment={"MEANSTREAM_SECRET": SECRET}
        ).code
        == 0
    )
    return {role: path.read_bytes().splitlines() for role, path in place.items()}


def options_of(source: str, store: Path, address: str, topics: dict[str, str]) -> RoundsOptions:
    place: Any = {role: f"kafka://{address}/{topic}" for role, topic in topics.items()}
    return RoundsOptions(
        source=source, until_end=True, store=store, quiet=True, batch_size=40, **COMMON, **place
    )


def test_topics_hold_what_files_hold(
    new_source: Callable[[], str],
    reference: dict[str, list[bytes]],
    broker_address: str,
    new_topic: Callable[..., str],
    tmp_path: Path,
) -> None:
    assert [len(reference[role]) > 3 for role in ROLES] == [True] * len(ROLES)
    topics = {role: new_topic() for role in ROLES}
    place = {role: f"kafka://{broker_address}/{topic}" for role, topic in topics.items()}
    named = {
        "source": new_source(),
        "until_end": True,
        "store": tmp_path / "s.db",
        **COMMON,
        **place,
        "json": True,
    }
    named["private_figures"] = tmp_path / "private.json"
    ran = meanstream(
        "run", "rounds", *(a for a in arguments(named)), environment={"MEANSTREAM_SECRET": SECRET}
    )
    assert ran.code == 0, ran.err
    private = json.loads((tmp_path / "private.json").read_bytes())
    assert (private["accepted"], private["rejected"]) == (392, {"malformed": 8})
    for role in ("sink", "reports", "notices"):
        assert sorted(committed(broker_address, topics[role])) == sorted(reference[role])
    assert len(committed(broker_address, topics["dead_letters"])) == 8


def test_dead_at_one_step_after_the_other_the_topics_hold_the_same(
    new_source: Callable[[], str],
    reference: dict[str, list[bytes]],
    broker_address: str,
    new_topic: Callable[..., str],
    tmp_path: Path,
) -> None:
    """One deployment, each of whose lives dies at the next step."""
    topics = {role: new_topic() for role in ROLES}
    options = options_of(new_source(), tmp_path / "s.db", broker_address, topics)
    with patch.dict(os.environ, {"MEANSTREAM_SECRET": SECRET}):
        for point, moment in POINTS:
            with pytest.raises(Died):
                run_rounds_engine(options, crash=DieAt(point, moment, visit=1))
        run_rounds_engine(options)
    for role in ("sink", "reports", "notices"):
        assert sorted(committed(broker_address, topics[role])) == sorted(reference[role]), role


@pytest.mark.full
def test_dead_at_any_step_the_topics_hold_the_same(
    new_source: Callable[[], str],
    reference: dict[str, list[bytes]],
    broker_address: str,
    new_topic: Callable[..., str],
    tmp_path: Path,
) -> None:
    for number, (point, moment) in enumerate(POINTS):
        topics = {role: new_topic() for role in ROLES}
        options = options_of(new_source(), tmp_path / f"{number}.db", broker_address, topics)
        with patch.dict(os.environ, {"MEANSTREAM_SECRET": SECRET}):
            with pytest.raises(Died):
                run_rounds_engine(options, crash=DieAt(point, moment, visit=2))
            run_rounds_engine(options)
        for role in ("sink", "reports", "notices"):
            assert sorted(committed(broker_address, topics[role])) == sorted(reference[role]), (
                point,
                moment,
                role,
            )

"""Sinks on a real broker, processes that die in the middle of a delivery, and readers of what is on
the topics."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
from confluent_kafka import Consumer, KafkaError, TopicPartition

from meanstream.streaming.events.encode import EventLines, encode_columns_as_lines
from meanstream.streaming.events.wire import PersonalEstimate, Release
from meanstream.streaming.kafka.writing.kafka_sink import KafkaSinks
from meanstream.streaming.open_sink import open_sink
from meanstream.streaming.sinks.sink_protocol import Sinks, Trust
from tests.servers.support.broker import Broker
from tests.servers.support.wait_until import NotInTimeError, wait_until

READ_SECONDS = 30.0


def releases(*indexes: int, agent: str = "ann", mean: float = 0.5) -> EventLines:
    columns: dict[str, Any] = {
        "release_id": [f"{agent}:{i}" for i in indexes],
        "agent": [agent] * len(indexes),
        "index": list(indexes),
        "n": [10 * i for i in indexes],
        "total": [640 * i for i in indexes],
        "mean": [mean] * len(indexes),
        "noise_variance": [0.01] * len(indexes),
    }
    constants = {"time": "2013-01-01T10:00:00Z", "epsilon": 1.0, "delta": 1e-6, "mode": "tuned"}
    return encode_columns_as_lines(Release, columns, constants)


def estimates(*numbers: int) -> EventLines:
    """Only what the sinks look at: whose it is."""
    return EventLines(PersonalEstimate, [b'{"agent":"ann","n":%d}' % n for n in numbers])


@dataclass(frozen=True)
class Record:
    key: bytes | None
    value: bytes
    headers: dict[str, bytes]
    partition: int
    timestamp: float  # seconds


def read(address: str, topic: str, *, uncommitted: bool = False) -> list[Record]:
    """Everything on a topic, to its end; `uncommitted` also what was taken back."""
    consumer = Consumer(
        {
            "bootstrap.servers": address,
            "group.id": "reader",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "enable.partition.eof": True,
            "isolation.level": "read_uncommitted" if uncommitted else "read_committed",
        }
    )
    partitions = consumer.list_topics(topic, timeout=READ_SECONDS).topics[topic].partitions
    consumer.assign([TopicPartition(topic, partition, 0) for partition in partitions])
    records, ended = [], set()
    while len(ended) < len(partitions):
        message = consumer.poll(READ_SECONDS)
        assert message is not None, "no end of the topic"
        error = message.error()
        if error is None:
            records.append(
                Record(
                    message.key(),
                    message.value(),
                    dict(message.headers() or []),
                    message.partition(),
                    message.timestamp()[1] / 1000,
                )
            )
        else:
            assert error.code() == KafkaError._PARTITION_EOF, error
            ended.add(message.partition())
    consumer.close()
    return records


def indexes(address: str, topic: str, *, uncommitted: bool = False) -> list[int]:
    return [
        msgspec.json.decode(record.value)["index"]
        for record in read(address, topic, uncommitted=uncommitted)
    ]


def numbers(address: str, topic: str) -> list[int]:
    return [msgspec.json.decode(record.value)["n"] for record in read(address, topic)]


WORLD_SECONDS = 180.0


class Patient:
    """Never asks a sink to stop; but a test does not wait for ever either.

    A broker that wakes while it takes back a transaction may keep its id in between until it is
    restarted: whoever opens with the same id is then asked to wait, every time (Kafka 4.3: "a
    pending state PREPARE_EPOCH_FENCE").
    """

    def __init__(self) -> None:
        self._until = time.monotonic() + WORLD_SECONDS

    def __call__(self) -> bool:
        if time.monotonic() > self._until:
            raise NotInTimeError(
                f"a sink waits for its broker, {WORLD_SECONDS:g} s after the test began"
            )
        return False


@dataclass
class World:
    """A store and its sinks on one broker; every `open` is another process.

    Processes that died are kept: a handle that is let go of would say good-bye to the broker.
    """

    address: str
    roles: dict[str, str]
    store_id: str
    more: dict[str, str] = field(default_factory=dict)  # sinks that are files
    config: Path | None = None
    stop: Callable[[], bool] = field(default_factory=Patient)
    processes: list[Sinks] = field(default_factory=list)

    def open(self) -> Sinks:
        kafka = KafkaSinks(self.store_id, stop=self.stop)
        query = "" if self.config is None else f"?config={self.config}"
        places = {
            role: f"kafka://{self.address}/{topic}{query}" for role, topic in self.roles.items()
        }
        opened = {
            role: open_sink(
                place,
                trust=Trust.PRIVATE if role == "estimates" else Trust.PUBLIC,
                role="sink" if role == "estimates" else role,
                kafka=kafka,
            )
            for role, place in {**places, **self.more}.items()
        }
        sinks = Sinks(**opened)
        self.processes.append(sinks)
        return sinks

    def close(self) -> None:
        for sinks in self.processes:
            sinks.close()


@contextmanager
def closing(world: World) -> Iterator[World]:
    try:
        yield world
    finally:
        world.close()


class Died(Exception):  # noqa: N818 - it stands for a death
    """The process died."""


class Watched:
    """A producer whose calls of one name are met by something: the death of the process, or of the
    broker."""

    def __init__(
        self,
        producer: Any,
        call: str,
        *,
        before: Callable[[], None] = lambda: None,
        after: Callable[[], None] = lambda: None,
    ) -> None:
        self._producer, self._call, self._before, self._after = producer, call, before, after

    def __len__(self) -> int:
        return len(self._producer)

    def __getattr__(self, name: str) -> Any:
        if name != self._call:
            return getattr(self._producer, name)

        def call(*arguments: Any) -> Any:
            self._before()
            result = getattr(self._producer, name)(*arguments)
            self._after()
            return result

        return call


def watch(sinks: Sinks, call: str, **hooks: Callable[[], None]) -> None:
    """Meet the calls of the producer behind the sink of the releases."""
    writer = sinks.releases._transaction._writer  # type: ignore[union-attr]
    writer._producer = Watched(writer._producer, call, **hooks)


def die() -> None:
    raise Died


def once(action: Callable[[], None]) -> Callable[[], None]:
    """Do it the first time only."""
    left = [action]
    return lambda: left.pop()() if left else None


def deliver(sinks: Sinks, *written: tuple[str, EventLines]) -> None:
    for role, events in written:
        sinks.write(role, events)
    sinks.flush()


def many(count: int, *, first: int = 1) -> Sequence[int]:
    return range(first, first + count)


def silence(broker: Broker, seconds: float = math.inf) -> None:
    """Make the broker silent, for some time."""
    broker.pause()
    wait_for(lambda: "State:\tT" in Path(f"/proc/{broker.pid}/status").read_text())
    if seconds < math.inf:
        threading.Timer(seconds, broker.resume).start()


def wait_for(condition: Callable[[], bool], seconds: float = 30.0) -> None:
    wait_until(condition, seconds, every=0.1)

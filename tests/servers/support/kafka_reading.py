"""What the tests of a Kafka source share: records sent, and a source read until something is
there."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from typing import Any

from confluent_kafka import Producer

from meanstream.streaming.events.event_columns import Batch, column_partitions, column_positions
from meanstream.streaming.kafka.connection.kafka_location import KafkaLocation
from meanstream.streaming.kafka.reading.kafka_source import KafkaSource
from meanstream.streaming.sources.mapping import ColumnMapping
from tests.servers.support.wait_until import NotInTimeError, wait_until

SECONDS = 30.0
"""Every wait ends after so long at most."""
NewTopicOf = Callable[..., str]
Read = dict[tuple[int, int], float]
"""Partition and offset to the value that was read there."""


def value(number: float) -> bytes:
    return json.dumps(
        {"agent": f"a{number % 7}", "value": number, "time": 1_700_000_000 + number}
    ).encode()


def send(address: str, topic: str, values: Sequence[bytes | None], partition: int = 0) -> None:
    """Write values to a partition, and wait until they are there."""
    producer = Producer({"bootstrap.servers": address, "enable.idempotence": True})
    for one in values:
        producer.produce(topic, one, partition=partition)
    assert producer.flush(SECONDS) == 0


def transaction(address: str, topic: str, values: Sequence[bytes], *, commit: bool) -> Producer:
    """Write values in a transaction that is committed or aborted."""
    producer = Producer({"bootstrap.servers": address, "transactional.id": f"writer of {topic}"})
    producer.init_transactions(SECONDS)
    producer.begin_transaction()
    for one in values:
        producer.produce(topic, one)
    assert producer.flush(SECONDS) == 0
    (producer.commit_transaction if commit else producer.abort_transaction)(SECONDS)
    return producer


def source(address: str, topic: str, options: str = "", **more: Any) -> KafkaSource:
    location = KafkaLocation.parse(
        f"kafka://{address}/{topic}?group=of-{topic}{options}", several=True
    )
    return KafkaSource(location, ColumnMapping(), **{"owner": "store-1", **more})


def record(batch: Batch, found: Read) -> None:
    """Add the samples of a batch, none of which may have been there before."""
    position = batch.samples.position
    places = zip(
        column_partitions(position).tolist(), column_positions(position).tolist(), strict=True
    )
    for place, number in zip(places, batch.samples.value.tolist(), strict=True):
        assert place not in found
        found[place] = number


def read_until(
    opened: KafkaSource, enough: Callable[[Read, Batch], bool], size: int = 100_000
) -> tuple[Read, Batch]:
    """Read until it is enough; samples by partition and offset, and the last batch."""
    found: Read = {}
    end = time.monotonic() + SECONDS
    while time.monotonic() < end:
        batch = opened.next_batch(size)
        record(batch, found)
        if batch.exhausted or enough(found, batch):
            return found, batch
    raise NotInTimeError(f"not enough: {len(found)} records")


def read_count(opened: KafkaSource, count: int, size: int = 100_000) -> tuple[Read, Batch]:
    found, batch = read_until(opened, lambda found, _: len(found) >= count, size)
    assert len(found) == count
    return found, batch


def first_batch(opened: KafkaSource, size: int = 100) -> Batch:
    """Wait for the first batch in which something is: a consumer that has just begun may give empty
    ones."""
    return read_until(opened, lambda found, batch: bool(found) or bool(len(batch.rejects)), size)[1]


def read_to_end(opened: KafkaSource) -> tuple[Read, Batch]:
    found, batch = read_until(opened, lambda _, batch: batch.exhausted)
    assert batch.exhausted
    return found, batch


def eventually(check: Callable[[], bool]) -> None:
    wait_until(check, SECONDS, every=0.02)

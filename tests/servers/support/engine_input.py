"""Samples on a topic: several partitions, out of order within the lateness, and some records that
cannot be used."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from confluent_kafka import Producer

PARTITIONS = 3
AGENTS_AT_A_TIME = 6
LATENESS = 5.0
FIRST_TIME = 1e9


@dataclass(frozen=True, slots=True)
class Record:
    partition: int
    key: str
    value: bytes | None
    topic: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineInput:
    """What an engine reads.

    Attributes
    ----------
    samples : int
        One a second of event time. Of ten, one is spoiled.
    life : int
        After so many samples other agents come. Each lives in one partition.
    at_a_time : int
        So many samples come in one piece, at most.
    consumer : str
        Properties of the consumer: a short topic is not to be read ahead, nor one partition after
        the other.
    topics : int
        So many topics hold it.
    """

    samples: int = 250
    life: int = 60
    at_a_time: int = 18
    consumer: str = "max.partition.fetch.bytes: 700\nqueued.min.messages: 1\n"
    topics: int = 1

    def records(self, *, seed: int = 5) -> Iterator[Record]:
        rng = np.random.default_rng(seed)
        behind = rng.uniform(0, 0.8 * LATENESS, self.samples)
        values = rng.normal(5.0, 2.0, self.samples)
        for i in range(self.samples):
            number = i % AGENTS_AT_A_TIME
            name = f"agent {i // self.life * AGENTS_AT_A_TIME + number}"
            time = round(FIRST_TIME + i - behind[i], 3)
            sample = {"id": f"s{i}", "agent": name, "value": round(values[i], 3), "time": time}
            kind = _KINDS[i // 10 % len(_KINDS)] if i % 10 == 9 else ""
            record = Record(
                number % PARTITIONS,
                name,
                _spoiled(kind, sample),
                number // PARTITIONS % self.topics,
            )
            yield record
            if kind == "duplicate":
                yield record

    def produce(self, address: str, *topics: str) -> None:
        """Write it to its topics: once, even if the broker is killed meanwhile."""
        size = -(-self.at_a_time // PARTITIONS)
        producer = Producer(
            {
                "bootstrap.servers": address,
                "batch.num.messages": size,
                "enable.idempotence": True,
                "log_level": 2,
            }
        )
        for number, record in enumerate(self.records(), 1):
            producer.produce(
                topics[record.topic], record.value, record.key, partition=record.partition
            )
            if number % self.at_a_time == 0:
                assert producer.flush(30) == 0
        assert producer.flush(30) == 0


_KINDS = ("malformed", "duplicate", "late", "no value", "tombstone", "outside")
_CHANGES = {
    "late": {"time": FIRST_TIME - 1e6},
    "no value": {"value": None},
    "outside": {"value": 99.0},
}


def _spoiled(kind: str, sample: dict[str, object]) -> bytes | None:
    if kind == "tombstone":
        return None
    text = json.dumps({**sample, **_CHANGES.get(kind, {})}).encode()
    return text[:10] if kind == "malformed" else text

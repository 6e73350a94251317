"""What an engine has let out and charged, and every way in which that can differ from a run without
faults."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

import msgspec
from confluent_kafka import Consumer, KafkaError, TopicPartition

from meanstream.streaming.store.database import DamagedStoreError
from meanstream.streaming.store.state_store import EmptyStoreError, Store
from meanstream.streaming.store.store_audit import audited_rows

READ_SECONDS = 30.0
STORED = ("releases", "dead_letters", "notices")
"""Roles whose events are stored before they leave: the same bytes whatever happens. Estimates are
computed when they are due, from what is committed then; only the last one of each agent is the same
in every run."""


class Kind(StrEnum):
    """What can be wrong."""

    LOST = "lost"
    DOUBLED = "there twice"
    STRANGE = "not in the run without faults"
    NOISED_TWICE = "noised twice"
    UNCHARGED = "released but not charged"
    CHARGED_TWICE = "charged twice"
    CHARGED_OTHERWISE = "charged otherwise"
    DAMAGED = "ledger damaged"
    OTHER_ESTIMATE = "last estimate differs"


@dataclass(frozen=True, slots=True)
class Fault:
    kind: Kind
    what: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The lines on the topic of each role, and the releases in the ledger as they were charged."""

    topics: Mapping[str, Sequence[bytes]]
    charged: Sequence[bytes]
    damage: str = ""


class TopicsReader:
    """Reads whole topics, one client for all of a session."""

    def __init__(self, address: str, *, committed: bool = True) -> None:
        self._consumer = Consumer(
            {
                "bootstrap.servers": address,
                "group.id": "reader of whole topics",
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "enable.partition.eof": True,
                "fetch.wait.max.ms": 20,
                "log_level": 2,
                "isolation.level": "read_committed" if committed else "read_uncommitted",
            }
        )

    def read(self, topics: Sequence[str]) -> dict[str, list[bytes]]:
        """Give all values of each topic; those of one key are in their order."""
        known = self._consumer.list_topics(timeout=READ_SECONDS).topics
        places = [
            TopicPartition(topic, number, 0)
            for topic in topics
            for number in known[topic].partitions
        ]
        self._consumer.assign(places)
        values: dict[str, list[bytes]] = {topic: [] for topic in topics}
        ended: set[tuple[str, int]] = set()
        while len(ended) < len(places):
            messages = self._consumer.consume(500, 0.02) or self._consumer.consume(1, READ_SECONDS)
            assert messages, "no end of the topics"
            for message in messages:
                error = message.error()
                if error is None:
                    values[message.topic()].append(message.value())
                else:
                    assert error.code() == KafkaError._PARTITION_EOF, error
                    ended.add((message.topic(), message.partition()))
        self._consumer.unassign()
        return values

    def close(self) -> None:
        self._consumer.close()


def read_outcome(reader: TopicsReader, topics: Mapping[str, str], store: Path) -> Outcome:
    """Read what there is of a deployment."""
    found = reader.read(list(topics.values()))
    charged, damage = read_ledger(store)
    return Outcome(
        topics={role: found[topic] for role, topic in topics.items()},
        charged=charged,
        damage=damage,
    )


def read_ledger(store: Path) -> tuple[list[bytes], str]:
    """Give the releases that were charged, compared with the hash chain, and what is wrong with
    it."""
    charged: list[bytes] = []
    try:
        opened = Store.read(store)
    except EmptyStoreError:  # killed before the first commit
        return charged, ""
    try:
        for block in audited_rows(opened):
            charged += block.rows.output
    except DamagedStoreError as error:
        return charged, str(error)
    finally:
        opened.close()
    return charged, ""


def faults(found: Outcome, expected: Outcome) -> list[Fault]:
    """Compare with a run without faults."""
    said = [Fault(Kind.DAMAGED, found.damage)] if found.damage else []
    for role, lines in found.topics.items():
        said += [
            Fault(Kind.DOUBLED, f"{role} {line!r}")
            for line, count in Counter(lines).items()
            if count > 1
        ]
    moments = Counter(
        (e["agent"], e["time"], e["n"]) for e in map(msgspec.json.decode, found.topics["estimates"])
    )
    said += [
        Fault(Kind.DOUBLED, f"estimate {moment}") for moment, count in moments.items() if count > 1
    ]
    for role in STORED:
        there, wanted = set(found.topics[role]), set(expected.topics[role])
        said += [Fault(Kind.LOST, f"{role} {line!r}") for line in sorted(wanted - there)]
        said += [Fault(Kind.STRANGE, f"{role} {line!r}") for line in sorted(there - wanted)]
    said += noised_twice(found, expected)
    said += uncharged(found.topics["releases"], found.charged)
    times = Counter(_release_id(line) for line in found.charged)
    said += [Fault(Kind.CHARGED_TWICE, name) for name, count in times.items() if count > 1]
    differ = sorted(set(found.charged) ^ set(expected.charged))
    said += [Fault(Kind.CHARGED_OTHERWISE, repr(line)) for line in differ]
    last, wanted_last = last_estimates(found), last_estimates(expected)
    agents = sorted(last.keys() | wanted_last.keys())
    differing = [agent for agent in agents if not same(last.get(agent), wanted_last.get(agent))]
    return said + [Fault(Kind.OTHER_ESTIMATE, agent) for agent in differing]


def noised_twice(*outcomes: Outcome) -> list[Fault]:
    """Find releases that were seen with two noises, on a topic, in a ledger or in another run of
    the same input."""
    values: dict[str, set[tuple[int, float]]] = defaultdict(set)
    for outcome in outcomes:
        for line in {*outcome.topics["releases"], *outcome.charged}:
            release = msgspec.json.decode(line)
            values[release["release_id"]].add((release["total"], release["mean"]))
    return [Fault(Kind.NOISED_TWICE, name) for name, seen in values.items() if len(seen) > 1]


def uncharged(released: Sequence[bytes], charged: Sequence[bytes]) -> list[Fault]:
    """Find releases on a topic that are not in the ledger with these bytes."""
    return [Fault(Kind.UNCHARGED, repr(line)) for line in sorted(set(released) - set(charged))]


def last_estimates(outcome: Outcome) -> dict[str, Any]:
    """Give the newest estimate of each agent, as who reads the compacted topic has it."""
    events = map(msgspec.json.decode, outcome.topics["estimates"])
    return {event["agent"]: event for event in events}


def same(one: Any, other: Any) -> bool:
    """Compare estimates: where batches end decides the order of sums, hence the last digits of a
    float."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same(one[name], other[name]) for name in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, float) and isinstance(other, float):
        return math.isclose(one, other, rel_tol=1e-9)
    return bool(one == other)


def _release_id(line: bytes) -> str:
    return str(msgspec.json.decode(line)["release_id"])

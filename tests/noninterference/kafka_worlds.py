"""Worlds whose events go to topics: each record with place, key and headers, and what a cluster
notes of a store."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    ConsumerGroupTopicPartitions,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient

from meanstream.streaming.crash import CrashPoint, Moment
from meanstream.streaming.store.state_store import Store
from tests.noninterference import agents_worlds, rounds_worlds
from tests.noninterference.agents_worlds import CHANGED
from tests.noninterference.comparison import Seen, of_others
from tests.noninterference.product import Watched, same_clock_and_coins
from tests.streaming.support.dying import DieAt

PARTITIONS = {"releases": 2, "sink": 2}
"""Of topics whose records have keys; those without go to a partition at random."""

NewTopic = Callable[..., str]


def agents_to_topics(
    folder: Path, agents: int, address: str, new_topic: NewTopic, **stream: Any
) -> Seen:
    """Run the engine with all events to topics: killed within a delivery, continued."""
    roles = ("sink", "releases", "population", "dead_letters", "notices")
    compact = {
        "cleanup.policy": "compact"
    }  # as the engine makes it: otherwise it warns, if the broker answers in time
    topics = {
        role: new_topic(PARTITIONS.get(role, 1), compact if role == "releases" else None)
        for role in roles
    }
    with same_clock_and_coins() as clock:
        watched = Watched(folder, clock)
        agents_worlds.write_stream(folder / "private-stream.csv", agents, **stream)
        places = {role: f"kafka://{address}/{topic}" for role, topic in topics.items()}
        options = agents_worlds.common(
            **places, name="topics", lateness="0s", batch_size=20, sort=False
        )
        watched.run(
            "killed",
            "run",
            "agents",
            die=DieAt(CrashPoint.COMMIT_TRANSACTION, Moment.AFTER, 1),
            **options,
        )
        watched.run("continued", "run", "agents", json=True, **options)
        read_topics(watched, address, topics, folder / "state.db")
    return of_others(without_names(watched.seen()), CHANGED)


def rounds_to_topics(
    folder: Path, users: int, address: str, new_topic: NewTopic, changed: str | None
) -> Seen:
    """Run rounds with all events to topics, dead letters among them: killed within a delivery,
    continued."""
    roles = ("sink", "reports", "stages", "notices", "dead_letters")
    topics = {role: new_topic(PARTITIONS.get(role, 1)) for role in roles}
    with same_clock_and_coins() as clock:
        watched = Watched(folder, clock)
        rounds_worlds.write_stream(folder / "private-stream.csv", users, changed=changed)
        places = {role: f"kafka://{address}/{topic}" for role, topic in topics.items()}
        options = rounds_worlds.common(
            **places,
            name="topics",
            estimator="one_shot",
            store="rounds.db",
            user_budget=2,
            json=True,
        )
        # Records of a transaction that is given up take offsets or do not, as threads will have it:
        # let there be none.
        die = rounds_worlds.DieOnceCharged(folder / "rounds.db", CrashPoint.WRITE_RELEASES)
        watched.run("killed", "run", "rounds", die=die, **options)
        watched.run("continued", "run", "rounds", **options)
        private = topics.pop("dead_letters")
        read_topics(watched, address, topics, folder / "rounds.db")
    return {
        name: data for name, data in without_names(watched.seen()).items() if private not in name
    }


def rounds_from_topic(
    folder: Path, users: int, address: str, new_topic: NewTopic, changed: str | None
) -> Seen:
    """Run rounds on a topic whose samples stand in no order: killed once something was charged,
    continued."""
    topic = new_topic(2)
    with same_clock_and_coins() as clock:
        watched = Watched(folder, clock)
        rounds_worlds.write_stream(
            folder / "private-stream.csv", users, changed=changed, sort=False
        )
        send(address, topic, folder / "private-stream.csv")
        options = rounds_worlds.common(
            source=f"kafka://{address}/{topic}", until_end=True, name="topics", estimator="one_shot", json=True,
            store="rounds.db", user_budget=2, sink="means.jsonl", reports="reports.jsonl", notices="notices.jsonl",
        )  # fmt: skip
        watched.run(
            "killed",
            "run",
            "rounds",
            die=rounds_worlds.DieOnceCharged(folder / "rounds.db"),
            **options,
        )
        watched.run("continued", "run", "rounds", **options)
        return without_names(watched.seen())


def send(address: str, topic: str, path: Path) -> None:
    """Write the lines of a file to a topic; a user's are in one partition."""
    producer = Producer({"bootstrap.servers": address})
    names, *lines = (line.split(",") for line in path.read_text().splitlines())
    for line in lines:
        sample = dict(zip(names, line, strict=True))
        value: Any = (
            float(sample["value"])
            if sample["value"].replace(".", "").lstrip("-").isdigit()
            else "x"
        )
        record = {**sample, "value": value, "time": float(sample["time"])}
        producer.produce(topic, msgspec.json.encode(record), partition=len(sample["user"]) % 2)
    assert producer.flush(30) == 0


def read_topics(watched: Watched, address: str, topics: dict[str, str], store: Path) -> None:
    """Keep what readers of the topics see, and what anybody sees who may describe groups."""
    for role, topic in topics.items():
        for partition in range(PARTITIONS.get(role, 1)):
            lines, end = records(address, topic, partition)
            name = "estimates" if role == "sink" else role
            watched.keep(
                f"topic {name}",
                b"\n".join([*lines, f"partition {partition} ends at {end}".encode()]),
            )
    watched.keep("deliveries", deliveries(address, store, list(topics.values())))


def records(address: str, topic: str, partition: int) -> tuple[list[bytes], int]:
    """Read a partition to its end: offset, key, headers and value of each committed record; and the
    end's offset."""
    settings = {"bootstrap.servers": address, "group.id": "reader", "enable.partition.eof": True}
    consumer = Consumer(
        {**settings, "isolation.level": "read_committed", "enable.auto.commit": False}
    )
    consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING)])
    found: list[bytes] = []
    for _ in range(10_000):
        message = consumer.poll(30.0)
        assert message is not None
        if message.error():
            break
        said = [message.offset(), (message.key() or b"").decode(), repr(message.headers())]
        found.append(msgspec.json.encode(said) + b" " + message.value())
    _, end = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=30)
    consumer.close()
    return found, end


def deliveries(address: str, store: Path, topics: list[str]) -> bytes:
    """Read the markers of a store's deliveries, which stand in the offsets of a group."""
    opened = Store.read(store)
    group = f"meanstream-{opened.public_id()}-deliveries"
    opened.close()
    admin = AdminClient({"bootstrap.servers": address})
    (asked,) = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)]).values()
    places = sorted(
        asked.result(30).topic_partitions, key=lambda place: (place.topic, place.partition)
    )
    return "\n".join(
        f"{p.topic} {p.partition} {p.offset} {p.metadata}" for p in places if p.topic in topics
    ).encode()


def without_names(seen: Seen) -> Seen:
    """Give all topics one name: each world has topics of its own, because they share a broker."""
    return {name: re.sub(rb"topic-\d+-\d+", b"topic", data) for name, data in seen.items()}

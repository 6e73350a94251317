"""Stores of rounds that share a topic: whoever has taken part lives in one of them, and is charged
by no other."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewPartitions

from meanstream.streaming.rounds.user_places import slot_key, slot_name_hashes
from tests.pipelines.command_line import SECRET, Ran, arguments, meanstream
from tests.servers.support.broker import free_ports
from tests.servers.support.kafka_sinks import read
from tests.servers.support.programs import Command
from tests.servers.support.wait_until import wait_until

NewTopic = Callable[..., str]
KEY = {"MEANSTREAM_SECRET": SECRET}
HOUR = 3600
BEGAN = 1_700_006_400  # on the hour
COMMON: dict[str, Any] = {
    "name": "shared",
    "lower": 0,
    "upper": 10,
    "epsilon": 2,
    "window": "1h",
    "user_budget": 8,
    "allowed_lateness": "0s",
}


class Shared:
    """A topic of samples and stores of one name that read some of its partitions."""

    def __init__(self, address: str, topic: str, folder: Path) -> None:
        self.address, self.topic, self.folder = address, topic, folder

    def send(self, hour: int, partition: int, *users: str) -> None:
        producer = Producer({"bootstrap.servers": self.address})
        wait_until(
            lambda: partition in producer.list_topics(self.topic, 10).topics[self.topic].partitions,
            30,
        )
        errors: list[Any] = []
        for second, user in enumerate(users):
            sample = {"user": user, "value": second % 7, "time": BEGAN + hour * HOUR + second}
            producer.produce(
                self.topic,
                json.dumps(sample),
                partition=partition,
                on_delivery=lambda error, _: errors.append(error),
            )
        assert producer.flush(30) == 0
        assert errors == [None] * len(
            users
        )  # a partition that was just added is not yet known everywhere

    def run(self, store: str, partitions: str) -> Ran:
        named = {
            "source": f"kafka://{self.address}/{self.topic}?partitions={partitions}",
            "until_end": True,
            "store": self.folder / f"{store}.db",
            "private_figures": self.folder / f"{store}.json",
            **{
                role: self.folder / f"{store}-{role}.jsonl"
                for role in ("sink", "reports", "notices")
            },
            **COMMON,
        }
        for old in self.folder.glob(f"{store}.json"):
            old.unlink()
        return meanstream(
            "run", "rounds", *arguments(named), environment={"MEANSTREAM_SECRET": SECRET}
        )

    def rejected(self, store: str) -> dict[str, int]:
        found: dict[str, int] = json.loads((self.folder / f"{store}.json").read_bytes())["rejected"]
        return found

    def reports(self, store: str) -> list[dict[str, Any]]:
        lines = (self.folder / f"{store}-reports.jsonl").read_bytes().splitlines()
        return [event for line in lines if "payload" in (event := json.loads(line))]

    def claims(self) -> list[str]:
        return [
            json.loads(record.value)["agent"]
            for record in read(self.address, f"{self.topic}.meanstream-agents")
        ]


@pytest.fixture
def shared(broker_address: str, new_topic: NewTopic, tmp_path: Path) -> Shared:
    return Shared(broker_address, new_topic(partitions=2), tmp_path)


def done(ran: Ran) -> None:
    assert ran.code == 0, ran.err


def test_a_user_whose_key_moves_is_charged_by_its_own_store_alone(shared: Shared) -> None:
    shared.send(0, 0, "ann", "bob")
    shared.send(0, 1, "cid", "dee")
    done(shared.run("a", "0"))
    done(shared.run("b", "1"))
    assert sorted(shared.claims()) == ["ann", "bob", "cid", "dee"]
    shared.send(1, 1, "ann", "ann", "cid")  # a producer that hashes otherwise
    shared.send(1, 0, "ann", "bob")
    done(shared.run("b", "1"))
    done(shared.run("a", "0"))
    assert (shared.rejected("a"), shared.rejected("b")) == ({}, {"other_store": 2})
    charged = Counter(
        (event["user"], event["round_id"]) for store in "ab" for event in shared.reports(store)
    )
    assert max(charged.values()) == 1
    assert Counter(user for user, _ in charged) == {"ann": 2, "bob": 2, "cid": 2, "dee": 1}
    assert {event["user"] for event in shared.reports("b")} == {"cid", "dee"}
    budget = json.loads(meanstream("budget", "--store", str(shared.folder / "b.db"), "--json").out)
    assert {one["user"] for one in budget["users"]} == {"cid", "dee"}
    # A window in which only users of others have sent something is none: that there was one would
    # tell of them.
    before = (shared.folder / "b-sink.jsonl").read_bytes()
    shared.send(2, 1, "ann", "bob")
    done(shared.run("b", "1"))
    assert shared.rejected("b") == {"other_store": 2}
    assert (shared.folder / "b-sink.jsonl").read_bytes() == before


def test_partitions_can_be_added_and_nobody_takes_part_twice(shared: Shared) -> None:
    shared.send(0, 0, "ann", "bob")
    shared.send(0, 1, "cid")
    done(shared.run("a", "0"))
    done(shared.run("b", "1"))
    admin = AdminClient({"bootstrap.servers": shared.address})
    admin.create_partitions([NewPartitions(shared.topic, 4)])[shared.topic].result(30)
    shared.send(1, 2, "ann")
    shared.send(1, 3, "cid", "bob")  # cid is where its store reads, bob is not
    done(shared.run("a", "0,2"))
    done(shared.run("b", "1,3"))
    assert shared.rejected("b") == {"other_store": 1}
    charged = Counter(
        (event["user"], event["round_id"]) for store in "ab" for event in shared.reports(store)
    )
    assert max(charged.values()) == 1
    assert Counter(user for user, _ in charged) == {"ann": 2, "bob": 1, "cid": 2}


def test_nobody_is_claimed_before_a_window_has_closed(shared: Shared) -> None:
    """Who has sent something is protected until then; the order of claims is that of keyed hashes,
    not of samples."""
    users = [f"u{i}" for i in range(12)]
    shared.send(0, 0, *users)
    (port,) = free_ports(1)
    named = {
        "source": f"kafka://{shared.address}/{shared.topic}?partitions=0",
        "store": shared.folder / "a.db",
        "private_metrics": f"127.0.0.1:{port}",
        **{role: shared.folder / f"a-{role}.jsonl" for role in ("sink", "reports", "notices")},
        **COMMON,
        "allowed_lateness": "50000d",
    }

    def has_read() -> bool:
        with suppress(OSError), urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as answer:
            return (
                re.search(rb"^meanstream_events_total\S* 12\.0$", answer.read(), re.MULTILINE)
                is not None
            )
        return False

    words = ["run", "rounds", *arguments(named)]
    with Command(shared.folder, "engine", words, MEANSTREAM_SECRET=SECRET) as engine:
        engine.until(has_read)
        assert shared.claims() == []
        assert engine.stop() == 0
    at_end = meanstream("run", "rounds", *arguments({**named, "until_end": True}), environment=KEY)
    done(at_end)
    assert sorted(event["user"] for event in shared.reports("a")) == sorted(users)
    hashes = dict(
        zip(users, slot_name_hashes(users, slot_key(SECRET.encode())).tolist(), strict=True)
    )
    assert shared.claims() == sorted(users, key=hashes.__getitem__)

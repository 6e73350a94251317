"""The two sides of rounds on topics of a real broker: the bytes of one side, after any death,
whoever lies."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource

from meanstream.operators.noise.keyed import keyed_owner_words
from meanstream.pipelines.commands.run.run_rounds import run_rounds_engine
from meanstream.pipelines.commands.run.run_statistician import open_reports
from meanstream.pipelines.options.rounds_options import RoundsOptions
from meanstream.streaming.crash import CrashPoint, Moment
from meanstream.streaming.open_sink import open_sink
from meanstream.streaming.rounds.rounds_statistician import (
    PUBLIC_SECRET,
    Statistician,
    statistician_identity,
)
from meanstream.streaming.sinks.sink_protocol import Sinks, Trust
from meanstream.streaming.store.state_store import Store
from tests.pipelines.command_line import SECRET, arguments, meanstream
from tests.streaming.support.dying import DieAt, Died

AGREED: dict[str, Any] = {
    "name": "weekly",
    "lower": 0.0,
    "upper": 10.0,
    "epsilon": 2.0,
    "window": "1h",
    "estimator": "kent",
    "sizes": "point:200",
}
STAGES_OF_A_ROUND = 2


def records(n: int = 400) -> list[bytes]:
    """Samples over four hours, of forty users."""
    rng = np.random.default_rng(7)
    values, users = rng.uniform(0, 10, n), rng.integers(0, 40, n)
    return [
        json.dumps({"user": f"u{users[i]}", "value": values[i], "time": 1.7e9 + 36 * i}).encode()
        for i in range(n)
    ]


def committed(address: str, topic: str) -> list[Message]:
    """Give the committed records of a topic, partition after partition."""
    settings = {"bootstrap.servers": address, "group.id": "test", "enable.partition.eof": True}
    consumer = Consumer(
        {**settings, "isolation.level": "read_committed", "enable.auto.commit": False}
    )
    found: list[Message] = []
    for partition in consumer.list_topics(topic, 10).topics[topic].partitions:
        consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING)])
        while (message := consumer.poll(30.0)) is not None and not message.error():
            found.append(message)
    consumer.close()
    return found


class TwoSides:
    """Places of both sides, and their runs."""

    def __init__(self, folder: Path, address: str, new_topic: Callable[..., str]) -> None:
        self.folder, self.address = folder, address
        self.topics = {
            role: new_topic(parts) for role, parts in (("reports", 3), ("stages", 2), ("means", 1))
        }
        folder.mkdir(exist_ok=True)
        (folder / "samples.jsonl").write_bytes(b"\n".join(records()) + b"\n")

    def place(self, role: str) -> str:
        return f"kafka://{self.address}/{self.topics[role]}"

    @property
    def users(self) -> dict[str, Any]:
        return {
            **AGREED, "source": self.folder / "samples.jsonl", "store": self.folder / "users.db",
            "reports_only": self.place("reports"), "stages": self.place("stages"),
        }  # fmt: skip

    @property
    def statistician(self) -> dict[str, Any]:
        return {
            **AGREED, "from_reports": self.place("reports"), "stages": self.place("stages"),
            "sink": self.place("means"), "store": self.folder / "statistician.db", "until_end": True,
        }  # fmt: skip

    def run(self, side: dict[str, Any]) -> dict[str, Any]:
        ran = meanstream(
            "run",
            "rounds",
            *arguments({**side, "json": True}),
            environment={"MEANSTREAM_SECRET": SECRET},
        )
        assert ran.code == 0, ran.err
        return dict(json.loads(ran.out))

    def alternate(self) -> None:
        """Run both until no round waits."""
        for _ in range(STAGES_OF_A_ROUND + 1):
            self.run(self.users)
            told = self.run(self.statistician)
        assert told["waiting"] == 0

    def values(self, role: str) -> list[bytes]:
        return sorted(message.value() for message in committed(self.address, self.topics[role]))

    def publish(self, role: str, values: list[bytes | None]) -> None:
        producer = Producer({"bootstrap.servers": self.address})
        for value in values:
            producer.produce(self.topics[role], value, key=b"anything", partition=0)
        assert producer.flush(30) == 0


@pytest.fixture
def sides(
    tmp_path: Path, broker_address: str, new_topic: Callable[..., str]
) -> Iterator[Callable[[str], TwoSides]]:
    return lambda name: TwoSides(tmp_path / name, broker_address, new_topic)


@pytest.fixture(scope="session")
def together(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[bytes]]:
    """Both sides in one process, on files."""
    folder = tmp_path_factory.mktemp("together")
    (folder / "samples.jsonl").write_bytes(b"\n".join(records()) + b"\n")
    place = {role: folder / f"{role}.jsonl" for role in ("sink", "reports", "stages")}
    named = {
        "source": folder / "samples.jsonl",
        "store": folder / "s.db",
        **AGREED,
        **place,
        "quiet": True,
    }
    assert (
        meanstream(
            "run", "rounds", *arguments(named), environment={"MEANSTREAM_SECRET": SECRET}
        ).code
        == 0
    )
    found = {role: sorted(path.read_bytes().splitlines()) for role, path in place.items()}
    return {"means": found["sink"], "reports": found["reports"], "stages": found["stages"]}


def test_topics_hold_what_one_process_writes(
    sides: Callable[[str], TwoSides], together: dict[str, list[bytes]], broker_address: str
) -> None:
    two = sides("two")
    two.alternate()
    assert len(together["means"]) == len(together["stages"]) >= 4
    assert {role: two.values(role) for role in together} == together
    for message in committed(broker_address, two.topics["reports"]):
        event = json.loads(message.value())
        if "user" in event:
            (a, b) = keyed_owner_words([event["user"]])[0].tolist()
            assert message.key() == f"{a:016x}{b:016x}".encode()
    keys = [message.key() for message in committed(broker_address, two.topics["stages"])]
    assert len(set(keys)) == len(keys) == len(together["stages"])
    # Begun again, either side finds everything done.
    assert two.run(two.users)["waiting"] == 0
    assert two.run(two.statistician)["estimates"] == 0
    assert {role: two.values(role) for role in together} == together


def test_a_topic_that_is_missing_is_made_by_whoever_comes_first(
    sides: Callable[[str], TwoSides], broker_address: str
) -> None:
    two = sides("made")
    two.topics = {role: f"{topic}-made" for role, topic in two.topics.items()}
    files = {"sink": two.folder / "o.jsonl", "stages": two.folder / "s.jsonl"}
    refused = meanstream("run", "rounds", *arguments({**two.statistician, **files}))
    assert refused.message.startswith("from_reports must be a topic that exists")
    made = {
        **two.users,
        "reports_only": two.place("reports") + "?create=3",
        "stages": two.place("stages") + "?create=1",
    }
    two.run(made)
    resource = ConfigResource(ConfigResource.Type.TOPIC, two.topics["stages"])
    admin = AdminClient({"bootstrap.servers": broker_address})
    found = admin.describe_configs([resource])[resource].result(30)
    assert found["cleanup.policy"].value == "compact"
    two.run({**two.statistician, "sink": two.place("means") + "?create=1"})


def test_a_lying_statistician_changes_no_report(
    sides: Callable[[str], TwoSides], together: dict[str, list[bytes]]
) -> None:
    two = sides("lied to")
    honest = [json.loads(line) for line in together["stages"]]
    lies: list[bytes | None] = [None, b"", b"{", b"\xff\xfe", b"x" * 900_000, b'{"round_id":1}']
    for event in honest:
        public = event["public"]
        numbers = [name for name, value in public.items() if isinstance(value, int | float)]
        lies += [
            json.dumps({**event, "public": {**public, name: 1e300}}).encode() for name in numbers
        ]
        lies += [
            json.dumps({**event, "public": {}}).encode(),
            json.dumps({**event, "stage": 7}).encode(),
        ]
    two.run(two.users)
    two.publish("stages", lies)
    told = two.run(two.users)
    assert told["results_refused"] >= len(honest)
    first = two.values("reports")
    assert told["waiting"] == len(honest)
    two.run(two.statistician)
    two.alternate()
    assert set(first) <= set(two.values("reports"))
    assert two.values("reports") == together["reports"]
    assert two.values("means") == together["means"]
    # Another result that the stage can have found comes too late.
    other = [
        {**event, "public": {**event["public"], "center": -event["public"]["center"]}}
        for event in honest
    ]
    two.publish(
        "stages", [json.dumps(event).encode() for event in other if "center" in event["public"]]
    )
    two.run(two.users)
    assert two.values("reports") == together["reports"]


def test_reports_of_strangers_are_counted_and_change_nothing(
    sides: Callable[[str], TwoSides], together: dict[str, list[bytes]]
) -> None:
    two = sides("strangers")
    two.run(two.users)
    first = json.loads(next(line for line in together["reports"] if b"payload" in line))
    bad: list[bytes | None] = [
        None,
        b"no report",
        b"x" * 900_000,
        json.dumps({**first, "payload": [2**70]}).encode(),
    ]
    bad.append(json.dumps({**first, "round_id": "other/1970-01-01T00:00:00Z"}).encode())
    two.publish("reports", bad)
    told = two.run(two.statistician)
    assert told["rejected"] == {"malformed": 4}
    two.alternate()
    assert two.values("means") == together["means"]


POINTS = (
    (CrashPoint.CHARGE_LEDGER, Moment.AFTER),
    (CrashPoint.COMMIT, Moment.AFTER),
    (CrashPoint.WRITE_RELEASES, Moment.AFTER),
    (CrashPoint.COMMIT_TRANSACTION, Moment.BEFORE),
    (CrashPoint.COMMIT_TRANSACTION, Moment.AFTER),
    (CrashPoint.MARK_DELIVERY, Moment.BEFORE),
)
"""In the order of a delivery, so that a life which dies at one of them leaves the next to the life
after it."""


def test_dead_at_one_step_after_the_other_either_side_goes_on(
    sides: Callable[[str], TwoSides], together: dict[str, list[bytes]]
) -> None:
    """One deployment, each of whose lives dies at the next step."""
    two, deaths = sides("dying"), 0
    options = RoundsOptions(**{**two.users, "source": str(two.users["source"])}, quiet=True)
    for _ in range(STAGES_OF_A_ROUND + 1):
        for now in POINTS:
            with patch.dict(os.environ, {"MEANSTREAM_SECRET": SECRET}):
                try:
                    run_rounds_engine(options, crash=DieAt(*now, visit=1))
                except Died:
                    deaths += 1
        two.run(two.users)
        two.run(two.statistician)
    assert deaths >= len(POINTS)
    assert {role: two.values(role) for role in together} == together


@pytest.mark.full
def test_dead_at_any_step_either_side_goes_on(
    sides: Callable[[str], TwoSides], together: dict[str, list[bytes]]
) -> None:
    for number, now in enumerate(POINTS):
        two, die = sides(str(number)), DieAt(*now, visit=2)  # once, in one of all its lives
        for _ in range(STAGES_OF_A_ROUND + 1):
            with patch.dict(os.environ, {"MEANSTREAM_SECRET": SECRET}):
                for _again in range(2):
                    try:
                        options = RoundsOptions(
                            **{**two.users, "source": str(two.users["source"])}, quiet=True
                        )
                        run_rounds_engine(options, crash=die)
                        break
                    except Died:
                        continue
            two.run(two.statistician)
        assert {role: two.values(role) for role in together} == together, now


def test_a_statistician_that_dies_publishes_the_same(
    sides: Callable[[str], TwoSides], together: dict[str, list[bytes]], tmp_path: Path
) -> None:
    two = sides("dying")
    two.run(two.users)
    settings = RoundsOptions(**two.statistician).settings()
    store = Store.open(
        two.folder / "statistician.db",
        settings=statistician_identity(settings),
        secret=PUBLIC_SECRET,
    )
    place = open_reports(two.place("reports"), follow=False)
    sinks = Sinks(means=open_sink(str(tmp_path / "unused.jsonl"), trust=Trust.PUBLIC))
    die = DieAt(CrashPoint.COMMIT, Moment.AFTER, visit=1)
    with pytest.raises(Died):
        Statistician(reports=place, settings=settings, store=store, sinks=sinks, crash=die).run()
    for one in (place, sinks, store):
        one.close()
    two.alternate()
    assert {role: two.values(role) for role in together} == together


def test_a_dry_run_of_the_statistician_looks_at_its_topics_and_makes_none(
    sides: Callable[[str], TwoSides], broker_address: str
) -> None:
    two = sides("dry")
    two.run(two.users)
    dry = {**two.statistician, "dry_run": True}
    told = two.run(dry)
    assert told["from_reports"] == two.place("reports")
    assert told["store"] == {
        "path": str(two.folder / "statistician.db"),
        "name": "weekly",
        "begun": False,
    }
    assert not (two.folder / "statistician.db").exists()
    assert two.values("stages") == two.values("means") == []
    missing = f"kafka://{broker_address}/no-such-reports"
    ran = meanstream(
        "run", "rounds", *arguments({**dry, "from_reports": missing, "wait_for": "0s"})
    )
    assert ran.message.startswith("from_reports must be a topic that exists, got 'no-such-reports'")
    made = {**dry, "from_reports": f"{missing}?create=1"}
    assert two.run(made)["from_reports"] == f"{missing}?create=1"
    topics = AdminClient({"bootstrap.servers": broker_address}).list_topics(timeout=10).topics
    assert "no-such-reports" not in topics

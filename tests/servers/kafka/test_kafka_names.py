"""One name is one store: beside the releases of a name, and on the partitions of its source, no
other store begins."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient

from meanstream.streaming.kafka.claims.name_owners import NameOwners, name_owner_group
from meanstream.streaming.kafka.reading import kafka_reader as reader
from meanstream.streaming.kafka.reading import newest_messages as newest
from tests.pipelines.command_line import SECRET, Ran, meanstream
from tests.servers.support.kafka_reading import send
from tests.servers.support.kafka_sinks import read

NewTopic = Callable[..., str]
OPTIONS = ("--lower", "0", "--upper", "10", "--epsilon", "1", "--delta", "1e-6", "--lateness", "0s")


def run(store: Path, source: object, releases: str, *more: str, name: str | None = "delays") -> Ran:
    named = () if name is None else ("--name", name)
    return meanstream(
        *(
            "run",
            "agent-side",
            "--store",
            str(store),
            "--source",
            str(source),
            "--releases",
            releases,
        ),
        *(*OPTIONS, *named, *more),
        environment={"MEANSTREAM_SECRET": SECRET},
    )


def samples(path: Path, agents: tuple[str, ...] = ("ann", "bob"), count: int = 40) -> Path:
    path.write_text("".join(line(agents[i % len(agents)], i).decode() + "\n" for i in range(count)))
    return path


def refusal(ran: Ran) -> str:
    """The last line; a warning that a topic is not compacted may stand before it."""
    assert ran.code == 2, ran.err
    return ran.err.decode().splitlines()[-1].removeprefix("meanstream: ")


def line(agent: str, i: int) -> bytes:
    return json.dumps({"agent": agent, "value": float(i % 10), "time": 1.7e9 + i}).encode()


def ids(address: str, topic: str) -> list[str]:
    return sorted(json.loads(record.value)["release_id"] for record in read(address, topic))


@pytest.fixture
def place(broker_address: str, new_topic: NewTopic) -> tuple[str, str]:
    topic = new_topic()
    return f"kafka://{broker_address}/{topic}", topic


def test_a_store_that_was_lost_is_not_begun_anew_beside_its_releases(
    broker_address: str, place: tuple[str, str], tmp_path: Path
) -> None:
    address, topic = place
    source = samples(tmp_path / "samples.jsonl")
    first = tmp_path / "first.db"
    assert run(first, source, address).code == 0
    before = ids(broker_address, topic)
    assert before
    for store, more in (
        (tmp_path / "new.db", ()),
        (tmp_path / "other.db", ("--schedule", "geometric:2,1.5")),
    ):
        refused = refusal(run(store, source, address, *more))
        assert refused.startswith(
            "releases must hold nothing that this store has not charged, got other events in "
        )
        assert ids(broker_address, topic) == before
    assert run(tmp_path / "delay.db", source, address, name="delay").code == 0  # another deployment
    assert run(tmp_path / "made.db", source, address, name=None).code == 0
    assert run(first, source, address).code == 0  # the one whose releases they are


def test_a_store_of_rounds_that_was_lost_is_not_begun_anew_beside_its_means(
    place: tuple[str, str], broker_address: str, tmp_path: Path
) -> None:
    address, topic = place
    source = samples(tmp_path / "samples.jsonl")

    def rounds(store: str, name: str) -> Ran:
        return meanstream(
            *(
                "run",
                "rounds",
                "--store",
                str(tmp_path / store),
                "--source",
                str(source),
                "--sink",
                address,
            ),
            *(
                "--user",
                "agent",
                "--window",
                "10s",
                "--name",
                name,
                "--lower",
                "0",
                "--upper",
                "10",
                "--epsilon",
                "1",
            ),
            environment={"MEANSTREAM_SECRET": SECRET},
        )

    assert rounds("first.db", "delays").code == 0
    before = [record.value for record in read(broker_address, topic)]
    assert before
    refused = refusal(rounds("new.db", "delays"))
    assert refused.startswith(
        "sink must hold nothing that this store has not charged, got other events in "
    )
    assert not list(tmp_path.glob("new.db*"))
    assert rounds("first.db", "delays").code == 0
    assert [record.value for record in read(broker_address, topic)] == before
    assert rounds("another.db", "delay").code == 0  # another deployment


def test_a_run_to_the_present_end_of_a_topic_spends_what_the_schedule_says(
    broker_address: str, place: tuple[str, str], new_topic: NewTopic, tmp_path: Path
) -> None:
    """A run every night, with samples that the schedule does not release for; at last one that says
    it is the end."""
    address, topic = place
    filled = new_topic()
    source = f"kafka://{broker_address}/{filled}"
    spent = []
    for night, last in enumerate(((), (), (), ("--final-release",))):
        send(broker_address, filled, [line("ann", 4 * night + i) for i in range(4)])
        assert run(tmp_path / "state.db", source, address, "--until-end", *last).code == 0
        spent.append(len(ids(broker_address, topic)))
    assert spent == [0, 0, 1, 3]  # of 10 samples, and then of 15 and of 16


def test_an_older_copy_is_refused_also_when_kafka_has_forgotten_its_deliveries(
    broker_address: str, place: tuple[str, str], new_topic: NewTopic, tmp_path: Path
) -> None:
    address, topic = place
    store, copy = tmp_path / "state.db", tmp_path / "copy.db"
    filled = new_topic()
    source = f"kafka://{broker_address}/{filled}"

    def more() -> list[str]:
        send(broker_address, filled, [line("ann", i + at) for i in range(100)])
        ran = run(store, source, address, "--until-end")
        assert ran.code == 0, ran.err
        return ids(broker_address, topic)

    at = 0
    first = more()
    shutil.copy(store, copy)
    at = 100
    before = more()
    assert len(before) > len(first)
    forget_deliveries(broker_address)
    refused = refusal(run(copy, source, address, "--until-end"))
    assert refused.startswith("releases must hold nothing that this store has not charged")
    assert ids(broker_address, topic) == before
    at = 200
    assert len(more()) > len(before)  # the newest goes on: it has charged what is there


def forget_deliveries(address: str) -> None:
    """As Kafka does with groups that commit nothing for a week."""
    admin = AdminClient({"bootstrap.servers": address})
    groups = [
        g.group_id
        for g in admin.list_consumer_groups().result().valid
        if g.group_id.endswith("-deliveries")
    ]
    for future in admin.delete_consumer_groups(groups).values():
        future.result()


def test_what_others_have_written_to_the_topic_stops_nobody(
    broker_address: str, place: tuple[str, str], tmp_path: Path
) -> None:
    address, topic = place
    strange = [
        b"{",
        None,
        b"\xff\xfe",
        b"[]",
        b'{"release_id":7}',
        b'{"release_id":"ann:1","agent":"ann"}',
        b"null",
    ]
    send(broker_address, topic, strange)
    ran = run(tmp_path / "s.db", samples(tmp_path / "samples.jsonl"), address)
    assert ran.code == 0, ran.err


def test_so_many_records_are_looked_at(
    broker_address: str, place: tuple[str, str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    address, topic = place
    monkeypatch.setattr(newest, "LOOK_BACK", 10)
    send(
        broker_address,
        topic,
        [b'{"release_id":"delays/ann:1"}', *[b'{"release_id":"other/ann:1"}'] * 10],
    )
    source = samples(tmp_path / "samples.jsonl")
    assert run(tmp_path / "s.db", source, address, "--dry-run").code == 0
    send(
        broker_address,
        topic,
        [b'{"release_id":"delays/ann:1"}', *[b'{"release_id":"other/ann:1"}'] * 9],
    )
    assert "has not charged" in refusal(run(tmp_path / "s.db", source, address))


@pytest.mark.parametrize("twin", [False, True])
def test_a_name_reads_a_partition_in_one_store_whatever_the_group(
    twin: bool,
    broker_address: str,
    new_topic: NewTopic,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The known-bad twin notes no name: the second store releases the same samples once more."""
    if twin:
        monkeypatch.setattr(reader, "NameOwners", Nobody)
        monkeypatch.setattr(
            "meanstream.streaming.kafka.reading.kafka_source.OwnAgents", lambda *_: None
        )  # it would refuse, too
    topic = new_topic(2)
    for partition, agent in enumerate(("ann", "bob")):
        send(broker_address, topic, [line(agent, i) for i in range(20)], partition)
    source = f"kafka://{broker_address}/{topic}?partitions=%d&group=%s"
    releases = [str(tmp_path / f"{i}.jsonl") for i in range(4)]
    assert run(tmp_path / "one.db", source % (0, "a"), releases[0], "--until-end").code == 0
    second = run(tmp_path / "two.db", source % (0, "b"), releases[1], "--until-end")
    assert (second.code == 0) is twin
    assert bool(Path(releases[1]).read_bytes()) is twin
    if not twin:
        assert "partition 0" in second.message
        assert (
            "name must be another than 'delays' for another deployment, whatever its group"
            in second.message
        )
        assert (
            run(tmp_path / "two.db", source % (1, "b"), releases[1], "--until-end").code == 0
        )  # its own partition
        assert (
            run(tmp_path / "one.db", source % (0, "c"), releases[0], "--until-end").code == 0
        )  # the same store
        other = run(
            tmp_path / "three.db", source % (0, "d"), releases[2], "--until-end", name="others"
        )
        assert other.code == 0  # another deployment, whose releases come on top
        assert run(tmp_path / "four.db", source % (0, "b"), releases[3], "--until-end").code == 2


class Nobody(NameOwners):
    """Lets everybody in."""

    def check(self, offsets: Any) -> None:
        pass

    claim = check


def test_names_do_not_meet_in_a_group() -> None:
    assert len({name_owner_group(name) for name in ("a", "A", "a ", "ä", "b")}) == 5

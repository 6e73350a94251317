"""`run agents --runner` from topics to topics on a real broker: the engine's releases, also from
offset to offset."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from meanstream.pipelines.beam.agents.agents_elements import EstimateBatch
from meanstream.pipelines.beam.agents.agents_from_files import _estimates
from meanstream.pipelines.beam.beam_runners import runner_arguments
from meanstream.pipelines.beam.beam_sinks import WriteEvents
from meanstream.streaming.sinks.sink_protocol import Trust
from tests.pipelines.beam.kafka.test_read_kafka import PARTITIONS, consumed, fill
from tests.pipelines.beam.support import agents_world
from tests.pipelines.beam.support.agents_world import HOUR, assert_same_estimates
from tests.pipelines.beam.support.collecting import run
from tests.pipelines.command_line import SECRET, Ran, arguments, meanstream
from tests.servers.conftest import broker_address, flink, new_topic  # noqa: F401 - fixtures
from tests.servers.support.flink_cluster import FlinkCluster

ROLES = ("sink", "releases", "population", "notices")


def encoded(agent: str, value: float, at: float, number: object) -> bytes:
    return json.dumps({"agent": agent, "value": value, "time": at, "id": f"id {number}"}).encode()


def flawed() -> dict[int, list[bytes | None]]:
    """Out of order, some twice and in two partitions, some late, in the future or unreadable."""
    stream = agents_world.samples(400)
    records = [encoded(*sample, number) for number, sample in enumerate(stream)]
    arrival = np.array([at for _, _, at in stream]) + np.random.default_rng(3).exponential(
        2 * HOUR, len(stream)
    )
    records = [records[place] for place in np.argsort(arrival).tolist()]
    values: dict[int, list[bytes | None]] = {
        p: list(records[p::PARTITIONS]) for p in range(PARTITIONS)
    }
    values[0][40:40] = [b"{", None, values[0][20], values[0][39]]
    values[1][50:50] = [values[0][9], b'{"agent":"agent 1","value":NaN,"time":9,"id":"x"}']
    values[2][60:60] = [
        encoded("agent 3", 3.0, 4e9, "soon"),
        b'{"agent":"agent 1","time":9,"id":"y"}',
    ]
    return values


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "secret").write_text(SECRET)
    return tmp_path


def run_agents(
    folder: Path, host: str, places: Mapping[str, object], *flags: str, **more: Any
) -> Ran:
    named = {
        "id": "id", "lower": 0, "upper": 10, "epsilon": 1, "delta": 1e-6, "schedule": "every:7h", "horizon": 12,
        "name": "test", "final_release": True,
        "lateness": "4h", "secret_file": folder / "secret", "store": folder / f"{host}.db", **places, **more,
    }  # fmt: skip
    ran = meanstream("run", "agents", *arguments(named), "--json", *flags)
    assert ran.code == 0, ran.err.decode()[-3000:]
    return ran


def engine_files(folder: Path, source: str, **more: Any) -> dict[str, list[bytes]]:
    """What the engine makes of all that a topic holds."""
    files = {role: folder / f"engine.{role}.jsonl" for role in (*ROLES, "dead_letters")}
    run_agents(folder, "engine", {**files, "source": source}, "--until-end", **more)
    return {role: sorted(path.read_bytes().splitlines()) for role, path in files.items()}


def assert_topics_hold(
    address: str, topics: Mapping[str, str], engine: Mapping[str, Sequence[bytes]], ran: Ran
) -> None:
    found = {
        role: consumed(address, topic.rpartition("/")[2].partition("?")[0])
        for role, topic in topics.items()
    }
    for role in ("releases", "notices"):
        assert sorted(message.value() for message in found[role]) == engine[role] != [], role
    for message in found["releases"]:
        event = json.loads(message.value())
        assert message.key() == event["agent"].encode()
        assert dict(message.headers())["release_id"] == event["release_id"].encode()
    assert_same_estimates(
        [message.value() for message in found["sink"]], engine["sink"], agents_world.SETTINGS
    )
    assert [message.key() for message in found["population"]] == [b"population"]
    assert ran.json["sent"] == sum(map(len, found.values()))


def told_reasons(ran: Ran) -> dict[str, int]:
    return {
        name.removeprefix("rejected_"): count
        for name, count in ran.json.items()
        if "rejected_" in name
    }


def test_from_a_topic_to_topics(
    broker_address: str,  # noqa: F811
    new_topic: Callable[..., str],  # noqa: F811
    folder: Path,
) -> None:
    topic = new_topic(PARTITIONS)
    fill(broker_address, topic, flawed())
    source = f"kafka://{broker_address}/{topic}"
    engine = engine_files(folder, source)
    topics = {role: f"kafka://{broker_address}/{topic}-{role}?create=1" for role in ROLES}
    ran = run_agents(
        folder, "beam", {**topics, "source": source}, "--until-end", runner="FnApiRunner"
    )
    assert_topics_hold(broker_address, topics, engine, ran)
    reasons = [json.loads(line)["reason"] for line in engine["dead_letters"]]
    assert told_reasons(ran) == {reason: reasons.count(reason) for reason in set(reasons)}
    assert {"late", "duplicate", "malformed", "not_finite", "in_future", "missing_value"} == set(
        reasons
    )


OFFSETS = "0:20-110,1:0-70"


def whole_and_part(address: str, topic: Callable[..., str]) -> tuple[str, str]:
    """A topic of all records, and one that holds those of `OFFSETS` alone."""
    whole, part, values = topic(PARTITIONS), topic(PARTITIONS), flawed()
    fill(address, whole, values)
    fill(address, part, {0: values[0][20:110], 1: values[1][:70]})
    return whole, part


def test_from_offset_to_offset(
    broker_address: str,  # noqa: F811
    new_topic: Callable[..., str],  # noqa: F811
    folder: Path,
) -> None:
    """What the engine makes of a topic that holds these records alone; one record more makes other
    releases."""
    whole, part = whole_and_part(broker_address, new_topic)
    engine = engine_files(folder, f"kafka://{broker_address}/{part}?partitions=0-1")

    def replayed(name: str, offsets: str) -> list[bytes]:
        files = {role: folder / f"{name}.{role}.jsonl" for role in ("sink", "releases")}
        source = f"kafka://{broker_address}/{whole}"
        run_agents(folder, name, {**files, "source": source}, runner="FnApiRunner", offsets=offsets)
        return sorted(files["releases"].read_bytes().splitlines())

    assert replayed("once", OFFSETS) == engine["releases"]
    assert len(engine["releases"]) > 30
    assert replayed("again", "1:0-70,0:20-110") == engine["releases"]
    assert replayed("other", "0:20-111,1:0-70") != engine["releases"]


def test_rounds_from_offset_to_offset(
    broker_address: str,  # noqa: F811
    new_topic: Callable[..., str],  # noqa: F811
    folder: Path,
) -> None:
    whole, part = whole_and_part(broker_address, new_topic)
    options = {
        "user": "agent", "id": "id", "lower": 0, "upper": 10, "epsilon": 2, "window": "1d", "estimator": "one_shot",
        "allowed_lateness": "4h", "secret_file": folder / "secret", "quiet": True, "name": "meter",
    }  # fmt: skip

    def answers(name: str, topic: str, *flags: str) -> bytes:
        sink = folder / f"{name}.jsonl"
        places = {
            "source": f"kafka://{broker_address}/{topic}",
            "sink": sink,
            "store": folder / f"{name}.db",
        }
        ran = meanstream("run", "rounds", *arguments({**options, **places}), *flags)
        assert ran.code == 0, ran.err.decode()
        return sink.read_bytes()

    engine = answers("engine", f"{part}?partitions=0-1", "--until-end")
    assert engine.count(b"\n") > 2
    on_beam = ["--runner", "FnApiRunner", "--offsets"]
    assert answers("beam", whole, *on_beam, OFFSETS) == engine
    assert answers("other", whole, *on_beam, "0:20-110,1:0-60") != engine


def test_offsets_that_are_not_there_are_one_line(
    broker_address: str,  # noqa: F811
    new_topic: Callable[..., str],  # noqa: F811
    folder: Path,
) -> None:
    topic = new_topic(PARTITIONS)
    fill(broker_address, topic, {0: [encoded("a", 1.0, 1.0, n) for n in range(5)]})
    named = {
        "source": f"kafka://{broker_address}/{topic}", "offsets": "0:2-6", "runner": "FnApiRunner", "lower": 0,
        "upper": 1, "epsilon": 1, "delta": 1e-6, "store": folder / "s.db", "sink": folder / "sink.jsonl",
        "name": "meter",
    }  # fmt: skip
    ran = meanstream("run", "agents", *arguments(named))
    assert ran.message == "offsets must be held by partition 0 ([0, 5)), got (2, 6)"
    assert not (folder / "sink.jsonl").exists()


@pytest.mark.parametrize("in_file", [True, False])
def test_estimates_do_not_go_to_a_public_place(
    in_file: bool,
    broker_address: str,  # noqa: F811
    new_topic: Callable[..., str],  # noqa: F811
    tmp_path: Path,
) -> None:
    place = tmp_path / "estimates.jsonl" if in_file else f"kafka://{broker_address}/{new_topic()}"
    line = b'{"agent":"ann","time":"2013-01-01T00:00:00Z"}'

    def write(trust: Trust) -> Any:
        return WriteEvents(place, _estimates, trust=trust)

    with pytest.raises(
        Exception, match="public sink must be given public events, got PersonalEstimate"
    ):
        run([EstimateBatch([line])], _then_pass(write(Trust.PUBLIC)))
    if isinstance(place, Path):
        assert not place.exists()
    else:
        assert consumed(broker_address, place.rpartition("/")[2]) == []
    run([EstimateBatch([line])], _then_pass(write(Trust.PRIVATE)))
    if isinstance(place, Path):
        assert place.read_bytes() == line + b"\n"
    else:
        assert [
            message.value() for message in consumed(broker_address, place.rpartition("/")[2])
        ] == [line]


def _then_pass(write: Any) -> Any:
    """A transform that writes, and gives its input on."""
    import apache_beam as beam

    class Both(beam.PTransform):
        def expand(self, pcoll: Any) -> Any:
            _ = pcoll | "Write" >> write
            return pcoll | beam.Map(len)

    return Both()


def test_flink_from_offset_to_offset_and_to_topics(
    flink: FlinkCluster,  # noqa: F811
    broker_address: str,  # noqa: F811
    new_topic: Callable[..., str],  # noqa: F811
    folder: Path,
) -> None:
    whole, part = whole_and_part(broker_address, new_topic)
    given = [
        f"--runner-arg={argument}"
        for argument in runner_arguments("FlinkRunner", flink.arguments())
    ]
    engine = engine_files(folder, f"kafka://{broker_address}/{part}?partitions=0-1", horizon=3)
    topics = {role: f"kafka://{broker_address}/{whole}-{role}?create=1" for role in ROLES}
    places = {**topics, "source": f"kafka://{broker_address}/{whole}"}
    ran = run_agents(
        folder, "flink", places, *given, runner="FlinkRunner", offsets=OFFSETS, horizon=3
    )
    assert_topics_hold(broker_address, topics, engine, ran)

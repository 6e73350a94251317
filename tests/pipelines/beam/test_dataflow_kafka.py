"""The pipelines that Dataflow gets, from a topic to topics on a real broker: the engine's answers."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from meanstream.pipelines.beam.beam_runners import run_on_runner
from meanstream.pipelines.beam.commands.dataflow_pipelines import add_to_pipeline
from meanstream.pipelines.beam.commands.run_on_dataflow import secret_on_workers
from meanstream.pipelines.options.agents_options import AgentsOptions
from meanstream.pipelines.options.rounds_options import RoundsOptions
from tests.pipelines.beam.agents.test_agents_kafka import encoded, run_agents
from tests.pipelines.beam.kafka.test_read_kafka import PARTITIONS, consumed, fill
from tests.pipelines.beam.support import agents_world
from tests.pipelines.beam.support.agents_world import ROUNDS_GIVEN, assert_same_estimates
from tests.pipelines.command_line import SECRET, arguments, meanstream
from tests.servers.conftest import broker_address, new_topic  # noqa: F401 - fixtures

AGENTS = {
    "lower": 0,
    "upper": 10,
    "epsilon": 1,
    "delta": 1e-6,
    "schedule": "every:7h",
    "horizon": 12,
    "id": "id",
    "name": "test",
}


def run_pipeline(options: AgentsOptions | RoundsOptions, folder: Path) -> None:
    """Run on this machine what would be submitted."""
    secret = secret_on_workers(str(folder / "secret"))
    streaming = [] if options.until_end else ["--streaming"]
    run_on_runner(
        "FnApiRunner", streaming, lambda pipeline: add_to_pipeline(pipeline, options, secret)
    )


@pytest.fixture
def source(broker_address: str, new_topic: Callable[..., str], tmp_path: Path) -> str:  # noqa: F811
    """A topic of samples in order, one of them twice, and one record that cannot be read."""
    records = [encoded(*sample, number) for number, sample in enumerate(agents_world.samples(300))]
    values = {partition: list(records[partition::PARTITIONS]) for partition in range(PARTITIONS)}
    topic = new_topic(PARTITIONS)
    fill(broker_address, topic, {**values, 0: [*values[0], values[0][-1], b"{"]})
    (tmp_path / "secret").write_text(SECRET)
    return f"kafka://{broker_address}/{topic}"


def made(address: str, place: str) -> list[bytes]:
    return sorted(
        message.value() for message in consumed(address, place.rpartition("/")[2].partition("?")[0])
    )


def test_agents_of_a_topic_are_the_engines(
    source: str,
    broker_address: str,  # noqa: F811
    tmp_path: Path,  # noqa: F811, RUF100
) -> None:
    names = ("sink", "releases", "dead_letters")
    files = {name: tmp_path / f"engine.{name}.jsonl" for name in names}
    run_agents(
        tmp_path,
        "engine",
        {**files, "source": source},
        "--until-end",
        lateness="10d",
        final_release=False,
    )
    engine = {name: sorted(path.read_bytes().splitlines()) for name, path in files.items()}
    places = {name: f"{source}-{name}?create=1" for name in names}
    run_pipeline(
        AgentsOptions(**AGENTS, source=source, until_end=True, runner="DataflowRunner", **places),
        tmp_path,
    )
    assert made(broker_address, places["releases"]) == engine["releases"]
    assert len(engine["releases"]) > 100
    assert_same_estimates(
        made(broker_address, places["sink"]), engine["sink"], agents_world.SETTINGS
    )
    # What was there twice is dropped behind the reader, and counted, as windows see it: the rest is
    # as the engine's.
    letters = [line for line in engine["dead_letters"] if json.loads(line)["reason"] != "duplicate"]
    assert made(broker_address, places["dead_letters"]) == letters != []


def test_rounds_of_a_topic_are_the_engines(
    source: str,
    broker_address: str,  # noqa: F811
    tmp_path: Path,  # noqa: F811, RUF100
) -> None:
    engine = {"source": source, "sink": tmp_path / "engine.jsonl", "store": tmp_path / "engine.db",
              "secret_file": tmp_path / "secret", "allowed_lateness": "10d", **ROUNDS_GIVEN}  # fmt: skip
    assert meanstream("run", "rounds", *arguments(engine), "--until-end", "--quiet").code == 0
    sink = f"{source}-means?create=1"
    options = RoundsOptions(
        **ROUNDS_GIVEN,
        source=source,
        sink=sink,
        until_end=True,
        allowed_lateness="10d",
        runner="DataflowRunner",
    )
    run_pipeline(options, tmp_path)
    assert made(broker_address, sink) == sorted(
        (tmp_path / "engine.jsonl").read_bytes().splitlines()
    )
    assert len(made(broker_address, sink)) > 3

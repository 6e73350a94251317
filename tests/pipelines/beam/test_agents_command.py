"""`meanstream run agents --runner`: the releases of the engine, and one line for what a pipeline does not do."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest

from meanstream.operators.agents.agents import AgentsSettings
from tests.pipelines.beam.support.agents_world import assert_same_estimates
from tests.pipelines.command_line import SECRET, Ran, arguments, meanstream, options, write_samples

TOPIC = "kafka://127.0.0.1:9/t"  # nobody answers there
SETTINGS = AgentsSettings(name="test", lower=-30, upper=120, epsilon=1, delta=1e-6)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_samples(tmp_path / "flights.csv", agents=7, rows=300)
    return tmp_path


def run(folder: Path, *more: str, **changes: Any) -> Ran:
    typed = arguments(options(folder, **changes))
    return meanstream("run", "agents", *typed, *more, environment={"MEANSTREAM_SECRET": SECRET})


def lines(path: Path) -> list[bytes]:
    return sorted(path.read_bytes().splitlines())


def test_a_runner_writes_what_the_engine_writes(folder: Path) -> None:
    places = {
        name: folder / f"{name}.jsonl" for name in ("sink", "releases", "population", "notices")
    }
    assert run(folder, "--quiet", **places, horizon=4).code == 0
    beam = {name: folder / f"beam.{name}.jsonl" for name in places}
    ran = run(folder, "--json", **beam, horizon=4, runner="FnApiRunner", store=folder / "none.db")
    assert (ran.code, ran.err) == (0, b"")
    told = ran.json
    assert (told["runner"], told["events"], told["accepted"]) == ("FnApiRunner", 300, 300)
    for name in ("releases", "notices"):
        assert lines(beam[name]) == lines(places[name]) != []
    assert told["releases"] == len(lines(beam["releases"]))
    assert_same_estimates(lines(beam["sink"]), lines(places["sink"]), SETTINGS)
    assert len(lines(beam["population"])) == 1
    assert not (folder / "none.db").exists()


def test_releases_of_a_runner_are_in_the_order_of_time(folder: Path) -> None:
    import json

    assert run(folder, "--quiet", runner="FnApiRunner").code == 0
    events = [json.loads(line) for line in (folder / "releases.jsonl").read_bytes().splitlines()]
    assert [(e["time"], e["agent"], e["index"]) for e in events] == sorted(
        (e["time"], e["agent"], e["index"]) for e in events
    )


def test_without_a_file_estimates_go_to_the_terminal(folder: Path) -> None:
    ran = run(folder, runner="FnApiRunner", sink="-", releases=None)
    assert ran.code == 0
    assert ran.out.count(b'"local":') == 7
    assert "300 accepted" in ran.err.decode()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"runner": "DirectRunner"}, "runner must be one of FnApiRunner, PrismRunner, FlinkRunner, DataflowRunner, got "
         "'DirectRunner' (it may run a pipeline again on another runner without saying so)"),
        ({"runner": "SparkRunner"}, "runner must be one of FnApiRunner, PrismRunner, FlinkRunner, DataflowRunner, got "
         "'SparkRunner'"),
        ({"runner": "FlinkRunner"}, "flink_master must be given with FlinkRunner, as HOST:PORT, got None"),
        ({"refresh": "1d"}, "refresh must be left out with --runner, got '1d'"),
        ({"dead_letters": "d.jsonl"}, "dead_letters must be left out with --runner, got 'd.jsonl'"),
        ({"sink": "means.parquet"}, "sink must be a .jsonl file in an existing folder, a topic, or '-', with --runner"),
        ({"releases": "there.jsonl"}, "releases must be a new file with --runner"),
        ({"source": TOPIC}, "until_end must be given with --runner and a topic, or else offsets, got False"),
        ({"source": TOPIC, "offsets": "0:9-5"}, "offsets must be PARTITION:FIRST-STOP,... with FIRST up to STOP and"),
        ({"source": TOPIC, "offsets": "0:5-9", "until_end": True}, "until_end must be left out with offsets, got True"),
        ({"source": f"{TOPIC}?gap=skip", "offsets": "0:5-9"}, "gap must be 'refuse' with --runner, got 'skip'"),
        ({"source": f"{TOPIC}?partitions=0", "offsets": "0:5-9"}, "partitions must be left out with offsets, got (0,)"),
        ({"offsets": "0:5-9"}, "offsets must be left out where the source is no topic, got '0:5-9'"),
        (
            {"runner": None, "offsets": "0:5-9"},
            "offsets must come with --runner, since the engine continues from its store",
        ),
        ({"runner": None, "runner_arg": "--x"}, "runner_arg must come with --runner"),
    ],
)  # fmt: skip
def test_what_a_pipeline_does_not_do_is_one_line(
    folder: Path, changes: dict[str, Any], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    (folder / "there.jsonl").write_text("{}\n")
    named = options(folder, **{"runner": "FnApiRunner", **changes})
    flags = ["--until-end"] if named.pop("until_end", False) else []
    more = [f"--runner-arg={named.pop('runner_arg')}"] if "runner_arg" in named else []
    ran = meanstream(
        "run", "agents", *arguments(named), *flags, *more, environment={"MEANSTREAM_SECRET": SECRET}
    )
    assert (ran.code, ran.out) == (2, b"")
    assert ran.message.startswith(message), ran.message


def test_everything_that_is_refused_is_refused_at_once(folder: Path) -> None:
    more = {
        "dead_letters": "d.jsonl",
        "quorum": 1,
        "sink": "m.parquet",
        "epsilon": None,
        "store": folder / "no" / "s.db",
    }
    ran = run(folder, "--dry-run", runner="FlinkRunner", name=None, **more)
    starts = [part.partition(" must ")[0] for part in ran.message.split("; ")]
    assert starts == [
        *("flink_master", "dead_letters", "dry_run", "quorum", "store", "sink", "name", "epsilon"),
    ], ran.message


def test_without_beam_the_extra_is_named(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == "apache_beam" else find(name)
    )
    assert (
        run(folder, runner="FnApiRunner").message
        == "runner needs apache-beam: pip install 'meanstream[beam]'"
    )


def test_with_a_runner_the_same_agents_are_taken_as_by_the_engine(folder: Path) -> None:
    engine = run(folder, "--json", max_agents=4)
    beam = run(
        folder,
        "--json",
        max_agents=4,
        runner="FnApiRunner",
        releases=folder / "beam.jsonl",
        sink=folder / "b.jsonl",
    )
    assert (engine.code, beam.code) == (0, 0)
    assert lines(folder / "beam.jsonl") == lines(folder / "releases.jsonl") != []
    refused = engine.json["rejected"]["too_many_agents"]
    assert (beam.json["agents"], beam.json["rejected_too_many_agents"]) == (4, refused)
    assert refused > 50

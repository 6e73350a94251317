"""`meanstream run rounds --runner`: the bytes of the engine, and one line for what a pipeline does
not do."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest

from meanstream.pipelines.beam.commands.run_on_beam import _sink_locations
from tests.pipelines.command_line import SECRET, Ran, arguments, meanstream


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    rows = [f"N{n % 17},{n % 50 - 10},2013-01-{3 + n % 21:02}T00:00:00Z" for n in range(300)]
    (tmp_path / "flights.csv").write_text(
        "\n".join(["tailnum,dep_delay,time_hour", *rows, "N1,,2013-01-04"]) + "\n"
    )
    return tmp_path


def run(folder: Path, *more: str, **changes: Any) -> Ran:
    named = {
        "source": folder / "flights.csv", "user": "tailnum", "value": "dep_delay", "time": "time_hour", "lower": -30,
        "upper": 120, "epsilon": 1, "window": "7d", "estimator": "one_shot", "name": "test",
        "store": folder / "rounds.db",
        "sink": folder / "means.jsonl", **changes,
    }  # fmt: skip
    typed = arguments({name: value for name, value in named.items() if value is not None})
    return meanstream("run", "rounds", *typed, *more, environment={"MEANSTREAM_SECRET": SECRET})


def test_a_runner_writes_what_the_engine_writes(folder: Path) -> None:
    assert run(folder, "--quiet").code == 0
    ran = run(folder, "--json", runner="FnApiRunner", sink=folder / "beam.jsonl")
    assert (ran.code, ran.err) == (0, b"")
    told = ran.json
    reports = told.pop("rounds_reports_0")
    assert reports == sum(
        json.loads(line)["users"] for line in (folder / "means.jsonl").read_bytes().splitlines()
    )
    assert told == {"runner": "FnApiRunner", "rounds": 3}
    assert (folder / "beam.jsonl").read_bytes() == (folder / "means.jsonl").read_bytes()
    assert (folder / "beam.jsonl").read_bytes().count(b"\n") == 3


def test_without_a_file_estimates_go_to_the_terminal(folder: Path) -> None:
    ran = run(folder, runner="FnApiRunner", sink="-")
    assert ran.code == 0
    assert ran.out.count(b'"value":') == 3
    assert ran.err.decode().startswith("3 rounds, ")


def test_the_secret_is_made_beside_the_store_as_by_the_engine(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("MEANSTREAM_SECRET")
    sinks = [folder / "beam.jsonl", folder / "means.jsonl"]
    typed = {
        "source": folder / "flights.csv",
        "user": "tailnum",
        "value": "dep_delay",
        "time": "time_hour",
    }
    more = {
        "lower": -30,
        "upper": 120,
        "epsilon": 1,
        "window": "7d",
        "estimator": "one_shot",
        "name": "test",
    }
    for sink, runner in zip(sinks, ({"runner": "FnApiRunner"}, {}), strict=True):
        options = {**typed, **more, **runner, "store": folder / "own.db", "sink": sink}
        assert meanstream("run", "rounds", *arguments(options), "--quiet").code == 0
    assert (folder / "own.db.secret").stat().st_mode & 0o777 == 0o600
    assert sinks[0].read_bytes() == sinks[1].read_bytes() != b""


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"runner": "FlinkRunner"},
            "flink_master must be given with FlinkRunner, as HOST:PORT, got None",
        ),
        ({"reports": "r.jsonl"}, "reports must be left out with --runner, got 'r.jsonl'"),
        ({"metrics": "127.0.0.1:1"}, "metrics must be left out with --runner, got '127.0.0.1:1'"),
        ({"page": "127.0.0.1:1"}, "page must be left out with --runner, got '127.0.0.1:1'"),
        ({"dry_run": True}, "dry_run must be left out with --runner, got 'True'"),
        (
            {"offsets": "0:5-9"},
            "offsets must be left out where the source is no topic, got '0:5-9'",
        ),
        (
            {"offsets": "0:5-9", "runner": None},
            "offsets must come with --runner, since the engine continues from its store",
        ),
        (
            {"sink": "means.parquet"},
            "sink must be a .jsonl file in an existing folder, a topic, or '-', with --runner",
        ),
        ({"sink": "flights.csv.jsonl"}, "sink must be a new file with --runner"),
    ],
)
def test_what_a_pipeline_does_not_do_is_one_line(
    folder: Path, changes: dict[str, Any], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    (folder / "flights.csv.jsonl").write_text("{}\n")
    ran = run(folder, **{"runner": "FnApiRunner", **changes})
    assert (ran.code, ran.out) == (2, b"")
    assert ran.message.startswith(message), ran.message


def test_without_beam_the_extra_is_named(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == "apache_beam" else find(name)
    )
    assert (
        run(folder, runner="FnApiRunner").message
        == "runner needs apache-beam: pip install 'meanstream[beam]'"
    )


def test_vectors_have_the_bytes_of_the_engine(folder: Path) -> None:
    rows = [
        f"N{n % 17},{n % 50 - 10},{n % 7},2013-01-{3 + n % 21:02}T00:00:00Z" for n in range(300)
    ]
    (folder / "vectors.csv").write_text("\n".join(["tailnum,x,y,time_hour", *rows]) + "\n")
    vectors = {
        "source": folder / "vectors.csv",
        "value": None,
        "values": "x,y",
        "estimator": "kent.linf",
    }
    more = {**vectors, "sizes": "uniform:1,30", "user_budget": 2}
    assert run(folder, "--quiet", **more).code == 0
    assert (
        run(folder, "--quiet", **more, runner="FnApiRunner", sink=folder / "beam.jsonl").code == 0
    )
    assert (folder / "beam.jsonl").read_bytes() == (folder / "means.jsonl").read_bytes()
    assert (folder / "beam.jsonl").read_bytes().count(b"\n") == 3


def test_with_a_runner_the_same_users_are_taken_as_by_the_engine(folder: Path) -> None:
    private = folder / "private.json"
    assert run(folder, "--quiet", max_users=5, sort=False, private_figures=private).code == 0
    assert json.loads(private.read_bytes())["rejected"]["too_many_agents"] > 100
    beam = {"runner": "FnApiRunner", "sink": folder / "beam.jsonl", "sort": False}
    assert run(folder, "--quiet", **beam, max_users=5).code == 0
    assert (folder / "beam.jsonl").read_bytes() == (folder / "means.jsonl").read_bytes()
    assert {
        json.loads(line)["users"] for line in (folder / "beam.jsonl").read_bytes().splitlines()
    } == {5}
    refused = run(folder, **beam, max_users=0)
    assert refused.message.endswith("; max_users must be at least 1, got 0"), (
        "beside the sink, which is there now"
    )


def test_events_go_to_files_topics_and_the_terminal(tmp_path: Path) -> None:
    topic = "kafka://127.0.0.1:1/topic"
    places = _sink_locations(
        {"estimates": "-", "releases": topic, "population": str(tmp_path / "p.jsonl")}
    )
    assert places == {"estimates": None, "releases": topic, "population": tmp_path / "p.jsonl"}
    for wrong in (tmp_path / "p.csv", tmp_path / "no folder" / "p.jsonl"):
        with pytest.raises(
            ValueError,
            match=r"^releases must be a \.jsonl file in an existing folder, a topic, or '-'",
        ):
            _sink_locations({"releases": str(wrong)})

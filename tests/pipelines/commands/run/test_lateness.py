"""How late samples may be where nobody says so: what suits the source, and then what the store was
begun with."""

from __future__ import annotations

from pathlib import Path

import pytest

from meanstream.pipelines.options.agents_options import AgentsOptions
from meanstream.pipelines.options.rounds_options import RoundsOptions
from tests.pipelines.command_line import (
    SECRET,
    Ran,
    arguments,
    meanstream,
    options,
    run_agents,
    write_samples,
)

DATA = Path(__file__).parents[3] / "streaming" / "data"
ROUNDS = {"user": "tailnum", "value": "dep_delay", "time": "time_hour", "window": "1d", "users": 3}


def noted(folder: Path) -> float:
    found = meanstream("store", "show", "--store", str(folder / "state.db"), "--json").json
    return float(found["source"].get("lateness", found["source"].get("allowed_lateness")))


def told(folder: Path, **changes: object) -> Ran:
    return meanstream(
        "run",
        "agents",
        *arguments(options(folder, **changes)),
        environment={"MEANSTREAM_SECRET": SECRET},
    )


@pytest.mark.parametrize(("sort", "text", "seconds"), [(True, "0s", 0.0), (False, "1h", 3600.0)])
def test_a_file_waits_as_its_order_needs_and_the_start_says_so(
    tmp_path: Path, sort: bool, text: str, seconds: float
) -> None:
    write_samples(tmp_path / "flights.csv")
    ran = told(tmp_path, sort=sort)
    assert (ran.code, noted(tmp_path)) == (0, seconds)
    assert f'samples may be late lateness={text} why="the file is read' in ran.err.decode()


@pytest.mark.parametrize("kind", [AgentsOptions, RoundsOptions])
def test_a_topic_waits_for_seconds(
    tmp_path: Path, kind: type[AgentsOptions | RoundsOptions]
) -> None:
    found = kind(source="kafka://127.0.0.1:1/samples", store=tmp_path / "none.db")
    assert found.engine_options().allowed_lateness == 10.0
    assert (
        kind(source="projects/p/subscriptions/s", store=tmp_path / "none.db")
        .lateness_in_force()
        .seconds
        == 60.0
    )


def test_a_store_goes_on_with_what_it_was_begun_with(tmp_path: Path) -> None:
    write_samples(tmp_path / "flights.csv")
    assert run_agents(tmp_path, lateness="2h").code == 0
    ran = told(tmp_path)
    assert (ran.code, noted(tmp_path)) == (0, 7200.0)
    assert 'lateness=2h why="the store was begun with it"' in ran.err.decode()
    assert (
        run_agents(tmp_path, dry_run=True, json=True).json["lateness"]
        == "2h: the store was begun with it"
    )
    assert (
        "lateness must be 2h as in the store that is continued"
        in run_agents(tmp_path, lateness="1h").message
    )


@pytest.mark.parametrize("how", [[], ["--no-sort"]])
def test_rounds_of_a_file_that_ends_have_none(tmp_path: Path, how: list[str]) -> None:
    write_samples(tmp_path / "flights.csv")
    given = {
        "source": tmp_path / "flights.csv",
        "store": tmp_path / "state.db",
        "sink": tmp_path / "means.jsonl",
    }
    typed = arguments(
        {**given, **ROUNDS, "lower": -30, "upper": 120, "epsilon": 4, "dry_run": True, "json": True}
    )
    environment = {"MEANSTREAM_SECRET": SECRET}
    ran = meanstream(
        "run", "rounds", *typed, *how, "--allowed-lateness", "5m", environment=environment
    )
    assert (ran.code, ran.message) == (
        2,
        "allowed_lateness must be left out for a file that ends: no sample of it is late, got '5m'",
    )
    ran = meanstream("run", "rounds", *typed, *how, environment=environment)
    assert (ran.code, ran.json["allowed_lateness"]) == (
        0,
        "0s: no sample of a file that ends is late",
    )

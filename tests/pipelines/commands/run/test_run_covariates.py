"""`--covariates`: answers by each command, what is said of them, a change between runs, and what is
refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from meanstream.pipelines.commands.report import report_store as store_report
from meanstream.pipelines.page.page_figures import population_figure
from meanstream.streaming.agents.saved_agents import own_settings
from meanstream.streaming.metrics.metric_records import FittedPicture
from tests.pipelines.command_line import arguments, asks, run_agents

BOUNDS = {"lower": -30, "upper": 120, "epsilon": 1, "delta": 1e-6}
PLANES = 24


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    rng = np.random.default_rng(1)
    rows = [
        f"N{a},{30 + 20 * (a % 2) + rng.normal(0, 5):.3f},2013-01-{1 + i // 24:02}T{i % 24:02}:00:00Z,F{i}"
        for i, a in enumerate(rng.integers(0, PLANES, 720).tolist())
    ]
    (tmp_path / "flights.csv").write_text(
        "\n".join(["tailnum,dep_delay,time_hour,flight", *rows]) + "\n"
    )
    lines = [f"N{a},{('jet', 'turboprop')[a % 2]},{50 + a}" for a in range(PLANES)]
    (tmp_path / "planes.csv").write_text("\n".join(["tailnum,engine,seats", *lines]) + "\n")
    return tmp_path


def events(path: Path) -> dict[str, Any]:
    return {event["agent"]: event for event in map(json.loads, path.read_bytes().splitlines())}


def test_covariates_change_estimates_and_no_release(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_report, "POINTS", 1)
    given = {"covariates": folder / "planes.csv", "population": folder / "p.jsonl"}
    assert (
        run_agents(folder, sink=folder / "e.jsonl", releases=folder / "r.jsonl", **given).code == 0
    )
    plain = folder / "plain"
    plain.mkdir()
    made = {"sink": plain / "e.jsonl", "releases": plain / "r.jsonl", "store": plain / "state.db"}
    assert run_agents(folder, **made).code == 0
    assert (plain / "r.jsonl").read_bytes() == (folder / "r.jsonl").read_bytes()
    found, without = events(folder / "e.jsonl"), events(plain / "e.jsonl")
    moved = [found[a]["value"] - without[a]["value"] for a in found]
    assert moved == pytest.approx([found[a]["moved_by_covariates"] for a in found], abs=1e-9)
    assert "moved_by_covariates" not in without["N1"]
    learned = json.loads((folder / "p.jsonl").read_bytes().splitlines()[-1])["fitted"]["covariates"]
    assert [one["name"] for one in learned["attributes"]] == [
        "engine",
        "seats",
        "number of samples",
    ]
    # `get` reads the file that the last run has answered with.
    event = asks("get", "N1", "--store", str(folder / "state.db"), "--json").json
    assert {name: event[name] for name in found["N1"]} == found["N1"]
    last = store_report.report_convergence_of_store(
        folder / "state.db", own_settings(folder / "state.db")
    )[1]
    assert last is not None
    assert last.explained_by_covariates == learned["explained"]
    assert 0 < learned["explained"] < 1
    (part,) = store_report.covariates_parts(last.description["covariates"])
    assert part.text.startswith("Declared public covariates explain")
    assert [row[0] for row in part.table] == ["engine", "seats", "number of samples"]
    (folder / "planes.csv").unlink()
    refused = asks("get", "N1", "--store", str(folder / "state.db"))
    assert "covariates must be a readable file" in refused.err.decode()
    assert len(refused.err.splitlines()) == 1


def test_an_attribute_is_said_to_have_an_effect_where_releases_show_one() -> None:
    """By the prior alone a column has about a half: that is not read as an effect."""
    one = {"explained": 0.1, "size": 2.0, "standard_error": 0.5}
    learned = {
        "explained": 0.4,
        "attributes": [
            {"name": "engine", "probability": 0.97, **one},
            {"name": "seats", "probability": 0.64, **one},
        ],
    }
    (part,) = store_report.covariates_parts(learned)
    said = dict(part.table)
    assert said["engine"].endswith("standard error 0.5, probability 97%")
    assert said["seats"].endswith("standard error 0.5, no effect shown")
    picture = FittedPicture(description={"method": "m", "covariates": learned}, agents=9, at=())
    shown = population_figure(picture)["covariates"]
    assert [one["shown"] for one in shown["attributes"]] == [True, False]
    assert shown["explained"] == 0.4


def test_another_file_needs_no_new_store_and_spends_nothing(folder: Path) -> None:
    given = {"covariates": folder / "planes.csv"}
    assert run_agents(folder, sink=folder / "e.jsonl", **given).code == 0
    before = asks("ledger", "verify", "--store", str(folder / "state.db"), "--json").json
    (folder / "planes.csv").write_text("tailnum,seats\nN1,7\nN2,9\n")
    again = run_agents(folder, sink=folder / "e.jsonl", **given)
    assert again.code == 0, again.err
    assert asks("ledger", "verify", "--store", str(folder / "state.db"), "--json").json == before


def test_parquet_and_csv_are_read_alike(folder: Path) -> None:
    from pyarrow import csv, parquet

    parquet.write_table(csv.read_csv(folder / "planes.csv"), folder / "planes.parquet")
    for kind in ("csv", "parquet"):
        made = {"sink": folder / f"{kind}.jsonl", "store": folder / f"{kind}.db", "releases": None}
        assert run_agents(folder, covariates=folder / f"planes.{kind}", **made).code == 0
    assert (folder / "csv.jsonl").read_bytes() == (folder / "parquet.jsonl").read_bytes()


def test_explain_and_plan_say_that_they_are_public(folder: Path) -> None:
    given = arguments({**BOUNDS, "agent": "tailnum", "covariates": folder / "planes.csv"})
    text = asks("explain", "agents", *given).out.decode()
    assert "covariates      24 agents have a row: engine (2 levels), seats (number)" in text
    assert "declared public: nothing protects them" in text
    facts = asks("explain", "agents", "--json", *given).json["collaboration"]["covariates"]
    assert facts["attributes"] == [
        {"name": "engine", "kind": "category", "levels": 2}, {"name": "seats", "kind": "number"},
    ]  # fmt: skip
    assert (
        "covariates"
        not in asks("explain", "agents", "--json", *arguments(BOUNDS)).json["collaboration"]
    )
    planned = {
        **BOUNDS,
        "spread": 10,
        "sizes": f"{folder / 'flights.csv'}:tailnum",
        "covariates": folder / "planes.csv",
    }
    errors = asks("plan", "agents", "--json", *arguments(planned)).json["covariates"][
        "error_if_they_explain"
    ]
    assert list(errors) == ["0.25", "0.5", "0.75"]
    assert errors["0.75"] < errors["0.25"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"covariates": "nope.csv"},
            "covariates must be a readable file, got 'nope.csv' (No such file or directory)",
        ),
        (
            {"agent": "carrier"},
            "covariates must have the column 'carrier' that names the agents, got none; known: ",
        ),
        (
            {"collaboration": "tests"},
            "collaboration must be learned_prior or pooled_prior where there are covariates",
        ),
        (
            {"covariates": "flights.csv"},
            "covariates must have one row per agent, got 696 rows more than agents",
        ),
        (
            {"covariates": "broken.csv"},
            "covariates must be CSV with a header, or Parquet (.parquet), got ",
        ),
    ],
)
def test_what_is_no_file_of_covariates_is_refused_in_one_line(
    folder: Path, monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any], message: str
) -> None:
    monkeypatch.chdir(folder)
    (folder / "broken.csv").write_text("tailnum,engine\nN1,a,b\nN2\n")
    assert message in run_agents(folder, **{"covariates": "planes.csv", **changes}).message
    assert not (folder / "state.db").exists()

"""`--quantiles`, `--exceeds` and `--histogram-share`: what is told by each command, and what is
refused in one line."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from meanstream.operators.noise.calibration import calibrated_analytic_stddev
from tests.pipelines.command_line import arguments, asks, files, options, run_agents, write_samples

ASKED = {"quantiles": ".5,.9", "exceeds": "30"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_samples(tmp_path / "flights.csv", rows=240)
    return tmp_path


def told(event: Any) -> tuple[list[float], list[float]]:
    return [one["quantile"] for one in event["quantiles"]], [
        one["threshold"] for one in event["exceeds"]
    ]


def test_an_agent_is_told_by_the_run_and_by_get(folder: Path) -> None:
    assert run_agents(folder, sink=folder / "e.jsonl", **ASKED).code == 0
    last = {e["agent"]: e for e in map(json.loads, (folder / "e.jsonl").read_bytes().splitlines())}
    assert len(last) == 3
    for agent, event in last.items():
        assert told(event) == ([0.5, 0.9], [30.0])
        found = asks("get", agent, "--store", str(folder / "state.db"), "--json").json
        assert (found["quantiles"], found["exceeds"]) == (event["quantiles"], event["exceeds"])
        text = asks("get", agent, "--store", str(folder / "state.db")).out.decode()
        assert f"\nquantile 0.9: {event['quantiles'][1]['value']:g} [" in text
        assert f"\nshare above 30: {event['exceeds'][0]['share']:g} [" in text


def test_a_folder_of_parquet_files_has_them_in_columns(folder: Path) -> None:
    assert (
        run_agents(folder, sink=folder / "e.parquet", releases=folder / "r.parquet", **ASKED).code
        == 0
    )
    rows = pq.read_table(folder / "e.parquet").to_pylist()
    assert all(told(row) == ([0.5, 0.9], [30.0]) for row in rows)
    assert all(
        len(row["histogram"]["counts"]) == 19
        for row in pq.read_table(folder / "r.parquet").to_pylist()
    )


def test_explain_and_a_dry_run_say_what_is_told_and_what_it_costs(folder: Path) -> None:
    given = {
        "lower": -30,
        "upper": 120,
        "epsilon": 1,
        "delta": 1e-6,
        **ASKED,
        "histogram_share": 0.2,
    }
    facts = asks("explain", "agents", "--json", *arguments(given)).json
    step = math.exp(-0.2 / 2)  # discrete Laplace: epsilon's share over the sensitivity
    of_a_bin = (2 * step) ** 0.5 / (1 - step)
    assert facts["histogram"]["noise_stddev_of_a_bin"] == pytest.approx(of_a_bin, rel=1e-6)

    given |= {"noise": "gaussian"}
    facts = asks("explain", "agents", "--json", *arguments(given)).json
    histogram = facts["histogram"]
    assert (histogram["share"], histogram["quantiles"], histogram["exceeds"]) == (
        0.2,
        [0.5, 0.9],
        [30.0],
    )
    scale = calibrated_analytic_stddev(1.0, 1e-6)
    assert histogram["noise_stddev_of_a_bin"] == pytest.approx(scale * (2 / 0.2) ** 0.5, rel=1e-6)
    of_means = 150 * scale * facts["mechanism"]["column_norm"] / 0.7**0.5
    assert facts["mechanism"]["stddev_of_a_fresh_draw"] == pytest.approx(of_means, rel=1e-6)
    text = asks("explain", "agents", *arguments(given)).out.decode()
    assert "\nanswers         quantile 0.5, quantile 0.9, share above 30: " in text
    assert "means, votes and histograms together are the total above" in text
    plain = {name: given[name] for name in ("lower", "upper", "epsilon", "delta")}
    text = asks("explain", "agents", *arguments(plain)).out.decode()
    assert "\nvotes " in text
    assert "histogram" not in text
    before = files(folder)
    assert run_agents(folder, dry_run=True, json=True, **ASKED).json["shares"] == (
        "quantile 0.5, quantile 0.9, share above 30, of 0.1 of the budget"
    )
    assert files(folder) == before


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"quantiles": "1"}, "quantiles must lie in (0, 1), got 1"),
        (
            {"quantiles": ",".join(f".{i}" for i in range(11, 28))},
            "quantiles must be at most 16, got 17",
        ),
        ({"quantiles": ".5;.9"}, "quantiles must be numbers separated by commas, got '.5;.9'"),
        ({"exceeds": "nan"}, "exceeds must be numbers separated by commas, got 'nan'"),
        ({"exceeds": "120"}, "exceeds must lie in [-30.0, 120.0), got 120"),
        (
            {"histogram_share": 0.1},
            "histogram_share must be left out without quantiles or exceeds, got 0.1",
        ),
        (
            {**ASKED, "histogram_share": 0},
            "histogram_share must be more than 0 with quantiles or exceeds, got 0",
        ),
        (
            {**ASKED, "histogram_share": 0.95},
            "histogram_share must lie in [0, 0.9): what spread_share leaves, got 0.95",
        ),
        (
            {**ASKED, "mode": "paper"},
            "histogram_share must be 0, without quantiles and exceeds, in paper mode and with a "
            "memory that forgets, got 0.1",
        ),
    ],
    ids=str,
)
def test_what_cannot_be_told_is_refused_in_one_line(
    changes: dict[str, Any], error: str, folder: Path
) -> None:
    before = files(folder)
    ran = run_agents(folder, **changes)
    assert (ran.code, ran.out, ran.err.decode()) == (2, b"", f"meanstream: {error}\n")
    assert files(folder) == before


def test_a_store_goes_on_with_its_histogram_and_other_quantiles(folder: Path) -> None:
    assert run_agents(folder, **ASKED).code == 0
    before = (folder / "releases.jsonl").read_bytes()
    assert b'"histogram":' in before
    assert run_agents(folder, quantiles=".25").code == 0
    found = asks("get", "N0", "--store", str(folder / "state.db"), "--json").json
    assert told(found) == ([0.25], [30.0])
    ran = run_agents(folder, exceeds="20")
    assert ran.message.startswith(
        "exceeds must be [30.0] as in the store that is continued, got [20.0]: a store keeps"
    )
    assert (folder / "releases.jsonl").read_bytes() == before
    report = asks("report", str(folder / "report.html"), "--store", str(folder / "state.db"))
    assert report.code == 0, report.err
    text = (folder / "report.html").read_text()
    assert "means, votes and histograms together are the total above" in text
    assert "the requested quantiles, share above 30" in text


@pytest.mark.parametrize(
    ("name", "given"), [("quantiles", ".5"), ("exceeds", "30"), ("histogram_share", "0.2")]
)
def test_a_store_without_a_histogram_begins_none(name: str, given: str, folder: Path) -> None:
    assert run_agents(folder).code == 0
    before = files(folder)
    ran = run_agents(folder, **{name: given})
    assert ran.code == 2
    assert (
        f"{name} must be left out, since the store began without a histogram, got "
        in ran.err.decode()
    )
    assert ran.err.count(b"\n") == 1
    assert files(folder) == before


def test_apart_one_side_releases_histograms_and_the_other_tells(folder: Path) -> None:
    given = {**options(folder, quiet=True, releases=folder / "r.jsonl"), "histogram_share": 0.2}
    del given["sink"]
    for name in ("refresh", "population"):
        given.pop(name, None)
    secret = {"MEANSTREAM_SECRET": "9b1f6c04d2a85e73bb40c9f1e6a7250d"}
    ran = asks("run", "agent-side", *arguments(given), environment=secret)
    assert (ran.code, ran.err) == (0, b"")
    asked = {
        "releases": folder / "r.jsonl",
        "store": folder / "state.db",
        "until_end": True,
        "quiet": True,
    }
    ran = asks("run", "collaborate", *arguments({**asked, "quantiles": ".9,.1"}))
    assert ran.code == 0, ran.err
    events = [json.loads(line) for line in ran.out.splitlines()]
    assert [[one["quantile"] for one in event["quantiles"]] for event in events] == [[0.1, 0.9]] * 3
    plain = asks("run", "collaborate", *arguments(asked))
    assert b"quantiles" not in plain.out
    assert b'"local":' in plain.out


def test_agents_without_a_histogram_are_told_no_quantiles(folder: Path) -> None:
    assert run_agents(folder).code == 0
    asked = {
        "releases": folder / "releases.jsonl",
        "store": folder / "state.db",
        "until_end": True,
        "quantiles": ".5",
    }
    ran = asks("run", "collaborate", *arguments(asked))
    assert (ran.code, ran.out, ran.err.decode()) == (
        2,
        b"",
        "meanstream: quantiles must be left out: agents of the store release no histogram, got '.5'\n",
    )

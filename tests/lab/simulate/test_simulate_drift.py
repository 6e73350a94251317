"""`meanstream simulate agents --change` and `reproduce drift`: JSON, table, picture and
refusals."""

from __future__ import annotations

from pathlib import Path

import pytest

from meanstream.lab.reproduce import drift_figure
from meanstream.lab.simulate.simulate_drift import LEFT_OUT
from meanstream.lab.simulation.drift.simulated_drift import DriftConfig, simulate_drift
from tests.pipelines.command_line import asks

SMALL = "--agents 6 --steps 800 --runs 2 --change step:0.4,0.5@200 --memory half-life:200"


def simulate(arguments: str):
    return asks("simulate", "agents", *arguments.split())


def test_json_is_what_the_simulator_finds() -> None:
    result = simulate(f"{SMALL} --json").json
    config = DriftConfig(
        agents=6, steps=800, runs=2, change="step:0.4,0.5@200", memory="half-life:200"
    )
    found = simulate_drift(config).as_dict()
    assert result.pop("agent_steps_per_second") > 0
    assert list(result) == ["ages", "changed", "unchanged", "config"]
    assert result["ages"] == [200, 500]
    for part in ("changed", "unchanged"):
        assert result[part] == found[part]
    assert result["config"]["memory"] == "half-life:200"


def test_the_table_has_a_line_for_each_age_of_each_part() -> None:
    lines = simulate(SMALL).out.decode().splitlines()
    assert lines[0].split() == ["age", "agents", "mse", "stderr", "coverage"]
    assert [line.split()[:2] for line in lines[1:5]] == [
        [age, part] for part in ("changed", "unchanged") for age in ("200", "500")
    ]
    assert lines[5].startswith(
        "change step:0.4,0.5@200, memory half-life:200, collaboration learned_prior; epsilon 1"
    )
    everybody = simulate("--agents 6 --steps 400 --runs 1 --change all:0.1").out.decode()
    assert "unchanged" not in everybody


GIVEN = {"schedule": "broadcast", "trace": "x.npz", "checkpoints": "5", "levels": "3", "half_width": "2",
         "spread_share": "0.1", "noise_variance": "2", "counter": "pm1", "weights": "last", "test": "lazy",
         "variance": "known", "noise": "laplace", "calibration": "analytic", "mode": "tuned",
         "dependence": "ar:0.5"}  # fmt: skip


@pytest.mark.parametrize("name", LEFT_OUT)
def test_options_of_other_simulations_are_refused(name: str) -> None:
    message = simulate(f"{SMALL} --{name.replace('_', '-')} {GIVEN[name]}").message
    assert message.startswith(f"{name} must be left out with --change, got ")
    assert message.strip("'").endswith(GIVEN[name])


FORMS = "be step:SIZE,SHARE, walk:SD/EVERY, new-class:MEAN[,SHARE] or all:SIZE, each with @SAMPLES or without"


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        ("--change step:1", f"change must {FORMS}, got 'step:1'"),
        (
            "--change all:.1 --steps 5",
            "change must begin 200 samples or more before the last of 5 steps, got 'all:.1'",
        ),
        (
            "--change walk:1/1 --agents 90000",
            "change must make at most 100000000 steps of means, got 'walk:1/1'",
        ),
        (
            "--change all:1e9",
            "change must keep means within 1e+06 standard deviations of a sample (0.5) of 0",
        ),
        ("--memory forever", "memory must be left out without --change, got 'forever'"),
        (
            "--change all:.1 --memory window:9",
            "schedule must have its first release within memory window:9",
        ),
        (
            "--change all:.1 --memory half-life:3d",
            "memory must be forever, auto, half-life:SAMPLES or window:SAMPLES",
        ),
        ("--change all:.1 --memory half", "memory must be "),
        ("--change all:.1 --data bernoulli", "data must be uniform with --change"),
        (
            "--change all:.1 --collaboration tests",
            "collaboration must be one of learned_prior, none with change",
        ),
        ("--change all:.1 --epsilon 0", "epsilon must be positive"),
        ("--change all:.1 --stddev 0", "stddev must be positive and finite, got 0"),
        ("--change all:.1 --agents 1", "agents must be at least 2, got 1"),
        ("--change all:.1 --runs 0", "runs must be at least 1, got 0"),
        ("--change all:.1 --seed -1", "seed must not be negative, got -1"),
    ],
)
def test_refusals_are_one_line(arguments: str, line: str) -> None:
    assert simulate(arguments).message.startswith(line)


def test_the_picture_and_its_numbers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drift_figure, "AGES", (100, 200))
    monkeypatch.setattr(drift_figure, "AGENTS", 8)
    monkeypatch.setattr(drift_figure, "BEGIN", 300)
    ran = asks("reproduce", "drift", "--runs", "2", "--out", str(tmp_path), "--json")
    result = ran.json
    assert ran.err == b""
    assert Path(result["png"]).read_bytes().startswith(b"\x89PNG")
    assert [curve["label"] for curve in result["curves"]] == list(drift_figure.CURVES)
    for curve in result["curves"]:
        for part in ("changed", "unchanged"):
            assert len(curve[part]["mse"]) == len(curve[part]["coverage"]) == 2
            assert min(curve[part]["mse"]) > 0
    text = "\n".join(drift_figure.drift_lines(result))
    assert f"200: {result['curves'][0]['changed']['mse'][1] * 1e4:.3g}, " in text
    assert "squared error in 1e-4 and coverage by samples since step:0.2,0.5@300, 2 runs" in text


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (("--runs", "0"), "runs must be at least 1, got 0"),
        (("--seed", "-1"), "seed must not be negative, got -1"),
        (
            ("--out", "/dev/null/x"),
            "out must be a folder, or a new one, got '/dev/null/x' (Not a directory)",
        ),
    ],
)
def test_refusals_of_reproduce_are_one_line(arguments: tuple[str, ...], line: str) -> None:
    assert asks("reproduce", "drift", *arguments).message == line

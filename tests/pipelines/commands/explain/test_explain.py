"""`meanstream explain agents` says what the engine does: its figures are those of the mechanism
that would run."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from meanstream.operators.noise.calibration import (
    calibrated_analytic_stddev,
    calibrated_classical_stddev,
)
from tests.pipelines.command_line import arguments, asks, files, options, run_agents, write_samples


def explain(**changes: object) -> dict[str, Any]:
    named = {
        "lower": -30,
        "upper": 120,
        "epsilon": 1,
        "delta": 1e-6,
        "noise": "gaussian",
        **changes,
    }
    facts: dict[str, Any] = asks("explain", "agents", "--json", *arguments(named)).json
    return facts


def test_what_is_protected_and_at_what_total() -> None:
    facts = explain()
    assert facts["privacy_unit"] == "sample"
    assert "replace-one" in str(facts["neighboring"])
    assert "long-run mean" in str(facts["estimand"])
    assert "at present" in str(explain(memory="window:1000")["estimand"])
    assert (facts["total"]["epsilon"], facts["total"]["delta"]) == (1.0, 1e-6)
    assert (facts["bounds"]["lower"], facts["bounds"]["upper"], facts["bounds"]["sensitivity"]) == (
        -30.0,
        120.0,
        150.0,
    )
    assert facts["bounds"]["sensitivity_in_grid_units"] == 150 / facts["bounds"]["resolution"]
    assert set(facts["who_sees_what"]) == {"the engine and its store", "an agent", "everyone"}


@pytest.mark.parametrize("counter", ["pm1", "pm2", "toeplitz", "optimal"])
def test_the_scale_is_that_of_the_analytic_mechanism_times_the_column_norm(counter: str) -> None:
    """Up to what the cut tails take of delta: nothing that shows in six digits."""
    mechanism = explain(counter=counter, spread_share=0.0)["mechanism"]
    scale = 150 * calibrated_analytic_stddev(1.0, 1e-6) * mechanism["column_norm"]
    assert mechanism["stddev_of_a_fresh_draw"] == pytest.approx(scale, rel=1e-6)


@pytest.mark.parametrize("share", [None, 0.3])
def test_means_and_votes_have_their_parts_of_the_budget(share: float | None) -> None:
    """By default a tenth is for votes; the squared ratios of sensitivity to noise add up to those
    of the total."""
    facts = explain() if share is None else explain(spread_share=share)
    mechanism, votes, part = facts["mechanism"], facts["votes"], share or 0.1
    scale = calibrated_analytic_stddev(1.0, 1e-6)
    of_means = 150 * scale * mechanism["column_norm"] / (1 - part) ** 0.5
    assert mechanism["stddev_of_a_fresh_draw"] == pytest.approx(of_means, rel=1e-6)
    assert votes["noise_stddev_of_a_bin"] == pytest.approx(scale * (2 / part) ** 0.5, rel=1e-6)
    assert votes["share"] == part
    assert facts["unit"]["mu"] == pytest.approx(1 / scale, rel=1e-6)


def test_paper_mode_is_the_paper() -> None:
    facts = explain(mode="paper")
    assert facts["votes"] is None
    mechanism = facts["mechanism"]
    assert (facts["mode"], mechanism["counter"], mechanism["calibration"]) == (
        "paper",
        "pm1",
        "classical",
    )
    assert facts["collaboration"]["method"] == "tests"
    scale = 150 * calibrated_classical_stddev(1.0, 1e-6)
    assert mechanism["stddev_of_a_fresh_draw"] == pytest.approx(scale, rel=1e-6)


def test_the_releases_are_the_ones_a_run_makes(tmp_path: Path) -> None:
    """Count of samples and noise of the mean at each release, against the events of a run."""
    write_samples(tmp_path / "flights.csv", agents=1, rows=700)
    run_agents(tmp_path, final_release=False)
    events = [json.loads(line) for line in (tmp_path / "releases.jsonl").read_bytes().splitlines()]
    releases = explain(noise="auto")["releases"]
    columns = (releases["count"], releases["noise_stddev_of_the_mean"])
    shown = dict(zip(releases["index"], zip(*columns, strict=True), strict=True))
    assert len(events) > 10
    for event in events:
        if event["index"] in shown:
            count, stddev = shown[event["index"]]
            assert event["n"] == count
            assert np.sqrt(event["noise_variance"]) == pytest.approx(stddev, rel=1e-6)


def test_a_schedule_of_event_time_has_no_counts() -> None:
    releases = explain(schedule="every:1d")["releases"]
    assert "count" not in releases
    stddev = releases["noise_stddev_of_the_sum"]
    assert all(earlier <= later for earlier, later in pairwise(stddev))


def test_less_epsilon_is_more_noise() -> None:
    scales = [
        explain(epsilon=epsilon)["mechanism"]["stddev_of_a_fresh_draw"] for epsilon in (4, 1, 0.25)
    ]
    assert scales == sorted(scales)


def test_the_text_says_the_same() -> None:
    named = {"lower": -30, "upper": 120, "epsilon": 0.5, "delta": 1e-7, "noise": "gaussian"}
    text = asks("explain", "agents", *arguments(named)).out.decode()
    for part in (
        "(0.5, 1e-07)-differential privacy",
        "replace-one",
        "[-30, 120], values outside are clipped",
        "optimal, at most 40 releases",
        "gaussian (analytic calibration)",
        "release 1 after 10 samples",
        "learned_prior",
        "everyone",
    ):
        assert part in text


def test_nothing_is_read_or_made(tmp_path: Path) -> None:
    write_samples(tmp_path / "flights.csv")
    before = files(tmp_path)
    assert asks("explain", "agents", *arguments(options(tmp_path))).code == 0
    assert asks("explain", "agents", *arguments(options(tmp_path, source="nowhere.csv"))).code == 0
    assert files(tmp_path) == before


def test_what_epsilon_becomes_for_many_samples_of_one_person() -> None:
    """Gaussian-DP group conversion: the figures of the specification at (1, 1e-6), from the
    mechanism that runs."""
    unit = explain()["unit"]
    assert {row["samples"]: float(f"{row['epsilon']:.3g}") for row in unit["groups"]} == {
        2: 2.12, 5: 5.93, 10: 13.5, 20: 33.0, 50: 125.0
    }  # fmt: skip
    assert (round(unit["mu"], 4), round(unit["rho"], 5)) == (0.2367, 0.02801)
    assert unit["mu"] == pytest.approx(1 / calibrated_analytic_stddev(1.0, 1e-6), rel=1e-6)


def test_of_pure_differential_privacy_a_group_pays_its_multiple() -> None:
    unit = explain(noise="laplace", counter="pm2")["unit"]
    assert [row["epsilon"] for row in unit["groups"]] == pytest.approx([2, 5, 10, 20, 50])
    assert (unit["mu"], unit["rho"]) == (None, 0.5)


@pytest.mark.parametrize("mode", ["tuned", "paper"])
def test_many_samples_the_sum_over_jobs_and_amplification_are_spoken_of(mode: str) -> None:
    text = asks(
        "explain",
        "agents",
        "--mode",
        mode,
        *arguments({"lower": 0, "upper": 1, "epsilon": 1, "delta": 1e-6, "noise": "gaussian"}),
    ).out.decode()
    for part in (
        "a person with many samples is protected less",
        "epsilon by number of samples of one person",
        "mu 0.",
        "rho 0.",
        "in several agents, stores or jobs add up",
        "Nothing is claimed for sampling or shuffling",
    ):
        assert part in text


def test_odds_and_errors_by_epsilon_are_those_of_the_mechanism() -> None:
    typed = ["explain", "agents", "--lower", "0", "--upper", "8", "--delta", "1e-6"]
    typed += ["--noise", "gaussian"]
    facts = {
        epsilon: asks(*typed, "--epsilon", f"{epsilon:g}", "--json").json for epsilon in (0.3, 1.0)
    }
    odds = facts[1.0]["odds"]
    assert odds["guessed_right"] == pytest.approx(
        0.5471, abs=1e-4
    )  # the normal distribution at mu / 2
    assert odds["guessed_right_several"] == pytest.approx(0.8817, abs=1e-4)
    assert odds["belief_after"] == pytest.approx(0.0151, abs=1e-4)
    rows = {row["epsilon"]: row["noise_stddev_of_the_mean"] for row in facts[1.0]["by_epsilon"]}
    assert [*rows] == [0.1, 0.3, 1.0, 3.0, 10.0]
    for epsilon, found in facts.items():
        assert rows[epsilon] == pytest.approx(found["releases"]["noise_stddev_of_the_mean"])
    text = asks(*typed, "--epsilon", "1").out.decode()
    assert text.splitlines()[:3] == [
        "protected       The value of each single sample, against everyone else together, even if they know all "
        "other samples.",
        "how much        (1, 1e-06): from all releases they guess which of two equally likely values it has at most "
        "54.7 % of the time.",
        "ten samples     If one person contributed ten samples: at most 88.2 % of the time.",
    ]

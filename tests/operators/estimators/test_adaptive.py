"""The honest default: bins, scales, windows, what is public between its stages, and what it says of
itself."""

import json
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from meanstream.lab.random_words import SeededWords
from meanstream.operators.estimators.adaptive.adaptive import Adaptive
from meanstream.operators.estimators.adaptive.adaptive_design import (
    AdaptiveFound,
    AdaptivePlan,
    adaptive_design_cut_window,
    adaptive_design_next_window,
)
from meanstream.operators.estimators.adaptive.adaptive_risk import (
    PlacedLaw,
    adaptive_one_shot_risk,
    adaptive_risk,
    adaptive_risk_size_factor,
)
from meanstream.operators.estimators.adaptive.adaptive_scale import (
    Scale,
    fit_scale,
    scale_bin,
    scale_half_normal_shares,
    scale_halving_edges,
    scale_tail_bias,
    scale_vote_edges,
    scale_votes,
    scale_window_factor,
    tail_scale,
)
from meanstream.operators.estimators.one_shot import OneShot
from meanstream.operators.estimators.registry import build_estimator
from meanstream.operators.rounds.base import Settings
from meanstream.operators.rounds.round_protocol import protocol_stages_of_positions, run_protocol
from meanstream.operators.rounds.round_records import Estimate, Public, Summaries, Tally
from meanstream.operators.rounds.user_sizes import SizeDistribution

SPAN = 2**20


def users_of(means: Any) -> Summaries:
    grid = np.rint((np.asarray(means) + 1.0) * SPAN / 2).astype(np.int64)
    n = len(grid)
    return Summaries(
        user=np.zeros((n, 2), np.uint64),
        count=np.ones(n, np.int64),
        total=grid,
        first=grid,
        span=SPAN,
    )


def answer(estimator: Adaptive, means: Any, seed: int = 1) -> Estimate:
    rng = np.random.default_rng(seed)
    stage = protocol_stages_of_positions(estimator.shares, rng.random(len(means)))
    words = [
        SeededWords(rng, int((stage == number).sum())) for number in range(len(estimator.rounds))
    ]
    return run_protocol(estimator, users_of(means), stage, words)


def settings(users: int = 20_000, epsilon: float = 1.0) -> Settings:
    return Settings(
        method="adaptive", epsilon=epsilon, users=users, sizes=None, mode="tuned", level=0.95
    )


# Bins and scales


@pytest.mark.parametrize(
    ("top", "least"), [(0.4, 0.03), (0.4, 1e-9), (0.4, 0.0), (0.4, 2.0), (1e-3, 1e-5)]
)
def test_edges_halve_from_the_top(top: float, least: float) -> None:
    edges = scale_halving_edges(top, least)
    assert edges[-1] == top
    assert np.allclose(edges[1:] / edges[:-1], 2.0)
    assert 2 <= len(edges) < 24


def test_every_deviation_is_in_one_bin() -> None:
    edges = scale_halving_edges(0.4, 0.03)
    assert (
        scale_bin(np.array([0.0, 0.02, *edges, 5.0]), edges).tolist()
        == [0, 0, 1, 2, 3, 4, 5, 5][: len(edges) + 3]
    )


@pytest.mark.parametrize("scale", [0.03, 0.06, 0.11, 0.2])
def test_the_scale_of_a_half_normal_law_is_found(scale: float) -> None:
    edges = scale_halving_edges(0.4, 0.02)
    found = fit_scale(scale_half_normal_shares(edges, np.array([scale]))[0], edges, 1e-3)
    assert found.value == pytest.approx(scale, rel=0.01)


@pytest.mark.parametrize("scale", [0.03, 0.06, 0.11, 0.2])
def test_the_scale_of_an_exponential_tail_is_nearly_its_standard_deviation(scale: float) -> None:
    """What `scale_window_factor` allows for, within the margin that it has for the noise of the
    scale."""
    edges = scale_halving_edges(0.4, 0.02)
    deviation = np.abs(scale * (np.random.default_rng(0).exponential(size=200_000) - 1.0))
    shares = np.bincount(scale_bin(deviation, edges), minlength=len(edges) + 1) / len(deviation)
    assert 0.69 * scale < fit_scale(shares, edges, 1e-3).value < 0.97 * scale


def test_noise_of_the_scale_is_as_declared() -> None:
    """400 votes: the spread of the logarithm within 15 %, 4.2 standard errors of a standard
    deviation."""
    edges = scale_halving_edges(0.4, 0.02)
    votes = scale_votes(1.0, len(edges) + 1)
    rng = np.random.default_rng(2)
    row = scale_bin(np.abs(0.07 * rng.normal(size=3000)), edges)
    fits = []
    for _ in range(400):
        reports = votes.randomize(rng.permutation(row)[:2000], SeededWords(rng, 2000))
        shares = votes.shares(votes.counts(reports), 2000)
        fits.append(fit_scale(shares, edges, votes.share_variance(shares, 2000)))
    spread = np.std([math.log(fit.value) for fit in fits])
    assert spread == pytest.approx(np.median([fit.log_stderr for fit in fits]), rel=0.25)


def test_scales_below_the_first_edge_are_the_first_edge_and_known() -> None:
    """Or users who are all alike would look like users of whom nothing is known."""
    edges = scale_vote_edges(0.4, 0.05)
    shares = np.r_[1.0, np.zeros(len(edges))]
    found = fit_scale(shares, edges, 1e-3)
    assert found.value == pytest.approx(edges[0])
    assert found.log_stderr < 0.2


def test_a_tenth_of_the_users_far_out_widens_the_scale() -> None:
    edges = scale_halving_edges(0.4, 0.02)
    shares = 0.85 * scale_half_normal_shares(edges, np.array([0.03]))[0]
    shares[-1] += 0.15
    assert tail_scale(shares, edges, 1e-4) > 0.2
    assert tail_scale(shares, edges, 1.0) == 0.0
    assert fit_scale(shares, edges, 1e-4).value > 0.2


@pytest.mark.parametrize("law", ["normal", "skewed"])
def test_the_tail_of_a_law_that_is_assumed_does_not_widen_its_scale(law: str) -> None:
    edges = scale_halving_edges(0.4, 0.02)
    rng = np.random.default_rng(1)
    raw = rng.normal(size=400_000) if law == "normal" else rng.exponential(size=400_000) - 1.0
    shares = np.bincount(scale_bin(0.1 * np.abs(raw), edges), minlength=len(edges) + 1) / len(raw)
    assert tail_scale(shares, edges, 1e-7) <= 0.1 * 1.02


def test_windows_hold_exponential_tails() -> None:
    for noise in (0.03, 0.01, 1e-3, 1e-4):
        factor = scale_window_factor(noise, 0.0)
        # A fitted scale of 1 may be a standard deviation of 1 / .75.
        sample = np.random.default_rng(0).exponential(size=2_000_000) / 0.75
        bias = np.mean(np.maximum(sample - 1.0 / 0.75 - factor, 0.0))
        assert bias == pytest.approx(scale_tail_bias(factor, 1.0), rel=0.5, abs=2e-6)
        assert scale_tail_bias(factor, 1.0) <= 0.2 * factor * noise
        assert scale_window_factor(noise, 0.1) > factor


def test_sizes_that_differ_ask_for_wider_windows() -> None:
    point, uniform, two = (
        SizeDistribution.parse(text) for text in ("point:1000", "uniform:1,199", "two:1,1000,0.9")
    )
    assert (
        adaptive_risk_size_factor(point, 0.02)
        < 3.0
        < adaptive_risk_size_factor(uniform, 0.02)
        < adaptive_risk_size_factor(two, 0.02)
    )


# What is public


def test_windows_are_cut_to_the_bounds() -> None:
    assert adaptive_design_cut_window(0.0, 0.3) == (0.0, 0.3)
    assert adaptive_design_cut_window(0.9, 0.3) == pytest.approx((0.8, 0.2))
    assert adaptive_design_cut_window(1.5, 0.2) == (0.0, 1.0)


def test_a_wide_scale_sends_everybody_to_the_declared_bounds() -> None:
    plan = Adaptive(epsilon=1.0, users=20_000).plan
    known = AdaptiveFound(n_users=0, center=0.1, center_stderr=0.03)
    assert adaptive_design_next_window(plan, Scale(0.25, 0.1), known, 1)["mode"] == "wide"
    assert adaptive_design_next_window(plan, Scale(0.05, 0.5), known, 1)["mode"] == "wide"
    narrow = adaptive_design_next_window(plan, Scale(0.05, 0.1), known, 1)
    assert narrow["mode"] == "narrow"
    assert 0.15 < narrow["window"][1] < 0.4
    # The same scale next to a bound: half of the window is not needed.
    aside = AdaptiveFound(n_users=0, center=-0.8, center_stderr=0.03)
    assert adaptive_design_next_window(plan, Scale(0.25, 0.1), aside, 1)["mode"] == "narrow"


def test_a_second_vote_never_widens_the_window() -> None:
    plan = Adaptive(epsilon=1.0, users=20_000).plan
    known = AdaptiveFound.of(
        {"n_users": 0, "center": 0.1, "center_stderr": 0.01, "mode": "narrow", "window": [0.1, 0.3]}
    )
    assert adaptive_design_next_window(plan, Scale(0.3, 0.1), known, 3)["window"] == [0.1, 0.3]


def test_public_values_are_plain_data_and_carry_on() -> None:
    estimator = Adaptive(epsilon=1.0, users=20_000)
    means = 0.3 + 0.05 * np.random.default_rng(0).normal(size=20_000)
    public: Public = {}
    parts = np.array_split(means, 5)
    for number, stage in enumerate(estimator.rounds[:-1]):
        words = SeededWords(np.random.default_rng(number), len(parts[number]))
        reports = stage.encode(users_of(parts[number]), public, words)
        assert stage.valid(reports, public).all()
        half = len(reports) // 2
        tally = stage.tally(reports[:half], public) + stage.tally(reports[half:], public)
        assert tally == stage.tally(reports, public)
        found = stage.decode(tally, public)
        assert isinstance(found, dict)
        public = json.loads(json.dumps(found))
    assert public["n_users"] == sum(len(part) for part in parts[:4])
    assert [part["stage"] for part in public["parts"]] == ["center", "narrow"]
    assert len(public["scales"]) == 2
    assert public["center"] == pytest.approx(0.3, abs=0.05)


@pytest.mark.parametrize("silent", [(0, 1, 2, 3, 4), (0,), (1,), (2,), (3,), (4,), (0, 1, 2, 3)])
def test_stages_without_reports(silent: tuple[int, ...]) -> None:
    estimator = Adaptive(epsilon=1.0, users=20_000)
    public: Public = {}
    found: Public | Estimate = public
    for number, stage in enumerate(estimator.rounds):
        n = 0 if number in silent else 4000
        reports = stage.encode(
            users_of(np.full(n, 0.2)), public, SeededWords(np.random.default_rng(1), n)
        )
        found = stage.decode(stage.tally(reports, public) if n else Tally(), public)
        public = found if isinstance(found, dict) else public
    assert isinstance(found, Estimate)
    assert -1.0 <= found.lower <= found.value <= found.upper <= 1.0
    assert found.n_users == 4000 * (5 - len(silent))
    if len(silent) == 5:
        assert (float(found.value), float(found.lower), float(found.upper)) == (0.0, -1.0, 1.0)
    else:
        assert found.lower - 0.1 <= 0.2 <= found.upper + 0.1


def test_a_window_that_missed_the_users_is_given_up() -> None:
    estimator = Adaptive(epsilon=1.0, users=20_000)
    public: Public = {
        "n_users": 1,
        "mode": "narrow",
        "window": [-0.5, 0.1],
        "moment": 0.06,
        "center": -0.5,
        "center_stderr": 0.01,
    }
    stage = estimator.rounds[2]
    reports = stage.encode(
        users_of(np.full(4000, 0.5)), public, SeededWords(np.random.default_rng(1), 4000)
    )
    found = stage.decode(stage.tally(reports, public), public)
    assert isinstance(found, dict)
    assert (found["mode"], found["window"], found.get("parts")) == ("wide", [0.0, 1.0], None)


def test_users_at_the_end_of_a_cut_window_are_where_they_should_be() -> None:
    """Half of a window around .8 lies beyond the bounds: its users are far from the middle of what
    is left."""
    estimator = Adaptive(epsilon=1.0, users=20_000)
    public: Public = {
        "n_users": 1,
        "mode": "narrow",
        "window": [0.8, 1.1],
        "moment": 0.5,
        "center": 0.8,
        "center_stderr": 0.03,
    }
    stage = estimator.rounds[2]
    reports = stage.encode(
        users_of(np.full(4000, 0.8)), public, SeededWords(np.random.default_rng(1), 4000)
    )
    found = stage.decode(stage.tally(reports, public), public)
    assert isinstance(found, dict)
    assert found["mode"] == "narrow"
    assert found["window"] == [found["center"], 1.1]


# Answers


def test_users_who_are_alike_are_found_closely() -> None:
    found = answer(Adaptive(epsilon=1.0, users=20_000), np.full(20_000, 0.4))
    one_shot = OneShot(epsilon=1.0, users=20_000).describe()["predicted_stderr"]
    assert abs(found.value - 0.4) < 4 * found.stderr
    assert found.stderr < 0.25 * one_shot
    assert (found.method, found.mode, found.n_users) == ("adaptive", "tuned", 20_000)


def test_users_far_apart_are_answered_without_a_window() -> None:
    means = np.where(np.random.default_rng(0).random(20_000) < 0.3, -0.9, 0.9)
    found = answer(Adaptive(epsilon=1.0, users=20_000), means)
    assert abs(found.value - means.mean()) < 4 * found.stderr
    assert all(stage["half_width"] == 1.0 for stage in found.stages if "half_width" in stage)


def test_sizes_do_not_weigh_users() -> None:
    """Large users lie elsewhere than small ones: the mean over users is what is answered."""
    estimator = Adaptive(
        epsilon=2.0, users=20_000, sizes=SizeDistribution.parse("two:100,10000,0.5")
    )
    large = np.random.default_rng(0).random(20_000) < 0.5
    users = users_of(np.where(large, 0.15, 0.05))
    users = replace(
        users, count=np.where(large, 10_000, 100), total=users.total * np.where(large, 10_000, 100)
    )
    rng = np.random.default_rng(3)
    stage = protocol_stages_of_positions(estimator.shares, rng.random(20_000))
    words = [
        SeededWords(rng, int((stage == number).sum())) for number in range(len(estimator.rounds))
    ]
    found = run_protocol(estimator, users, stage, words)
    assert abs(found.value - 0.1) < 4 * found.stderr < 0.04


# What it chooses and says


def test_registry() -> None:
    assert isinstance(build_estimator("adaptive", epsilon=1.0, users=1000), Adaptive)


@pytest.mark.parametrize(
    ("epsilon", "users"), [(0.3, 20_000), (0.63, 10_000), (1.0, 4000), (2.0, 900), (1.0, 1)]
)
def test_one_shot_where_votes_would_tell_too_little(epsilon: float, users: int) -> None:
    estimator = Adaptive(epsilon=epsilon, users=users)
    assert estimator.shares == (1.0,)
    one_shot = OneShot(epsilon=epsilon, users=users).describe()
    assert estimator.describe()["predicted_stderr"] == one_shot["predicted_stderr"]
    assert estimator.describe()["channels"] == [one_shot["channel"]]
    assert estimator.describe()["assumption"].startswith("none")


@pytest.mark.parametrize("epsilon", [0.63, 1.0, 2.0, 4.0])
@pytest.mark.parametrize(("sizes", "users"), [("poisson:5", 10_000), ("lognormal:20,1.5", 100_000)])
def test_one_shot_where_sizes_are_small(sizes: str, users: int, epsilon: float) -> None:
    assert Adaptive(epsilon=epsilon, users=users, sizes=SizeDistribution.parse(sizes)).shares == (
        1.0,
    )


def test_shares_cover_everybody_and_few_vote() -> None:
    for users in (20_000, 1_000_000):
        shares = Adaptive(epsilon=1.0, users=users).shares
        assert sum(shares) == pytest.approx(1.0)
        assert min(shares) > 0.0
        assert shares[1] <= 0.05


@pytest.mark.parametrize("users", [20_000, 1_000_000])
def test_the_shares_are_those_of_the_least_risk(users: int) -> None:
    chosen = Adaptive(epsilon=1.0, users=users).plan

    def risk(start: float, middle: float) -> float:
        shares = (
            start,
            chosen.shares[1],
            middle,
            chosen.shares[3],
            1.0 - start - middle - 2.0 * chosen.shares[1],
        )
        plan = replace(chosen, shares=shares)
        return math.prod(adaptive_risk(plan, PlacedLaw.normal(spread)) for spread in (0.01, 0.05))

    risks = {
        (start, middle): risk(start, middle) for start in (0.1, 0.2, 0.3) for middle in (0.15, 0.3)
    }
    best = min(risks, key=lambda pair: risks[pair])
    assert (chosen.shares[0], chosen.shares[2]) == best
    assert max(risks.values()) > 1.05 * risks[best]  # the choice matters


def test_description_says_what_is_assumed() -> None:
    said = Adaptive(
        epsilon=1.0, users=20_000, sizes=SizeDistribution.parse("point:1000")
    ).describe()
    assert "exponentially" in said["assumption"]
    assert said["estimand"].startswith("mean over users")
    assert said["predicted_stderr_if_alike"] < 0.3 * said["one_shot_stderr"]
    assert said["one_shot_stderr"] < said["predicted_stderr"] < 1.1 * said["one_shot_stderr"]
    json.dumps(said)


def test_risk_of_one_stage_is_exact() -> None:
    plan = AdaptivePlan(settings(), (1.0,), start_moment=1.0)
    assert adaptive_risk(plan, PlacedLaw.normal(0.2)) == adaptive_one_shot_risk(
        plan, PlacedLaw.normal(0.2)
    )
    channel = plan.channel(1.0)
    law = PlacedLaw(np.array([-0.5, 0.5]), np.array([0.5, 0.5]), 0.25)
    exact = np.mean(channel.variance(law.mean + law.deviation)) + 0.25
    assert adaptive_one_shot_risk(plan, law) == pytest.approx(exact / 20_000, rel=1e-6)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"epsilon": 0.0}, "epsilon must be positive"),
        ({"users": 0}, "users must be an integer, at least 1"),
        ({"mode": "paper"}, "mode must be 'tuned'"),
        ({"level": 1.0}, "level must lie strictly between"),
    ],
)
def test_options_out_of_range(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Adaptive(**({"epsilon": 1.0, "users": 1000} | options))

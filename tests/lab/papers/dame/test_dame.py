"""DAME: what users send, how it is undone, and the choices of its two modes."""

from __future__ import annotations

import json
import math
import re

import numpy as np
import pytest

from meanstream.lab.papers.dame.dame import Dame
from meanstream.lab.random_words import SeededWords
from meanstream.lab.simulation.simulated_rounds import RoundsConfig, simulate_rounds
from meanstream.operators.estimators.registry import build_estimator
from meanstream.operators.noise.keyed import keyed_owner_words
from meanstream.operators.rounds.localization import ClipWindow
from meanstream.operators.rounds.round_records import Estimate, Summaries, Tally
from meanstream.operators.rounds.user_sizes import SizeDistribution

SPAN = 2**20


def users(count, mean):
    """One user for each size and mean; means are put on the grid."""
    count, mean = np.broadcast_arrays(np.asarray(count, np.int64), np.asarray(mean, np.float64))
    total = np.rint((mean + 1) / 2 * SPAN * count).astype(np.int64)
    ids = keyed_owner_words([str(i) for i in range(len(count))])
    return Summaries(user=ids, count=count.copy(), total=total, first=total // count, span=SPAN)


def dame(sizes="two:100000,1000000,0.5", **options):
    options = {"epsilon": 22 / 35, "users": 10_000, "mode": "paper"} | options
    return Dame(sizes=SizeDistribution.parse(sizes), **options)


def test_shrinking_leaves_the_expectation_known():
    estimator = dame("uniform:1,199", effective_size=100)
    sizes = estimator.sizes
    for center, mean in ((0.3, 0.5), (-0.9, -0.8), (0.0, 1.0)):
        window = ClipWindow(-1.0, 1.0, center)
        shrunk = estimator.shrunk(users(sizes.support, mean), window)
        expected = center + estimator.gain * (mean - center)
        assert float(sizes.probability @ shrunk) == pytest.approx(expected, abs=1e-5)
        assert shrunk[-1] == pytest.approx(mean, abs=1e-6)  # not shrunk from the effective size on


def test_decoding_undoes_shrinking_and_scaling():
    """Equation 9, from reports without noise."""
    estimator = dame("uniform:1,199", effective_size=100)
    clip = estimator.rounds[1]
    window = ClipWindow(0.2, 0.9, 0.5)
    public = {"users": 7, **window.as_public(), "stages": [{"stage": "vote"}]}
    mean = 0.6
    step = estimator.channel(window).step
    for weight in (0.3, estimator.gain, 1.0):
        number = window.center + weight * (mean - window.center)
        report = round((number - window.middle) / window.half_width / step)
        found = clip.decode(Tally(2, (2 * report, 2 * report**2)), public)
        expected = window.center + weight / estimator.gain * (mean - window.center)
        assert float(found.unclipped) == pytest.approx(expected, abs=1e-5)
        assert found.n_users == 9
        assert [stage["stage"] for stage in found.stages] == ["vote", "clip"]


def test_only_users_with_enough_samples_vote_and_one_with_just_enough_does():
    estimator = dame(effective_size=100)
    ballots = estimator.ballot(users([1, 99, 100, 101], 0.0))
    assert ballots.any(axis=1).tolist() == [False, False, True, True]
    assert ballots.sum(axis=1).max() == 3


def test_the_window_is_the_bin_and_six_half_widths_and_ties_go_to_the_first():
    estimator = dame()
    vote, tau = estimator.rounds[0], estimator.bins.half_width
    counts = [5] * estimator.bins.count
    counts[30] = counts[31] = 9
    public = vote.decode(Tally(10, tuple(counts)), {})
    lower, upper = estimator.bins.edges(30)
    assert public["lower"] == pytest.approx(lower - 6 * tau)
    assert public["upper"] == pytest.approx(upper + 6 * tau)
    assert public["center"] == pytest.approx((lower + upper) / 2)
    assert json.loads(json.dumps(public)) == public


def test_noise_follows_the_window_and_only_the_literal_one_exceeds_it():
    for sizes, size in (("two:100000,1000000,0.5", 100_000), ("point:1", 1)):
        exact, literal = (
            dame(sizes, literal=literal, effective_size=size) for literal in (False, True)
        )
        for j in range(exact.bins.count):
            window = exact.bins.window(j, 6.0)
            width = window.upper - window.lower
            scales = [
                e.channel(window).noise.scale * e.channel(window).step * width / 2
                for e in (exact, literal)
            ]
            assert scales[0] == pytest.approx(width / exact.epsilon, rel=1e-4)
            assert scales[1] == pytest.approx(14 * exact.bins.half_width / exact.epsilon, rel=1e-4)
            assert scales[0] <= scales[1] * (1 + 1e-4)


@pytest.mark.parametrize("literal", [False, True])
def test_one_bin_has_the_exact_error(literal):
    # h = n / 2 users report: (1 - theta**2 + 2 scale**2) / h; 4 standard errors, false alarm 6e-5.
    theta, epsilon = 0.5, 1.0
    config = RoundsConfig(
        estimator="dame", users=2000, epsilon=epsilon, sizes="point:1", data=f"rademacher:{theta}", mode="paper",
        runs=200, options={"literal": literal},
    )  # fmt: skip
    estimator = config.build()
    result = simulate_rounds(config, estimator)
    scale = 14 * estimator.bins.half_width / epsilon if literal else 2 / epsilon
    expected = (1 - theta**2 + 2 * scale**2) / 1000
    assert estimator.bins.count == 1
    assert abs(result.mse - expected) < 4 * result.stderr


def test_the_last_bin_is_cut():
    """D4: with an overshooting bin the error is .0142. 4 standard errors, false alarm 6e-5."""
    config = RoundsConfig(
        estimator="dame", users=20_000, epsilon=1.0, sizes="two:1,2,0.5", data="rademacher:0.9", mode="paper",
        runs=150, options={"effective_size": 2},
    )  # fmt: skip
    result = simulate_rounds(config)
    assert abs(result.mse - 0.00108) < 4 * result.stderr
    assert result.mse < 0.002


def test_tuned_does_not_shrink_where_nothing_is_localized():
    paper, tuned = (dame("poisson:5", epsilon=2.0, mode=mode) for mode in ("paper", "tuned"))
    assert (paper.effective_size, tuned.effective_size) == (5, 1)
    assert (len(paper.rounds), len(tuned.rounds)) == (2, 1)
    assert tuned.describe()["predicted_stderr"] < 0.5 * paper.describe()["predicted_stderr"]


@pytest.mark.parametrize("sizes", ["two:100000,1000000,0.5", "uniform:1,199", "poisson:5"])
def test_tuned_predicts_less_error_than_paper(sizes):
    for epsilon in (0.3, 22 / 35, 1.0, 2.0, 4.0):
        paper, tuned = (
            dame(sizes, mode=mode, epsilon=epsilon).describe() for mode in ("paper", "tuned")
        )
        assert tuned["predicted_stderr"] < paper["predicted_stderr"]


def test_failures_of_the_vote_are_predicted():
    """Spec: with the large size forced on a share of .222 the error is .171: half of the runs, at
    1/3 each."""
    sizes, forced = "two:100000,1000000,0.2222", {"effective_size": 1_000_000}
    assert dame(sizes, **forced).describe()["failure_probability"] == pytest.approx(0.5, abs=0.15)
    assert dame(sizes).describe()["failure_probability"] < 1e-6
    assert dame("poisson:5", mode="tuned").describe()["failure_probability"] == 0.0
    config = RoundsConfig(
        estimator="dame",
        users=10_000,
        epsilon=22 / 35,
        sizes=sizes,
        mode="paper",
        options=forced,
        runs=40,
    )
    result = simulate_rounds(config)
    # Errors are uniform on [-1, 1] where it fails: 4 standard errors, and a third for what the
    # prediction leaves out.
    assert abs(result.mse - result.predicted_mse) < 4 * result.stderr + result.predicted_mse / 3


def test_no_reports_and_one_report_give_a_wide_honest_answer():
    estimator = dame()
    vote, clip = estimator.rounds
    public = vote.decode(Tally(), {})
    assert ClipWindow.of(public) == ClipWindow()
    nothing = clip.decode(Tally(), public)
    assert isinstance(nothing, Estimate)
    assert (nothing.value, nothing.lower, nothing.upper, nothing.n_users) == (0.0, -1.0, 1.0, 0)
    one = clip.decode(Tally(1, (3, 9)), public)
    assert (one.lower, one.upper, one.n_users) == (-1.0, 1.0, 1)
    assert math.isfinite(one.stderr)


def test_equal_reports_do_not_make_a_certain_answer():
    clip = dame("poisson:5", mode="tuned").rounds[0]
    found = clip.decode(Tally(3, (3, 3)), {})  # three one-bit reports of 1
    assert found.upper - found.lower > 0.5


def test_reports_that_no_user_can_send_are_refused():
    estimator = dame("two:1000,2000,0.5")
    vote, clip = estimator.rounds
    sent = vote.encode(users([1000, 1], 0.2), {}, SeededWords(np.random.default_rng(1), 2))
    assert vote.valid(sent, {}).all()
    assert not vote.valid(sent | 2**62, {}).any()
    assert not clip.valid(np.array([[2**55]]), {}).any()


@pytest.mark.parametrize(
    ("options", "line"),
    [
        ({"effective_size": 0}, "effective_size must be an integer, at least 1, got 0"),
        ({"literal": True, "mode": "tuned"}, "literal must be left out in mode tuned, got True"),
        ({"sizes": None}, "sizes must be given for dame"),
        ({"epsilon": -1.0}, "epsilon must be positive and finite, got -1.0"),
        ({"epsilon": 1e308}, "epsilon must be from 0.0001 to 1e100, got 1e+308"),
        ({"epsilon": 1e-9}, "epsilon must be from 0.0001 to 1e100, got 1e-09"),
        ({"users": 0}, "users must be an integer, at least 1, got 0"),
        ({"mode": "fast"}, "mode must be one of paper, tuned, got 'fast'"),
        ({"level": 1.0}, "level must lie strictly between 0.0 and 1.0, got 1.0"),
        ({"between_users": 0.1}, "dame takes no option 'between_users'"),
    ],
)
def test_wrong_options_are_one_line(options, line):
    given = {
        "epsilon": 1.0,
        "users": 100,
        "sizes": SizeDistribution.parse("poisson:5"),
        "mode": "paper",
    } | options
    with pytest.raises(ValueError, match=re.escape(line)) as refused:
        build_estimator("dame", **given)
    assert "\n" not in str(refused.value)

"""One-shot reports, Duchi's readings and the naive schemes: their exact errors."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import kstest, laplace

from meanstream.lab.papers.dame.round_baselines import Item, SummedLaplaceChannel, summed_laplace
from meanstream.lab.random_words import SeededWords
from meanstream.lab.simulation.simulated_rounds import RoundsConfig, simulate_rounds
from meanstream.operators.estimators.one_shot import OneShot
from meanstream.operators.estimators.registry import ESTIMATORS, build_estimator
from meanstream.operators.noise.keyed import keyed_owner_words
from meanstream.operators.rounds.channels.registry import CHANNELS, make_channel
from meanstream.operators.rounds.round_records import Summaries, Tally
from meanstream.operators.rounds.user_sizes import SizeDistribution

EPSILON = 22 / 35
NOISE = 8 / EPSILON**2
ONE_BIT = 1 / math.tanh(EPSILON / 2) ** 2


@pytest.mark.parametrize(
    ("estimator", "options", "sizes", "per_user"),
    [
        ("duchi", {}, "point:100", ONE_BIT),
        ("duchi", {"summary": "mean"}, "point:100", ONE_BIT),
        ("duchi", {"reading": "laplace"}, "point:100", 1 + NOISE),
        ("duchi", {"reading": "laplace", "summary": "mean"}, "point:100", 0.01 + NOISE),
        ("semi", {}, "two:1,100,0.5", 0.505 + NOISE),
        ("split", {}, "point:100", 0.01 + 100 * NOISE),
        ("split", {"threshold": 5}, "two:1,100,0.5", 0.505 + 5 * NOISE),
        ("item", {}, "point:100", 0.01 * (1 + NOISE)),
        ("one_shot", {}, "point:100", ONE_BIT),
    ],
)
def test_errors_are_exact_and_predicted_and_without_bias(estimator, options, sizes, per_user):
    # 4 standard errors for each of four comparisons: false alarm 3e-4 per case.
    config = RoundsConfig(
        estimator=estimator,
        users=400,
        epsilon=EPSILON,
        sizes=sizes,
        mode="paper",
        runs=400,
        options=options,
    )
    result = simulate_rounds(config)
    assert abs(result.mse - per_user / 400) < 4 * result.stderr
    assert result.predicted_mse == pytest.approx(per_user / 400, rel=1e-3)
    assert abs(result.bias) < 4 * result.bias_stderr
    # Coverage of the nominal 95 %: binomial.
    assert abs(result.coverage - 0.95) < 4 * math.sqrt(0.95 * 0.05 / 400) + 0.005


@pytest.mark.parametrize("epsilon", [0.1, 0.63, 1.0, 2.0, 4.0, 8.0])
def test_one_shot_takes_the_best_channel(epsilon):
    for second_moment in (0.0, 0.1, 1.0):
        chosen = OneShot(epsilon=epsilon, users=1, second_moment=second_moment).describe()[
            "channel"
        ]
        moments = {
            name: make_channel(name, epsilon, second_moment=second_moment).moments
            for name in CHANNELS
        }
        value = {name: c0 + c1 * second_moment for name, (c0, c1) in moments.items()}
        assert value[chosen] == min(value.values())


def test_one_shot_is_honest_where_users_differ():
    # Binomial, 4 standard errors: false alarm 6e-5. The answers of dame would be confidently wrong
    # here.
    given = {
        "users": 4000,
        "epsilon": 1.0,
        "sizes": "point:1000",
        "between_users_law": "skewed:0.2",
        "runs": 200,
    }
    honest = simulate_rounds(RoundsConfig(estimator="one_shot", **given))
    assert honest.coverage > 0.95 - 4 * math.sqrt(0.95 * 0.05 / 200)
    assert abs(honest.bias) < 4 * honest.bias_stderr


def test_sums_of_laplace_variables_are_distributed_as_such():
    # Kolmogorov-Smirnov at 1e-4.
    rng = np.random.default_rng(5)
    one = summed_laplace(np.ones(20_000), 2.0, SeededWords(rng, 20_000), 0)
    assert kstest(one, laplace(scale=2.0).cdf).pvalue > 1e-4
    three = summed_laplace(np.full(20_000, 3), 2.0, SeededWords(rng, 20_000), 0)
    added = rng.laplace(0.0, 2.0, (20_000, 3)).sum(axis=1)
    assert kstest(three, added).pvalue > 1e-4
    many = summed_laplace(np.full(20_000, 10**6), 2.0, SeededWords(rng, 20_000), 0)
    assert many.std() == pytest.approx(2.0 * math.sqrt(2e6), rel=5 / math.sqrt(2 * 20_000))


@pytest.mark.parametrize("values", [1, 7, 100_000])
def test_extreme_bits_give_finite_reports_within_the_declared_range(values):
    channel = SummedLaplaceChannel(1.0, values=values)
    ends = np.array(
        [[0, 0], [0, 2**64 - 1], [2**64 - 1, 0], [2**64 - 1, 2**64 - 1]], dtype=np.uint64
    )
    reports = channel.randomize(np.array([1.0, -1.0, 1.0, -1.0]), lambda draw: ends)
    assert channel.valid(reports).all()
    assert not channel.valid(np.array([channel.high + 1, channel.low - 1])).any()


def test_item_weighs_samples_and_knows_its_own_error():
    sizes = SizeDistribution.parse("two:1,9,0.5")
    item = Item(epsilon=2.0, users=4, sizes=sizes)
    step = item.rounds[0]
    reports = np.array([[2**19, 1], [-(2**19), 1], [9 * 2**18, 9], [9 * 2**17, 9]])
    tally = sum((step.tally(reports[i : i + 1], {}) for i in range(4)), Tally())
    assert tally == step.tally(reports, {})
    found = step.decode(tally, {})
    total, count = reports[:, 0] / 2**19, reports[:, 1]
    ratio = total.sum() / count.sum()
    left = ((total - ratio * count) ** 2).sum() * 4 / 3
    assert float(found.unclipped) == pytest.approx(ratio)
    assert float(found.stderr) == pytest.approx(max(math.sqrt(left), math.sqrt(8 / 4 * 20)) / 20)
    assert item.privacy_unit == "sample"


NAIVE = ("one_shot", "dame", "kent", "duchi", "item", "semi", "split")


@pytest.mark.parametrize("name", NAIVE)
@pytest.mark.parametrize("mode", ["paper", "tuned"])
def test_conformance(name, mode):
    """One row per user, one user after the other, merged in any order; no report is no fault."""
    assert name in ESTIMATORS
    estimator = build_estimator(
        name, epsilon=1.0, users=300, sizes=SizeDistribution.parse("two:500,2000,0.5"), mode=mode
    )
    assert (estimator.name, estimator.mode, estimator.trust) == (name, mode, "local")
    assert sum(estimator.shares) == pytest.approx(1.0)
    assert len(estimator.shares) == len(estimator.rounds)
    said = estimator.describe()
    assert math.isfinite(said["predicted_stderr"])
    rng = np.random.default_rng(2)
    count = rng.choice([500, 2000], 300)
    given = Summaries(
        user=keyed_owner_words([str(i) for i in range(300)]),
        count=count,
        total=count * 70,
        first=count * 0 + 70,
        span=100,
    )
    public, nothing = {}, {}
    for step in estimator.rounds:
        reports = step.encode(given, public, SeededWords(rng, 300))
        assert reports.shape[0] == 300
        assert reports.dtype == np.int64
        assert step.valid(reports, public).all()
        halves = step.tally(reports[200:], public) + Tally() + step.tally(reports[:200], public)
        assert halves == step.tally(reports, public)
        assert step.tally(reports[:0], public) == Tally()
        public, nothing = step.decode(halves, public), step.decode(Tally(), nothing)
    assert -1 <= public.lower <= public.value <= public.upper <= 1
    assert public.n_users == 300 * len(estimator.rounds)
    assert (nothing.lower, nothing.value, nothing.upper, nothing.n_users) == (-1, 0, 1, 0)

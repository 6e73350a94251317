"""Cummings' curator: windows, sizes, initial estimates, weights, fallbacks, intervals."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import binom

from meanstream.lab.papers.cummings.grid import (
    GRID,
    SIZES,
    cummings_grid_layout,
    grid_band_sizes,
    grid_interval_scores,
    grid_size_bins,
    in_grid_bands,
    window_initial_error,
    window_sampling_bound,
    window_size_bound,
    window_tight_initial_error,
)
from meanstream.lab.papers.cummings.initial_mean import GroupDeviation, OrderStatistics, PublicSizes
from meanstream.lab.papers.cummings.user_weights import (
    Weighting,
    cummings_weights_of_private_sizes,
    cummings_weights_of_public_sizes,
)
from meanstream.lab.random_words import SeededWords
from meanstream.operators.estimators.registry import build_estimator
from meanstream.operators.rounds.central_rounds import central_spend, run_central
from meanstream.operators.rounds.round_records import Tally
from meanstream.operators.rounds.user_sizes import SizeDistribution
from tests.operators.support.binomial_users import SPAN, answer, summaries

NAMES = ("cummings.ideal", "cummings.known_sizes", "cummings.private_sizes", "cummings.ratio")
CASES = [(name, mode) for name in NAMES for mode in ("paper", "tuned")]


def public(rate=0.3, deviation=0.05, **more):
    mean = {"value": rate, "raw": rate, "error": 0.02, "sampling": 0.01, "noise": 0.001}
    return {
        "mean": mean,
        "deviation": {"weights": deviation, "windows": 1.68 * deviation},
        "cap": 64,
        **more,
    }


def test_size_bins_hold_their_sizes():
    assert SIZES[:33].tolist() == [*range(1, 33), 33]
    assert (np.diff(SIZES) > 0).all()
    assert (SIZES[1:] / SIZES[:-1])[32:].max() < 1.07
    assert np.array_equal(grid_size_bins(SIZES), np.arange(len(SIZES)))
    assert np.array_equal(grid_size_bins(SIZES[1:] - 1), np.arange(len(SIZES) - 1))
    assert grid_size_bins(np.array([2**60])).tolist() == [len(SIZES) - 1]


@pytest.mark.parametrize("rate", [0.01, 0.3, 0.5])
def test_the_sampling_bound_holds_for_exact_binomial_tails(rate):
    for size in (1, 3, 10, 100, 10_000):
        for failure in (0.2, 1e-3, 1e-6):
            stray = float(window_sampling_bound(size, rate, failure))
            above = binom.sf(np.ceil(size * (rate + stray)) - 1, size, rate)
            below = binom.cdf(np.floor(size * (rate - stray)), size, rate)
            assert above + below <= failure


def test_windows_hold_all_users_means_as_often_as_they_say():
    # All 2000 users within their windows but for a tenth of the populations, at most; Bernstein's
    # bound is loose, so none of 200 is expected. Windows a third as wide lose users nearly always.
    rng, n, lost, lost_by_third = np.random.default_rng(1), 2000, 0, 0
    radius = window_size_bound(SIZES, n, 0.3, 0.05)
    for _ in range(200):
        given = summaries(n, rng)
        stray = np.abs(given.total / given.count / SPAN - 0.3) / radius[grid_size_bins(given.count)]
        lost += stray.max() > 1.0
        lost_by_third += stray.max() > 1.0 / 3.0
    assert lost <= 20
    assert lost_by_third > 100


@pytest.mark.parametrize("bound", [window_initial_error, window_tight_initial_error])
def test_the_initial_error_bound_holds(bound):
    # Probability of failure 0.1 at most: of 20,000, more than 2300 would be seen with probability
    # below 1e-11.
    rng, n, epsilon = np.random.default_rng(2), 1000, 1.0
    for rate in (0.05, 0.5):
        noised = rng.binomial(n, rate, 20_000) / n + rng.laplace(0.0, 1.0 / (epsilon * n), 20_000)
        errors = np.array([bound(float(min(max(x, 0.0), 1.0)), n, epsilon) for x in noised])
        assert np.count_nonzero(np.abs(noised - rate) > errors) < 2300


def test_the_tight_bound_is_tighter():
    for n in (100, 1000, 10**5):
        for rate in (0.05, 0.5):
            assert window_tight_initial_error(rate, n, 1.0) < window_initial_error(rate, n, 1.0)


def test_bands_by_public_size_are_disjoint_and_cover_everybody():
    given = summaries(5000, np.random.default_rng(3))
    sizes = np.bincount(grid_size_bins(given.count), minlength=len(SIZES)).tolist()
    bands = list(cummings_grid_layout(sizes, literal=False).values())
    masks = [in_grid_bands(given, {"sizes": sizes}, band) for band in bands]
    assert np.array_equal(sum(mask.astype(int) for mask in masks), np.ones(5000))
    assert given.count[masks[0]].max() <= np.quantile(given.count, 0.1)
    for band, mask in zip(bands, masks, strict=True):
        # Users of one size are told apart by hashes: binomial, five standard errors, false alarm
        # below 1e-6 in all.
        assert abs(mask.sum() - grid_band_sizes({"sizes": sizes}, band).sum()) < 5 * np.sqrt(
            5000 * 0.1
        )


def test_a_user_at_the_border_of_two_bands_is_in_one_of_them():
    """One in both would pay twice: here a user whose hash is 0 has the very rank at which a band
    ends."""
    counts = np.array([1, 1, 50, 50])
    given = replace(
        summaries(4, np.random.default_rng(3)), count=counts, user=np.zeros((4, 2), np.uint64)
    )
    sizes = np.bincount(grid_size_bins(counts), minlength=len(SIZES)).tolist()
    below, above = (
        in_grid_bands(given, {"sizes": sizes}, (band,)) for band in ((0.0, 0.5), (0.5, 1.0))
    )
    assert below.tolist() == [True, True, False, False]
    assert above.tolist() == [False, False, True, True]


def test_the_smallest_users_that_can_tell_the_deviation():
    def chosen(**numbers):
        sizes = [0] * len(SIZES)
        for size, number in numbers.items():
            sizes[int(grid_size_bins(np.array([int(size[1:])]))[0])] = number
        assert cummings_grid_layout(sizes, literal=True)["deviation"] == ((0.95, 1.0),)
        found = cummings_grid_layout(sizes, literal=False)
        below, above = found["weighted"]
        assert [0.0, 0.1, below[0]] == [*found["mean"][0], 0.1]
        assert (below[1], above[0], above[1]) == (*found["deviation"][0], 1.0)
        return pytest.approx(found["deviation"][0])

    assert chosen(k50=10_000) == (0.1, 0.15)
    assert chosen(k1=100) == (1.0, 1.0)
    assert chosen(k10=8000, k30=1500, k100=500) == (0.8, 0.85)
    assert chosen(k1=960, k200=40) == (0.96, 1.0)
    assert chosen(k1=96_000, k200=4000) == (0.96, 0.98)


def test_bands_of_private_sizes_are_everybody():
    given = summaries(50, np.random.default_rng(3))
    assert in_grid_bands(given, {}, ((0.0, 0.1),)).all()


def test_interval_scores_are_highest_where_the_rank_lies():
    rng = np.random.default_rng(4)
    for _ in range(300):
        counts = rng.integers(0, 4, 8)
        values = np.repeat(np.arange(8), counts)[::-1]
        for rank in range(1, len(values) + 1):
            scores = grid_interval_scores(counts, 2 * rank)
            assert scores[values[rank - 1]] == 0
            assert (scores <= 0).all()


def test_order_statistics_find_the_median_and_the_top():
    given = summaries(20_000, np.random.default_rng(5), law="uniform")
    step = OrderStatistics(
        cohort=0, payers="p", epsilon=2.0, floor=True, cap=True, largest=2**20, literal=False
    )  # fmt: skip
    for seed in range(20):
        words = SeededWords(np.random.default_rng(seed), 1)
        found = step.release(step.tally(step.encode(given, {}), {}), {}, words)
        # Half-octaves: [45, 64) holds the median of 1..100, [91, 128) the top.
        assert (found["floor"], found["cap"]) == (45, 91)


def test_the_deviation_hits_the_papers_band():
    # C3, C4: with 500 users, between the deviation s of the users' means and sqrt(8) s, at least 97
    # times in 100; fewer than 90 would be seen with probability below 1e-3 of that, none here.
    given = {"mean": {"value": 0.3}}
    step = GroupDeviation(cohort=0, payers="p", epsilon=1.0, groups=125, literal=True)
    hits = 0
    for seed in range(100):
        rng = np.random.default_rng(seed)
        users = summaries(500, rng, law="100")
        found = step.release(
            step.tally(step.encode(users, given), given), given, SeededWords(rng, 1)
        )
        true = np.sqrt(0.05**2 + (0.21 - 0.05**2) / 100)
        hits += true <= found["deviation"]["windows"] <= np.sqrt(8.0) * true
    assert hits >= 90


def test_only_users_as_large_as_the_floor_tell_the_deviation():
    step = GroupDeviation(cohort=0, payers="p", epsilon=1.0, groups=125, literal=False)
    users = summaries(400, np.random.default_rng(9), law="uniform")
    for floor, least in ((None, 2), (1, 2), (2, 2), (3, 3), (45, 45)):
        told = step.encode(users, {} if floor is None else {"floor": floor})
        expected = np.sort(GRID // users.count[users.count >= least])
        assert np.array_equal(np.sort(told[:, 2]), expected)
    assert np.isin([1, 2, 3, 45], users.count).all()


@pytest.mark.parametrize(
    ("deviation", "low", "high"), [(0.0, 0.0, 0.024), (0.05, 0.035, 0.071), (0.2, 0.14, 0.29)]
)
def test_the_tuned_deviation_takes_sampling_off(deviation, low, high):
    # The grid of half-octaves and the private median of 250 groups: a factor of sqrt(2), at most,
    # 19 times in 20.
    given = {"mean": {"value": 0.3}}
    step = GroupDeviation(cohort=0, payers="p", epsilon=2.0, groups=250, literal=False)
    found = []
    for seed in range(20):
        rng = np.random.default_rng(seed)
        users = summaries(1000, rng, law="100", deviation=deviation)
        result = step.release(
            step.tally(step.encode(users, given), given), given, SeededWords(rng, 1)
        )
        found.append(result["deviation"]["weights"])
    assert np.sum((np.array(found) >= low) & (np.array(found) <= high)) >= 19


def test_private_weights_are_inverse_variances_up_to_the_cap():
    given = cummings_weights_of_private_sizes(public(), 1000)
    variance = 0.21 / np.minimum(SIZES, 64) + (1 - 1 / np.minimum(SIZES, 64)) * 0.05**2
    assert np.allclose(given.weight, variance.min() / variance)
    assert given.weight[grid_size_bins(np.array([64, 10**6]))].tolist() == [1.0, 1.0]
    # Windows follow the full size, and end where values do.
    assert np.all(np.diff(given.high) <= 0)
    assert given.low.min() == pytest.approx(-0.3)
    assert given.high.max() == pytest.approx(0.7)


def test_public_weights_have_the_best_truncation():
    sizes = [0] * len(SIZES)
    for size, number in ((1, 900), (10, 90), (1000, 10)):
        sizes[int(grid_size_bins(np.array([size]))[0])] = number
    given = public(sizes=sizes)
    whole = ((0.0, 1.0),)

    def risk(weighting, weight):
        spread = np.array(sizes) @ (weight**2 * weighting.variance)
        noise = 2.0 * (np.max(weight * (weighting.high - weighting.low)) / epsilon) ** 2
        return (spread + noise) / (np.array(sizes) @ weight) ** 2

    for epsilon in (0.05, 1.0, 100.0):
        best = cummings_weights_of_public_sizes(given, 1000, epsilon, whole)
        s = np.sqrt(best.variance)
        chosen = risk(best, best.weight)
        for threshold in np.geomspace(0.5 / s.max(), 2.0 / s[np.array(sizes) > 0].min(), 200):
            other = np.where(np.array(sizes) > 0, np.minimum(1.0 / s**2, threshold / s), 0.0)
            assert chosen <= risk(best, other) * 1.02
    assert cummings_weights_of_public_sizes(given, 1000, 100.0, whole).weight.min() == 0.0


@pytest.mark.parametrize(("name", "mode"), CASES)
def test_every_estimator_says_what_it_costs(name, mode):
    estimator = build_estimator(
        name, epsilon=0.8, users=5000, mode=mode, sizes=SizeDistribution.parse("uniform:1,100")
    )
    paid = central_spend(estimator.rounds)
    assert max(epsilon for epsilon, _ in paid.values()) == pytest.approx(0.8)
    assert max(delta for _, delta in paid.values()) == estimator.delta
    described = estimator.describe()
    json.dumps(described)
    assert described["replaced"].endswith("included" if name in NAMES[2:] else "not their number")
    assert described["spend"]["weighted"] == list(paid["weighted"])
    assert 0.001 < described["predicted_stderr"] < 0.02
    assert estimator.trust == "central"


@pytest.mark.parametrize(("name", "mode"), CASES)
@pytest.mark.parametrize("n", [0, 1, 7, 100])
def test_few_users_get_a_wide_honest_answer(name, mode, n):
    for rate in (0.0, 0.5, 1.0):
        rng = np.random.default_rng(n)
        found = answer(name, 0.5, summaries(n, rng, rate=rate, deviation=0.0), rng, mode=mode)
        assert -1.0 <= found.lower <= found.value <= found.upper <= 1.0
        assert np.isfinite(found.stderr)
        assert (found.n_users, found.trust, found.mode) == (n, "central", mode)
        json.dumps(found.stages)
        if n == 0:
            assert (found.value, found.lower, found.upper) == (0.0, -1.0, 1.0)


@pytest.mark.parametrize("name", NAMES)
def test_options_out_of_range_are_refused(name):
    with pytest.raises(ValueError, match="epsilon must be positive"):
        build_estimator(name, epsilon=0.0, users=10)
    with pytest.raises(ValueError, match="mode must be tuned or paper"):
        build_estimator(name, epsilon=1.0, users=10, mode="exact")
    with pytest.raises(ValueError, match="takes no option 'votes'"):
        build_estimator(name, epsilon=1.0, users=10, votes="sue")


def test_bounds_on_sizes_and_delta_are_checked():
    with pytest.raises(ValueError, match="largest_size must lie between 2 and"):
        build_estimator("cummings.ratio", epsilon=1.0, users=10, largest_size=1)
    with pytest.raises(ValueError, match="delta must lie strictly between 0"):
        build_estimator("cummings.private_sizes", epsilon=1.0, users=10, delta=0.0)
    with pytest.raises(ValueError, match="center must lie between -1 and 1"):
        build_estimator("cummings.ideal", epsilon=1.0, users=10, center=1.5)


@pytest.mark.parametrize(
    ("center", "value"),
    [(0.0, 0.5), (0.5, 0.75), (-1.0, 0.05), (1.0, 0.95), (0.9, 0.95), (-0.9, 0.05)],
)
def test_the_yardstick_is_told_the_mean_and_no_user_weighs_without_end(center, value):
    told = (
        build_estimator("cummings.ideal", epsilon=1.0, users=10, center=center, between_users=0.3)
        .rounds[1]
        .known
    )
    assert told["mean"]["value"] == pytest.approx(value)
    assert told["deviation"] == {"weights": 0.15, "windows": 0.15}


def test_an_estimator_without_an_answer_is_a_fault_that_names_it():
    broken = build_estimator("cummings.ratio", epsilon=1.0, users=10)
    broken.rounds = broken.rounds[:1]
    given = summaries(10, np.random.default_rng(0))
    with pytest.raises(TypeError, match=r"cummings.ratio: the last release gave no estimate"):
        run_central(
            broken, given, np.zeros(10, np.int64), [SeededWords(np.random.default_rng(0), 1)]
        )


@pytest.mark.parametrize(("name", "mode"), CASES)
def test_sums_are_the_same_in_any_number_of_parts(name, mode):
    given = summaries(400, np.random.default_rng(6))
    sizes = np.bincount(grid_size_bins(given.count), minlength=len(SIZES)).tolist()
    estimator = build_estimator(name, epsilon=1.0, users=400, mode=mode)
    for step in estimator.rounds:
        before = public() if "private" in name or "ratio" in name else public(sizes=sizes)
        whole = step.tally(step.encode(given, before), before)
        cut = [slice(0, 130), slice(130, 131), slice(131, 400)]
        parts = [step.tally(step.encode(given.take(part), before), before) for part in cut]
        assert sum(parts[::-1], Tally()) == whole


def test_public_sizes_are_counted_as_they_are():
    given = summaries(400, np.random.default_rng(6))
    step = PublicSizes(literal=True)
    found = step.release(step.tally(step.encode(given, {}), {}), {}, None)
    assert found["sizes"] == np.bincount(grid_size_bins(given.count), minlength=len(SIZES)).tolist()


@pytest.mark.parametrize(("name", "mode"), [case for case in CASES if case[0] != "cummings.ideal"])
def test_intervals_cover(name, mode):
    # Nominal 95 %: of 200, fewer than 176 (.88) would be seen with probability 1e-4 each at exactly
    # .95.
    rng = np.random.default_rng(8)
    covered = 0
    for _ in range(200):
        found = answer(name, 1.0, summaries(3000, rng), rng, mode=mode)
        covered += found.lower <= -0.4 <= found.upper
    assert covered >= 176


def test_the_ratio_falls_back_where_noise_drowns_the_weights():
    rng = np.random.default_rng(9)
    found = answer("cummings.ratio", 0.02, summaries(60, rng), rng)
    assert found.stages[1]["fallback"] == "weights"


def test_skewed_users_are_covered_because_the_spread_is_measured():
    # Users' rates 0.2 + 0.1 (Exp - 1) / 1: their median deviation says less than their deviation.
    # 200 runs as above.
    rng, covered, n = np.random.default_rng(10), 0, 5000
    for _ in range(200):
        given = summaries(n, rng, law="uniform")
        rates = np.clip(0.2 + 0.1 * (rng.exponential(size=n) - 1.0), 0.0, 1.0)
        total = rng.binomial(given.count, rates)
        given = replace(
            given, total=total * SPAN, first=(rng.random(n) < total / given.count) * SPAN
        )
        found = answer("cummings.ratio", 1.0, given, rng)
        covered += found.lower <= -0.6 <= found.upper
    assert covered >= 176


def test_steps_stay_within_their_ends():
    given = cummings_weights_of_private_sizes(public(), 1000)
    low, high = given.ends()
    rows = given.encode(summaries(5000, np.random.default_rng(11), rate=0.5, deviation=0.3))
    assert (rows[:, 1] >= low[rows[:, 0]]).all()
    assert (rows[:, 1] <= high[rows[:, 0]]).all()
    assert rows[:, 2].min() >= 0
    assert rows[:, 2].max() <= GRID


@pytest.mark.parametrize("seed", range(5))
def test_sensitivities_are_the_largest_differences_of_two_users(seed: int) -> None:
    rng, bins = np.random.default_rng(seed), len(SIZES)
    low, high = -rng.uniform(0.1, 1, bins), rng.uniform(0.1, 1, bins)
    weighting = Weighting(0.5, np.ones(bins), rng.uniform(0.1, 1, bins), low, high)
    ends = np.array([weighting.steps(np.arange(bins), offset) for offset in (low, high)])
    assert weighting.sensitivity_of_any_size == max(
        abs(a - b) for a in ends.ravel() for b in (ends.max(), ends.min())
    )
    assert weighting.sensitivity_of_same_size == max(abs(ends[0] - ends[1]))

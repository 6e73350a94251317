"""Variance schemes: edge cases, unbiasedness, the recursion against all partial sums at once, the
Bayesian repair."""

from __future__ import annotations

import math

import numpy as np
import pytest
from river import stats
from scipy.integrate import quad
from scipy.special import gamma, gammainc

from meanstream.lab.papers.colme.variance_trackers import (
    PRIORS,
    Bayesian,
    FromReleases,
    PrintedFromReleases,
    ReleasedVariance,
    bayesian_variance_from_parts,
    scheme_sample_variance,
    scheme_usable,
)
from meanstream.operators.counters.pm1 import Pm1
from meanstream.operators.counters.pm2 import Pm2
from meanstream.operators.counters.registry import COUNTERS, Counter, make_counter
from meanstream.operators.counters.toeplitz import Toeplitz
from tests.oracles.partial_sums import (
    bayesian_variance_from_releases,
    printed_variance_from_releases,
    scheme_attributed_variance,
    scheme_partial_sum_ends,
    scheme_released,
    scheme_released_fresh_variances,
    variance_from_releases,
)

UNEQUAL = np.array([3, 40, 7, 1, 25, 90, 12, 5, 60, 33, 2, 18])
EQUAL = np.full(12, 25)
STANDARD_ERRORS = 4.5
"""Two-sided false-alarm rate 7e-6 per comparison."""


def unbiased(estimates: np.ndarray, truth: float) -> bool:
    return bool(abs(distance(estimates, truth)) < STANDARD_ERRORS)


def distance(estimates: np.ndarray, truth: float) -> float:
    assert np.isfinite(estimates).all()  # no estimate was negative: nothing was cut off
    return float((estimates.mean() - truth) / (estimates.std(ddof=1) / math.sqrt(len(estimates))))


class Streams:
    """Streams of normal samples (mean 2, variance 1) that release through a counter, in every form
    a scheme reads."""

    def __init__(
        self,
        counter: Counter,
        lengths: np.ndarray,
        *,
        runs: int,
        fresh_stddev: float,
        seed: int = 1,
    ) -> None:
        rng = np.random.default_rng(seed)
        self.runs, self.lengths, self.times = runs, lengths, np.cumsum(lengths)
        samples = 2.0 + rng.normal(size=(runs, int(self.times[-1])))
        ends = self.times - 1
        self.raw, self.squares = samples.cumsum(1)[:, ends], (samples**2).cumsum(1)[:, ends]
        self.fresh = fresh_stddev * rng.normal(size=(runs, len(lengths)))
        self.variance_fresh = rng.normal(size=(runs, len(lengths)))
        self.noisy = self.raw + self.fresh @ counter.matrix(len(lengths)).T
        self.increments = np.diff(self.noisy, axis=1, prepend=0.0)

    def each(self) -> list[tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]]:
        """Rows, release, times and noisy totals, release by release."""
        rows = np.arange(self.runs)
        return [
            (rows, np.full(self.runs, k + 1), np.full(self.runs, t), self.noisy[:, k])
            for k, t in enumerate(self.times)
        ]


def test_own_variance_is_numpy_at_every_prefix() -> None:
    values, statistic = np.random.default_rng(2).normal(5.0, 2.0, 40), stats.Var()
    for n, value in enumerate(values, start=1):
        statistic.update(float(value))
        if n == 1:
            assert scheme_attributed_variance(statistic, half_width=3.0) == math.inf
        else:
            assert scheme_attributed_variance(statistic) == pytest.approx(
                np.var(values[:n], ddof=1), rel=1e-10
            )


def test_constant_samples_fall_back() -> None:
    statistic = stats.Var()
    for _ in range(8):
        statistic.update(1.0)
    assert scheme_attributed_variance(statistic) == math.inf
    assert scheme_attributed_variance(statistic, half_width=2.0) == 0.5
    many = scheme_sample_variance(np.array([0, 1, 2, 8]), np.zeros(4), half_width=2.0)
    assert many.tolist() == [math.inf, math.inf, 2.0, 0.5]
    assert scheme_usable(np.array([np.nan, -1e-9, 0.0])).tolist() == [math.inf, math.inf, 0.0]


def test_too_few_terms_are_infinite_without_a_warning() -> None:
    one = np.array([4.0])
    assert printed_variance_from_releases(np.array([5]), one, 1.0) == math.inf
    assert bayesian_variance_from_releases(np.array([5]), one, 1.0) == math.inf
    assert variance_from_releases(np.array([5]), one, Pm1(1), 1.0) == math.inf
    zero = np.zeros(1)
    first = scheme_released(
        lengths=np.array([1]),
        sums=one,
        squares=one**2,
        noise=zero,
        variance_noise=zero,
        fresh_variance=1.0,
    )
    assert first == math.inf


def test_partial_sums_of_pm2_are_the_binary_ones() -> None:
    for n in range(1, 200):
        ends = scheme_partial_sum_ends(Pm2(256), n)
        assert ends[-1] == n
        assert len(ends) == n.bit_count()
        assert all(int(length).bit_count() == 1 for length in np.diff(ends, prepend=0))
    assert scheme_partial_sum_ends(Pm1(9), 5).tolist() == [1, 2, 3, 4, 5]


def test_released_spends_half_of_the_budget_on_each() -> None:
    """Spec: `8 L^2 ln(1.25/delta)/epsilon^2` and `32 L^4 ln(1.25/delta)/epsilon^2`, each at half of
    both parameters."""
    mean, variance = scheme_released_fresh_variances(
        Pm1(5), epsilon=1.0, delta=1e-6, half_width=0.8
    )
    log = math.log(1.25 / 5e-7)
    assert mean == pytest.approx(8 * 0.8**2 * log / 0.25)
    assert variance == pytest.approx(32 * 0.8**4 * log / 0.25)


@pytest.mark.parametrize("d", [2, 3, 10])
def test_sensitivity_of_squared_deviations(d: int) -> None:
    """Replacing one of d samples in [-L, L] moves their sum of squared deviations by at most 4L^2
    (d-1)/d."""
    rng = np.random.default_rng(3)
    rest = np.concatenate([rng.choice([-1.0, 1.0], (500, d - 1)), rng.uniform(-1, 1, (500, d - 1))])
    moved = [
        np.var(np.column_stack([rest, np.full(1000, x)]), axis=1) * d
        for x in np.linspace(-1, 1, 21)
    ]
    assert np.ptp(moved, axis=0).max() <= 4 * (d - 1) / d + 1e-12


def test_equation_16_is_unbiased_for_equal_lengths_only() -> None:
    equal = Streams(Pm1(12), EQUAL, runs=20_000, fresh_stddev=1.0)
    assert unbiased(printed_variance_from_releases(EQUAL, equal.increments, 1.0), 1.0)
    unequal = Streams(Pm1(12), UNEQUAL, runs=5_000, fresh_stddev=0.3)
    assert distance(printed_variance_from_releases(UNEQUAL, unequal.increments, 0.09), 1.0) > 50


@pytest.mark.parametrize("name", sorted(COUNTERS))
def test_corrected_is_unbiased_for_unequal_lengths(name: str) -> None:
    counter = make_counter(name, horizon=12)
    streams = Streams(counter, UNEQUAL, runs=20_000, fresh_stddev=0.3)
    estimates = corrected_raw(streams, counter, 0.09)
    assert unbiased(estimates, 1.0)
    assert not unbiased(corrected_raw(streams, counter, 0.0), 1.0)  # the noise term is needed


def corrected_raw(streams: Streams, counter: Counter, fresh_variance: float) -> np.ndarray:
    """The estimator shifted up by a known amount, so that no estimate is cut off at zero, and
    shifted back."""
    d = streams.lengths.astype(float)
    shift = 50.0 * (len(d) - 1)
    release = np.arange(1, len(d) + 1)
    expected = (counter.increment_variance(release) / d).sum() - counter.noise_variance(release)[
        -1
    ] / d.sum()
    estimates = variance_from_releases(
        streams.lengths, streams.increments, counter, fresh_variance - shift / expected
    )
    return estimates - 50.0


@pytest.mark.parametrize("name", sorted(COUNTERS))
def test_released_is_unbiased(name: str) -> None:
    counter = make_counter(name, horizon=12)
    streams = Streams(counter, UNEQUAL, runs=20_000, fresh_stddev=3.0)
    scheme = ReleasedVariance(counter, fresh_variance=9.0, variance_fresh_stddev=4.0)
    # the eleventh release: its partial sum has two samples, so that the noise term weighs for every
    # counter
    assert unbiased(run_released(scheme, streams)[10], 1.0)
    wrong = ReleasedVariance(counter, fresh_variance=0.0, variance_fresh_stddev=4.0)
    assert not unbiased(run_released(wrong, streams)[10], 1.0)


def run_released(scheme: ReleasedVariance, streams: Streams) -> list[np.ndarray]:
    state = scheme.init(streams.runs)
    return [
        scheme.step(
            state,
            rows,
            release,
            times,
            raw_totals=streams.raw[:, k],
            raw_squares=streams.squares[:, k],
            totals=totals,
            fresh=streams.variance_fresh[:, k],
        )
        for k, (rows, release, times, totals) in enumerate(streams.each())
    ]


@pytest.mark.parametrize("counter", [Pm1(12), Pm2(12)])
def test_recursions_are_the_sums_over_partial_sums(counter: Counter) -> None:
    streams = Streams(counter, UNEQUAL, runs=6, fresh_stddev=3.0)
    printed, bayesian = PrintedFromReleases(counter, 9.0), Bayesian(counter, 9.0)
    states = printed.init(6), bayesian.init(6)
    own = run_released(
        ReleasedVariance(counter, fresh_variance=9.0, variance_fresh_stddev=2.0), streams
    )
    for k, batch in enumerate(streams.each()):
        ends = scheme_partial_sum_ends(counter, k + 1) - 1
        lengths, sums, raw, squares = (
            np.diff(values[..., ends], prepend=0)
            for values in (streams.times, streams.noisy, streams.raw, streams.squares)
        )
        expected = printed_variance_from_releases(lengths, sums, 9.0)
        np.testing.assert_allclose(printed.step(states[0], *batch), expected, rtol=1e-9)
        expected = bayesian_variance_from_releases(lengths, sums, 9.0)
        np.testing.assert_allclose(bayesian.step(states[1], *batch), expected, rtol=1e-9)
        expected = scheme_released(
            lengths=lengths,
            sums=raw,
            squares=squares,
            noise=streams.fresh[:, ends],
            variance_noise=2.0 * streams.variance_fresh[:, ends],
            fresh_variance=9.0,
        )
        np.testing.assert_allclose(own[k], expected, rtol=1e-9)


@pytest.mark.parametrize("name", sorted(COUNTERS))
def test_corrected_recursion_is_the_sum(name: str) -> None:
    counter = make_counter(name, horizon=12)
    streams, scheme = (
        Streams(counter, UNEQUAL, runs=6, fresh_stddev=0.5),
        FromReleases(counter, 0.25),
    )
    state = scheme.init(6)
    for k, batch in enumerate(streams.each(), start=1):
        expected = variance_from_releases(UNEQUAL[:k], streams.increments[:, :k], counter, 0.25)
        np.testing.assert_allclose(scheme.step(state, *batch), expected, rtol=1e-8)


def test_restored_state_continues_identically() -> None:
    counter = Pm2(12)
    streams, scheme = Streams(counter, UNEQUAL, runs=3, fresh_stddev=0.5), Bayesian(counter, 0.25)
    state, other = scheme.init(3), scheme.init(3)
    for batch in streams.each():
        other = {name: values.copy() for name, values in other.items()}
        assert np.array_equal(scheme.step(state, *batch), scheme.step(other, *batch))


def test_pm2_has_no_printed_estimate_at_powers_of_two() -> None:
    streams, scheme = (
        Streams(Pm2(12), EQUAL, runs=1, fresh_stddev=0.1),
        PrintedFromReleases(Pm2(12), 0.01),
    )
    state = scheme.init(1)
    infinite = [
        k
        for k, batch in enumerate(streams.each(), start=1)
        if np.isinf(scheme.step(state, *batch)[0])
    ]
    assert infinite == [1, 2, 4, 8]


def test_printed_recursion_refuses_toeplitz() -> None:
    with pytest.raises(
        ValueError, match=r"counter must be pm1 or pm2 for equation \(16\), got 'toeplitz'"
    ):
        PrintedFromReleases(Toeplitz(5), 1.0)


@pytest.mark.parametrize("n", [2, 3, 5, 10, 60])
@pytest.mark.parametrize("share", [0.01, 0.5, 0.99])
@pytest.mark.parametrize("added", [2.0, 1.0, -2.0])
def test_bayesian_is_equation_19(n: int, share: float, added: float) -> None:
    noise = 0.7
    spread = share * noise
    a, x = (n + added) / 2, (n - 1) * spread / (2 * noise)
    if a <= 1:  # a uniform prior and up to four partial sums: the integral of the mean is infinite
        parts = (np.asarray(float(n)), np.asarray(spread), np.asarray(noise))
        assert np.isinf(bayesian_variance_from_parts(*parts, added=added))
        return
    lower = [gamma(a + s) * gammainc(a + s, x) for s in (-1, 0)]
    expected = spread * (n - 1) / 2 * lower[0] / lower[1] - noise
    found = bayesian_variance_from_parts(
        np.asarray(float(n)), np.asarray(spread), np.asarray(noise), added=added
    )
    assert found == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("n", [150, 2000, 30_000])
def test_bayesian_does_not_underflow(n: int) -> None:
    """Against the posterior mean by quadrature; the incomplete gamma functions are 0/0 here."""
    noise, spread = 1.0, 0.98
    b, a = (n - 1) * spread / 2, (n + 2) / 2

    def density(v: float) -> float:
        return math.exp(-(a + 1) * math.log1p(v) - b / (1 + v) + b)

    width = 20 / math.sqrt(n)
    expected = (
        quad(lambda v: v * density(v), 0, width, epsrel=1e-11)[0]
        / quad(density, 0, width, epsrel=1e-11)[0]
    )
    found = bayesian_variance_from_parts(
        np.asarray(float(n)), np.asarray(spread), np.asarray(noise), added=PRIORS["bayesian"]
    )
    assert found == pytest.approx(expected, rel=1e-6)


def test_bayesian_repairs_the_negative_estimates_only() -> None:
    spread = np.array([0.0, 0.5, 1.0, 3.0])
    found = bayesian_variance_from_parts(np.asarray(20.0), spread, np.asarray(1.0), added=2.0)
    assert (found[:2] > 0).all()
    assert np.isfinite(found).all()
    assert found[2:].tolist() == [0.0, 2.0]

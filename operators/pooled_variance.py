"""The variance of one sample where it is unknown: pooled over all agents' releases; own variances shrunk to it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import ndtri, stdtrit

from operators.counter_base import Counter
from operators.records import Floats, OwnMeans, OwnSamples, ReleaseColumns
from operators.validation import require, require_bounds, require_positive

BINS = 256
LEAST_RATIO = 1e-9
BIN_RATIO = 1.25
GRID = 400
PRIOR_DEGREES = 3.0
NOMINAL_LEVEL = 0.95
SNAPSHOT_VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseDifferences:
    """Public: differences of consecutive releases of an agent; their expectation is 0.

    Attributes
    ----------
    squared : float array
        Squared difference of two consecutive released means, in squared value units.
    sampling : float array
        `c`: the sampling part of its variance is `c` times the variance of one sample.
    noise : float array
        `nu`: the part that is privacy noise, in squared value units; known from the mechanism.
    """

    squared: Floats
    sampling: Floats
    noise: Floats


def release_differences(releases: ReleaseColumns, counter: Counter) -> ReleaseDifferences:
    """Pair each release with the one before it of the same agent.

    Parameters
    ----------
    releases : ReleaseColumns
        In any order; pass an agent's previous release along with its new ones.
    counter : Counter
        The counter that made the noise of all of them.

    Notes
    -----
    Two running means after `s < t` samples differ by a multiple of (mean of the new samples - old mean), so their
    difference has expectation 0 and variance `sigma^2 (1/s - 1/t)` plus that of the noise
    `N_k / t - N_{k-1} / s`, whose covariance follows from `increment_variance`. Differences of one agent are
    uncorrelated but for the noise.
    """
    order = np.lexsort((releases.index, releases.agent))
    agent, index, count = releases.agent[order], releases.index[order], releases.count[order]
    pair = np.flatnonzero((agent[1:] == agent[:-1]) & (index[1:] == index[:-1] + 1) & (count[1:] > count[:-1]))
    before, after = order[pair], order[pair + 1]
    s, t = releases.count[before].astype(np.float64), releases.count[after].astype(np.float64)
    k = releases.index[after]
    first, second = releases.noise_variance[before] * s**2, releases.noise_variance[after] * t**2
    fresh = second / counter.noise_variance(k)
    covariance = 0.5 * (first + second - fresh * counter.increment_variance(k))
    return ReleaseDifferences(
        squared=(releases.mean[after] - releases.mean[before]) ** 2,
        sampling=1 / s - 1 / t,
        noise=np.maximum(first / s**2 + second / t**2 - 2 * covariance / (s * t), 0.0),
    )


def own_variance(pool: float, own: OwnSamples, *, prior_degrees: float = PRIOR_DEGREES) -> Floats:
    """Private: each agent's variance of one sample, shrunk to the pool and widened for not being known.

    Parameters
    ----------
    pool : float
        Pooled variance of one sample (`PooledVariance.variance`).
    own : OwnSamples
        Each agent's own samples, summed up.
    prior_degrees : float
        How many degrees of freedom the pool is worth. With 3, half of the weight is the agent's own after four
        samples: the pool may be wrong for this agent, and knows little before its releases outweigh their noise.

    Notes
    -----
    The scale of the posterior under a scaled inverse chi-square prior, `(d0 pool + S) / (d0 + n - 1)` with S the sum of
    squared deviations: defined from the first sample on, and never 0. It is multiplied by the squared ratio of the 95 %
    quantiles of Student's t with `d0 + n - 1` degrees of freedom and of the normal distribution, so that a normal
    interval made of it is as long as Student's.

    Examples
    --------
    >>> own = OwnSamples(agent=np.arange(2), count=np.array([1, 7]), mean=np.zeros(2),
    ...                  squared_deviations=np.array([0.0, 24.0]))
    >>> own_variance(2.0, own).round(2).tolist()  # of scale 2 and 30 / 9
    [5.27, 4.44]
    """
    require_positive(pool=pool, prior_degrees=prior_degrees)
    degrees = prior_degrees + np.maximum(own.count - 1, 0)
    tail = 0.5 + 0.5 * NOMINAL_LEVEL
    wider = (stdtrit(degrees, tail) / ndtri(tail)) ** 2
    return np.asarray(wider * (prior_degrees * pool + own.squared_deviations) / degrees, dtype=np.float64)


def own_means(own: OwnSamples, pool: float, *, known: float | None = None) -> OwnMeans:
    """Private: what each agent knows alone; agents without a sample are left out.

    Parameters
    ----------
    own : OwnSamples
        Each agent's own samples, summed up.
    pool : float
        Pooled variance of one sample.
    known : float or None
        Variance of one sample, where it is known: then nothing is estimated.

    Examples
    --------
    >>> own = OwnSamples(agent=np.arange(2), count=np.array([0, 4]), mean=np.array([np.nan, 7.0]),
    ...                  squared_deviations=np.zeros(2))
    >>> own_means(own, 2.0, known=1.0)
    OwnMeans(agent=array([1]), count=array([4]), mean=array([7.]), variance=array([0.25]))
    """
    of_sample = own_variance(pool, own) if known is None else np.full(len(own), known)
    some = own.count > 0
    return OwnMeans(
        agent=own.agent[some],
        count=own.count[some],
        mean=own.mean[some],
        variance=of_sample[some] / own.count[some],
    )


def release_variance(releases: ReleaseColumns, sample_variance: float) -> Floats:
    """Public: total variance of each released mean, of the sampling and of the noise."""
    return np.asarray(sample_variance / releases.count + releases.noise_variance, dtype=np.float64)


class PooledVariance:
    """The variance of one sample, common to all agents, read off their releases.

    Released: nothing new; it reads public releases and is public.

    Parameters
    ----------
    lower, upper : float
        Declared bounds of a sample, in the value's unit.

    Notes
    -----
    **Privacy.** Post-processing of the releases: it spends nothing.

    The state is a histogram of squared differences by their ratio of noise to sampling, three numbers per bin: it is
    mergeable by addition and of one size for any number of agents. `variance` is the posterior median of `sigma^2`
    under a normal likelihood of the binned sums and a standard deviation that is uniform over (0, (upper - lower) / 2],
    the most that bounded data can have (Popoviciu). While the releases say nothing it is therefore
    `(upper - lower)^2 / 16`. The mean would be larger; and of the two mistakes, a variance that is too large is the
    worse one: it explains the agents' differences away as sampling error.

    Examples
    --------
    >>> pool = PooledVariance(0.0, 1.0)
    >>> round(pool.variance, 4)
    0.0625
    >>> noise = np.random.default_rng(0).normal(0, 0.3, 1000)
    >>> pool.update(ReleaseDifferences(squared=noise**2, sampling=np.ones(1000), noise=np.full(1000, 0.05)))
    >>> round(pool.variance, 2)  # 0.3**2 - 0.05
    0.04
    """

    def __init__(self, lower: float, upper: float) -> None:
        require_bounds(lower, upper)
        self.lower, self.upper = lower, upper
        self._sums = np.zeros((3, BINS))  # number, squared difference over c, nu over c

    @property
    def n(self) -> int:
        """Number of differences seen."""
        return int(self._sums[0].sum())

    def update(self, differences: ReleaseDifferences) -> None:
        """Add differences of consecutive releases."""
        unit = (0.5 * (self.upper - self.lower)) ** 2
        ratio = differences.noise / differences.sampling
        with np.errstate(divide="ignore"):
            place = np.log(ratio / (unit * LEAST_RATIO)) / np.log(BIN_RATIO)
        index = np.clip(np.nan_to_num(place), 0, BINS - 1).astype(np.int64)
        for row, values in enumerate((np.ones_like(ratio), differences.squared / differences.sampling, ratio)):
            self._sums[row] += np.bincount(index, values, minlength=BINS)

    def merge(self, other: PooledVariance) -> None:
        """Add what another pool over the same bounds has seen."""
        bounds = (self.lower, self.upper)
        require((other.lower, other.upper) == bounds, "bounds", f"be {bounds}", (other.lower, other.upper))
        self._sums += other._sums

    @property
    def variance(self) -> float:
        """Pooled variance of one sample, in squared value units; in (0, ((upper - lower) / 2)^2]."""
        number, squares, noise = self._sums[:, self._sums[0] > 0]
        most = 0.5 * (self.upper - self.lower)
        low, high = 0.0, most
        for _ in range(3):  # zoom in: with many releases the posterior is narrower than the first grid
            step = (high - low) / GRID
            stddev = low + step * (np.arange(GRID) + 0.5)
            total = stddev[:, None] ** 2 + noise / number
            log_posterior = -0.5 * (number * np.log(total) + squares / total).sum(axis=1)
            posterior = np.exp(log_posterior - log_posterior.max())
            inside = np.flatnonzero(posterior > 1e-9)
            below = np.cumsum(posterior) - 0.5 * posterior
            variance = float(np.interp(0.5 * posterior.sum(), below, stddev)) ** 2
            low, high = max(stddev[inside[0]] - step, 0.0), min(stddev[inside[-1]] + step, most)
        return variance

    def snapshot(self) -> dict[str, Any]:
        """Plain data, JSON-ready."""
        return {"version": SNAPSHOT_VERSION, "lower": self.lower, "upper": self.upper, "sums": self._sums.tolist()}

    @classmethod
    def restore(cls, state: dict[str, Any]) -> PooledVariance:
        """Make a pool from its snapshot."""
        require(state["version"] == SNAPSHOT_VERSION, "snapshot version", f"be {SNAPSHOT_VERSION}", state["version"])
        pool = cls(state["lower"], state["upper"])
        sums = np.asarray(state["sums"], dtype=np.float64)
        require(sums.shape == (3, BINS), "snapshot sums", f"have shape (3, {BINS})", sums.shape)
        pool._sums = sums
        return pool

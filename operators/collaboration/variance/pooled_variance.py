"""The variance of one sample where it is unknown.

Pooled over all agents' releases; own variances shrunk to it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from meanstream.operators.collaboration.variance.long_run import variances_of_own
from meanstream.operators.collaboration.variance.spread_law import (
    CELL,
    GROUPS,
    RESOLUTION,
    spread_laws,
    weigh_spread_laws,
)
from meanstream.operators.collaboration.variance.variance_posterior import (
    INDEPENDENT,
    LEAST_POINT,
    VariancePosterior,
    student_factor_of_own,
    variance_posterior_of_own,
)
from meanstream.operators.counters.base import Counter
from meanstream.operators.records import (
    VOTE_BINS,
    Floats,
    Ints,
    OwnMeans,
    OwnSamples,
    ReleaseColumns,
)
from meanstream.operators.validation import require, require_bounds, require_version

LONGER = 1.0
LOG_SPREAD = 1.5
"""Mean and spread of the logarithm of the long-run variance over that of one sample, where samples
depend."""
GRID = 160
ZOOMS = 3
_FARTHEST = 4.0


def long_run_of_pool(
    votes: VariancePosterior, log_likelihood: Callable[[Floats], Floats]
) -> tuple[VariancePosterior, float]:
    """Give what is known of the long-run variance, and the probability that it is that of one sample.

    Parameters
    ----------
    votes : VariancePosterior
        What votes on neighboring samples say of the variance of one sample.
    log_likelihood : callable
        Of variances, by the differences of consecutive releases.

    Notes
    -----
    Before the releases both are the same with probability 0.8; else the logarithm of their ratio is normal with mean 1
    and standard deviation 1.5.

    Examples
    --------
    >>> votes = VariancePosterior(variance=np.array([0.9, 1.1]), weight=np.array([0.5, 0.5]))
    >>> known, independent = long_run_of_pool(votes, lambda variance: -50 * np.log(variance / 4) ** 2)
    >>> round(known.median, 1), independent < 1e-6
    (4.0, True)
    """
    logs = np.log(votes.variance)
    low = float(logs.min()) + LONGER - _FARTHEST * LOG_SPREAD
    high = float(logs.max()) + LONGER + _FARTHEST * LOG_SPREAD
    for _ in range(ZOOMS):  # with many releases it is narrower than the first grid
        step = (high - low) / GRID
        grid = low + step * (np.arange(GRID) + 0.5)
        away = (grid[:, None] - logs - LONGER) / LOG_SPREAD
        density = np.exp(-0.5 * away * away) @ votes.weight / (LOG_SPREAD * np.sqrt(2 * np.pi))
        likelihood = log_likelihood(np.exp(grid))
        top = likelihood.max()
        mass = density * np.exp(likelihood - top)
        inside = np.flatnonzero(mass > 1e-9 * mass.max())
        low = grid[inside[0]] - step
        high = grid[inside[-1]] + step

    same = log_likelihood(votes.variance)
    highest = max(float(same.max()), float(top))
    weight = np.concatenate(
        [
            INDEPENDENT * votes.weight * np.exp(same - highest),
            (1 - INDEPENDENT) * step * mass * np.exp(top - highest),
        ]
    )
    independent = float(weight[: len(same)].sum() / weight.sum())
    likely = weight > LEAST_POINT * weight.max()
    variance = np.concatenate([votes.variance, np.exp(grid)])[likely]

    return VariancePosterior(
        variance=variance, weight=weight[likely] / weight[likely].sum()
    ), independent


BINS = 256
LEAST_RATIO = 1e-9
BIN_RATIO = 1.25
GRID_BITS = 32
MOST_OF_POOL = 2.0
"""The value rests on at most so many times the variance of everyone's samples."""
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


def pooled_release_differences(releases: ReleaseColumns, counter: Counter) -> ReleaseDifferences:
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
    uncorrelated but for the noise. Sums that forget have none: their means may have moved, and what a sample varies by
    is known from votes.
    """
    # Releases that forget are of other samples each: their differences say nothing of a variance.
    if counter.forgets:
        releases = releases.take(np.zeros(0, np.int64))

    # Neighbors in the order of agents and releases.
    order = np.lexsort((releases.index, releases.agent))
    agent = releases.agent[order]
    index = releases.index[order]
    count = releases.count[order]
    pair = np.flatnonzero(
        (agent[1:] == agent[:-1]) & (index[1:] == index[:-1] + 1) & (count[1:] > count[:-1])
    )
    before = order[pair]
    after = order[pair + 1]
    s = releases.count[before].astype(np.float64)

    t = releases.count[after].astype(np.float64)
    k = releases.index[after]

    # Two releases of one agent share noise: its covariance follows from what is fresh in each.
    first = releases.noise_variance[before] * s**2
    second = releases.noise_variance[after] * t**2
    fresh = second / counter.noise_variance(k)
    covariance = 0.5 * (first + second - fresh * counter.increment_variance(k))

    return ReleaseDifferences(
        squared=(releases.mean[after] - releases.mean[before]) ** 2,
        sampling=1 / s - 1 / t,
        noise=np.maximum(first / s**2 + second / t**2 - 2 * covariance / (s * t), 0.0),
    )


def pooled_own_means(
    own: OwnSamples, pool: VariancePosterior | float, *, known: float | None = None
) -> OwnMeans:
    """Private: what each agent knows alone; agents without a sample are left out.

    Parameters
    ----------
    own : OwnSamples
        Each agent's own samples, summed up.
    pool : VariancePosterior or float
        What is known of the variance of one sample (`PooledVariance.posterior`), or a number that
        stands for it.
    known : float or None
        Variance of one sample, where it is known: then nothing is estimated.

    Notes
    -----
    The interval's variance is the agent's own, of the long run (`variances_of_own`), widened as
    Student's interval is. The value's is not widened, is that of the short run, and at most twice
    the pool's: whose samples vary by more than everyone's is hardly answered with the others.

    Examples
    --------
    >>> own = OwnSamples(agent=np.arange(2), count=np.array([0, 4]), mean=np.array([np.nan, 7.0]),
    ...                  squared_deviations=np.zeros(2))
    >>> pooled_own_means(own, 2.0, known=1.0)
    OwnMeans(agent=array([1]), count=array([4]), mean=array([7.]), variance=array([0.25]), ahead=array([False]),
             noise_variance=array([0.]), value_variance=array([0.25]))
    """
    interval = value = np.full(len(own), 1.0 if known is None else known)
    if known is None:
        # Own squares and the pool's variance, before the long run is looked at.
        short = variance_posterior_of_own(pool, own)
        interval = short
        value = short
        most = MOST_OF_POOL * pool if isinstance(pool, float) else MOST_OF_POOL * pool.least

        if isinstance(pool, VariancePosterior):
            interval, value = variances_of_own(pool, own, short)

        # Values are not widened for few degrees, as intervals are.
        value = np.minimum(value / student_factor_of_own(pool, own) ** 2, most)

    sampled = own.count > 0
    return OwnMeans(
        agent=own.agent[sampled],
        count=own.count[sampled],
        mean=own.mean[sampled],
        variance=interval[sampled] / own.count[sampled],
        ahead=own.ahead[sampled],
        value_variance=value[sampled] / own.count[sampled],
        early_mean=own.early_mean[sampled],
    )


def pooled_variance(releases: ReleaseColumns, sample_variance: float) -> Floats:
    """Public: total variance of each released mean, of the sampling and of the noise."""
    return sample_variance / releases.count + releases.noise_variance


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

    The state is a histogram of squared differences by their ratio of noise to sampling, three
    numbers per bin, and the sum of everyone's votes on the spread: it is mergeable by addition and
    of one size for any number of agents. The votes weigh a table of laws of one sample
    (`spread_law`), each of which stands for variances about its own; the binned differences have a
    normal likelihood. The bounds allow ((upper - lower) / 2)^2 at most (Popoviciu).

    Examples
    --------
    >>> pool = PooledVariance(0.0, 1.0)
    >>> noise = np.random.default_rng(0).normal(0, 0.3, 1000)
    >>> pool.update(ReleaseDifferences(squared=noise**2, sampling=np.ones(1000), noise=np.full(1000, 0.05)))
    >>> round(pool.variance, 2)  # 0.3**2 - 0.05
    0.04
    """

    def __init__(self, lower: float, upper: float) -> None:
        require_bounds(lower, upper)
        self.lower = lower
        self.upper = upper
        self._sums = np.zeros((3, BINS))  # number, squared difference over c, nu over c
        self._votes: Ints = np.zeros(2 + VOTE_BINS, np.int64)
        self._vote_variance = 0.0

    @property
    def n(self) -> int:
        """Number of differences seen."""
        return int(self._sums[0].sum())

    def update(self, differences: ReleaseDifferences) -> None:
        """Add differences of consecutive releases."""
        unit = (0.5 * (self.upper - self.lower)) ** 2

        # A difference belongs to a bin by how much of it is noise.
        ratio = differences.noise / differences.sampling
        with np.errstate(divide="ignore"):
            place = np.log(ratio / (unit * LEAST_RATIO)) / np.log(BIN_RATIO)

        index = np.clip(np.nan_to_num(place), 0, BINS - 1).astype(np.int64)
        least: Floats = np.asarray(unit * LEAST_RATIO * BIN_RATIO ** np.arange(BINS), np.float64)
        squares = _on_grid(differences.squared / differences.sampling, unit + least, index)
        for row, values in enumerate((np.ones_like(ratio), squares, _on_grid(ratio, least, index))):
            self._sums[row] += np.bincount(index, values, minlength=BINS)

    def count_votes(self, votes: Ints, noise_variance: float) -> None:
        """Put the sum of everyone's votes so far in place of what was known of them.

        Parameters
        ----------
        votes : int array, shape (n, 2 + VOTE_BINS)
            Of each agent's newest release.
        noise_variance : float
            Variance of the noise of one bin of one vote.
        """
        self._votes = votes.sum(axis=0)
        self._vote_variance = noise_variance

    def merge(self, other: PooledVariance) -> None:
        """Add what another pool over the same bounds has seen."""
        bounds = (self.lower, self.upper)
        require(
            (other.lower, other.upper) == bounds,
            "bounds",
            f"be {bounds}",
            (other.lower, other.upper),
        )
        self._sums += other._sums
        self._votes = self._votes + other._votes
        self._vote_variance = max(self._vote_variance, other._vote_variance)

    @property
    def variance(self) -> float:
        """Pooled variance of one sample, in squared value units.

        In (0, ((upper - lower) / 2)^2].
        """
        return self.posterior().median

    def posterior(self) -> VariancePosterior:
        """Give what votes say of the variance of one sample, and releases of the long run.

        Without votes releases both.

        Pairs of neighboring samples show the variance of one sample, differences of releases that
        of a mean over a long run; where samples depend on each other these are two.
        """
        # Without votes the differences say it all.
        if not self._votes[0]:
            return self._posterior(self._log_likelihood)
        votes = self._posterior(lambda variance: np.zeros(len(variance)))
        if not self.n:
            return votes

        # With both, votes say how samples vary, and differences what becomes of it in the long
        # run.
        long_run, independent = long_run_of_pool(votes, self._log_likelihood)
        return replace(votes, long_run=long_run, independent=independent)

    def _posterior(self, log_likelihood: Callable[[Floats], Floats]) -> VariancePosterior:
        width = self.upper - self.lower
        table = spread_laws()
        weight = weigh_spread_laws(self._votes, self._vote_variance)
        low = float(np.log(table.variance.min())) - 3 * RESOLUTION
        high = float(np.log(0.25))

        # The grid narrows around what has any weight.
        for _ in range(ZOOMS):  # with many releases the posterior is narrower than the first grid
            step = (high - low) / GRID
            log_variance: Floats = np.asarray(low + step * (np.arange(GRID) + 0.5), np.float64)
            density = _smooth(
                log_variance,
                table.cell,
                table.group,
                np.stack([weight, weight * table.degrees, weight * table.ties]),
            )

            # Likelihoods only matter where laws of the table have weight.
            likelihood = log_likelihood(width**2 * np.exp(log_variance))
            density *= np.exp(likelihood - likelihood[density[0].sum(axis=0) > 0].max())
            total = density[0].sum(axis=0)
            inside = np.flatnonzero(total > 1e-9 * total.max())
            low, high = (
                max(low, log_variance[inside[0]] - step),
                min(high, log_variance[inside[-1]] + step),
            )

        # Points with hardly any weight leave.
        likely = density[0] > LEAST_POINT * density[0].max()
        mass, degrees, ties = density[:, likely]
        variance = np.broadcast_to(width**2 * np.exp(log_variance), likely.shape)[likely]

        return VariancePosterior(
            variance=np.asarray(variance, np.float64),
            weight=mass / mass.sum(),
            degrees=degrees / mass,
            ties=ties / mass,
            lower=self.lower,
            upper=self.upper,
            yes_no=float(weight @ table.opposite) if self._votes[0] else None,
        )

    def _log_likelihood(self, variance: Floats) -> Floats:
        number, squares, noise = self._sums[:, self._sums[0] > 0]
        total = variance[:, None] + noise / number
        return np.asarray(
            -0.5 * (number * np.log(total) + squares / total).sum(axis=1), dtype=np.float64
        )

    def snapshot(self) -> dict[str, Any]:
        """Plain data, JSON-ready; with votes only where there are some."""
        votes = (
            {"votes": self._votes.tolist(), "vote_variance": self._vote_variance}
            if self._votes[0]
            else {}
        )
        sums = self._sums.tolist()

        return {
            "version": SNAPSHOT_VERSION,
            "lower": self.lower,
            "upper": self.upper,
            "sums": sums,
            **votes,
        }

    @classmethod
    def restore(cls, state: dict[str, Any]) -> PooledVariance:
        """Make a pool from its snapshot."""
        require_version(state, SNAPSHOT_VERSION)
        pool = cls(state["lower"], state["upper"])
        sums = np.asarray(state["sums"], dtype=np.float64)
        require(sums.shape == (3, BINS), "snapshot sums", f"have shape (3, {BINS})", sums.shape)
        pool._sums = sums

        if "votes" in state:
            votes = np.asarray(state["votes"], dtype=np.int64)
            require(
                votes.shape == (2 + VOTE_BINS,),
                "snapshot votes",
                f"have shape ({2 + VOTE_BINS},)",
                votes.shape,
            )
            pool._votes = votes
            pool._vote_variance = float(state["vote_variance"])

        return pool


def _on_grid(values: Floats, scale: Floats, index: Ints) -> Floats:
    """Round values to a fine grid of their bins.

    Floats hold the sums of some million exactly, so in any order.
    """
    step = np.ldexp(1.0, np.floor(np.log2(scale)).astype(np.int64) - GRID_BITS)[index]
    return np.rint(values / step) * step


def _smooth(log_variance: Floats, cell: Ints, group: Ints, weights: Floats) -> Floats:
    """Densities over log variance from weights of laws, each of which stands for what is about its own.

    Returns an array of shape (len(weights), groups, len(log_variance)).
    """
    low = int(cell.min())
    groups = len(GROUPS) + 1
    size = int(cell.max()) - low + 1
    row_and_cell = group * size + cell - low
    sums = np.stack(
        [np.bincount(row_and_cell, row, groups * size).reshape(groups, size) for row in weights]
    )
    away = log_variance - CELL * (low + np.arange(size))[:, None]
    near = np.exp(-0.5 * (away / RESOLUTION) ** 2)

    return np.asarray(np.einsum("wgc,cx->wgx", sums, near), dtype=np.float64)

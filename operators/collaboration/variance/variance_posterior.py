"""What is known of the variance of one sample.

Points with weights; and an agent's own variance, given its squares.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Self

import numpy as np
from scipy.special import gammaln, ndtri, stdtrit

from meanstream.operators.records import Floats, Ints, OwnSamples
from meanstream.operators.validation import require, require_bounds, require_positive

PRIOR_DEGREES = 3.0
NOMINAL_LEVEL = 0.95
LEAST_POINT = 1e-4
LEAST_TIES = 1e-4
"""Two samples are equal at least so often: what is continuous is clipped and held on a grid."""
EXACT_COUNTS = 32
COUNT_STEP = 0.125
RATIO_STEP = 0.25
LEAST_RATIO = 1e-12
MOST_LOG_RATIO = 14.0
AT_BOUNDS = 1e-5
PSEUDO_SAMPLES = 4.0
STUDENT_NODES = 257
INDEPENDENT = 0.8
"""Prior probability that samples of a typical agent do not depend on each other."""
LEAST = 0.03
"""Share of the posterior that lies below the variance that shrinkage rests on: where noise drowns
the votes, what is likely spans decades, and too large a variance makes answers worse than alone."""
LIKELY_LEAST = 0.2
"""The same for the variance by which classes are found: too small a one takes the sampling of like
means for a spread of their own."""
DEPENDENT = 0.1
"""Probability of independence under which everyone is told that samples depend."""


def _none() -> Floats:
    return np.zeros(0)


@dataclass(frozen=True, slots=True, kw_only=True)
class VariancePosterior:
    """Public: what is known of the variance of one sample of a typical agent, as points with weights.

    Attributes
    ----------
    variance : float array, shape (m,)
        Positive, in squared value units.
    weight : float array, shape (m,)
        Posterior probability of each; they add up to 1.
    degrees : float array, shape (m,)
        What a sample's own squares are worth, of a degree of freedom: 1 for normal data, less for
        rare events.
    ties : float array, shape (m,)
        Probability that two samples of an agent are equal.
    lower, upper : float
        Declared bounds of a sample.
    long_run : VariancePosterior or None
        What is known of the long-run variance, which is another where samples depend on each other:
        what n times the variance of a mean of n samples comes to. None where this is it, or nothing
        else is known.
    independent : float
        Probability that a typical agent's samples do not depend on each other.
    yes_no : float or None
        Probability that two unlike samples of an agent lie at opposite bounds: 1 for yes/no data,
        which have nothing in between. None where nobody has voted on it.

    Examples
    --------
    >>> posterior = VariancePosterior(variance=np.array([1.0, 2.0, 4.0]), weight=np.array([0.25, 0.5, 0.25]))
    >>> round(posterior.median, 12)
    2.0
    """

    variance: Floats
    weight: Floats
    degrees: Floats = field(default_factory=_none)
    ties: Floats = field(default_factory=_none)
    lower: float = -np.inf
    upper: float = np.inf
    long_run: VariancePosterior | None = None
    independent: float = INDEPENDENT
    yes_no: float | None = None

    def __post_init__(self) -> None:
        require(
            len(self.variance) == len(self.weight) > 0,
            "weight",
            "have an entry for each point",
            len(self.weight),
        )

        # Without other word a sample's square is worth one degree, and ties do not occur.
        if not len(self.degrees):
            object.__setattr__(self, "degrees", np.ones(len(self.variance)))

        if not len(self.ties):
            object.__setattr__(self, "ties", np.zeros(len(self.variance)))

    @classmethod
    def exactly(cls, variance: float) -> Self:
        """Give what is known where it is known."""
        require_positive(variance=variance)
        return cls(variance=np.array([variance]), weight=np.ones(1))

    @property
    def median(self) -> float:
        """The one number that stands for all where one is needed."""
        return self._quantile(0.5)

    @property
    def least(self) -> float:
        """What the variance of one sample probably exceeds: shrinkage by more than is right costs most."""
        return self._quantile(LEAST)

    @property
    def likely_least(self) -> float:
        """What the variance of one sample likely exceeds: classes rest on it, by their evidence."""
        return self._quantile(LIKELY_LEAST)

    def _quantile(self, share: float) -> float:
        # The middle of each point's weight is its place.
        order = np.argsort(self.variance, kind="stable")
        below = np.cumsum(self.weight[order]) - 0.5 * self.weight[order]
        return float(np.interp(share, below, np.sqrt(self.variance[order]))) ** 2

    @property
    def dependence(self) -> float | None:
        """Public: long-run variance over that of neighboring samples, once it is sure that they depend; else None."""
        if self.long_run is None or self.independent >= DEPENDENT:
            return None
        return self.long_run.median / self.median

    def __len__(self) -> int:
        return len(self.variance)


def variance_posterior_typical(variance: VariancePosterior | float) -> float:
    """Give the one number that stands for what is known of the variance of one sample.

    Examples
    --------
    >>> variance_posterior_typical(2.0)
    2.0
    """
    if isinstance(variance, float):
        return variance
    return variance.median


def variance_posterior_of_own(
    pool: VariancePosterior | float, own: OwnSamples, *, prior_degrees: float = PRIOR_DEGREES
) -> Floats:
    """Private: each agent's variance of one sample.

    The pool's and its own, and wider for not being known.

    Parameters
    ----------
    pool : VariancePosterior or float
        What the releases and votes say of everyone's (`PooledVariance.posterior`), or a number that
        stands for it.
    own : OwnSamples
        Each agent's own samples, summed up.
    prior_degrees : float
        How many degrees of freedom a point of the pool is worth: the pool may be wrong for this
        agent.

    Notes
    -----
    The mean over the points of the pool of `(d0 v + f S) / (d0 + f (n - 1))`, with S the sum of squared deviations and
    f the point's `degrees`. A point weighs the more, the likelier it makes the agent's own squares: they are `v` times
    an F variable of `f (n - 1)` and `d0` degrees; that all samples are equal has probability `ties ** (n / 2)`. So a
    pool that says little is decided by the agent's own samples, and an agent that never saw an event has the pool's
    variance and not 0. Each is multiplied by the squared ratio of the 95 % quantiles of Student's t with its degrees of
    freedom and of the normal distribution: a normal interval made of it is as long as Student's.

    Where all samples are at the bounds, as yes/no data are, it is not less than `m (1 - m)` at the
    mean m of the samples and two of either kind (Agresti, Coull 1998), widened likewise, times the
    probability that unlike samples lie at opposite bounds (`yes_no`): of a score, ten values at the
    best one are no reason to expect the worst one.

    What an agent gets depends on its own samples and the pool alone: nodes of the interpolation are
    constants.

    Examples
    --------
    >>> own = OwnSamples(agent=np.arange(2), count=np.array([1, 7]), mean=np.zeros(2),
    ...                  squared_deviations=np.array([0.0, 24.0]))
    >>> variance_posterior_of_own(2.0, own).round(2).tolist()  # of scale 2 and 30 / 9
    [5.27, 4.44]
    """
    if not isinstance(pool, VariancePosterior):
        pool = VariancePosterior.exactly(pool)

    require_positive(prior_degrees=prior_degrees)
    if not len(own):
        return np.zeros(0)
    count = np.maximum(own.count, 1)

    # One point needs no table.
    if len(pool) == 1:
        variance = _shrunk(
            pool.variance, pool.degrees * (count - 1), own.squared_deviations, prior_degrees
        )
    else:
        variance = _OwnTable(pool, prior_degrees).read(count, own.squared_deviations)

    # Values that are all at the bounds may be yes/no data: then m (1 - m) is their variance.
    if np.isfinite(pool.lower) and np.isfinite(pool.upper):
        at_bounds, floor = _at_bounds(own, pool.lower, pool.upper)
        floor *= 1.0 if pool.yes_no is None else pool.yes_no
        variance[at_bounds] = np.maximum(
            variance[at_bounds], _wider(prior_degrees + count[at_bounds] - 1.0) * floor
        )

    return variance


def student_factor_of_own(
    pool: VariancePosterior | float, own: OwnSamples, *, prior_degrees: float = PRIOR_DEGREES
) -> Floats:
    """Private: the root of the factor in each agent's variance that its interval has and its value has not.

    `variance_posterior_of_own` widens variances as Student's intervals need it: by the square of
    this.

    Examples
    --------
    >>> own = OwnSamples(agent=np.arange(2), count=np.array([1, 7]), mean=np.zeros(2), squared_deviations=np.ones(2))
    >>> student_factor_of_own(2.0, own).round(2).tolist()
    [1.62, 1.15]
    """
    # The factor falls with the degrees, between nodes that are the same for everybody.
    worth = float(pool.weight @ pool.degrees) if isinstance(pool, VariancePosterior) else 1.0
    degrees = prior_degrees + worth * np.maximum(own.count - 1.0, 0.0)
    nodes = prior_degrees / np.linspace(1e-6, 1.0, STUDENT_NODES)
    factor = np.interp(prior_degrees / degrees, prior_degrees / nodes, _wider(nodes))

    return np.asarray(np.sqrt(factor), dtype=np.float64)


def _at_bounds(own: OwnSamples, lower: float, upper: float) -> tuple[Ints, Floats]:
    """Find the agents whose samples are all at the bounds.

    Give their variance with pseudo-samples.
    """
    # Squares that are all of m (1 - m) leave nothing in between.
    require_bounds(lower, upper)
    n = own.count.astype(np.float64)
    width = upper - lower
    share = np.clip((np.nan_to_num(own.mean, nan=lower) - lower) / width, 0, 1)
    at_bounds = (
        n * share * (1 - share) * width**2 - own.squared_deviations <= AT_BOUNDS * n * width**2
    )
    agents = np.flatnonzero(at_bounds & (n > 0))

    # Two pseudo-samples of each kind (Agresti, Coull 1998).
    shrunk = (n[agents] * share[agents] + PSEUDO_SAMPLES / 2) / (n[agents] + PSEUDO_SAMPLES)

    return agents, (shrunk * (1 - shrunk) * width**2)


class _OwnTable:
    """Own variances at nodes of (count, mean square).

    Linear in the logarithm of both, and exact for few samples.
    """

    def __init__(self, pool: VariancePosterior, prior_degrees: float) -> None:
        self._pool = pool
        self._prior = prior_degrees
        self._unit = float(pool.variance.max())

    def read(self, count: Ints, squares: Floats) -> Floats:
        """Own variances of agents with these counts and sums of squared deviations."""
        node, above = _count_nodes(count)

        # Only rows that some agent needs are evaluated.
        used = np.flatnonzero(np.bincount(node))
        used = np.union1d(used, used + 1)
        row = np.zeros(int(used[-1]) + 1, np.int64)
        row[used] = np.arange(len(used))
        lower = row[node]
        upper = row[node + (above > 0)]
        n = _count_of(used)

        # A cell is a quarter of a natural logarithm of the mean square, in units of the largest
        # point.
        ratio = squares / (np.maximum(count - 1, 1) * self._unit)
        level = np.minimum(np.log(np.maximum(ratio, LEAST_RATIO)), MOST_LOG_RATIO) / RATIO_STEP
        cell = np.floor(level).astype(np.int64)
        depth = level - cell
        first = int(cell.min(initial=cell.max(), where=ratio >= LEAST_RATIO))
        last = (
            int(cell.max()) + 1
        )  # no one lies outside: nodes are constants, whichever are evaluated
        cell = np.maximum(cell - first, 0)

        # Logarithms of the variances: between nodes they are linear.
        table = np.log(self._evaluate(n, np.exp(RATIO_STEP * np.arange(first, last + 1))))
        equal = np.log(self._evaluate(n, np.zeros(1)))[:, 0]

        def at(row: Ints) -> Floats:
            between = table[row, cell] + depth * (table[row, cell + 1] - table[row, cell])
            return np.where(ratio < LEAST_RATIO, equal[row], between)

        low = at(lower)
        return np.exp(low + above * (at(upper) - low))

    def _evaluate(self, n: Floats, ratio: Floats) -> Floats:
        """Own variances for each count and ratio of mean squares to the unit.

        Shape (counts, ratios).
        """
        pool = self._pool
        prior = self._prior

        # Points with more likely squares weigh more; each shrinks towards its own variance.
        n, mean_square = n[:, None, None], (ratio * self._unit)[None, :, None]
        free = pool.degrees * (n - 1)
        log_weight = np.log(pool.weight) + self._log_likelihood(n, free, mean_square)
        weight = np.exp(log_weight - log_weight.max(axis=2, keepdims=True))
        shrunk = _shrunk(pool.variance, free, free * mean_square, prior)

        return np.asarray((weight * shrunk).sum(axis=2) / weight.sum(axis=2), dtype=np.float64)

    def _log_likelihood(self, n: Floats, free: Floats, mean_square: Floats) -> Floats:
        """Log probability of an agent's own squares under each point."""
        # Equal samples have a probability of their own: as ties, not as tiny variances.
        all_equal = 0.5 * n * np.log(np.clip(self._pool.ties, LEAST_TIES, 1 - 1e-12))
        half = 0.5 * np.maximum(free, 1e-12)
        prior = 0.5 * self._prior

        # Squares are v times an F variable of f (n - 1) and d0 degrees.
        odds = np.maximum(half / prior * mean_square / self._pool.variance, 1e-300)
        squares = half * np.log(odds) - (half + prior) * np.log1p(odds)

        squares = (
            squares
            - gammaln(half)
            - gammaln(prior)
            + gammaln(half + prior)
            + np.log(-np.expm1(all_equal))
        )

        return np.where(n < 2, 0.0, np.where(mean_square > 0, squares, all_equal))


def _shrunk(pool: Floats, free: Floats, squares: Floats, prior: float) -> Floats:
    """Scale of the posterior, widened to Student's interval, given squares that are worth `free` degrees of freedom."""
    degrees = prior + free
    return _wider(degrees) * (prior * pool + squares) / degrees


def _wider(degrees: Floats) -> Floats:
    tail = 0.5 + 0.5 * NOMINAL_LEVEL
    return (stdtrit(degrees, tail) / ndtri(tail)) ** 2


def _count_nodes(count: Ints) -> tuple[Ints, Floats]:
    """Node at or below each count, and how far towards the next one it is.

    Every count up to 32, then eighths.
    """
    octaves = np.log2(np.maximum(count, 1) / EXACT_COUNTS) / COUNT_STEP
    many = count > EXACT_COUNTS
    node = np.where(many, EXACT_COUNTS + np.floor(octaves).astype(np.int64), count)
    return node, np.where(many, octaves - np.floor(octaves), 0.0)


def _count_of(node: Ints) -> Floats:
    return np.where(
        node <= EXACT_COUNTS, node, EXACT_COUNTS * 2.0 ** (COUNT_STEP * (node - EXACT_COUNTS))
    )

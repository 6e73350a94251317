"""Distribution functions at edges of bins and at thresholds: least squares, and a smooth fit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from meanstream.operators.estimators.category_shares import nearest_shares
from meanstream.operators.estimators.quantile_levels import (
    BRANCHES,
    LevelFit,
    constrained_weights,
    distribution_variance,
)
from meanstream.operators.records import Floats, Ints
from meanstream.operators.rounds.votes.registry import Votes

ROUGHNESS = 2.0 ** np.arange(-5, 9)
"""Scales of the density's random walk that are compared by their evidence."""

_PULL = 1e-3
"""Precision of the density itself: it makes the walk's law proper."""

_ADDS_UP = 1e4
"""Precision of the sum of all shares, which is 1."""


@dataclass(frozen=True)
class CountedVotes:
    """Public: votes of some users for bins, and the bin of each part between two knots.

    Attributes
    ----------
    votes : Votes
    counts : sequence of int
        Reports that name each bin.
    reports : int
        Above 0.
    bin_of_part : int array (parts,)
    """

    votes: Votes
    counts: Sequence[int]
    reports: int
    bin_of_part: Ints

    @property
    def design(self) -> Floats:
        """Which parts each bin holds, shape (bins, parts)."""
        bins = np.arange(self.votes.bins)[:, np.newaxis]
        return np.asarray(self.bin_of_part == bins, np.float64)

    @property
    def shares(self) -> Floats:
        """Unbiased shares of the bins."""
        return self.votes.shares(self.counts, self.reports)

    @property
    def weight(self) -> Floats:
        """Precision of each share, of evenly spread users.

        Both shares of a threshold say the same: each counts half.
        """
        bins = self.votes.bins
        variance = float(self.votes.share_variance(1.0 / bins, self.reports))
        return np.full(bins, (0.5 if bins == 2 else 1.0) / variance)

    def likely(self, pseudo_users: float) -> Floats:
        """Shares with that many more users, spread evenly (Agresti and Coull)."""
        even = pseudo_users / self.votes.bins
        return (self.reports * nearest_shares(self.shares) + even) / (self.reports + pseudo_users)


def knots_with(depth: int, thresholds: Sequence[float]) -> Floats:
    """Merge the edges of the finest bins with thresholds inside of the bounds.

    Examples
    --------
    >>> knots_with(1, [0.1, 0.5]).tolist()
    [-1.0, -0.5, 0.0, 0.1, 0.5, 1.0]
    """
    edges = np.linspace(-1.0, 1.0, BRANCHES**depth + 1)
    return np.unique(np.concatenate([edges, thresholds]))


def least_squares(sources: Sequence[CountedVotes], pseudo_users: float) -> tuple[Floats, Floats]:
    """Fit the distribution function at the inner knots without an assumption.

    Give it with its standard error. Levels of a tree and thresholds identify every part between
    two knots.
    """
    design = np.vstack([source.design for source in sources])
    fit = LevelFit(constrained_weights(design, np.concatenate([s.weight for s in sources])))
    raw = fit.weights @ np.concatenate([*[source.shares for source in sources], [1.0]])

    votes = [source.votes for source in sources]
    likely = [source.likely(pseudo_users) for source in sources]
    variance = distribution_variance(fit, votes, likely, [source.reports for source in sources])

    return raw, np.sqrt(variance)


def smooth_distribution(knots: Floats, sources: Sequence[CountedVotes]) -> tuple[Floats, Floats]:
    """Fit a distribution function that is as smooth as the votes say.

    Give it at all knots, with its standard error.

    Notes
    -----
    The density of part i is 1/2 + u_i, and u is a random walk over the parts' middles. The walk's
    scale is the one under which the votes are most likely (empirical Bayes). Jumps and gaps make
    it large: then nothing is smoothed. The result is made to rise by isotonic regression.

    References
    ----------
    G. Wahba, Improper priors, spline smoothing and the problem of guarding against model errors in
    regression, J. R. Stat. Soc. B 1978.
    """
    width = np.diff(knots)
    walk = np.linalg.cholesky(np.linalg.inv(_walk_precision(knots)))
    singular, along, right = _in_directions_of_the_walk(width, walk, sources)

    # Evidence of each scale; the posterior under the best.
    spread = 1.0 + np.outer(ROUGHNESS, singular) ** 2
    evidence = -(np.log(spread) + along**2 / spread).sum(axis=1)
    best = int(np.argmax(evidence))
    scale = ROUGHNESS[best]
    walked = right.T @ (scale**2 * singular / spread[best] * along)
    density = 0.5 + walk @ walked

    summed = np.cumsum(width[:, np.newaxis] * walk, axis=0)
    explained = (summed @ right.T) ** 2 @ (1.0 - 1.0 / spread[best])
    variance = scale**2 * ((summed**2).sum(axis=1) - explained)
    rising = _rising(np.cumsum(width * density)[:-1])

    return (
        np.concatenate([[0.0], np.clip(rising, 0.0, 1.0), [1.0]]),
        np.concatenate([[0.0], np.sqrt(np.maximum(variance[:-1], 0.0)), [0.0]]),
    )


def _in_directions_of_the_walk(
    width: Floats, walk: Floats, sources: Sequence[CountedVotes]
) -> tuple[Floats, Floats, Floats]:
    """Votes in units of their errors, along directions of what a unit of the walk changes."""
    design = np.vstack([source.design for source in sources]) * width
    root = np.sqrt(np.concatenate([source.weight for source in sources]))
    shares = np.concatenate([source.shares for source in sources])
    away = root * (shares - design.sum(axis=1) / 2.0)

    left, singular, right = np.linalg.svd(
        root[:, np.newaxis] * (design @ walk), full_matrices=False
    )
    return singular, left.T @ away, right


def _walk_precision(knots: Floats) -> Floats:
    width = np.diff(knots)
    steps = np.diff(np.eye(len(width)), axis=0)
    steps /= np.sqrt(np.diff(0.5 * (knots[1:] + knots[:-1])))[:, np.newaxis]
    pulled = _PULL * np.diag(width) + _ADDS_UP * np.outer(width, width)

    return np.asarray(steps.T @ steps + pulled)


def certain_ends(
    knots: Floats, raw: Floats, error: Floats, probability: float, z: float
) -> tuple[float, float]:
    """Give the closest knots at which the distribution is certainly below and above a probability.

    Parameters
    ----------
    knots : float array (parts + 1,)
    raw, error : float array (parts - 1,)
        The distribution function at the inner knots, and its standard errors.
    probability : float
    z : float
        Standard errors that make it certain.

    Notes
    -----
    The band stands around the isotonic regression, which pools knots that fall. Where the
    distribution is flat, many knots have nearly the same value. The extreme one of their raw values
    would often be beyond z errors by chance; the pooled ones are not.

    Examples
    --------
    >>> knots = np.linspace(-1, 1, 6)
    >>> certain_ends(knots, np.array([0.1, 0.4, 0.6, 0.9]), np.full(4, 0.02), 0.5, 2.0)
    (-0.19999999999999996, 0.20000000000000018)
    """
    pooled = _rising(raw, 1.0 / np.maximum(error, 1e-12) ** 2)
    below = np.flatnonzero(pooled + z * error < probability) + 1
    above = np.flatnonzero(pooled - z * error > probability) + 1

    return float(knots[below.max(initial=0)]), float(knots[above.min(initial=len(knots) - 1)])


def crossed_at(rising: Floats, knots: Floats, probability: float) -> tuple[float, int]:
    """Interpolate where a rising function of the knots reaches a probability.

    Give the number of the knot to its right, too.
    """
    last = int(np.clip(np.searchsorted(rising, probability, side="right"), 1, len(knots) - 1))
    low = rising[last - 1]
    high = rising[last]
    part = 0.5 if high <= low else (probability - low) / (high - low)

    return float(knots[last - 1] + min(max(part, 0.0), 1.0) * (knots[last] - knots[last - 1])), last


def _rising(values: Floats, weights: Floats | None = None) -> Floats:
    """Give the nearest values that never fall."""
    from scipy.optimize import isotonic_regression  # noqa: PLC0415 - slow to import

    fitted: Floats = isotonic_regression(values, weights=weights).x
    return fitted

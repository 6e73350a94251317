"""A tree of bins: histograms at several resolutions made consistent, and the error of the distribution function."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from meanstream.operators.estimators.category_votes import UNARY
from meanstream.operators.records import Floats
from meanstream.operators.rounds.votes.registry import Votes, make_votes

BRANCHES = 4
"""Bins into which each bin of a level falls on the next one: within a tenth of the best number for
most users."""
DEPTHS = (2, 3, 4)


def level_votes(epsilon: float, level: int) -> Votes:
    """Make the votes of a level, from 1: those with the smallest variance for its number of bins.

    Examples
    --------
    >>> [level_votes(epsilon, level).name for epsilon in (1.0, 4.0) for level in (1, 2, 3)]
    ['krr', 'oue', 'oue', 'krr', 'krr', 'krr']
    """
    bins = BRANCHES**level
    kinds = [
        make_votes("krr", epsilon, bins, zero_row=False),
        *(make_votes(kind, epsilon, bins) for kind in UNARY),
    ]

    return min(kinds, key=lambda votes: float(votes.share_variance(1.0 / bins, 1.0)))


@dataclass(frozen=True)
class LevelFit:
    """Least squares over the levels of a tree: linear in the shares of all bins.

    Attributes
    ----------
    weights : float array (edges, bins of all levels + 1)
        The distribution function at the inner edges of the finest bins, as a sum of shares and
        a constant.
    """

    weights: Floats


@lru_cache(maxsize=32)
def fitted_levels(variances: tuple[float, ...]) -> LevelFit:
    """Fit the shares of the finest bins, which add to 1, to those of all levels with these variances of one share.

    Examples
    --------
    >>> fitted_levels((0.1, 0.1)).weights.shape
    (15, 21)
    """
    depth = len(variances)
    bins = BRANCHES**depth
    sums = np.vstack(
        [
            np.kron(np.eye(BRANCHES**level), np.ones(bins // BRANCHES**level))
            for level in range(1, depth + 1)
        ]
    )

    weight = np.repeat(
        1.0 / np.array(variances), [BRANCHES**level for level in range(1, depth + 1)]
    )
    return LevelFit(constrained_weights(sums, weight))


def constrained_weights(design: Floats, weight: Floats) -> Floats:
    """Give the distribution function at inner edges, as sums of shares.

    It is by least squares over parts that add to 1. The constant is the last column, as in `LevelFit.weights`.
    """
    parts = design.shape[1]
    normal = (design.T * weight) @ design
    # The last unknown is the multiplier of the constraint that all shares add to 1.
    bordered = np.block([[normal, np.ones((parts, 1))], [np.ones((1, parts)), np.zeros((1, 1))]])
    inverse = np.linalg.inv(bordered)[:parts]
    whole = np.cumsum(inverse, axis=0)[:-1]

    return np.hstack([whole[:, :parts] @ (design.T * weight), whole[:, parts:]])


def distribution_variance(
    fit: LevelFit, votes: Sequence[Votes], shares: Sequence[Floats], n: Sequence[float]
) -> Floats:
    """Compute the variance of the distribution function at each edge, over the drawing of users and their reports.

    Parameters
    ----------
    fit : LevelFit
    votes : sequence of Votes
        One for each level.
    shares : sequence of float array
        Of users in each bin, for each level.
    n : sequence of float
        Number of reports of each level, above 0.

    Notes
    -----
    A report names bins; each named bin adds its weight. Given the voter's bin, the named ones are independent (bits of
    a row), or there is only one (randomized response).
    """
    total = np.zeros(len(fit.weights))
    place = 0
    for vote, share, reports in zip(votes, shares, n, strict=True):
        w = fit.weights[:, place : place + vote.bins]
        place += vote.bins
        total += _report_variance(vote, w, share) / reports

    return total


def _report_variance(vote: Votes, w: Floats, share: Floats) -> Floats:
    own = float(getattr(vote, "likely"))  # noqa: B009 - of VotesBase
    other = float(getattr(vote, "unlikely"))  # noqa: B009 - of VotesBase
    signal = own - other
    named = other + signal * share

    if vote.name == "krr":
        first = w @ named
        second = w**2 @ named
        return np.asarray((second - first**2) / signal**2)

    noise = w**2 @ (other * (1.0 - other) + share * (own * (1.0 - own) - other * (1.0 - other)))
    drawn = w**2 @ share - (w @ share) ** 2
    return np.asarray(noise / signal**2 + drawn)


def tree_depth(epsilon: float, users: int) -> int:
    """Choose how many levels there are, from public facts.

    Noise and width of the finest bins are in balance.

    Examples
    --------
    >>> [tree_depth(epsilon, users) for epsilon, users in ((1.0, 1000), (1.0, 100_000), (4.0, 100_000))]
    [2, 3, 4]
    """
    return min(
        DEPTHS,
        key=lambda depth: math.hypot(float(tree_error(epsilon, users, depth)), _width(depth)),
    )


@lru_cache(maxsize=256)
def tree_error(epsilon: float, users: int, depth: int) -> float:
    """Predict the standard error of the distribution function, on average over edges, of evenly spread users."""
    votes = [level_votes(epsilon, level) for level in range(1, depth + 1)]
    n = users / depth
    even = [np.full(vote.bins, 1.0 / vote.bins) for vote in votes]
    fit = fitted_levels(tuple(float(vote.share_variance(1.0 / vote.bins, 1.0)) for vote in votes))

    return math.sqrt(float(distribution_variance(fit, votes, even, [n] * depth).mean()))


def _width(depth: int) -> float:
    return float(1.0 / (math.sqrt(12.0) * BRANCHES**depth))

"""How widely users' means lie around a center.

Bins to vote for, the scale read off the votes, the window it asks for.

The deviation of a user is `abs(mean - center)`. Users vote for its bin; the edges of the bins halve
from the largest deviation of interest down to the smallest. The scale is the standard deviation of
the half-normal law whose bins come nearest to the votes; it moves by a few percent when the law is
skewed or its tails are exponential. A few coarse bins are better than many: the noise of a vote
does not depend on how wide its bin is.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt
from scipy.special import ndtr

from meanstream.operators.records import Floats, Ints
from meanstream.operators.rounds.votes.registry import Votes, make_votes

RATIO = 2.0
MAX_BINS = 24
LEAST_EDGE = 0.7
KINDS: dict[str, dict[str, bool]] = {
    "krr": {"zero_row": False},
    "sue": {},
    "oue": {},
    "subset": {"zero_row": False},
}
TAIL_FIT = 0.75
"""What the fit makes of a standard deviation of 1 when deviations are exponential: .70 to .96, as
the edges lie."""

BIAS_SHARE = 0.2
"""Largest clip bias, in standard errors of the answer: it takes .3 % from the coverage of a 95 %
interval."""

TAIL_ERRORS = 3.0
"""How many standard errors of the votes a tail must exceed to count."""


@dataclass(frozen=True, slots=True)
class Scale:
    """Public: the scale of deviations that some votes tell.

    Attributes
    ----------
    value : float
        Standard deviation of users' means around the center, on [-1, 1].
    log_stderr : float
        Standard error of its logarithm.
    """

    value: float
    log_stderr: float


def scale_halving_edges(top: float, least: float) -> Floats:
    """Edges of the bins of deviations, ascending: `top`, its half, and so on while above `least`.

    Parameters
    ----------
    top, least : float
        Positive.

    Returns
    -------
    float array (k,)
        The bins are [0, edge 0), [edge 0, edge 1) ... [last edge, infinity): k + 1 of them, at most
        24, disjoint.

    Examples
    --------
    >>> scale_halving_edges(0.4, 0.06)
    array([0.05, 0.1 , 0.2 , 0.4 ])
    """
    steps = math.ceil(math.log(max(top / least, 1.0), RATIO) - 1e-9) if least > 0.0 else MAX_BINS
    return np.asarray(top * RATIO ** -np.arange(min(max(steps, 2), MAX_BINS - 2), -1.0, -1.0))


def scale_vote_edges(top: float, center_stderr: float) -> Floats:
    """Edges for votes around a center.

    Scales far below its own error cannot be told and need no bins.
    """
    return scale_halving_edges(top, LEAST_EDGE * center_stderr)


def scale_bin(deviation: Floats, edges: Floats) -> Ints:
    """Private: the one bin of each deviation.

    A deviation on an edge belongs to the bin above, and to no other.
    """
    return np.searchsorted(edges, deviation, side="right").astype(np.int64)


@lru_cache(maxsize=256)
def scale_votes(epsilon: float, bins: int) -> Votes:
    """Choose the votes of least variance for a bin that holds its part of the users.

    No one votes for none.
    """
    found = [make_votes(name, epsilon, bins, **options) for name, options in KINDS.items()]
    return min(found, key=lambda votes: float(votes.share_variance(1.0 / bins, 1)))


def fit_scale(shares: Floats, edges: Floats, variance: npt.ArrayLike) -> Scale:
    """Read the scale of deviations off estimates of the bins' shares.

    Parameters
    ----------
    shares : float array (k + 1,)
        Unbiased estimates, of which some may be negative.
    edges : float array (k,)
        From `scale_halving_edges`.
    variance : float or float array (k + 1,)
        Of each estimate.

    Returns
    -------
    Scale
        The half-normal law nearest to the shares in least squares; a wider one where more users
        than noise explains vote for bins far out (`tail_scale`).

    Examples
    --------
    >>> edges = scale_halving_edges(0.4, 0.02)
    >>> round(fit_scale(scale_half_normal_shares(edges, np.array([0.07]))[0], edges, 1e-4).value, 4)
    0.07
    """
    value = nearest_scale(shares, edges)
    around = scale_half_normal_shares(edges, value * np.exp([-0.05, 0.05]))
    slope = (around[1] - around[0]) / 0.1
    noise = float(np.sum(slope**2 * np.asarray(variance)))
    log_stderr = min(math.sqrt(noise) / max(float(np.sum(slope**2)), 1e-12), 10.0)

    return Scale(max(value, tail_scale(shares, edges, variance)), log_stderr)


def nearest_scale(shares: Floats, edges: Floats) -> float:
    """Scale of the half-normal law whose shares are nearest, in least squares.

    At least the first edge.

    Smaller ones cannot be told from each other, and a window is wider than they ask for because of
    its center's error.
    """
    grid = np.geomspace(edges[0], edges[-1] * 3.0, 40 * (len(edges) + 1))
    distance = np.sum((scale_half_normal_shares(edges, grid) - shares) ** 2, axis=1)
    return round(math.exp(_lowest(np.log(grid), distance)), 6)


def tail_scale(shares: Floats, edges: Floats, variance: npt.ArrayLike) -> float:
    """Smallest scale at which that many users can lie so far out.

    A few users unlike the others do not go unseen.

    Notes
    -----
    The share beyond each edge, less 3 standard errors, against the widest of the normal and the exponential laws.
    """
    tails = np.cumsum(np.asarray(shares)[::-1])[::-1][1:]
    spread = np.cumsum(np.broadcast_to(variance, np.shape(shares))[::-1])[::-1][1:]
    sure = tails - TAIL_ERRORS * np.sqrt(spread)
    reach = np.linspace(0.05, 8.0, 400)
    normal = 2.0 * ndtr(-reach)
    skewed = np.exp(-1.0 - reach) + np.where(
        reach < 1.0, -np.expm1(-np.maximum(1.0 - reach, 0.0)), 0.0
    )
    widest = np.maximum(normal, skewed)
    units = np.interp(-np.clip(sure, 1e-9, 1.0), -widest, reach)

    return float(np.max(np.where(sure > 0.0, edges / units, 0.0), initial=0.0))


def scale_half_normal_shares(edges: Floats, scale: Floats) -> Floats:
    """Share of each bin when deviations are half-normal, shape (len(scale), len(edges) + 1)."""
    below = 2.0 * ndtr(edges[None, :] / scale[:, None]) - 1.0
    return np.diff(below, axis=1, prepend=0.0, append=1.0)


def scale_window_factor(noise: float, log_stderr: float, bias_share: float = BIAS_SHARE) -> float:
    """How many scales a window must reach on each side.

    Parameters
    ----------
    noise : float
        Standard error of the mean of the reports in a window of half-width 1.
    log_stderr : float
        Standard error of the logarithm of the scale.
    bias_share : float
        Largest clip bias, in standard errors of the mean.

    Returns
    -------
    float
        So many that the users whom the window cuts off, when the tail on one side is exponential,
        bias the mean by at most this part of its standard error; and half a step more for each
        standard error of the scale itself.

    Notes
    -----
    With deviations `sd (Exp(1) - 1)`, cutting at `c sd` moves the mean by `sd exp(-c - 1)`.

    Examples
    --------
    >>> round(scale_window_factor(0.02, 0.0), 2), round(scale_window_factor(0.002, 0.0), 2)
    (4.43, 6.91)
    """
    factor = np.linspace(2.0, 30.0, 2801)
    bias = np.exp(-factor * TAIL_FIT - 1.0) / TAIL_FIT
    enough = float(factor[int(np.argmax(bias <= bias_share * factor * noise))])
    return enough * math.exp(1.5 * log_stderr)


def scale_tail_bias(half_width: float, scale: float) -> float:
    """Bias of the mean when a window of this half-width cuts an exponential tail, as `scale_window_factor`."""
    standard = scale / TAIL_FIT
    return standard * math.exp(-half_width / standard - 1.0)


def _lowest(x: Floats, y: Floats) -> float:
    """Where y is least, by the parabola through the lowest point and its neighbors on an even grid."""
    at = int(np.argmin(y))
    if at in (0, len(x) - 1):
        return float(x[at])
    before = y[at - 1]
    here = y[at]
    after = y[at + 1]
    bend = before - 2.0 * here + after

    if bend > 0.0:
        return float(x[at] + 0.5 * (x[1] - x[0]) * (before - after) / bend)
    return float(x[at])

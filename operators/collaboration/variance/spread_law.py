"""What votes on the spread say of the law of one sample.

A table of laws, each with what pairs look like in bins.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np
from scipy.special import ndtr

from meanstream.operators.agents.vote_of_spread import HALVINGS
from meanstream.operators.records import VOTE_BINS, Floats, Ints

FINEST = -13.0
COARSEST = -1.0
STEP = 0.25  # log2 of a sample's standard deviation over the width
TAILS = (0.0, 0.5, 1.0, 1.5, 2.0)
TIES = (0.05, 0.1, 0.2, 0.35, 0.5, 0.65, 0.8, 0.9, 0.95, 0.98)
OPPOSITES = (0.003, 0.01, 0.02, 0.05, 0.1, 0.2, 0.3)
RATES = np.geomspace(0.0005, 0.5, 40)
PRIOR = {"continuous": 0.4, "ties": 0.2, "ties and opposites": 0.2, "yes/no": 0.2}
WIDE = 0.25
"""Before any vote a law is as likely as this power of its variance. Bounds a hundred times too wide
are rarer than bounds ten times too wide, and where noise drowns the votes, samples that hardly vary
must not be believed."""
NODES = 9
DISCRETE = 0.5
"""Laws whose pairs are equal more often than not are those of rare events."""
RESOLUTION = 0.2
"""Standard deviation of log variance within a law of the table: its step, and what a family of laws
may be wrong by."""
CELL = 0.05
DOUBT = 1e-4
"""Probability that votes say nothing: no law fits exactly, and strangers may have cast some."""
GROUPS = (0.02, DISCRETE, 0.8, 0.95)
_EDGES = np.array([0.0, *(2.0**-halving for halving in HALVINGS), 1.0])


@dataclass(frozen=True, slots=True)
class Laws:
    """Laws of one sample, in units of the width of the bounds; one entry each.

    Attributes
    ----------
    bins : float array, shape (n, VOTE_BINS)
        Probability of each bin of a pair's difference.
    variance : float array, shape (n,)
        Of one sample: half of the mean squared difference, whatever the law.
    prior : float array, shape (n,)
    degrees : float array, shape (n,)
        Degrees of freedom that a sample's own squares are worth under it, of 1 for normal data.
    ties : float array, shape (n,)
        Probability that two samples are equal.
    opposite : float array, shape (n,)
        Probability that two unlike samples lie at opposite bounds.
    cell, group : int array, shape (n,)
        Cell of the log variance, and class of ties.
    """

    bins: Floats
    variance: Floats
    prior: Floats
    degrees: Floats
    ties: Floats
    opposite: Floats
    cell: Ints
    group: Ints


@cache
def spread_laws() -> Laws:
    """Make the table.

    Notes
    -----
    Differences are 0 with one probability, the whole width with another, and else those of normal samples whose
    standard deviation is itself log-normal between pairs (heavy tails, unlike agents), cut off at the width. Yes/no
    data are the case without a third kind. `PRIOR` weighs the kinds; within each, `WIDE` weighs the variances.
    """
    continuous = _continuous()
    nothing = np.zeros(1)
    z, m = (grid.ravel() for grid in np.meshgrid([0.0, *TIES[:-2]], OPPOSITES))
    proper = z + m < 0.97
    rate = 2 * RATES * (1 - RATES)
    yes_no = np.zeros((len(rate), VOTE_BINS + 2))
    yes_no[:, 0] = 1 - rate
    yes_no[:, VOTE_BINS - 1 :] = rate[:, None]

    parts = [
        _mixed(continuous, nothing, nothing),
        _mixed(continuous, np.array(TIES), np.zeros(len(TIES))),
        _mixed(continuous, z[proper], m[proper]),
        yes_no,
    ]
    wide = [p[:, VOTE_BINS] ** WIDE for p in parts]
    prior = np.concatenate([w * p / p.sum() for p, w in zip(wide, PRIOR.values(), strict=True)])

    bins, second, fourth = np.split(np.concatenate(parts), [VOTE_BINS, VOTE_BINS + 1], axis=1)
    variance = second[:, 0] / 2
    ties = bins[:, 0]
    # E d^4 = 2 mu_4 + 6 sigma^4, so kurtosis - 1 = E d^4 / (2 sigma^4) - 4: a sample variance
    # varies by that over n, relative to its square, and by 2 / n for normal data.
    excess = np.maximum(fourth[:, 0] / (2 * variance**2) - 4, 1e-9)
    degrees = np.where(ties > DISCRETE, np.minimum(2 / excess, 1.0), 1.0)
    cell = np.rint(np.log(variance) / CELL).astype(np.int64)

    opposite = bins[:, VOTE_BINS - 1] / (1 - ties)
    group = np.searchsorted(GROUPS, ties).astype(np.int64)

    return Laws(bins, variance, prior, degrees, ties, opposite, cell, group)


def _continuous() -> Floats:
    """Bins, second and fourth moment of the differences of continuous samples, one row per law."""
    stddev = 2.0 ** np.arange(FINEST, COARSEST + STEP / 2, STEP)
    node, weight = np.polynomial.hermite_e.hermegauss(NODES)
    weight /= weight.sum()
    tails = 2.0 ** np.multiply.outer(np.array(TAILS), node)
    of_difference = np.sqrt(2) * np.multiply.outer(stddev, tails)
    u = _EDGES[:, None, None, None] / of_difference
    density = np.exp(-0.5 * u**2) / np.sqrt(2 * np.pi)

    inside = 2 * ndtr(u) - 1
    second = of_difference**2 * (inside - 2 * u * density)
    fourth = of_difference**4 * (3 * inside - 2 * (u**3 + 3 * u) * density)
    below, second, fourth = ((part * weight).sum(-1) for part in (inside, second, fourth))
    within = np.diff(below, axis=0) / below[-1]
    moments = np.stack([second[-1] / below[-1], fourth[-1] / below[-1]])

    return np.concatenate([within, moments]).reshape(VOTE_BINS, -1).T


def _mixed(continuous: Floats, ties: Floats, opposites: Floats) -> Floats:
    """Join each law with ties and opposites, of probabilities of shape (k,)."""
    continuous_share = (1 - ties - opposites)[:, None, None] * continuous
    shape = (len(ties), len(continuous), 1)
    zero, most = (np.broadcast_to(p[:, None, None], shape) for p in (ties, opposites))
    rows = np.concatenate(
        [zero, continuous_share[..., :-2], most, continuous_share[..., -2:] + most], axis=2
    )

    return rows.reshape(-1, VOTE_BINS + 2)


def weigh_spread_laws(votes: Ints, noise_variance: float) -> Floats:
    """Posterior probability of each law, given votes that were added up.

    Parameters
    ----------
    votes : int array, shape (2 + VOTE_BINS,)
        As in `ReleaseColumns.votes`.
    noise_variance : float
        Variance of the noise of one bin of one vote.

    Examples
    --------
    >>> votes = np.array([1, 1000, 820, *[0] * 9, 180])
    >>> weight = weigh_spread_laws(votes, 100.0)
    >>> round(float(weight @ spread_laws().variance), 2), round(float(weight[-40:].sum()), 2)
    (0.09, 1.0)
    """
    table = spread_laws()
    number = int(votes[0])
    pairs = int(votes[1])
    counts = votes[2:]

    if number == 0 or pairs <= 0:
        return table.prior
    expected = pairs * table.bins
    variance = number * noise_variance + expected
    log_weight = np.log(table.prior) - 0.5 * (
        (counts - expected) ** 2 / variance + np.log(variance)
    ).sum(axis=1)
    weight = np.exp(log_weight - log_weight.max())

    return np.asarray((1 - DOUBT) * weight / weight.sum() + DOUBT * table.prior, dtype=np.float64)

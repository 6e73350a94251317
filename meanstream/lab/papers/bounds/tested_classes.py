"""Expected error of Algorithm 1 with its tests, and the time from which it is below that of learning alone."""

from __future__ import annotations

import numpy as np
from numpy.polynomial.hermite_e import hermegauss
from scipy.special import ndtr, ndtri

from meanstream.lab.papers.bounds.oracle_forecast import (
    VarianceTable,
    oracle_round_robin_precision,
    oracle_round_robin_times,
)
from meanstream.operators.records import Floats, Ints

SIGNIFICANCE = 0.05
"""The tests at time t run at this over ln(t + 1)."""
_NODES = 24
"""Of the integral over the agent's own mean."""
_NEVER = 1e-12
"""Chance of acceptance that counts as none."""


def error_with_tests(
    t: Ints, *, agents: int, means: Floats, sample_variance: float, table: VarianceTable
) -> Floats:
    """Approximate the mean squared error of Algorithm 1 under round robin with known variances and lazy tests.

    Parameters
    ----------
    t : int array, shape (k,)
        Times, at least 1.
    agents : int
        M agents, each placed in one of the classes with equal probability.
    means : float array, shape (classes,)
        Means of the classes.
    sample_variance : float
    table : callable
        As for `oracle_round_robin`.

    Notes
    -----
    Statistics are taken as normal. Given the agent's own mean, the others are accepted independently; their number and
    sum enter by mean and variance (a first-order expansion). Own means of earlier times, at which others were tested,
    are the present one plus independent noise, since means of a growing sample are a reversed martingale.

    Examples
    --------
    >>> from functools import partial
    >>> from meanstream.lab.papers.colme.statistic import statistic_variance_table
    >>> from meanstream.operators.counters.pm1 import Pm1
    >>> noise = {"counter": Pm1(51), "fresh_variance": 84.233}
    >>> table = partial(statistic_variance_table, name="last", sample_variance=0.25, **noise)
    >>> means, t = np.array([0.2, 0.4, 0.8]), np.array([100, 1000, 10000])
    >>> error_with_tests(t, agents=200, means=means, sample_variance=0.25, table=table).round(7).tolist()
    [0.0070302, 1.29e-05, 1.1e-06]

    References
    ----------
    Yakimenka et al., Theorem 1 and section III-C1.
    """
    variances = table(oracle_round_robin_times(agents, int(np.max(t))))
    errors = []
    for time in np.asarray(t).tolist():
        precision = oracle_round_robin_precision(time, agents, variances)
        asked = np.flatnonzero(precision)
        # The last time at which each was queried: it was tested then.
        when = time - (time - 1 - asked) % (agents - 1)
        found = [
            _error(mean, means, time, when, 1.0 / precision[asked], sample_variance)
            for mean in means.tolist()
        ]
        errors.append(float(np.mean(found)))

    return np.array(errors)


def _error(  # noqa: PLR0917 - private
    own: float, means: Floats, t: int, when: Ints, variance: Floats, sample_variance: float
) -> float:
    """Integrate the squared error of an agent with this mean over its own sample mean."""
    nodes, weights = hermegauss(_NODES)
    x = nodes[:, None, None] * np.sqrt(sample_variance / t)
    away = (means - own)[None, :, None]
    # T and the own mean at the time of the test, less the present one, are independent.
    earlier = sample_variance * (1.0 / when - 1.0 / t)
    spread = np.sqrt(variance + earlier)

    reach = ndtri(1.0 - SIGNIFICANCE / (2.0 * np.log(when + 1.0))) * np.sqrt(
        sample_variance / when + variance
    )
    low = (x - reach - away) / spread
    high = (x + reach - away) / spread
    accepted = ndtr(high) - ndtr(low)
    accepted[accepted < _NEVER] = 0.0
    scale = np.where(accepted > 0.0, accepted, np.inf) * np.sqrt(2.0 * np.pi)

    density_low = np.exp(-0.5 * low**2)
    density_high = np.exp(-0.5 * high**2)
    slope = (density_low - density_high) / scale
    curve = 1.0 + (low * density_low - high * density_high) / scale - slope**2
    # Of T given that the sum of it and the noise of the own mean is in the window.
    share = variance / spread**2
    mean = away + share * spread * slope
    left = share**2 * spread**2 * np.clip(curve, 0.0, None) + share * earlier

    weight = 1.0 / variance
    own_weight = t / sample_variance
    # One of several classes, each as likely.
    chance = accepted / len(means)
    total = own_weight + (chance * weight).sum(axis=(1, 2))
    bias = (own_weight * x[:, 0, 0] + (chance * weight * mean).sum(axis=(1, 2))) / total
    offset = mean - bias[:, None, None]
    inside = (chance * weight * offset).sum(axis=1)
    second = (chance * weight**2 * (left + offset**2)).sum(axis=1) - inside**2
    squared = bias**2 + second.sum(axis=1) / total**2

    return float(weights @ squared / weights.sum())


def better_together_from(t: Ints, errors: Floats, alone: Floats) -> int | None:
    """Give the first of these times from which on the error stays below that of learning alone.

    None if it never does.

    Examples
    --------
    >>> better_together_from(np.array([1, 2, 4, 8]), np.array([1.0, 2.0, 0.5, 0.2]), np.array([1.0, 1.0, 0.9, 0.8]))
    4
    """
    worse = np.flatnonzero(np.asarray(errors) >= np.asarray(alone))
    first = 0 if not len(worse) else int(worse[-1]) + 1

    if first == len(t):
        return None
    return int(t[first])

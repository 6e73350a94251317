"""Public: the long-run variance of a typical agent, read off differences of releases, given what votes say."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from meanstream.operators.collaboration.variance.variance_posterior import (
    INDEPENDENT,
    LEAST_POINT,
    VariancePosterior,
)
from meanstream.operators.records import Floats

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
        away = (grid[:, np.newaxis] - logs - LONGER) / LOG_SPREAD
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
    kept = weight > LEAST_POINT * weight.max()
    variance = np.concatenate([votes.variance, np.exp(grid)])[kept]

    return VariancePosterior(
        variance=variance, weight=weight[kept] / weight[kept].sum()
    ), independent

"""Which epsilon a predicted error needs."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

EPSILONS = tuple(sorted({float(f"{epsilon:.2g}") for epsilon in np.geomspace(0.01, 20.0, 120)}))
"""What is tried, to two digits."""


def epsilon_needed(stderr: Callable[[float], float], target: float) -> float | None:
    """Find the smallest epsilon that makes a predicted standard error small enough, to two digits; None if 20 does not.

    Parameters
    ----------
    stderr : callable
        Predicted standard error for an epsilon; it falls with epsilon.
    target : float
        To be reached.

    Examples
    --------
    >>> epsilon_needed(lambda epsilon: 0.1 / epsilon, 0.05), epsilon_needed(lambda epsilon: 1.0, 0.5)
    (2.0, None)
    """
    if stderr(EPSILONS[-1]) > target:
        return None
    low, high = -1, len(EPSILONS) - 1
    while high - low > 1:
        middle = (low + high) // 2
        if stderr(EPSILONS[middle]) <= target:
            high = middle
        else:
            low = middle
    return EPSILONS[high]

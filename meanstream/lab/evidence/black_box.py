"""Bounds on epsilon from outputs alone, of a number or of a whole engine run, right with the stated confidence."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import stats

from meanstream.operators.records import Bools

Outputs = npt.NDArray[Any]
Event = Callable[[Outputs], Bools]


def audit_epsilon_lower_bound(
    outputs_a: Outputs,
    outputs_b: Outputs,
    events: Sequence[Event],
    *,
    delta: float,
    confidence: float = 1.0 - 1e-6,
) -> float:
    """Lower bound on epsilon from outputs on two neighboring inputs.

    At most the true epsilon with this confidence.

    Parameters
    ----------
    outputs_a, outputs_b : arrays with one independent output per row
        The mechanism run many times on each of two neighboring inputs.
    events : sequence of callables, outputs -> bool array
        Sets of outputs, fixed before looking at these outputs. Each is tried with its complement
        and both ways round.
    delta : float
        The mechanism's delta.
    confidence : float
        Clopper-Pearson intervals with a Bonferroni correction over all events, so that the whole
        statement holds.

    Returns
    -------
    float
        The largest `log((p_A - delta) / p_B)` that the data prove, or 0 if they prove nothing.
    """
    # Two events (itself, its complement), two directions, two interval ends per event.
    error = (1.0 - confidence) / (8 * len(events))
    bound = 0.0
    for event in events:
        hits_a = event(outputs_a)
        hits_b = event(outputs_b)
        for a, b in ((hits_a, hits_b), (hits_b, hits_a), (~hits_a, ~hits_b), (~hits_b, ~hits_a)):
            low = clopper_pearson_lower(int(a.sum()), len(a), error) - delta
            high = _clopper_pearson_upper(int(b.sum()), len(b), error)
            if low > 0:
                bound = max(bound, math.log(low / high))

    return bound


def above(thresholds: npt.ArrayLike) -> list[Event]:
    """Return the events "the output exceeds t".

    The most powerful sets for noise with a monotone likelihood ratio.
    """

    def event(threshold: float) -> Event:
        return lambda outputs: np.asarray(outputs, dtype=np.float64) > threshold

    return [event(float(t)) for t in np.asarray(thresholds).ravel()]


def clopper_pearson_lower(hits: int, n: int, error: float) -> float:
    """Give the lower end of the exact interval of a share, which fails with probability `error`."""
    if hits == 0:
        return 0.0
    return float(stats.beta.ppf(error, hits, n - hits + 1))


def _clopper_pearson_upper(hits: int, n: int, error: float) -> float:
    """Give the upper end of the exact interval of a share, which fails with probability `error`."""
    if hits == n:
        return 1.0
    return float(stats.beta.isf(error, hits + 1, n - hits))

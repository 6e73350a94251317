"""Privacy audits that know nothing of the mechanism they look at: exact where the outputs are finite, else black box.

`hockey_stick` and `pure_epsilon` compare exact distributions. `audit_epsilon_lower_bound` compares samples of any
outputs, a number or a whole engine run, and is right with the stated confidence. Every audit of a good mechanism has a
known-bad twin that the same function must catch.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import stats

from meanstream.operators.noise.keyed import GaussianNoise, LaplaceNoise
from meanstream.operators.records import Bools, Floats, Ints

Outputs = npt.NDArray[Any]
Event = Callable[[Outputs], Bools]


def hockey_stick(pmf_a: npt.ArrayLike, pmf_b: npt.ArrayLike, epsilon: float) -> float:
    """Smallest delta with `P_A(S) <= e^epsilon P_B(S) + delta` for every set S: `sum max(0, p_A - e^epsilon p_B)`."""
    excess = np.asarray(pmf_a, dtype=np.float64) - math.exp(epsilon) * np.asarray(pmf_b, dtype=np.float64)
    return float(np.maximum(excess, 0.0).sum())


def worst_hockey_stick(pmf: Floats, shifts: Sequence[int], epsilon: float) -> float:
    """Largest `hockey_stick` between additive noise with this pmf and the same noise shifted, over the shifts."""
    worst = 0.0
    for shift in shifts:
        padding = np.zeros(abs(shift))
        pair = np.concatenate([pmf, padding]), np.concatenate([padding, pmf])
        worst = max(worst, hockey_stick(*pair, epsilon), hockey_stick(*pair[::-1], epsilon))
    return worst


def pure_epsilon(log_pmf_a: Floats, log_pmf_b: Floats) -> float:
    """Smallest epsilon with `P_A(S) <= exp(epsilon) P_B(S)` for every set S, both ways round."""
    return float(np.abs(log_pmf_a - log_pmf_b).max())


def implemented_tail(noise: GaussianNoise | LaplaceNoise, sizes: Ints) -> list[int]:
    """Return how many of the 2**127 magnitudes make `abs(rint(noise)) >= size`, exactly, for each size >= 1.

    The magnitude of the noise falls as the 127 bits rise, so the count is found by setting one bit after the other.
    """
    counts = [0] * len(sizes)
    for bit in range(126, -1, -1):
        trial = [count + (1 << bit) for count in counts]
        rows = np.array([((t - 1) >> 64, (t - 1) & (2**64 - 1)) for t in trial], dtype=np.uint64)
        reached = np.abs(np.rint(noise.sample(rows))) >= sizes
        counts = [t if ok else count for t, count, ok in zip(trial, counts, reached, strict=True)]
    return counts


def implemented_pmf(noise: GaussianNoise | LaplaceNoise, largest: int) -> Floats:
    """Exact probabilities of the integers `-largest..largest` under the code as it runs, float errors included."""
    tail = [*implemented_tail(noise, np.arange(1, largest + 2)), 0]
    one_side = [(tail[j] - tail[j + 1]) / 2**128 for j in range(largest)]
    zero = (2**127 - tail[0]) / 2**127
    return np.array([*one_side[::-1], zero, *one_side])


def audit_epsilon_lower_bound(
    outputs_a: Outputs,
    outputs_b: Outputs,
    events: Sequence[Event],
    *,
    delta: float,
    confidence: float = 1.0 - 1e-6,
) -> float:
    """Lower bound on epsilon from outputs on two neighboring inputs; at most the true epsilon with this confidence.

    Parameters
    ----------
    outputs_a, outputs_b : arrays with one independent output per row
        The mechanism run many times on each of two neighboring inputs.
    events : sequence of callables, outputs -> bool array
        Sets of outputs, fixed before looking at these outputs. Each is tried with its complement and both ways round.
    delta : float
        The mechanism's delta.
    confidence : float
        Clopper-Pearson intervals with a Bonferroni correction over all events, so that the whole statement holds.

    Returns
    -------
    float
        The largest `log((p_A - delta) / p_B)` that the data prove, or 0 if they prove nothing.
    """
    # Two events (itself, its complement), two directions, two interval ends per event.
    error = (1.0 - confidence) / (8 * len(events))
    bound = 0.0
    for event in events:
        hits_a, hits_b = event(outputs_a), event(outputs_b)
        for a, b in ((hits_a, hits_b), (hits_b, hits_a), (~hits_a, ~hits_b), (~hits_b, ~hits_a)):
            low = _lower(int(a.sum()), len(a), error) - delta
            high = _upper(int(b.sum()), len(b), error)
            if low > 0:
                bound = max(bound, math.log(low / high))
    return bound


def above(thresholds: npt.ArrayLike) -> list[Event]:
    """Return the events "the output exceeds t": the most powerful sets for noise with a monotone likelihood ratio."""

    def event(threshold: float) -> Event:
        return lambda outputs: np.asarray(outputs, dtype=np.float64) > threshold

    return [event(float(t)) for t in np.asarray(thresholds).ravel()]


def _lower(hits: int, n: int, error: float) -> float:
    return 0.0 if hits == 0 else float(stats.beta.ppf(error, hits, n - hits + 1))


def _upper(hits: int, n: int, error: float) -> float:
    return 1.0 if hits == n else float(stats.beta.isf(error, hits + 1, n - hits))

"""How far two exact distributions are apart, in the sense of differential privacy."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from meanstream.operators.records import Floats


def hockey_stick(pmf_a: npt.ArrayLike, pmf_b: npt.ArrayLike, epsilon: float) -> float:
    """Smallest delta with `P_A(S) <= e^epsilon P_B(S) + delta` for every set S: `sum max(0, p_A -
    e^epsilon p_B)`."""
    excess = np.asarray(pmf_a, dtype=np.float64) - math.exp(epsilon) * np.asarray(
        pmf_b, dtype=np.float64
    )
    return float(np.maximum(excess, 0.0).sum())


def worst_hockey_stick(pmf: Floats, shifts: Sequence[int], epsilon: float) -> float:
    """Largest `hockey_stick` between additive noise with this pmf and the same noise shifted, over
    the shifts."""
    worst = 0.0
    for shift in shifts:
        padding = np.zeros(abs(shift))
        pair = np.concatenate([pmf, padding]), np.concatenate([padding, pmf])
        worst = max(worst, hockey_stick(*pair, epsilon), hockey_stick(*pair[::-1], epsilon))
    return worst


def pure_epsilon(log_pmf_a: Floats, log_pmf_b: Floats) -> float:
    """Smallest epsilon with `P_A(S) <= exp(epsilon) P_B(S)` for every set S, both ways round."""
    return float(np.abs(log_pmf_a - log_pmf_b).max())

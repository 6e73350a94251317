"""The exact law of noise as the code draws it."""

from __future__ import annotations

import numpy as np

from meanstream.lab.evidence.counters_audit import implemented_tail
from meanstream.operators.noise.distributions import NoiseDistribution
from meanstream.operators.records import Floats


def implemented_pmf(noise: NoiseDistribution, largest: int) -> Floats:
    """Exact probabilities of the integers `-largest..largest` under the code as it runs, float errors included."""
    tail = [*implemented_tail(noise, np.arange(1, largest + 2)), 0]
    one_side = [(tail[j] - tail[j + 1]) / 2**128 for j in range(largest)]
    zero = (2**127 - tail[0]) / 2**127
    return np.array([*one_side[::-1], zero, *one_side])

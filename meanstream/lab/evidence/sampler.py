"""The exact law of the sampler as it runs: its 2**128 inputs are counted, float errors included."""

from __future__ import annotations

import numpy as np

from meanstream.operators.noise.distributions import NoiseDistribution
from meanstream.operators.records import Floats, Ints

FEWEST = 2**40
"""Of 2**128 inputs: where fewer make an outcome its ratio says nothing, and delta (`TAIL_DELTA`)
comprises it."""


def implemented_tail(noise: NoiseDistribution, sizes: Ints) -> list[int]:
    """Return how many of the 2**127 magnitudes make `abs(rint(noise)) >= size`, exactly, for each size >= 1.

    The magnitude of the noise falls as the 127 bits rise, so the count is found by setting one bit
    after the other.
    """
    counts = [0] * len(sizes)
    for bit in range(126, -1, -1):
        trial = [count + (1 << bit) for count in counts]
        rows = np.array([((t - 1) >> 64, (t - 1) & (2**64 - 1)) for t in trial], dtype=np.uint64)
        reached = np.abs(np.rint(noise.sample(rows))) >= sizes
        counts = [t if ok else count for t, count, ok in zip(trial, counts, reached, strict=True)]

    return counts


def implemented_pmf(noise: NoiseDistribution, largest: int) -> Floats:
    """Exact probabilities of the integers `-largest..largest` under the code as it runs, float errors included."""
    tail = [*implemented_tail(noise, np.arange(1, largest + 2)), 0]
    one_side = [(tail[j] - tail[j + 1]) / 2**128 for j in range(largest)]
    zero = (2**127 - tail[0]) / 2**127
    return np.array([*one_side[::-1], zero, *one_side])

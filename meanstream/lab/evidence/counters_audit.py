"""What continual counters spend.

Sensitivity from `step` itself, and the noise from counting the sampler's inputs.
"""

from __future__ import annotations

import math

import numpy as np
from scipy.linalg import solve_triangular
from scipy.optimize import brentq

from meanstream.operators.counters.base import Counter
from meanstream.operators.noise.distributions import (
    GaussianNoise,
    LaplaceNoise,
    NoiseDistribution,
    StaircaseNoise,
)
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


SETS = 41
"""Thresholds near the worst one at which a Gaussian is compared with itself moved."""


def counter_response(counter: Counter, n: int) -> Floats:
    """Give `B` as `step` applies it.

    Column e is the noise of all releases when only draw e is 1.
    """
    state = counter.init(n)
    rows = np.arange(n)
    noise = np.zeros((n, n))
    for k in range(n):
        noise[k] = counter.step(state, rows, np.full(n, k + 1), (rows == k).astype(np.float64))

    return noise


def counter_columns(counter: Counter, n: int) -> Floats:
    """Give `C = B^{-1} A`.

    What one unit of each increment moves the noised vector by, a column each.
    """
    return np.asarray(
        solve_triangular(counter_response(counter, n), counter.workload(n), lower=True)
    )


def gaussian_sampler_epsilon(noise: GaussianNoise, shift: int, delta: float) -> float:
    """Return the least epsilon at which the published integer hides a shift at this delta, over threshold sets.

    Counted over all 2**128 inputs of the sampler. Sets `{y >= t}` are the worst ones for a
    likelihood ratio that grows with y; t is searched around the worst of the continuous Gaussian.

    Examples
    --------
    >>> from meanstream.operators.noise.calibration import calibrated_analytic_stddev
    >>> shift = 2**16
    >>> round(gaussian_sampler_epsilon(GaussianNoise(shift * calibrated_analytic_stddev(1, 1e-6)), shift, 1e-6), 6)
    1.0
    """

    def tails(around: float, width: float) -> tuple[Floats, Floats]:
        sets = np.unique(np.rint(around + np.linspace(-width, width, SETS)).astype(np.int64))
        return _chance_above(noise, sets - shift), _chance_above(noise, sets)

    def excess(epsilon: float) -> float:
        return float((near - math.exp(epsilon) * far).max()) - delta

    # At threshold t the loss is linear in t; epsilon is not known before, so the sets cover the
    # loss's upper tail.
    spread = noise.stddev
    near, far = tails(0.5 * shift + 4.0 * spread, 8.0 * spread)

    for _ in range(8):
        if excess(0.0) <= 0:
            return 0.0
        high = 1.0
        while excess(high) > 0:
            high *= 2.0

        least = float(brentq(excess, 0.0, high, xtol=1e-13))
        near, far = tails(0.5 * shift + least * noise.stddev**2 / shift, spread := 0.3 * spread)

    return least


def laplace_sampler_epsilon(noise: LaplaceNoise, shifts: Ints) -> float:
    """Return the loss of several draws that move together, each by a shift.

    Counted masses of equal outcomes.
    """
    lost = 0.0
    for shift, times in zip(
        *np.unique(np.abs(shifts[shifts != 0]), return_counts=True), strict=True
    ):
        sizes = np.array([1, 2, 3 * shift // 2, shift, 2 * shift, 5 * shift], dtype=np.int64)
        masses = [_counted_masses(noise, s) for s in (sizes, sizes + shift)]
        lost += int(times) * max(
            math.log(a) - math.log(b) for a, b in zip(*masses, strict=True) if b >= FEWEST
        )

    return lost


def staircase_sampler_epsilon(noise: StaircaseNoise, shifts: Ints) -> float:
    """Return the loss of several draws that move together, each by a shift.

    Counted masses of equal outcomes around the edges of the steps, where a move of 1 and one by the
    whole span cost most, whichever way.

    Examples
    --------
    >>> round(staircase_sampler_epsilon(StaircaseNoise(2**12, 1.5), np.array([2**12, 0, 2**12])), 9)
    3.0
    """
    edges = np.array([noise.edge, noise.span, noise.span + noise.edge, 2 * noise.span])
    sizes = np.unique(np.maximum(np.concatenate([[1], edges - 1, edges, edges + 1]), 1))
    lost = 0.0

    for shift, times in zip(
        *np.unique(np.abs(shifts[shifts != 0]), return_counts=True), strict=True
    ):
        worst = 0.0
        for move in np.unique([1, noise.edge, shift]):
            moved_sizes = np.maximum(np.abs(sizes[:, np.newaxis] + [-move, move]), 1).ravel()
            plain_sizes = np.repeat(sizes, 2)
            masses = [_counted_masses(noise, s) for s in (plain_sizes, moved_sizes)]
            worst = max(
                worst,
                *(
                    abs(math.log(a) - math.log(b))
                    for a, b in zip(*masses, strict=True)
                    if min(a, b) >= FEWEST
                ),
            )

        lost += int(times) * worst

    return lost


def _counted_masses(noise: NoiseDistribution, sizes: Ints) -> list[int]:
    """Count the magnitudes that make each size, of 2**127."""
    least = implemented_tail(noise, sizes)
    beyond = implemented_tail(noise, sizes + 1)

    return [count - further for count, further in zip(least, beyond, strict=True)]


def _chance_above(noise: GaussianNoise, least: Ints) -> Floats:
    """Probability that the rounded noise is at least each integer.

    It is as likely at most minus that integer.
    """
    size = np.where(least > 0, least, 1 - least)
    one_side = np.array([count / 2**128 for count in implemented_tail(noise, size)])
    return np.where(least > 0, one_side, 1.0 - one_side)

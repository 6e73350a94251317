"""Noise distributions by inversion.

128 uniform bits in, one sample out, no loop and no branch on what is drawn.

One bit is the sign and 127 bits are the magnitude, so both tails keep their relative precision.
What is published is always an integer in grid units, `total + rint(noise)`.

The bits are the same on every machine. The floats may differ in the last place between processors
and SciPy versions, which moves a rounded release about once in a billion: what must be re-emitted
exactly is stored with the ledger.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import numpy.typing as npt
from scipy.special import ndtr, ndtri

from meanstream.operators.records import Floats, Words
from meanstream.operators.validation import require, require_positive

TAIL_DELTA = 2.0**-64
"""What 128 bits can miss of one draw's distribution, to be added to delta once per draw (see
`NoiseDistribution`)."""

MAX_SCALE = 2.0**40

_EDGES = 1024
"""Widths of the first step of a staircase that are compared."""

_SIGN = np.uint64(63)
_MAGNITUDE = np.uint64(2**63 - 1)
STEEP = 0.5
STEPS_OF_EPSILON = 1000
"""Epsilon from which on a staircase has a law of its own, and in how many steps it is told."""


class NoiseDistribution(Protocol):
    """A symmetric noise distribution in grid units.

    Notes
    -----
    **Privacy.** Two imperfections separate a sample from the exact distribution; both are bounded, stated, and checked
    against exact counts of the 2**128 inputs in the tests.

    - Every bin's probability is a multiple of 2**-128 and the tails end where the bits do: `tail_delta` bounds what
      this adds to delta per draw, for `width * (1 + exp(epsilon)) <= 2**55`.
    - Inversion is done in float64, so the edges of the bins are off by a few units in the last place: `epsilon_slack`
      bounds what this adds to epsilon per draw. It is proportional to the width in grid units and
      reached only in the far tails: at a width of 2**20 it is 1e-7 or less.
    """

    @property
    def variance(self) -> float:
        """Variance of `sample`, in squared grid units.

        Rounding a cumulative sum adds at most 1/4, typically 1/12.
        """
        ...

    @property
    def tail_delta(self) -> float:
        """Bound on what the finite number of bits adds to delta, per draw."""
        ...

    @property
    def epsilon_slack(self) -> float:
        """Bound on what float64 inversion adds to epsilon, per draw."""
        ...

    def sample(self, bits: Words) -> Floats:
        """Noise for each row of a uint64 array (n, 2) of uniform bits, as a float64 array (n,)."""
        ...

    def pmf(self, k: npt.ArrayLike) -> Floats:
        """Probability that the noise, rounded to an integer, is k."""
        ...

    def cdf(self, x: npt.ArrayLike) -> Floats:
        """Probability that `sample` is at most x."""
        ...


@dataclass(frozen=True, slots=True)
class GaussianNoise:
    """Continuous Gaussian noise, to be added up and then rounded to the grid.

    Parameters
    ----------
    stddev : float
        Standard deviation in grid units, positive, at most 2**40.

    Notes
    -----
    **Privacy.** `total + rint(noise)` is the rounding of `total + noise` because the total is an integer: publishing it
    is post-processing of the continuous Gaussian mechanism, whose calibration therefore holds as it stands, also for
    linear combinations of several draws.

    The largest magnitude is 13.1 standard deviations (probability 2**-128). With relative errors of
    7e-16 in `ndtri` and 2**-52 in the tail probability, a bin's edge is off by at most 101 * 2**-53
    standard deviations, hence `epsilon_slack`.

    Examples
    --------
    >>> rows = np.array([[2**62, 0], [2**62 + 2**63, 0]], dtype=np.uint64)
    >>> GaussianNoise(10.0).sample(rows).round(3)
    array([ 6.745, -6.745])
    """

    stddev: float

    def __post_init__(self) -> None:
        require_positive(stddev=self.stddev)
        require(self.stddev <= MAX_SCALE, "stddev", "be at most 2**40 grid units", self.stddev)

    @property
    def variance(self) -> float:
        """Variance of `sample`: `stddev**2`, in squared grid units."""
        return self.stddev**2

    @property
    def tail_delta(self) -> float:
        """Bound on what the finite number of bits adds to delta, per draw."""
        return TAIL_DELTA

    @property
    def epsilon_slack(self) -> float:
        """Bound on what float64 inversion adds to epsilon, per draw: `2**-44 * max(stddev, 16)`."""
        return 2.0**-44 * max(self.stddev, 16.0)

    def sample(self, bits: Words) -> Floats:
        """Noise for each row of a uint64 array (n, 2) of uniform bits, as a float64 array (n,)."""
        sign, tail = _sign_and_tail(bits)
        tail *= 0.5
        noise: Floats = ndtri(tail)
        noise *= sign
        noise *= -self.stddev

        return noise

    def pmf(self, k: npt.ArrayLike) -> Floats:
        """Probability that the noise, rounded to an integer, is k."""
        # Both terms are lower tails, so that nothing cancels far out.
        size = np.abs(np.asarray(k, dtype=np.float64))
        return ndtr((0.5 - size) / self.stddev) - ndtr((-0.5 - size) / self.stddev)

    def cdf(self, x: npt.ArrayLike) -> Floats:
        """Probability that `sample` is at most x."""
        return ndtr(np.asarray(x, dtype=np.float64) / self.stddev)


@dataclass(frozen=True, slots=True)
class LaplaceNoise:
    """Discrete Laplace noise: integers with probability proportional to `exp(-abs(k) / scale)`.

    Parameters
    ----------
    scale : float
        Scale in grid units, positive, at most 2**40.

    Notes
    -----
    **Privacy.** On integer sums of integer sensitivity s the likelihood ratio is at most `exp(s / scale)` everywhere:
    pure epsilon-DP with epsilon = s / scale, but for `epsilon_slack`, and for `tail_delta` because magnitudes end at
    about 88 scales (probability 2**-127).

    With `q = exp(-1 / scale)`, `P(abs(K) >= j) = 2 q**j / (1 + q)` for j >= 1 is inverted in closed
    form.

    Examples
    --------
    >>> rows = np.array([[2**62, 0], [2**62 + 2**63, 0]], dtype=np.uint64)
    >>> LaplaceNoise(10.0).sample(rows)
    array([ 7., -7.])
    """

    scale: float

    def __post_init__(self) -> None:
        require_positive(scale=self.scale)
        require(self.scale <= MAX_SCALE, "scale", "be at most 2**40 grid units", self.scale)

    @property
    def variance(self) -> float:
        """Variance of `sample`: `2 q / (1 - q)**2`, in squared grid units."""
        return 2.0 * math.exp(-1.0 / self.scale) / math.expm1(-1.0 / self.scale) ** 2

    @property
    def tail_delta(self) -> float:
        """Bound on what the finite number of bits adds to delta, per draw."""
        return TAIL_DELTA

    @property
    def epsilon_slack(self) -> float:
        """Bound on what float64 inversion adds to epsilon, per draw: `2**-43 * max(scale, 1)`."""
        return 2.0**-43 * max(self.scale, 1.0)

    def sample(self, bits: Words) -> Floats:
        """Noise for each row of a uint64 array (n, 2) of uniform bits, as integers in a float64 array (n,)."""
        sign, tail = _sign_and_tail(bits)
        noise: Floats = np.log(tail, out=tail)
        noise += math.log1p(math.exp(-1.0 / self.scale)) - math.log(2.0)
        noise *= -self.scale
        np.floor(noise, out=noise)
        noise *= sign

        return noise

    def pmf(self, k: npt.ArrayLike) -> Floats:
        """Probability that the noise is the integer k."""
        size = np.abs(np.asarray(k, dtype=np.float64))
        return math.tanh(0.5 / self.scale) * np.exp(-size / self.scale)

    def cdf(self, x: npt.ArrayLike) -> Floats:
        """Probability that `sample`, an integer, is at most x."""
        k = np.floor(np.asarray(x, dtype=np.float64))
        # P(K >= j) = q**j / (1 + q) for j >= 1, and the law is symmetric.
        beyond = np.exp(-np.maximum(np.where(k >= 0, k + 1.0, -k), 0.0) / self.scale)
        beyond /= 1.0 + math.exp(-1.0 / self.scale)

        return np.where(k >= 0, 1.0 - beyond, beyond)


@dataclass(frozen=True, slots=True)
class StaircaseNoise:
    """Discrete staircase noise: integers whose probability falls by a step every `span`.

    `P(i) = a` for 0 <= i < `edge`, `a exp(-epsilon)` up to `span`, then `exp(-epsilon)` times that
    of `span` before, and `P(-i) = P(i)`.

    Parameters
    ----------
    span : int
        Sensitivity in grid units: what one sample moves a sum by at most; at most 2**40.
    epsilon : float
        What a move by `span` may cost.

    Attributes
    ----------
    edge : int
        Width of the first step, of least variance among 1,024 of them that are spaced evenly.

    Notes
    -----
    **Privacy.** A move by d in 1..`span` changes the probability of no integer by more than `exp(epsilon)`, exactly:
    pure epsilon-DP, but for `epsilon_slack`, and for `tail_delta` because magnitudes end where the bits do. A move by
    more costs epsilon for each `span` that has begun. So several samples that move together cost epsilon each, in one
    draw or in several; unlike Laplace noise, a small move costs no less than a large one.

    With `T(j) = P(abs(K) >= j)` for j = m span + s >= 1, `T(j) = 2 exp(-m epsilon) (G - S(s))`,
    where `S(s)` is the sum of the first s probabilities and G that of all that are not negative. It
    is inverted in closed form: first m, then s. An edge is off by at most 2**-46 of
    `span / (1 - exp(-epsilon))`, in units of what the integer beside it weighs.

    References
    ----------
    Q. Geng, P. Viswanath, The Optimal Mechanism in Differential Privacy, ISIT 2014, Theorem 7 for integers.

    Examples
    --------
    >>> noise = StaircaseNoise(10, 3.0)
    >>> noise.edge, round(noise.variance / LaplaceNoise(10 / 3.0).variance, 2)
    (3, 0.69)
    >>> rows = np.array([[2**62, 0], [2**62 + 2**63, 0]], dtype=np.uint64)
    >>> noise.sample(rows)
    array([ 2., -2.])
    """

    span: int
    epsilon: float
    edge: int = field(init=False)

    def __post_init__(self) -> None:
        require_positive(epsilon=self.epsilon)
        require(1 <= self.span <= MAX_SCALE, "span", "lie in 1..2**40 grid units", self.span)

        edges = np.unique(np.maximum(self.span * np.arange(1, _EDGES + 1) // _EDGES, 1))
        variances = [_staircase_variance(self.span, int(edge), self.epsilon) for edge in edges]
        object.__setattr__(self, "edge", int(edges[int(np.argmin(variances))]))

    @property
    def variance(self) -> float:
        """Variance of `sample`, in squared grid units."""
        return _staircase_variance(self.span, self.edge, self.epsilon)

    @property
    def tail_delta(self) -> float:
        """Bound on what the finite number of bits adds to delta, per draw."""
        return TAIL_DELTA

    @property
    def epsilon_slack(self) -> float:
        """Bound on what float64 inversion adds to epsilon, per draw."""
        return 2.0**-43 * self.span / -math.expm1(-self.epsilon)

    @property
    def law(self) -> int:
        """Number of the law of one draw: the negative of its epsilon in thousandths.

        1 where it hardly differs from a Laplace draw of its variance.
        """
        if self.epsilon < STEEP:
            return 1
        return -round(STEPS_OF_EPSILON * self.epsilon)

    @property
    def equal_mass(self) -> float:
        """Probability of the integers that a move by `span` leaves as likely as they were."""
        peak = self._peak
        if 2 * self.edge > self.span:
            return peak * (2 * self.edge - self.span - 1)
        return peak * math.exp(-self.epsilon) * (self.span - 2 * self.edge + 1)

    def sample(self, bits: Words) -> Floats:
        """Noise for each row of a uint64 array (n, 2) of uniform bits, as integers in a float64 array (n,)."""
        sign, tail = _sign_and_tail(bits)
        # abs(K) is the largest j with T(j) >= tail, so exp(-m epsilon) (1 - S(s) / G) >= tail / 2G.
        logs = np.log(tail, out=tail)
        logs -= math.log1p(self._peak)
        step = np.floor(logs / -self.epsilon)
        left = -np.expm1(logs + self.epsilon * step)

        # Within a step of `span`: those before the edge weigh a, those behind it a exp(-epsilon).
        within = left * (0.5 * (1.0 + self._peak) / self._peak)
        beyond = self.edge + (within - self.edge) * math.exp(self._most_loss)
        within = np.where(within < self.edge, within, beyond)
        within = np.clip(np.floor(within), 0.0, self.span - 1.0)
        noise: Floats = step * self.span + within
        noise *= sign

        return noise

    def pmf(self, k: npt.ArrayLike) -> Floats:
        """Probability that the noise is the integer k."""
        size = np.abs(np.asarray(k, dtype=np.float64))
        step = np.floor(size / self.span)
        step += size - step * self.span >= self.edge
        return self._peak * np.exp(-self.epsilon * step)

    def cdf(self, x: npt.ArrayLike) -> Floats:
        """Probability that `sample`, an integer, is at most x."""
        k = np.floor(np.asarray(x, dtype=np.float64))
        # T(j) / 2 for j >= 1, and the law is symmetric.
        size = np.maximum(np.where(k >= 0, k + 1.0, -k), 1.0)
        step = np.floor(size / self.span)
        edge_place = size - step * self.span
        behind = np.maximum(edge_place - self.edge, 0.0) * math.exp(-self.epsilon)
        before = self._peak * (np.minimum(edge_place, self.edge) + behind)
        beyond = np.exp(-self.epsilon * step) * (0.5 * (1.0 + self._peak) - before)

        return np.asarray(np.where(k >= 0, 1.0 - beyond, beyond))

    @property
    def _peak(self) -> float:
        """Probability of 0."""
        ratio = math.exp(-self.epsilon)
        lost = -math.expm1(-self.epsilon)
        return lost / (2.0 * self.edge + 2.0 * ratio * (self.span - self.edge) - lost)

    @property
    def _most_loss(self) -> float:
        """The exponent of the second step; where it is huge, nothing lies behind the edge."""
        return min(self.epsilon, 700.0)


def _staircase_variance(span: int, edge: int, epsilon: float) -> float:
    """Variance of staircase noise whose first step is that wide."""
    ratio = math.exp(-epsilon)
    lost = -math.expm1(-epsilon)
    peak = lost / (2.0 * edge + 2.0 * ratio * (span - edge) - lost)

    def power_sum(power: int) -> float:
        """Sum of what the integers of the first `span` weigh, times their power, in units of the peak."""
        before = _POWER_SUMS[power](float(edge))
        return before + ratio * (_POWER_SUMS[power](float(span)) - before)

    # Sum of (m span + s)^2 exp(-m epsilon) over all steps m.
    of_steps = (1.0 / lost, ratio / lost**2, ratio * (1.0 + ratio) / lost**3)
    squares = (
        of_steps[2] * float(span) ** 2 * power_sum(0)
        + of_steps[1] * 2.0 * span * power_sum(1)
        + of_steps[0] * power_sum(2)
    )

    return 2.0 * peak * squares


_POWER_SUMS: tuple[Callable[[float], float], ...] = (
    lambda n: n,
    lambda n: 0.5 * n * (n - 1.0),
    lambda n: n * (n - 1.0) * (2.0 * n - 1.0) / 6.0,
)
"""Sums of s**0, s**1, s**2 for s < n."""


def _sign_and_tail(bits: Words) -> tuple[Floats, Floats]:
    """Split each row into a sign (+1 or -1) and the probability of the tail beyond the magnitude, in (0, 1]."""
    high = bits[:, 0]
    low = bits[:, 1]
    sign = 1.0 - 2.0 * (high >> _SIGN).astype(np.float64)
    # The low word matters where the high one is small: there the sum of the two keeps full relative
    # precision.
    tail = (low.astype(np.float64) + 0.5) * 2.0**-127
    tail += (high & _MAGNITUDE).astype(np.float64) * 2.0**-63

    return sign, tail

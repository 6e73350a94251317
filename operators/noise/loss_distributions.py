"""Privacy losses as distributions: what several mechanisms together promise, and how often a guess is right.

The loss of an output is the logarithm of how much likelier it is under one of two neighboring
inputs. Losses of independent mechanisms add up, so their distributions are convolved. They stand on
a grid, rounded up: what is told is never less than the truth.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtr, ndtri

from meanstream.operators.records import Floats
from meanstream.operators.validation import require, require_positive, valid_float

STEPS = 2000
"""Steps of the grid from 0 to the largest loss of one mechanism."""
MOST_STEPS = 2**21
_FARTHEST = 12.0
"""Standard deviations of a Gaussian loss beyond which it counts as infinite."""


@dataclass(frozen=True, slots=True)
class LossDistribution:
    """The distribution of the privacy loss of neighboring inputs, the same in both directions.

    Parameters
    ----------
    step : float
        Distance of two losses of the grid.
    first : int
        The least loss, in steps.
    mass : float array
        Probability of each loss of the grid, from the least one on.
    endless : float
        Probability of a loss without bound.

    Notes
    -----
    **Privacy.** Rounding a loss up, and moving mass to larger losses, only adds to what is told: epsilon, delta and
    odds are upper bounds.

    References
    ----------
    A. Koskela, J. Jalkoe, A. Honkela, Computing Tight Differential Privacy Guarantees Using FFT, AISTATS 2020; D.
    Sommer, S. Meiser, E. Mohammadi, Privacy Loss Classes, PoPETs 2019.

    Examples
    --------
    >>> one = laplace_losses(1.0)
    >>> round(one.odds, 3), round(one.epsilon(1e-6), 3), round(composed_losses([one] * 30).epsilon(1e-6), 1)
    (0.697, 1.0, 27.8)
    """

    step: float
    first: int
    mass: Floats
    endless: float = 0.0

    @property
    def losses(self) -> Floats:
        """The losses of the grid."""
        return np.asarray(self.step * (self.first + np.arange(len(self.mass))), np.float64)

    @property
    def odds(self) -> float:
        """How often a guess between the two inputs is right at most, each being as likely."""
        return 0.5 + 0.5 * self.delta(0.0)

    def delta(self, epsilon: float) -> float:
        """Smallest delta at this epsilon."""
        above = self.losses > epsilon
        lost = -np.expm1(epsilon - self.losses[above])
        return min(1.0, self.endless + float((self.mass[above] * lost).sum()))

    def epsilon(self, delta: float) -> float:
        """Smallest epsilon at this delta; infinite where losses without bound are likelier."""
        if self.endless > delta:
            return math.inf
        low = 0.0
        high = max(float(self.losses[-1]), 0.0)

        if self.delta(low) <= delta:
            return 0.0

        for _ in range(60):
            middle = 0.5 * (low + high)
            if self.delta(middle) <= delta:
                high = middle
            else:
                low = middle

        return high


def laplace_losses(epsilon: float, step: float | None = None) -> LossDistribution:
    """Losses of Laplace noise that costs epsilon at the largest move, which is the worst one.

    Half of all outputs lose epsilon, and `P(L <= l) = exp((l - epsilon) / 2) / 2` from `-epsilon`
    to there.
    """
    require_positive(epsilon=epsilon)

    def below(loss: Floats) -> Floats:
        inside = 0.5 * np.exp(0.5 * (np.minimum(loss, epsilon) - epsilon))
        return np.where(loss >= epsilon, 1.0, np.where(loss < -epsilon, 0.0, inside))

    return _on_grid(below, -epsilon, epsilon, step)


def three_point_losses(
    epsilon: float, equal: float = 0.0, step: float | None = None
) -> LossDistribution:
    """Losses of plus or minus epsilon, and of 0 with probability `equal`.

    That of staircase noise moved by its span; with no equal outcomes the worst of all mechanisms
    that promise epsilon.
    """
    require_positive(epsilon=epsilon)
    likely = (1.0 - equal) / (1.0 + math.exp(-epsilon))

    def below(loss: Floats) -> Floats:
        unlikely = np.where(loss >= -epsilon, 1.0 - equal - likely, 0.0)
        return unlikely + np.where(loss >= 0, equal, 0.0) + np.where(loss >= epsilon, likely, 0.0)

    return _on_grid(below, -epsilon, epsilon, step)


def gaussian_losses(mu: float, step: float | None = None) -> LossDistribution:
    """Losses of Gaussian noise with a sensitivity of mu standard deviations: N(mu^2 / 2, mu^2)."""
    require_positive(mu=mu)
    middle = 0.5 * mu * mu

    def below(loss: Floats) -> Floats:
        return np.asarray(ndtr((loss - middle) / mu))

    reach = _FARTHEST * mu
    return _on_grid(below, middle - reach, middle + reach, step)


def composed_losses(parts: Sequence[LossDistribution]) -> LossDistribution:
    """Losses of independent mechanisms together; all on grids of one step."""
    step = parts[0].step
    require(
        all(distribution.step == step for distribution in parts),
        "step",
        "be the same of all parts",
        step,
    )
    total = parts[0]
    for distribution in parts[1:]:
        total = _convolved(total, distribution)

    return total


def repeated_losses(one: LossDistribution, times: int) -> LossDistribution:
    """Losses of that many independent mechanisms of one kind together.

    Examples
    --------
    >>> round(repeated_losses(laplace_losses(1.0), 30).epsilon(1e-6), 1)
    27.8
    """
    total = None
    power = _coarser(one, times)
    while times:
        if times % 2:
            total = power if total is None else _convolved(total, power)

        times //= 2
        power = _convolved(power, power) if times else power

    assert total is not None  # noqa: S101 - once at least
    return total


def regridded_losses(one: LossDistribution, step: float) -> LossDistribution:
    """Put losses on another grid, rounded up."""
    grid_place = np.ceil(one.losses / step - 1e-9).astype(np.int64)
    first = int(grid_place[0])
    mass = np.asarray(np.bincount(grid_place - first, weights=one.mass), np.float64)

    return LossDistribution(step, first, mass, one.endless)


def _coarser(one: LossDistribution, times: int) -> LossDistribution:
    """Put losses on so coarse a grid that their sum has not too many steps."""
    merged = -(-len(one.mass) * times // MOST_STEPS)

    if merged == 1:
        return one
    return regridded_losses(one, one.step * merged)


def common_step(largest: Sequence[float]) -> float:
    """Step of a grid for several mechanisms, by the largest loss of each.

    Examples
    --------
    >>> common_step([1.0, 4.0])
    0.0005
    """
    return max(min(largest) / STEPS, math.fsum(largest) / MOST_STEPS)


def gaussian_mu_of_odds(odds: float) -> float:
    """Mu of Gaussian noise at which a guess is right that often.

    Examples
    --------
    >>> round(gaussian_mu_of_odds(0.55), 4)
    0.2513
    """
    odds = valid_odds(odds)
    return 2.0 * float(ndtri(odds))


def pure_epsilon_of_odds(odds: float, losses: Callable[[float], LossDistribution]) -> float:
    """Largest epsilon at which a mechanism that has these losses lets a guess be right that often at most.

    Examples
    --------
    >>> round(pure_epsilon_of_odds(0.55, laplace_losses), 3)
    0.211
    """
    odds = valid_odds(odds)
    # No mechanism is worse than two answers, none better than a quarter of its epsilon says.
    low = math.log(odds / (1.0 - odds))
    high = 2.0 * low
    while losses(high).odds <= odds:
        low, high = high, 2.0 * high

    while high - low > 1e-7 * high:
        middle = 0.5 * (low + high)
        if losses(middle).odds <= odds:
            low = middle
        else:
            high = middle

    return low


def valid_odds(odds: float | str) -> float:
    """Read odds, as a share or in percent, and refuse those that no noise keeps or that promise nothing.

    Examples
    --------
    >>> valid_odds(0.55), valid_odds("55%"), valid_odds("55 %")
    (0.55, 0.55, 0.55)
    """
    percent = isinstance(odds, str) and odds.strip().endswith("%")
    share = valid_float("odds", odds.strip()[:-1] if isinstance(odds, str) and percent else odds)
    share = share / 100.0 if percent else share
    require(0.5 < share < 1, "odds", "lie between 50 % and 100 %, and be neither", odds)

    return share


def _on_grid(
    below: Callable[[Floats], Floats], least: float, most: float, step: float | None
) -> LossDistribution:
    """Put a distribution on the grid: the loss of a step comprises what lies between it and the one before."""
    step = max(abs(least), abs(most)) / STEPS if step is None else step
    first = math.floor(least / step + 1e-9)
    last = math.ceil(most / step - 1e-9)
    # What a division has rounded does not move an atom to the next step.
    edges = np.asarray(step * np.arange(first, last + 1) * (1.0 + 1e-12), np.float64)
    edges[-1] = max(edges[-1], most)
    reached = below(edges)
    mass = np.diff(reached, prepend=0.0)

    return LossDistribution(step, first, mass, max(0.0, 1.0 - float(reached[-1])))


def _convolved(one: LossDistribution, other: LossDistribution) -> LossDistribution:
    from scipy.signal import fftconvolve  # noqa: PLC0415 - half a second of a start

    mass = np.maximum(fftconvolve(one.mass, other.mass), 0.0)
    endless = 1.0 - (1.0 - one.endless) * (1.0 - other.endless)

    return LossDistribution(one.step, one.first + other.first, mass, endless)

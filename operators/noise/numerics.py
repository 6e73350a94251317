"""What finite arithmetic adds to the privacy cost of noise.

Stated with the total, and refused if it is not small.

The mechanisms are proved for exact distributions. A draw is made of 128 bits by float64 arithmetic:
its tails end, which adds to delta, and its probabilities are off by a tiny factor, which adds to
epsilon (`NoiseDistribution`).

The noise itself is not calibrated to it: a store that goes on with the same key and another scale
would release the same draws under two scales, and the two would solve for the sum.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NoReturn

from meanstream.operators.noise.distributions import NoiseDistribution

LARGEST_SHARE = 0.01
"""Of epsilon, that arithmetic may add."""

MOST_EPSILON = 1e6
"""Where the search for an epsilon that is accepted ends."""

ROUNDING_DELTA = 1e-3
"""Of delta, that the sum of many small errors may exceed its bound with."""


def numeric_slack(noise: NoiseDistribution, draws: int, delta: float = 0.0) -> float:
    """Return what float64 inversion adds to epsilon over that many draws together.

    Parameters
    ----------
    noise : NoiseDistribution
        Of each draw.
    draws : int
        How many draws one person's data meets.
    delta : float, default 0
        Probability with which the bound may fail on either side. 0: the bound of the worst case.

    Notes
    -----
    **Privacy.** Each draw is off by a factor of at most `exp(s / 2)` on either side, for `s = noise.epsilon_slack`.
    Over n of them the worst case is n s. Each side is an n-fold composition of pure (s / 2)-differential privacy: but
    with probability delta its loss is at most `n s**2 / 8 + (s / 2) sqrt(2 n log(1 / delta))`.

    Examples
    --------
    >>> from meanstream.operators.noise.distributions import GaussianNoise
    >>> noise = GaussianNoise(4e6)
    >>> f"{numeric_slack(noise, 40):.1e} {numeric_slack(noise, 10**6):.1e} {numeric_slack(noise, 10**6, 1e-12):.1e}"
    '9.1e-06 2.3e-01 1.7e-03'

    References
    ----------
    M. Bun, T. Steinke, Concentrated Differential Privacy, TCC 2016, Propositions 1.3, 1.4 and 1.7.
    """
    each = noise.epsilon_slack
    worst = draws * noise.epsilon_slack
    if delta <= 0.0:
        return worst

    half = draws * each * each / 8.0 + 0.5 * each * math.sqrt(2.0 * draws * math.log(1.0 / delta))
    return min(worst, 2.0 * half)


def small_numeric_slack(
    noise: NoiseDistribution, *, epsilon: float, delta: float, draws: int
) -> float | None:
    """Return what float64 adds to epsilon, its part of delta counted there; None for more than a hundredth."""
    slack = numeric_slack(noise, draws)
    if slack > LARGEST_SHARE * epsilon:
        part_of_delta = ROUNDING_DELTA * delta / (1.0 + math.exp(min(epsilon, 700.0)))
        slack = numeric_slack(noise, draws, part_of_delta)

    if slack <= LARGEST_SHARE * epsilon:
        return slack
    return None


def require_small_numeric_slack(
    noise_of: Callable[[float], NoiseDistribution], *, epsilon: float, delta: float, draws: int
) -> float:
    """Return `small_numeric_slack` of the noise at epsilon, or refuse with the least epsilon that is accepted."""
    slack = small_numeric_slack(noise_of(epsilon), epsilon=epsilon, delta=delta, draws=draws)
    if slack is None:

        def accepts(larger: float) -> bool:
            noise = noise_of(larger)
            return small_numeric_slack(noise, epsilon=larger, delta=delta, draws=draws) is not None

        refuse_small_epsilon(epsilon, accepts)

    return slack


def refuse_small_epsilon(epsilon: float, accepts: Callable[[float], bool]) -> NoReturn:
    """Refuse an epsilon to which float64 adds more than a hundredth; name the least one that is accepted.

    Examples
    --------
    >>> refuse_small_epsilon(0.01, lambda epsilon: epsilon >= 0.0315)
    Traceback (most recent call last):
    ValueError: epsilon must be at least 0.032, a hundredth of which is what float64 adds to the noise, got 0.01
    """
    least = least_accepted_epsilon(epsilon, accepts)
    bound = "larger" if least is None else f"at least {least:.2g}"
    raise ValueError(
        f"epsilon must be {bound}, a hundredth of which is what float64 adds to the noise, got {epsilon!r}"
    )


def least_accepted_epsilon(refused: float, accepts: Callable[[float], bool]) -> float | None:
    """Find the least epsilon of two digits that is accepted, above one that is not; None if none is."""

    def accepted(epsilon: float) -> bool:
        try:
            return accepts(epsilon)
        except ValueError:
            return False

    low = refused
    high = refused
    while not accepted(high):
        low = high
        high *= 2.0
        if high > MOST_EPSILON:
            return None

    while high > 1.001 * low:
        middle = math.sqrt(low * high)
        if accepted(middle):
            high = middle
        else:
            low = middle

    # Two digits: those around what was searched for.
    digit = 10.0 ** (math.floor(math.log10(high)) - 1)
    digits = math.floor(high / digit)
    nearest = [float(f"{(digits + up) * digit:.2g}") for up in range(3)]

    return next((epsilon for epsilon in nearest if accepted(epsilon)), None)

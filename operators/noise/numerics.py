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

from meanstream.operators.noise.distributions import NoiseDistribution
from meanstream.operators.validation import require

LARGEST_SHARE = 0.01
"""Of epsilon, that arithmetic may add."""

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


def require_small_numeric_slack(
    noise: NoiseDistribution, *, epsilon: float, delta: float, draws: int
) -> float:
    """Return what float64 adds to epsilon, its part of delta counted there, or refuse more than a hundredth."""
    found = numeric_slack(noise, draws)
    if found > LARGEST_SHARE * epsilon:
        found = numeric_slack(
            noise, draws, ROUNDING_DELTA * delta / (1.0 + math.exp(min(epsilon, 700.0)))
        )

    rule = (
        f"be at least {found / LARGEST_SHARE:.1e}, a hundredth of which is what float64 adds "
        f"to {draws} draws of noise"
    )
    require(found <= LARGEST_SHARE * epsilon, "epsilon", rule, epsilon)
    return found

"""The whole law of single draws: distance, tails, atoms and frequencies, not a variance alone.

A draw is seen as `x = g + d`: noise g of a declared law, and what samples add, which lies within a
public bound and does not follow g. Two facts hold whatever the samples are:

- An indicator of x lies between two of g: `g <= t - bound` implies `x <= t`, which implies
  `g <= t + bound`. So counts of draws below thresholds, or within short windows, lie between two
  binomials (Hoeffding, 1956: of a given mean, equal chances spread most).
- `|E exp(isx)| <= |E exp(isg)|`: samples only shrink a frequency. Noise that is cut, or takes few
  values, has frequencies that a smooth law has not, and no bound on the samples is needed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cache

import numpy as np
from scipy.special import bdtr, bdtrc

from meanstream.lab.evidence.noise_draws import NoiseDraws
from meanstream.lab.evidence.one_run import ALARM_ERROR
from meanstream.operators.noise.distributions import NoiseDistribution
from meanstream.operators.records import Bools, Floats, Ints

LEAST_DRAWS = 1000
"""Fewer than that many say nothing of a law."""
MOST_DRAWS = 1 << 20
"""Draws that are looked at, from the first."""
THRESHOLDS = np.linspace(-5.0, 5.0, 41)
"""In deviations."""
FREQUENCIES = np.linspace(2.0, 6.0, 17)
"""In radians for a deviation: a normal law has .14 at the first, and nothing at the last."""
_SHARPEST = 1.0
"""Radians for a unit of the integers that are released, at most: rounding shows at more."""


@dataclass(frozen=True)
class DeclaredLaw:
    """The law that draws should have, in deviations.

    Parameters
    ----------
    noise : NoiseDistribution
        What was declared: its `cdf` and `variance` are used, whatever kind it is.
    """

    noise: NoiseDistribution

    @property
    def stddev(self) -> float:
        """Deviation of a draw, in grid units."""
        return math.sqrt(self.noise.variance)

    def below(self, x: Floats) -> Floats:
        """Probability that a draw is at most x."""
        return self.noise.cdf(np.asarray(x) * self.stddev)

    def within(self, width: Floats) -> Floats:
        """Probability of the likeliest window of that width, which for a symmetric law that falls is in its middle."""
        half = 0.5 * np.asarray(width)
        return np.maximum(self.below(half) - self.below(-half), 0.0)


@cache
def declared_frequencies(law: DeclaredLaw) -> Floats:
    """Mean of `cos(s g)` of draws g, for each s of `FREQUENCIES`.

    By `1 - 2 s` times the integral of `sin(s x) P(g > x)` over x > 0, of a symmetric law.
    """
    step = 2e-3
    x = np.asarray((np.arange(40_000) + 0.5) * step, np.float64)  # to 80 deviations
    beyond = 1.0 - law.below(x)
    integrals = [2.0 * s * float(np.sin(s * x) @ beyond) * step for s in FREQUENCIES.tolist()]

    return np.abs(1.0 - np.array(integrals))


@dataclass
class SingleDraws:
    """Collects draws that should each have one law, and compares them with it.

    Parameters
    ----------
    law : DeclaredLaw
    of : str
        What the draws are of, in words.

    Examples
    --------
    >>> from meanstream.operators.noise.distributions import GaussianNoise
    >>> draws = np.random.default_rng(1).normal(size=(20_000, 1))
    >>> cut = np.clip(draws, -1.5, 1.5) / 0.8818
    >>> for seen in (draws, cut):
    ...     single = SingleDraws(DeclaredLaw(GaussianNoise(1e6)), "means")
    ...     single.take(NoiseDraws(seen, seen, 0 * seen, np.ones(seen.shape, bool), seen))
    ...     print(single.fault())
    None
    means: 0 draws of 20,000 lie below -1.75 deviations, where the declared law has 801
    """

    law: DeclaredLaw
    of: str
    _seen: list[Floats] = field(default_factory=list)
    _bound: list[Floats] = field(default_factory=list)
    _n: int = 0

    def take(self, draws: NoiseDraws) -> None:
        """Take draws of which each is new."""
        if self._n >= MOST_DRAWS:
            return
        usable = np.broadcast_to(draws.usable, draws.seen.shape)
        self._seen.append(draws.seen[usable])
        self._bound.append(np.broadcast_to(draws.bound, draws.seen.shape)[usable])
        self._n += len(self._seen[-1])

    def fault(self, error: float = ALARM_ERROR) -> str | None:
        """Say where draws do not keep to the law, or nothing.

        Draws that do are blamed once in 1 / `error` audits, all comparisons together.
        """
        if self._n < LEAST_DRAWS:
            return None
        seen = np.concatenate(self._seen)
        bound = np.concatenate(self._bound)

        # Of each threshold two tails, of each frequency one, and the fullest window.
        each = error / (2 * len(THRESHOLDS) + len(FREQUENCIES) + 1)
        deviation = (
            self._tail(seen, bound, each)
            or self._window(seen, bound, each)
            or self._frequency(seen, each)
        )

        if deviation:
            return f"{self.of}: {deviation}"
        return None

    def _tail(self, seen: Floats, bound: Floats, error: float) -> str | None:
        n = len(seen)
        bounds, draws_of_each = _rounded_up(bound)
        under = np.searchsorted(np.sort(seen), THRESHOLDS, side="right")
        worst = 0.0
        blamed = None

        for threshold, low in zip(THRESHOLDS.tolist(), under.tolist(), strict=True):
            least = float(self.law.below(threshold - bounds) @ draws_of_each) / n
            most = float(self.law.below(threshold + bounds) @ draws_of_each) / n
            few = low < n * least and float(bdtr(low, n, least)) < error
            many = low > n * most and float(bdtrc(low - 1, n, most)) < error

            if not few and not many:
                continue

            share = least if few else most
            distance = abs(low - n * share) / math.sqrt(max(n * share * (1.0 - share), 1e-3))
            if distance <= worst:
                continue

            # In words of the tail that is nearer.
            worst = distance
            upper = threshold >= 0.0
            side = "above" if upper else "below"
            in_tail = n - low if upper else low
            expected = n * (1.0 - share if upper else share)
            blamed = (
                f"{in_tail:,} draws of {n:,} lie {side} {threshold:g} deviations, "
                f"where the declared law has {expected:,.0f}"
            )

        return blamed

    def _window(self, seen: Floats, bound: Floats, error: float) -> str | None:
        """Look for values that come too often, so near to each other as rounding lets them be."""
        n = len(seen)
        bounds, draws_of_each = _rounded_up(bound)
        width = 2.0 * float(bound.min()) + 1.0 / self.law.stddev
        share = float(self.law.within(width + 2.0 * bounds) @ draws_of_each) / n
        ordered = np.sort(seen)
        inside = np.searchsorted(ordered, ordered + width, side="right") - np.arange(n)
        fullest = int(inside.max())

        # Any of n draws may begin the window: n chances that n - 1 others fill it.
        if fullest < 2 or share >= 1.0 or fullest - 1 <= (n - 1) * share:
            return None
        if n * float(bdtrc(fullest - 2, n - 1, share)) >= error:
            return None

        value = float(ordered[int(inside.argmax())])

        return f"{fullest:,} draws of {n:,} have one value, {value:.2f} deviations"

    def _frequency(self, seen: Floats, error: float) -> str | None:
        n = len(seen)
        sharpest = _SHARPEST * self.law.stddev
        looked_at = sharpest >= FREQUENCIES
        if not looked_at.any():
            return None

        radians = FREQUENCIES[looked_at]
        shown = np.array([abs(np.exp(1j * s * seen).mean()) for s in radians.tolist()])

        # Pinelis (1994), Theorem 3.3: 2 exp(-r**2 / (2 n + 4 r / 3)) for n vectors of length <= 2.
        logarithm = math.log(2.0 / error)
        chance = (2 * logarithm / 3 + math.sqrt((2 * logarithm / 3) ** 2 + 2 * logarithm * n)) / n
        excess = shown - declared_frequencies(self.law)[looked_at] - chance
        worst = int(excess.argmax())

        if excess[worst] <= 0.0:
            return None

        return f"draws repeat at {2 * math.pi / radians[worst]:.2f} deviations, which the declared law does not"


def low_bits_fault(
    published: Ints, exact: Ints, stddev: Floats, error: float = ALARM_ERROR
) -> str | None:
    """Say which low bit of exact sums is left in the published ones.

    Parameters
    ----------
    published, exact : int array (n, releases)
        In grid units.
    stddev : float array (releases,)
        Of the noise in each sum; bits that noise this small may leave are not looked at.
    error : float
        Chance that a sum that keeps no bit is blamed.

    Notes
    -----
    Noise of a deviation of twice a bit's period leaves it a fair coin, up to exp(-78): whether a published bit is the
    exact sum's is guessed right by half.

    Examples
    --------
    >>> exact = np.random.default_rng(1).integers(0, 1000, (4000, 1))
    >>> noise = np.rint(np.random.default_rng(2).normal(0, 1e6, exact.shape)).astype(int)
    >>> print(low_bits_fault(exact + noise, exact, np.full(1, 1e6)))
    None
    >>> low_bits_fault(exact + noise // 2 * 2, exact, np.full(1, 1e6))
    'bit 0 of 4,000 of 4,000 sums is that of the exact sum'
    """
    for bit in range(_LOW_BITS):
        usable: Bools = stddev >= 2 * 2 ** (bit + 1)
        agree = ((published ^ exact) >> bit & 1 == 0)[:, usable]
        n = agree.size
        same = int(agree.sum())
        likelier = max(same, n - same)

        if n and 2.0 * float(bdtrc(likelier - 1, n, 0.5)) < error / _LOW_BITS:
            which = "that" if same == likelier else "the opposite"
            return f"bit {bit} of {likelier:,} of {n:,} sums is {which} of the exact sum"

    return None


_LOW_BITS = 8


def _rounded_up(bound: Floats) -> tuple[Floats, Ints]:
    """Few bounds that are no less than these, and how many draws have each."""
    steps = np.ceil(bound * 64.0 - 1e-9) if float(bound.max()) > 1e-3 else bound * 64.0
    values, numbers = np.unique(steps, return_counts=True)
    if len(values) > 4096:
        values = np.array([values[-1]])
        numbers = np.array([len(bound)])

    return values / 64.0, numbers

"""The reference core, fourth part: a round of DAME as its paper says it, one user after the other.

Nothing here is shared with the product. Random bits of each user are given, as a round's key makes
them. Symbols are the paper's, with `m_eff` for its m with a tilde.

| letter | meaning |
|---|---|
| `n`, `m` | users of the round, and samples of one of them |
| `m_eff` | samples from which on a user's mean is not shrunk, and a user votes |
| `tau` | half-width of a bin |
| `A` | mean shrinkage |
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from tests.oracles.reference_noise import laplace_draw

C4, C5 = 8.0, 868.5
FINEST = 1 / 1000
BITS_OF_A_BALLOT = 6
BITS_OF_A_REPORT = 62
MARGIN = 2.0**-45

Bits = Callable[[int], int]
"""128 bits of one user, by the number of the draw; the first word in the upper half."""


@dataclass(frozen=True, kw_only=True)
class ReferenceDame:
    """DAME in paper mode: half of the users vote, the others report a clipped mean.

    Attributes
    ----------
    epsilon : float
    n : int
        Users that the round is designed for.
    sizes : dict
        Probability of each number of samples.
    """

    epsilon: float
    n: int
    sizes: Mapping[int, float]

    @property
    def m_eff(self) -> int:
        """Largest size that enough users have (equation 12)."""
        fits = [size for size in range(1, max(self.sizes) + 1) if self._enough(size)]
        return max(fits, default=min(self.sizes))

    @property
    def tau(self) -> float:
        """Half-width of a bin (equation 4)."""
        m = self.m_eff
        information = max(math.sqrt(m * self.n * self.epsilon**2), 1.0)
        return max(math.sqrt(2 * math.log(8 * information) / m), FINEST)

    @property
    def bins(self) -> list[tuple[float, float]]:
        """Edges of the bins; the last one is cut at 1."""
        number = max(math.ceil(1 / self.tau - 1e-12), 1)
        return [
            (-1 + 2 * b * self.tau, min(-1 + 2 * (b + 1) * self.tau, 1.0)) for b in range(number)
        ]

    @property
    def A(self) -> float:  # noqa: N802 - as in the paper
        """Mean of `sqrt(min(m, m_eff) / m_eff)`."""
        m_eff = self.m_eff
        return sum(p * math.sqrt(min(m, m_eff) / m_eff) for m, p in self.sizes.items())

    def ballot(self, samples: Sequence[float], bits: Bits) -> list[int]:
        """Randomize a user's row: ones in the bin of its mean and next to it, each bit flipped now and then."""
        bins = self.bins
        row = [0] * len(bins)
        if len(samples) >= self.m_eff:
            mean = sum(samples) / len(samples)
            own = max(b for b, (lower, _) in enumerate(bins) if mean >= lower)
            for b in range(max(own - 1, 0), min(own + 2, len(bins))):
                row[b] = 1

        # Two rows differ in six bits at most: each may tell a sixth of epsilon.
        differ = min(BITS_OF_A_BALLOT, len(bins))
        flip = math.ceil(2**32 / (1 + math.exp(self.epsilon / differ)) * (1 + MARGIN))
        flipped = [bit ^ (_number_of_32(bits, b) < flip) for b, bit in enumerate(row)]
        return _packed(flipped)

    def window(self, ballots: Sequence[Sequence[int]]) -> tuple[float, float, float]:
        """Give lower and upper end and the center: the bin of most votes, six half-widths wider."""
        bins = self.bins
        votes = [sum(_bit(ballot, b) for ballot in ballots) for b in range(len(bins))]
        lower, upper = bins[votes.index(max(votes))]
        return max(lower - 6 * self.tau, -1.0), min(upper + 6 * self.tau, 1.0), (lower + upper) / 2

    def report(
        self, samples: Sequence[float], window: tuple[float, float, float], bits: Bits
    ) -> int:
        """Randomize a user's mean: shrunk to the center, cut to the window, on a grid, with Laplace noise."""
        lower, upper, center = window
        m = len(samples)
        weight = math.sqrt(min(m, self.m_eff) / self.m_eff)
        shrunk = center + weight * (sum(samples) / m - center)
        inside = (shrunk - (lower + upper) / 2) / ((upper - lower) / 2)

        point = round(max(-1.0, min(inside, 1.0)) * self.half)
        return point + laplace_draw(bits(0), self._scale)

    @property
    def half(self) -> int:
        """Steps of the grid from the window's middle to its end."""
        halvings = max(0, math.ceil(-math.log2(self.epsilon)))
        return 2**19 // 2**halvings

    @property
    def _scale(self) -> float:
        # What floating point adds to the loss of a draw is taken off epsilon.
        rounding = 2.0**-43 * max(2 * self.half / self.epsilon, 1.0)
        return 2 * self.half / (self.epsilon - 2 * rounding)

    def estimate(self, window: tuple[float, float, float], reports: Sequence[int]) -> float:
        """Undo window and shrinkage (equation 9), and cut to [-1, 1]."""
        lower, upper, center = window
        mean = sum(reports) / len(reports) / self.half
        z = (lower + upper) / 2 + (upper - lower) / 2 * mean
        return max(-1.0, min(center + (z - center) / self.A, 1.0))

    def _enough(self, size: int) -> bool:
        """Whether the squared share of users with so many samples is as large as their votes need."""
        share = math.fsum(p for m, p in self.sizes.items() if m >= size)
        information = self.n * self.epsilon**2
        argument = C4 * max(size * information, 1.0)
        phi = C5 / information * math.log(argument / math.log(argument))

        if phi >= 1:
            return size <= min(self.sizes)
        return share**2 >= phi


def _number_of_32(bits: Bits, b: int) -> int:
    """Give the bin's number of 32 bits: each draw has four, the lower half of each word first."""
    draw = bits(b // 4)
    words = (draw >> 64, draw & (2**64 - 1))
    word = words[b % 4 // 2]
    return word >> 32 if b % 2 else word & (2**32 - 1)


def _packed(row: Sequence[int]) -> list[int]:
    """Put bits into integers of 62 bits, the first one lowest."""
    columns = range(0, len(row), BITS_OF_A_REPORT)
    return [
        sum(bit << k for k, bit in enumerate(row[first : first + BITS_OF_A_REPORT]))
        for first in columns
    ]


def _bit(ballot: Sequence[int], b: int) -> int:
    return ballot[b // BITS_OF_A_REPORT] >> (b % BITS_OF_A_REPORT) & 1

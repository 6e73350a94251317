"""Draws made again from the key: the owner of each, its law, and the input that it noised.

An operator has the key. With it a published number gives the exact input back, and the digest of
that input stands in the ledger. So each release is checked by itself, however few there are and
however many samples hide its noise: public bytes could show neither.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from meanstream.operators.noise.distributions import GaussianNoise, NoiseDistribution
from meanstream.operators.records import Bools, Floats, Words

_MAGNITUDE = np.uint64(2**63 - 1)
_SIGN = np.uint64(63)
_CLOSE = 1e-9
"""Relative: what float64 may move a tail probability by."""


def follows_bits(noise: NoiseDistribution, bits: Words, drawn: Floats) -> Bools:
    """Say which draws are what the declared law makes of their bits.

    By the law's `cdf`, independently of its `sample`: the first bit is the sign, and the others are
    the probability of a draw that is as large.

    Examples
    --------
    >>> noise = GaussianNoise(1e6)
    >>> bits = np.random.default_rng(1).integers(0, 2**64, (5, 2), dtype=np.uint64)
    >>> drawn = noise.sample(bits)
    >>> follows_bits(noise, bits, drawn).tolist()
    [True, True, True, True, True]
    >>> follows_bits(noise, bits, np.clip(drawn, -1e6, 1e6)).tolist()
    [False, False, True, True, False]
    """
    negative = (bits[:, 0] >> _SIGN).astype(np.bool_)
    tail = (bits[:, 0] & _MAGNITUDE).astype(np.float64) * 2.0**-63
    tail += (bits[:, 1].astype(np.float64) + 0.5) * 2.0**-127

    size = np.abs(drawn)
    right_sign: Bools = (size == 0) | ((drawn < 0) == negative)
    largest = _as_large(noise, size)
    if isinstance(noise, GaussianNoise):
        close: Bools = np.abs(largest - tail) <= _CLOSE * tail
        return right_sign & close

    # An integer stands for all magnitudes from its own tail down to that of the next one.
    smallest = _as_large(noise, size + 1)
    within: Bools = (tail <= largest * (1 + _CLOSE)) & (tail >= smallest * (1 - _CLOSE))

    return right_sign & within


def _as_large(noise: NoiseDistribution, size: Floats) -> Floats:
    """Probability that a draw is so far from 0, or farther."""
    return np.where(size > 0, 2.0 * noise.cdf(-size), 1.0)


@dataclass
class RepeatedDraws:
    """Counts the draws that were made again, and what is wrong with them.

    Attributes
    ----------
    number : int
        Draws that were compared.
    other_noise : int
        Releases that are no exact input with this draw.
    shared : int
        Draws that have the bits of another owner's.
    off_law : int
        Draws that are not what the declared law makes of their bits.
    impossible : int
        Exact inputs that samples within the bounds cannot have.
    """

    number: int = 0
    other_noise: int = 0
    shared: int = 0
    off_law: int = 0
    impossible: int = 0

    def take(self, noise: NoiseDistribution, bits: Words, drawn: Floats, matches: Bools) -> None:
        """Take draws of one law: their bits, and whether each is the noise of its release."""
        self.number += len(drawn)
        self.other_noise += int(np.count_nonzero(~matches))
        self.shared += len(bits) - len(np.unique(bits, axis=0))
        self.off_law += int(np.count_nonzero(~follows_bits(noise, bits, drawn)))

    def fault(self) -> str | None:
        """Say what is wrong; chance has no part in it."""
        of = f"of {self.number:,}"
        said = {
            f"{self.other_noise:,} {of} releases are no exact sum with the draw of their id": (
                self.other_noise
            ),
            f"{self.shared:,} {of} draws have two owners": self.shared,
            f"{self.off_law:,} {of} draws do not have the declared law": self.off_law,
            f"{self.impossible:,} {of} exact sums are not of samples within the bounds": (
                self.impossible
            ),
        }

        return "; ".join(text for text, number in said.items() if number) or None

    @property
    def method(self) -> str:
        """How it was found, for an audit's table."""
        return f"{self.number:,} draws made again from the key, each with its owner, law and input"


KEYED_ASSUMPTION = "the key is the store's, and no one distinguishes AES-256 from random bits"

"""Random decisions from uniform bits by comparing integers, so that the probability really used is a known integer.

A coin of probability p is `number < threshold` for a uniform number of 63 (or 53, or 32) bits and
an integer threshold. What privacy needs to know is then the ratio of two integers, not the error of
a float.
"""

from __future__ import annotations

import math
from typing import Protocol

import numpy as np
import numpy.typing as npt

from meanstream.operators.records import Bools, Floats, Ints, Words

UNIT_32 = 2**32
UNIT_53 = 2**53
UNIT_63 = 2**63

MARGIN = 2.0**-45
"""Relative margin for the rounding of `exp` and of a division, on the safe side of every
threshold."""


class RandomWords(Protocol):
    """Uniform random bits for the reports of some users.

    Keyed in production, seeded in simulations.
    """

    def __call__(self, draw: int) -> Words:
        """128 bits per user, as a uint64 array (n, 2).

        Draws of different numbers are independent.
        """
        ...


def random_bits_63(words: Words, column: int) -> Words:
    """Uniform integers in `0..2**63-1`, one per user, from one column of the bits of a draw."""
    return words[:, column] >> np.uint64(1)


def random_bits_53(words: Words, column: int) -> Ints:
    """Uniform integers in `0..2**53-1`, one per user, from one column of the bits of a draw."""
    return (words[:, column] >> np.uint64(11)).astype(np.int64)


def random_bits_32(words: RandomWords, draw: int) -> npt.NDArray[np.uint32]:
    """Four uniform integers in `0..2**32-1` per user, shape (n, 4), from the bits of one draw."""
    return np.ascontiguousarray(words(draw)).astype("<u8", copy=False).view("<u4")


def round_at_random(position: Floats, number: Ints) -> Ints:
    """Round each position down or up to an integer, so that its expectation is the position.

    Parameters
    ----------
    position : float array (n,)
        At least 0.
    number : int64 array (n,)
        Uniform 53-bit integers.

    Notes
    -----
    The probability of rounding up is the fraction of the position, itself rounded to a multiple of 2**-53.
    """
    floor = np.floor(position)
    threshold = np.rint((position - floor) * float(UNIT_53)).astype(np.int64)
    return floor.astype(np.int64) + (number < threshold)


def random_coins(number: Ints, probability: Floats) -> Bools:
    """Tell which uniform 53-bit integers fall below each probability, rounded to a multiple of 2**-53."""
    return number < np.rint(probability * float(UNIT_53)).astype(np.int64)


def random_flip_threshold(epsilon: float, unit: int) -> int:
    """Smallest integer q with `(unit - q) / q <= exp(epsilon)`, within the margin.

    How often a bit must be flipped.

    **Privacy.** A bit that is flipped with probability `q / unit` is epsilon-private, exactly.
    """
    return random_share_threshold(1.0, epsilon, unit)


def random_share_threshold(others: float, epsilon: float, unit: int, weight: float = 1.0) -> int:
    """Smallest integer q with `q * (others + weight * exp(epsilon)) >= unit`, within the margin.

    It is the mass of each of `others` unlikely answers next to `weight` likely ones that have what
    is left of the unit: rounded up, so that the likely ones are at most exp(epsilon) times as
    likely.
    """
    # For huge epsilon the exponential is cut: an answer of mass zero would have an infinite loss.
    total = others + weight * math.exp(min(epsilon, 60.0))
    return max(1, math.ceil(unit / total * (1.0 + MARGIN)))


def clip_random_to_unit(x: npt.ArrayLike) -> Floats:
    """Cut to [-1, 1]: whatever a user holds, the report is one of a value of the interval.

    **Privacy.** Nothing is refused: who leaves no report, or stops those of others, has told something. What is not a
    number is taken for 0.

    Examples
    --------
    >>> clip_random_to_unit([0.5, -7.0, np.inf, np.nan])
    array([ 0.5, -1. ,  1. ,  0. ])
    """
    raw = np.asarray(x, dtype=np.float64)
    return np.where(np.isnan(raw), 0.0, np.clip(raw, -1.0, 1.0))


def mix_hash(x: Words) -> Words:
    """Scramble: every bit of the input changes about half of the output's (the finalizer of SplitMix64)."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))

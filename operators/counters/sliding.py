"""Sums of the newest increments, however many.

Noise for windows in which an agent has many releases or few.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar

import numpy as np

from meanstream.operators.counters.windowed import (
    GRID,
    Windowed,
    WindowFactors,
    factor_pair,
    settled_steps,
)
from meanstream.operators.records import Floats, Ints

_SHARED = 1024


@dataclass(frozen=True)
class Sliding(Windowed):
    """Noise of sums of the newest increments, up to about `window` of them.

    `Windowed` has the least noise where each sum has exactly `window` increments, and up to twice
    as much where one has fewer. Here a sum of fewer increments has less noise, and one of `window`
    a seventh more than there.

    Parameters
    ----------
    horizon : int
        Largest number of releases of one row; `ENDLESS` for no end.
    window : int
        Increments in a sum, in 1..128; of those of `matrix` and `noise_variance` exactly that many.

    Notes
    -----
    **Privacy.** Gaussian noise only. The strategy is `(1 - r x)**(-1/2)` with `r = exp(-1 / W)`, cut off after `3 W`
    entries. The noise of increment `e` is `(C^{-1} fresh)_e`, so any sum of increments with their noise is a function
    of `C x + fresh`, whichever increments public facts choose; a sample meets `3 W` releases, and the sensitivity is a
    finite sum, exact for the stream without end.

    Examples
    --------
    >>> from meanstream.operators.counters.base import ENDLESS
    >>> counter = Sliding(ENDLESS, window=8)
    >>> late = np.array([10**9])
    >>> products = [counter.l2_sensitivity**2 * counter.part_covariance(w, w, late)[0] for w in (1, 4, 8, 16)]
    >>> np.round(products, 2).tolist()
    [1.7, 2.97, 3.86, 5.28]

    References
    ----------
    Andersson, Pagh (2024), arXiv 2406.03802, for square roots of decayed sums.
    """

    name: ClassVar[str] = "sliding"

    def part_covariance(self, first: int, second: int, release: Ints) -> Floats:
        """Return the covariance of the noises of the newest `first` and `second` increments, at these releases.

        For fresh draws of variance 1; each number of increments is at most that of the releases so
        far.
        """
        table = _covariances(self.window, min(first, second), max(first, second))
        return np.asarray(table[np.minimum(np.asarray(release), len(table)) - 1])

    @property
    def _factorize(self) -> Callable[[int], WindowFactors]:
        return factorize_sliding


@lru_cache(maxsize=64)
def factorize_sliding(window: int) -> WindowFactors:
    """Find the pair; arrays are shared, and cannot be changed."""
    n = 1 if window == 1 else 3 * window
    ratio = round(math.exp(-1 / window) / GRID) * GRID
    return factor_pair(
        np.append(1.0, np.cumprod((1.0 - 0.5 / np.arange(1, max(n, 2))) * ratio))[:n], window
    )


@lru_cache(maxsize=_SHARED)
def _covariances(window: int, first: int, second: int) -> Floats:
    """Sum up the products of what the draws weigh in both sums, by the number of draws."""
    length = settled_steps(window) + second
    found = np.cumsum(_weights(window, first, length) * _weights(window, second, length))
    found.flags.writeable = False
    return found


def _weights(window: int, number: int, length: int) -> Floats:
    """Weight of each draw, newest first, in the noise of the newest increments."""
    increment = np.zeros(length)
    known = factorize_sliding(window).increment
    increment[: len(known)] = known  # it has settled at nothing
    until = np.cumsum(increment)
    until[number:] -= until[:-number].copy()

    return until

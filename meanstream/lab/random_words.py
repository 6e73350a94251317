"""Seeded random bits for the reports of simulated users: reproducible, with no claim of privacy."""

from __future__ import annotations

import numpy as np

from meanstream.operators.records import Words


class SeededWords:
    """Bits behind the interface of `RandomWords`, a function of the draw as keyed bits are.

    Parameters
    ----------
    rng : numpy.random.Generator
        Where the seed comes from: words made one after the other are independent.
    n : int
        Number of users.

    Notes
    -----
    **Privacy.** None: only for simulations and tests.

    Examples
    --------
    >>> words = SeededWords(np.random.default_rng(1), 3)
    >>> words(0).shape, bool((words(5) == words(5)).all()), bool((words(0) == words(1)).any())
    ((3, 2), True, False)
    """

    __slots__ = ("_n", "_seed")

    def __init__(self, rng: np.random.Generator, n: int) -> None:
        self._seed = int(rng.integers(2**63))
        self._n = n

    def __call__(self, draw: int) -> Words:
        """128 bits per user, as a uint64 array (n, 2)."""
        return np.asarray(
            np.random.PCG64([self._seed, draw]).random_raw(2 * self._n), np.uint64
        ).reshape(-1, 2)

"""Seeded noise for simulations: reproducible and fast, with no claim of privacy."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

import numpy as np

from meanstream.operators.noise.keyed import NoiseIds
from meanstream.operators.records import Ints, Words


class SimulationNoise:
    """Bits from a seeded NumPy generator behind the interface of `KeyedNoise`.

    Successive calls give fresh bits, whatever the ids: a simulation never retries.

    Parameters
    ----------
    seed : int
        Seed of the generator.

    Notes
    -----
    **Privacy.** None. The generator is not a cryptographic one and its seed is short: anyone who guesses it subtracts
    the noise. Only for simulations and tests.

    Examples
    --------
    >>> from meanstream.operators.noise.keyed import LaplaceNoise, NoiseIds, keyed_owner_words
    >>> ids = NoiseIds(keyed_owner_words(["a", "b"]), np.array([1, 1]), np.zeros(2, dtype=np.uint64))
    >>> LaplaceNoise(100.0).sample(SimulationNoise(seed=1).bits(ids))
    array([-374.,  124.])
    """

    __slots__ = ("_generator", "seed")

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self._generator = np.random.PCG64(seed)

    def bits(self, ids: NoiseIds, draw: int = 0) -> Words:  # noqa: ARG002 - every call is a fresh draw
        """128 fresh bits for each id, as a uint64 array (n, 2)."""
        return np.asarray(self._generator.random_raw(2 * len(ids)), dtype=np.uint64).reshape(-1, 2)

    def version_of(self, count: Ints, total: Ints) -> Words:  # noqa: ARG002 - the bits do not depend on it
        """Zeros, as a uint64 array (n,): fresh bits need no version."""
        return np.zeros(len(count), dtype=np.uint64)

    def derived(self, purpose: str, settings: Mapping[str, Any]) -> Self:  # noqa: ARG002 - every draw is fresh anyway
        """Give the same generator: it never repeats a draw, so it needs no other key."""
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        # A copied generator would repeat the noise of the original in whatever was copied with it.
        return self

    def __repr__(self) -> str:
        return f"SimulationNoise(seed={self.seed})"

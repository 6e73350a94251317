"""What is worked out of each name of a source's directory, once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar
from zlib import crc32

import numpy as np

from meanstream.operators.noise.keyed import keyed_owner_words
from meanstream.operators.records import Ints, Words

Column = TypeVar("Column", bound=np.ndarray)


class NameTable(Generic[Column]):
    """An entry for each name of a source's directory.

    Made again where the source begins its directory again.

    Parameters
    ----------
    make : callable
        Gives the entries of names.

    Examples
    --------
    >>> lengths = NameTable(lambda names: np.array([len(name) for name in names], np.int64))
    >>> directory = ["ann", "bo"]
    >>> lengths.of(directory).tolist()
    [3, 2]
    >>> directory.append("carol")
    >>> lengths.of(directory).tolist(), lengths.of(["dee"]).tolist()
    ([3, 2, 5], [3])
    """

    def __init__(self, make: Callable[[list[str]], Column]) -> None:
        self._make = make
        self._names: list[str] = []
        self._table: Column = make([])

    def of(self, names: list[str]) -> Column:
        """Give the entries of a directory, by code; they may be changed in place."""
        if names is not self._names:
            self._names = names
            self._table = self._make([])

        fresh = names[len(self._table) :]
        if fresh:
            self._table = np.concatenate([self._table, self._make(fresh)])  # type: ignore[assignment]

        return self._table


def name_table_without_numbers(names: list[str]) -> Ints:
    """Give everyone -1: not entered yet."""
    return np.full(len(names), -1, np.int64)


def name_table_sender_hashes(names: list[str]) -> Words:
    """Give hashes that tell senders apart, where an accident harms no one.

    They are the same from run to run.
    """
    return np.fromiter((crc32(name.encode()) for name in names), np.uint64, len(names))


def name_table_owner_hashes(names: list[str]) -> Words:
    """Give hashes that tell agents apart, anyone who chose the names."""
    return keyed_owner_words(names)[:, 0]

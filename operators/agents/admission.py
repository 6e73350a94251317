"""Which agents a deployment takes, and which samples of a person: the first ones."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from meanstream.operators.records import Bools, Floats, Ints, Words
from meanstream.operators.validation import require

TOO_MANY = "too_many_agents"
"""The reason for which a sample of an agent that was not taken is rejected."""


def admission_columns(first: Floats, words: Words, room: int) -> Bools:
    """Say which newcomers are taken: the first ones, whatever the order in which they are given.

    Parameters
    ----------
    first : float array (n,)
        When each was heard first: event time or position.
    words : uint64 array (n, 2)
        Hash of each name, which decides among those of one time.
    room : int
        How many can be taken.

    Notes
    -----
    **Privacy.** Who is taken depends on names and times, which are public, and never on a value.

    Examples
    --------
    >>> words = np.array([[1, 1], [2, 1], [3, 1]], np.uint64)
    >>> admission_columns(np.array([7.0, 5.0, 7.0]), words, 2).tolist()
    [True, True, False]
    """
    require(room >= 0, "room", "be at least 0", room)
    is_taken = np.zeros(len(first), np.bool_)
    is_taken[np.lexsort((words[:, 1], words[:, 0], first))[:room]] = True
    return is_taken


def admission_names(hashes: Words, room: int) -> Bools:
    """Say which newcomers are taken where even the time at which they were heard is protected.

    By their names alone.

    Parameters
    ----------
    hashes : uint64 array (n,)
        Keyed hash of each name: anyone who lacks the key cannot make up names that come first.
    room : int
        How many can be taken; less than 0 is none.

    Notes
    -----
    **Privacy.** Who is taken depends on nothing that a user sends.

    Examples
    --------
    >>> admission_names(np.array([3, 1, 2], np.uint64), 2).tolist()
    [False, True, True]
    """
    is_taken = np.zeros(len(hashes), np.bool_)
    is_taken[np.argsort(hashes, kind="stable")[: max(room, 0)]] = True
    return is_taken


MAX_PERSONS: Final = 1 << 24
"""Persons (of all agents) who are remembered, of 10 bytes each; samples of further persons do not
count."""

COUNTS, OVER_PERSON, TOO_MANY_PERSONS = range(3)
"""What becomes of a sample."""

UNCOUNTED: Final = {OVER_PERSON: "over_person", TOO_MANY_PERSONS: "too_many_persons"}
"""Why a sample does not count."""

_MIX = np.uint64(0x9E3779B97F4A7C15)

Fates = npt.NDArray[np.int8]
Columns = dict[str, npt.NDArray[np.generic]]


@dataclass(frozen=True, slots=True)
class _Run:
    """Samples that were counted, by person in the order of their hashes.

    A person may be in several runs.
    """

    number: int
    key: Words
    count: npt.NDArray[np.uint16]


class PersonCounts:
    """Counts each person's samples within an agent, and says which are over the limit.

    Exact, for good.

    Parameters
    ----------
    limit : int
        Greatest number of samples of one person that count within one agent, at most 65,535.
    most : int
        Persons who are remembered. When there are that many, the samples of others do not count; no
        one is forgotten, because anyone who is forgotten could be counted again.

    Notes
    -----
    **Privacy.** The first samples in event time count. What becomes of a sample depends on whose samples came before
    it, never on values, and not on how the stream was cut into batches. Persons are distinguished by 64-bit hashes: two
    who collide share their limit, so that neither has more samples than it.

    What is counted lies in sorted runs, each less than half as long as the one before it: a batch
    costs the same however many persons there are, up to a logarithm, in time and in what is written
    to a store.

    Examples
    --------
    >>> counts = PersonCounts(2)
    >>> ward, person = np.array([5, 5, 5, 5, 6], np.uint64), np.array([1, 1, 2, 1, 1], np.uint64)
    >>> counts.take(ward, person).tolist()
    [0, 0, 0, 1, 0]
    >>> counts.take(ward[:3], person[:3]).tolist(), len(counts)
    ([1, 1, 0], 3)
    """

    def __init__(self, limit: int, *, most: int = MAX_PERSONS) -> None:
        self._limit = limit
        self._most = most
        self._runs: list[_Run] = []
        self._persons: int | None = 0  # None: to be counted
        self._next = 0
        self._saved: set[int] = set()
        self._dropped: list[int] = []

    def __len__(self) -> int:
        if self._persons is None:
            self._persons = len(
                np.unique(
                    np.concatenate([np.zeros(0, np.uint64), *(run.key for run in self._runs)])
                )
            )

        return self._persons

    def take(self, agent: Words, person: Words) -> Fates:
        """Count samples, in their order; say what becomes of each.

        Parameters
        ----------
        agent, person : uint64 array (n,)
            Hash of whose sample it is, and of the person.

        Returns
        -------
        int8 array (n,)
            `COUNTS`, `OVER_PERSON` or `TOO_MANY_PERSONS`.
        """
        key = agent * _MIX ^ person
        order = order_by_hash(key)
        ordered = key[order]
        starts = np.flatnonzero(np.append(True, ordered[1:] != ordered[:-1])[: len(key)])
        distinct = ordered[starts]
        sizes = np.diff(starts, append=len(key))
        before = self._counted(distinct)
        allowed = np.maximum(self._limit - before, 0)
        stranger = self._strangers(before, order[starts])
        allowed[stranger] = 0

        rank = np.arange(len(key)) - np.repeat(starts, sizes)
        fate: Fates = np.empty(len(key), np.int8)
        over = np.where(stranger, TOO_MANY_PERSONS, OVER_PERSON)
        fate[order] = np.where(rank < np.repeat(allowed, sizes), COUNTS, np.repeat(over, sizes))
        added = np.minimum(sizes, allowed)
        self._add(distinct[added > 0], added[added > 0].astype(np.uint16))
        self._persons = len(self) + int(np.count_nonzero((before == 0) & ~stranger))

        return fate

    def changes(self) -> tuple[dict[int, Columns], list[int]]:
        """Give what to save, by number, and which numbers to remove, since the last call."""
        new: dict[int, Columns] = {
            run.number: {"key": run.key, "count": run.count}
            for run in self._runs
            if run.number not in self._saved
        }
        dropped, self._dropped = self._dropped, []
        self._saved.update(new)

        return new, dropped

    def restore(self, number: int, columns: Columns) -> None:
        """Put back what was saved under a number."""
        run = _Run(number, columns["key"].astype(np.uint64), columns["count"].astype(np.uint16))
        self._runs = sorted([*self._runs, run], key=lambda one: -len(one.key))
        self._next = max(self._next, number + 1)
        self._saved.add(number)
        self._persons = None

    def whole(self) -> Columns:
        """Give everything as one piece, to be put back by `restore`."""
        merged = _merged(0, self._runs)
        return {"key": merged.key, "count": merged.count}

    def count_at_least(self, columns: Columns) -> None:
        """Count as many samples of each person as were counted elsewhere (`whole`), where that is more.

        What was counted in one place and again in a copy of it is counted once.
        """
        key = columns["key"].astype(np.uint64)
        count = columns["count"].astype(np.int64)
        missing = count - self._counted(key)
        self._add(key[missing > 0], missing[missing > 0].astype(np.uint16))
        self._persons = None

    def _counted(self, distinct: Words) -> Ints:
        """Look up how many samples of these persons, in the order of their hashes, count already."""
        counted = np.zeros(len(distinct), np.int64)
        for run in self._runs:
            nearest = np.minimum(np.searchsorted(run.key, distinct), len(run.key) - 1)
            counted += np.where(run.key[nearest] == distinct, run.count[nearest], 0)

        return counted

    def _strangers(self, before: Ints, appears: Ints) -> Bools:
        """Say which persons are new and find no room, the later ones in the batch first."""
        fresh = np.flatnonzero(before == 0)
        stranger = np.zeros(len(before), np.bool_)
        room = self._most - len(self)
        if len(fresh) > room:
            stranger[fresh[np.argsort(appears[fresh])[max(room, 0) :]]] = True

        return stranger

    def _add(self, key: Words, count: npt.NDArray[np.uint16]) -> None:
        if not len(key):
            return
        self._runs.append(self._numbered(_Run(0, key, count)))

        while len(self._runs) > 1 and 2 * len(self._runs[-1].key) > len(self._runs[-2].key):
            last, self._runs = self._runs[-2:], self._runs[:-2]
            for run in last:
                if run.number in self._saved:
                    self._saved.remove(run.number)
                    self._dropped.append(run.number)

            self._runs.append(self._numbered(_merged(0, last)))

    def _numbered(self, run: _Run) -> _Run:
        self._next += 1
        return _Run(self._next - 1, run.key, run.count)


def order_by_hash(key: Words) -> Ints:
    """Order that sorts hashes stably, as `argsort` does.

    NumPy sorts words several times as fast as it orders them.

    Words of the leading bits and the place are sorted. Hashes that share their leading bits are
    then few.

    Examples
    --------
    >>> order_by_hash(np.array([7, 1 << 63, 5, 7, 5], np.uint64)).tolist()
    [2, 4, 0, 3, 1]
    """
    bits = np.uint64(max(len(key) - 1, 1).bit_length())
    places = (np.uint64(1) << bits) - np.uint64(1)
    packed = key & ~places
    packed |= np.arange(len(key), dtype=np.uint64)
    packed.sort()
    order = (packed & places).astype(np.int64)
    packed >>= bits
    ordered = key[order]
    shared = packed[1:] == packed[:-1]

    if (mixed := shared & (ordered[1:] != ordered[:-1])).any():
        mixed_places = np.flatnonzero(np.isin(packed, packed[1:][mixed]))
        order[mixed_places] = order[mixed_places][np.argsort(ordered[mixed_places], kind="stable")]

    return order


def _merged(number: int, runs: list[_Run]) -> _Run:
    """Add up runs; those of one person are next to each other then."""
    key = np.concatenate([np.zeros(0, np.uint64), *(run.key for run in runs)])
    count = np.concatenate([np.zeros(0, np.uint16), *(run.count for run in runs)])
    order = np.argsort(key, kind="stable")  # which merges what is sorted
    key, count = key[order], count[order]
    begins = np.append(True, key[1:] != key[:-1])[: len(key)]
    repeated = np.flatnonzero(~begins)
    total = count[begins]
    np.add.at(total, repeated - np.arange(1, len(repeated) + 1), count[repeated])

    return _Run(number, key[begins], total)

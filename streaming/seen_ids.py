"""The ids of recent samples, to drop duplicates."""

from __future__ import annotations

import numpy as np

from operators.records import Bools, Floats, Words
from streaming.store.snapshot import Columns

MAX_IDS = 4_000_000


class SeenIds:
    """Hashes of the ids of accepted samples, until event time has passed them by the retention; bounded in number.

    Examples
    --------
    >>> seen = SeenIds()
    >>> keys = np.array([5, 7, 5], np.uint64)
    >>> seen.duplicates(keys).tolist()
    [False, False, True]
    >>> seen.add(keys[:2], np.array([10.0, 20.0]))
    >>> seen.forget(15.0)
    >>> seen.duplicates(keys).tolist()
    [False, True, True]
    """

    def __init__(self, *, max_ids: int = MAX_IDS) -> None:
        self._max_ids = max_ids
        self._key: Words = np.zeros(0, np.uint64)  # sorted
        self._time: Floats = np.zeros(0)
        self._saved: dict[int, float] = {}  # piece in the store: latest event time in it
        self._next = 0
        self._new: dict[int, Columns] = {}
        self._dropped: list[int] = []

    def __len__(self) -> int:
        return len(self._key)

    def duplicates(self, key: Words) -> Bools:
        """Say which ids were seen, in an earlier batch or earlier in this one."""
        order = np.argsort(key, kind="stable")
        again = np.zeros(len(key), np.bool_)
        again[order[1:]] = key[order[1:]] == key[order[:-1]]
        return again | self.known(key)

    def known(self, key: Words) -> Bools:
        """Say which ids were seen in an earlier batch."""
        if not len(self._key):
            return np.zeros(len(key), np.bool_)
        at = np.minimum(np.searchsorted(self._key, key), len(self._key) - 1)
        return np.asarray(self._key[at] == key)

    def add(self, key: Words, time: Floats) -> None:
        """Remember ids with their event times."""
        keys, times = np.concatenate([self._key, key]), np.concatenate([self._time, time])
        order = np.argsort(keys, kind="stable")
        self._key, self._time = keys[order], times[order]
        if len(key):
            self._new[self._next] = {"key": key, "time": time}
            self._next += 1

    def forget(self, before: float) -> None:
        """Drop ids whose event time is before this, and the oldest beyond the greatest number."""
        keep = self._time >= before
        if len(keep) - self._max_ids > 0:
            keep &= self._time >= np.partition(self._time, -self._max_ids)[-self._max_ids]
        if not keep.all():
            self._key, self._time = self._key[keep], self._time[keep]
        self._new = {n: fresh for n, piece in self._new.items() if len((fresh := _since(piece, before))["time"])}
        gone = [number for number, latest in self._saved.items() if latest < before]
        self._dropped += gone
        for number in gone:
            del self._saved[number]

    def changes(self) -> tuple[dict[int, Columns], list[int]]:
        """Give what to save and what to remove since the last call."""
        new, dropped, self._new, self._dropped = self._new, self._dropped, {}, []
        self._saved.update({number: float(piece["time"].max()) for number, piece in new.items()})
        return new, dropped

    def restore(self, number: int, columns: Columns) -> None:
        """Put a saved piece back."""
        self._next = number
        self.add(columns["key"], columns["time"])
        self._saved[number] = float(columns["time"].max())
        del self._new[number]


def _since(piece: Columns, before: float) -> Columns:
    keep = piece["time"] >= before
    return {name: column[keep] for name, column in piece.items()}

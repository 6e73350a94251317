"""The ids of recent samples, to drop duplicates."""

from __future__ import annotations

import numpy as np

from meanstream.operators.records import Bools, Floats, Words
from meanstream.streaming.store.state_snapshot import Columns
from meanstream.streaming.store.state_store import Store

MAX_IDS = 4_000_000
_KIND = "agent ids"


class _Run:
    """Ids in the order of their hashes, with their event times."""

    def __init__(self, key: Words, time: Floats) -> None:
        self.key = key
        self.time = time
        self.latest = float(time.max())


class SeenIds:
    """Hashes of the ids of accepted samples, until event time has passed them by the retention.

    Bounded in number.

    They lie in sorted runs, each less than half as long as the one before it, so that a batch costs
    the same however many ids there are, up to a logarithm.

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
    >>> seen.known(keys).tolist()
    [False, True, False]
    """

    def __init__(self, *, max_ids: int = MAX_IDS) -> None:
        self._max_ids = max_ids
        self._runs: list[_Run] = []
        self._fresh: list[
            tuple[Words, Floats]
        ] = []  # of no run yet: most of them are forgotten in the same turn
        self._before = -np.inf
        self._saved: dict[int, float] = {}  # piece in the store: latest event time in it
        self._next = 0
        self._new: dict[int, Columns] = {}
        self._dropped: list[int] = []

    def __len__(self) -> int:
        self._settle()
        return sum(int(np.count_nonzero(run.time >= self._before)) for run in self._runs)

    def duplicates(self, key: Words) -> Bools:
        """Say which ids were seen, in an earlier batch or earlier in this one."""
        order = np.argsort(key)  # faster than a stable sort, which only repeated ids need
        ordered = key[order]
        same = ordered[1:] == ordered[:-1]
        if same.any():
            order = np.argsort(key, kind="stable")

        again = np.zeros(len(key), np.bool_)
        again[order[1:]] = same
        again[order] |= self._lookup(ordered)
        return again

    def known(self, key: Words) -> Bools:
        """Say which ids were seen in an earlier batch."""
        self._settle()
        if not self._runs:
            return np.zeros(len(key), np.bool_)
        order = np.argsort(key)
        found = np.zeros(len(key), np.bool_)
        found[order] = self._lookup(key[order])

        return found

    def _lookup(self, ordered: Words) -> Bools:
        """Look sorted ids up."""
        self._settle()
        found = np.zeros(len(ordered), np.bool_)

        for run in self._runs:
            at = np.minimum(np.searchsorted(run.key, ordered), len(run.key) - 1)
            found |= (run.key[at] == ordered) & (run.time[at] >= self._before)

        return found

    def add(self, key: Words, time: Floats) -> None:
        """Remember ids, none of them known, with their event times."""
        if not len(key):
            return
        self._new[self._next] = {"key": key, "time": time}
        self._next += 1
        self._fresh.append((key, time))

    def _settle(self) -> None:
        """Put what is fresh, and was not forgotten, into runs."""
        fresh, self._fresh = self._fresh, []
        for key, time in fresh:
            keep = time >= self._before
            if keep.any():
                self._insert(key[keep], time[keep])

    def _insert(self, key: Words, time: Floats) -> None:
        order = np.argsort(key)
        self._runs.append(_Run(key[order], time[order]))

        while len(self._runs) > 1 and 2 * len(self._runs[-1].key) > len(self._runs[-2].key):
            self._merge(2)

    def _merge(self, runs: int) -> None:
        """Make one run of the last ones, without what was forgotten."""
        last, self._runs = self._runs[-runs:], self._runs[:-runs]
        key = np.concatenate([run.key for run in last])
        time = np.concatenate([run.time for run in last])
        keep = time >= self._before
        order = np.argsort(key, kind="stable")  # finds the runs, and merges them
        order = order[keep[order]]

        if len(order):
            self._runs.append(_Run(key[order], time[order]))

    def forget(self, before: float) -> None:
        """Drop ids whose event time is before this, and the oldest where there are a quarter more than allowed."""
        self._before = max(self._before, before)
        self._settle()
        self._runs = [run for run in self._runs if run.latest >= self._before]
        if sum(len(run.key) for run in self._runs) > 1.25 * self._max_ids:
            self._cut()

        self._new = {
            n: fresh
            for n, piece in self._new.items()
            if len((fresh := _since(piece, before))["time"])
        }
        gone = [number for number, latest in self._saved.items() if latest < before]
        self._dropped += gone

        for number in gone:
            del self._saved[number]

    def _cut(self) -> None:
        """Keep the newest of those that were not forgotten."""
        self._merge(len(self._runs))
        if len(self) <= self._max_ids:
            return

        for run in self._runs:
            keep = run.time >= np.partition(run.time, -self._max_ids)[-self._max_ids]
            self._runs = [_Run(run.key[keep], run.time[keep])]

    def changes(self) -> tuple[dict[int, Columns], list[int]]:
        """Give what to save and what to remove since the last call."""
        new, dropped, self._new, self._dropped = self._new, self._dropped, {}, []
        self._saved.update({number: float(piece["time"].max()) for number, piece in new.items()})
        return new, dropped

    def restore(self, number: int, columns: Columns) -> None:
        """Put a saved piece back."""
        self._next = max(self._next, number + 1)
        self._saved[number] = float(columns["time"].max())
        self._insert(columns["key"], columns["time"])


class AgentIds:
    """The ids of recent samples, each agent's own.

    Who sends another's id first takes nothing from it.

    Examples
    --------
    >>> seen, id_of = AgentIds(), np.array([5, 5, 5], np.uint64)
    >>> ann, bob = 1, 2
    >>> seen.duplicates(id_of, np.array([ann, bob, ann], np.uint64)).tolist()
    [False, False, True]
    """

    def __init__(self) -> None:
        self._seen = SeenIds()

    def duplicates(self, key: Words, owner: Words) -> Bools:
        """Say which ids were seen of their agents, in an earlier batch or earlier in this one."""
        return self._seen.duplicates(key ^ owner)

    def known(self, key: Words, owner: Words) -> Bools:
        """Say which ids were seen of their agents in an earlier batch."""
        return self._seen.known(key ^ owner)

    def add(self, key: Words, owner: Words, time: Floats) -> None:
        """Remember ids, none of them known, with their event times."""
        self._seen.add(key ^ owner, time)

    def forget(self, before: float) -> None:
        """Drop ids whose event time is before this."""
        self._seen.forget(before)

    def save(self, store: Store) -> None:
        """Write what changed within the transaction of a store."""
        new, dropped = self._seen.changes()
        for number, columns in new.items():
            store.put_chunk(_KIND, number, columns)

        store.drop_chunks(_KIND, dropped)

    def restore(self, store: Store) -> None:
        """Continue from what was saved."""
        for number, columns in store.chunks(_KIND):
            self._seen.restore(number, columns)


def _since(piece: Columns, before: float) -> Columns:
    keep = piece["time"] >= before
    return {name: column[keep] for name, column in piece.items()}

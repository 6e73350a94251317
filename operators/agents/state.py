"""The state of many agents: columns that grow, saved in chunks."""

from __future__ import annotations

import numpy as np

from meanstream.operators.agents.agents_settings import AgentsSettings
from meanstream.operators.agents.release_times import Counts
from meanstream.operators.records import Bools, Ints, Words
from meanstream.operators.validation import require

CHUNK = 1024
"""Agents per snapshot chunk: a commit writes the chunks that changed."""

NEVER = np.iinfo(np.int64).max
SNAPSHOT_VERSION = 5
_ROOM = 4
"""Times as many rows are reserved: what no agent has touched yet takes no memory, and to move rows
costs time."""


_COUNTER = "counter_"

SHOWN = frozenset(
    {
        *("released", "released_count", "released_total", "due"),
        *("told_count", "told_total", "told_variance"),
        *("vote_noised", "histogram_noised"),
    }
)
"""Columns that releases have shown, or that follow from how many there were; every other one is
private."""


class AgentRows:
    """Private: one row per agent, in columns; an agent is its index.

    Attributes
    ----------
    columns : dict of arrays (capacity, ...)
        Sums, counts, the last release, the counter's state.
    owner : uint64 array (capacity, 2)
        Hash of each agent's name.
    """

    def __init__(self, settings: AgentsSettings) -> None:
        self._settings = settings
        self._rows = 0
        self._releases = 1
        self.columns = _empty_rows(settings, CHUNK, self._releases)
        self.owner: Words = np.zeros((CHUNK, 2), np.uint64)
        self._dirty: Bools = np.zeros(CHUNK, np.bool_)

    def reserve(self, needed: int) -> None:
        """Have room for that many agents."""
        self._rows = max(needed, self._rows)
        capacity = len(self.owner)
        if needed <= capacity:
            return

        grown = -(-_ROOM * needed // CHUNK) * CHUNK
        fresh = _empty_rows(self._settings, grown, self._releases)
        for name, column in self.columns.items():
            fresh[name][:capacity] = column

        self.columns = fresh
        self.owner = np.concatenate([self.owner, np.zeros((grown - capacity, 2), np.uint64)])
        self._dirty = np.concatenate([self._dirty, np.zeros(grown - capacity, np.bool_)])

    def reserve_releases(self, number: int) -> None:
        """Have room for what the counter holds of that many releases of each agent."""
        if number <= self._releases:
            return
        self._releases = min(1 << (number - 1).bit_length(), self._settings.mechanism.horizon)

        for name in _by_release(self._settings):
            column = self.columns[name]
            self.columns[name] = np.zeros((len(column), self._releases))
            self.columns[name][: self._rows, : column.shape[1]] = column[: self._rows]

    def touch(self, agents: Ints) -> None:
        """Note that these agents' rows changed."""
        self._dirty[agents] = True

    def forget(self, agents: Ints) -> None:
        """Leave of these agents what releases have shown, as if they had sent nothing."""
        fresh = _empty_rows(self._settings, 1, self._releases)
        for name, column in self.columns.items():
            if name not in SHOWN:
                column[agents] = fresh[name]

        self.touch(agents)

    def dirty_chunks(self) -> list[int]:
        """Chunks that changed since the last `mark_clean`."""
        return [int(i) for i in np.flatnonzero(self._dirty.reshape(-1, CHUNK).any(axis=1))]

    def changed(self) -> Ints:
        """Agents that changed since the last `mark_clean`."""
        return np.flatnonzero(self._dirty)

    def mark_clean(self) -> None:
        """Forget what changed: it has been saved."""
        self._dirty[:] = False

    def snapshot(
        self, chunk: int, n_agents: int, *, window: np.int64, copy: bool
    ) -> dict[str, np.ndarray]:
        """Give one chunk as plain arrays, with a version and the window that event time is in."""
        part = slice(chunk * CHUNK, min((chunk + 1) * CHUNK, n_agents))
        state = {
            name: column[part].copy() if copy else column[part]
            for name, column in self.columns.items()
        }

        return {"version": np.array(SNAPSHOT_VERSION), "window": np.array(window), **state}

    def restore(self, chunk: int, state: dict[str, np.ndarray]) -> None:
        """Put back what `snapshot` gave."""
        version = int(state["version"])
        require(version == SNAPSHOT_VERSION, "snapshot version", f"be {SNAPSHOT_VERSION}", version)
        names = set(state) - {"version", "window"}
        expected = set(self.columns)
        require(names == expected, "snapshot columns", f"be {sorted(expected)}", sorted(names))
        first = chunk * CHUNK

        for name in names:
            self._put(name, slice(first, first + len(state[name])), state[name])

    def rows(self, agents: Ints | slice, window: np.int64) -> dict[str, np.ndarray]:
        """Give the rows of some agents: copies, or of a slice views."""
        return {
            "window": np.array(window),
            **{name: column[agents] for name, column in self.columns.items()},
        }

    def put_rows(self, agents: Ints, rows: dict[str, np.ndarray], window: np.int64) -> np.int64:
        """Put rows in place of those of some agents.

        Give the later window of theirs and this one.
        """
        for name in self.columns:
            self._put(name, agents, rows[name])

        self.touch(agents)
        return max(window, np.int64(rows["window"]))

    def _put(self, name: str, where: slice | Ints, values: np.ndarray) -> None:
        """Put values in place of others; a counter's may be of another number of releases."""
        if name in _by_release(self._settings):
            self.reserve_releases(values.shape[1])
            self.columns[name][where, values.shape[1] :] = 0.0
            self.columns[name][where, : values.shape[1]] = values
        else:
            self.columns[name][where] = values


def _by_release(settings: AgentsSettings) -> list[str]:
    """Columns with an entry for each release, of which there are as many as some agent has made."""
    if settings.kept is not None:
        return []
    return [_COUNTER + name for name in settings.mechanism.by_release]


def _empty_rows(settings: AgentsSettings, n: int, releases: int) -> dict[str, np.ndarray]:
    """Columns of `n` agents that have seen nothing yet, with room for so many releases of each."""
    names = (
        "count",
        "total",
        "squares_low",
        "squares_high",
        "released",
        "released_count",
        "released_total",
    )
    rows: dict[str, np.ndarray] = {name: np.zeros(n, np.int64) for name in names}
    rows["seen"] = np.full(n, -np.inf)

    times = settings.times
    first = int(times.times(1)[0]) if isinstance(times, Counts) else NEVER
    rows["due"] = np.full(n, first, np.int64)
    rows.update({} if settings.blocks is None else settings.blocks.columns(n))
    rows.update({} if settings.vote is None else settings.vote.columns(n))
    rows.update({} if settings.histogram is None else settings.histogram.columns(n))

    if settings.kept is not None:
        rows.update(settings.kept.columns(n))
    else:
        rows.update(
            {_COUNTER + name: column for name, column in settings.mechanism.init(n).items()}
        )
        rows.update({name: np.zeros((n, releases)) for name in _by_release(settings)})

    return rows

"""The state of many agents: columns that grow, saved in chunks."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from meanstream.operators.agents.agents_settings import AgentsSettings
from meanstream.operators.agents.release_times import Counts
from meanstream.operators.agents.state_columns import (
    PRIVATE,
    PUBLIC,
    Column,
    Columns,
    Public,
    Table,
    columns_of_counter,
    declared_columns,
    empty_columns,
    prefixed_columns,
)
from meanstream.operators.noise.keyed import keyed_owner_words
from meanstream.operators.records import Bools, Ints, Words
from meanstream.operators.validation import require

CHUNK = 1024
"""Agents per snapshot chunk: a commit writes the chunks that changed."""

NEVER = np.iinfo(np.int64).max
SNAPSHOT_VERSION = 5
NOT_BEGUN = np.int64(np.iinfo(np.int64).min)
"""The window before there was a sample: event time may begin before 1970, in a window of a negative
number."""
_ROOM = 4
"""Times as many rows are reserved: what no agent has touched yet takes no memory, and to move rows
costs time."""

COUNTER = "counter_"
"""Of columns with the state of the counter that keeps everything."""

COUNT = Column("count", np.int64, privacy=PUBLIC, of="samples")
SEEN = Column("seen", np.float64, start=-np.inf, privacy=PUBLIC, of="samples")
SUMS = declared_columns(
    ("total", "squares_low", "squares_high"), np.int64, privacy=PRIVATE, of="samples"
)
RELEASED = Column("released", np.int64, privacy=PUBLIC, of="releases", kept=True)
RELEASED_COUNT = Column("released_count", np.int64, privacy=PUBLIC, of="releases", kept=True)
RELEASED_TOTAL = Column("released_total", np.int64, privacy=PUBLIC, of="releases", kept=True)


def agents_table(settings: AgentsSettings) -> Table:
    """Columns of the agents' state under these settings, in the order of snapshots.

    Examples
    --------
    >>> settings = AgentsSettings(lower=0, upper=1, epsilon=1, delta=1e-6, mode="paper")
    >>> public = [column.name for column in agents_table(settings) if column.privacy is PUBLIC]
    >>> public
    ['count', 'released', 'released_count', 'released_total', 'seen', 'due']
    """
    times = settings.times
    first_due = int(times.times(1)[0]) if isinstance(times, Counts) else NEVER
    parts = (settings.blocks, settings.vote, settings.histogram, settings.kept)
    table: Table = (
        COUNT,
        *SUMS,
        *(RELEASED, RELEASED_COUNT, RELEASED_TOTAL),
        SEEN,
        Column("due", np.int64, start=first_due, privacy=PUBLIC, of="releases", kept=True),
    )

    for part in parts:
        table += () if part is None else part.columns

    # With a memory the noise is in the columns of what is kept.
    if settings.kept is None:
        table += prefixed_columns(COUNTER, columns_of_counter(settings.mechanism))

    return table


class AgentRows:
    """Private: one row per agent, in columns; an agent is its index.

    Parameters
    ----------
    settings : AgentsSettings
        They say which columns there are.

    Attributes
    ----------
    names : list of str
        Of all agents that were ever added.
    owner : uint64 array (capacity, 2)
        Hash of each agent's name.
    table : tuple of Column
        What the columns are.
    columns : dict of arrays (capacity, ...)
        Sums, counts, the last release, the counter's state.
    window : int64
        The turn of a schedule of event time that the newest sample was in.
    replaced : int
        How often rows were put in place of others.
    """

    def __init__(self, settings: AgentsSettings) -> None:
        self.names: list[str] = []
        self.table = agents_table(settings)
        self.window = NOT_BEGUN
        self.replaced = 0
        self._releases = 1
        self.columns = empty_columns(self.table, CHUNK, self._releases)
        self.owner: Words = np.zeros((CHUNK, 2), np.uint64)
        self._dirty: Bools = np.zeros(CHUNK, np.bool_)

    @property
    def n_agents(self) -> int:
        """Number of agents that were ever added."""
        return len(self.names)

    def add_agents(self, names: Sequence[str], words: Words | None = None) -> None:
        """Give new agents the next indices, in the order of `names`.

        `words` are their hashes, where they are known.
        """
        if not names:
            return
        begin = self.n_agents
        end = begin + len(names)
        self._reserve(end)
        self.owner[begin:end] = keyed_owner_words(names) if words is None else words
        self.names.extend(names)
        self._dirty[begin:end] = True

    def public(self, column: Column[Public], agents: Ints | slice) -> np.ndarray:
        """Public: a column of some agents, which may leave; type checkers refuse a private one."""
        return self.columns[column.name][agents]

    def _reserve(self, needed: int) -> None:
        """Have room for that many agents."""
        capacity = len(self.owner)
        if needed <= capacity:
            return

        grown = -(-_ROOM * needed // CHUNK) * CHUNK
        fresh = empty_columns(self.table, grown, self._releases)
        for name, column in self.columns.items():
            fresh[name][:capacity] = column

        self.columns = fresh
        self.owner = np.concatenate([self.owner, np.zeros((grown - capacity, 2), np.uint64)])
        self._dirty = np.concatenate([self._dirty, np.zeros(grown - capacity, np.bool_)])

    def reserve_releases(self, number: int) -> None:
        """Have room for what the counter holds of that many releases of each agent."""
        if number <= self._releases:
            return

        for column in self.table:
            if column.by_release:
                self._releases = min(1 << (number - 1).bit_length(), *column.shape)
                before = self.columns[column.name]
                after = column.empty(len(before), self._releases)
                after[: self.n_agents, : before.shape[1]] = before[: self.n_agents]
                self.columns[column.name] = after

    def touch(self, agents: Ints) -> None:
        """Note that these agents' rows changed."""
        self._dirty[agents] = True

    def forget(self, agents: Ints) -> None:
        """Leave of some agents what is kept of their releases; they must send nothing more.

        **Privacy.** The counter's state goes, too: a further release would not continue the ones before.
        """
        for column in self.table:
            if not column.kept:
                self.columns[column.name][agents] = column.start

        self.touch(agents)
        self.replaced += 1

    def dirty_chunks(self) -> list[int]:
        """Chunks that changed since the last `mark_clean`."""
        return [int(i) for i in np.flatnonzero(self._dirty.reshape(-1, CHUNK).any(axis=1))]

    def changed(self) -> Ints:
        """Agents that changed since the last `mark_clean`."""
        return np.flatnonzero(self._dirty)

    def mark_clean(self) -> None:
        """Forget what changed: it has been saved."""
        self._dirty[:] = False

    def snapshot_chunk(self, chunk: int, *, copy: bool = True) -> Columns:
        """Private: one chunk's state as plain arrays.

        Without a copy they change with the next samples.
        """
        rows = self.rows(slice(chunk * CHUNK, min((chunk + 1) * CHUNK, self.n_agents)))
        if copy:
            rows = {name: column.copy() for name, column in rows.items()}

        return {"version": np.array(SNAPSHOT_VERSION), **rows}

    def restore_chunk(self, chunk: int, state: Columns) -> None:
        """Put one chunk's state back; its agents must have been added before."""
        version = int(state["version"])
        require(version == SNAPSHOT_VERSION, "snapshot version", f"be {SNAPSHOT_VERSION}", version)
        names = set(state) - {"version", "window"}
        expected = set(self.columns)
        require(names == expected, "snapshot columns", f"be {sorted(expected)}", sorted(names))
        n = len(state[COUNT.name])
        self._put(slice(chunk * CHUNK, chunk * CHUNK + n), state, n)

    def rows(self, agents: Ints | slice) -> Columns:
        """Private: the state of some agents as plain arrays, one row each.

        Of a slice they change with it.
        """
        rows = {name: column[agents] for name, column in self.columns.items()}
        return {"window": np.array(self.window), **rows}

    def put_rows(self, agents: Ints, rows: Columns) -> None:
        """Put the state of some agents in place of what these have."""
        self._put(agents, rows, len(agents))
        self.touch(agents)

    def _put(self, where: slice | Ints, state: Columns, n: int) -> None:
        """Put the rows of `n` agents in place of others, once all columns have been checked."""
        for column in self.table:
            column.check(state[column.name], n)

        for column in self.table:
            values = state[column.name]
            if not column.by_release:
                self.columns[column.name][where] = values
                continue

            # Those who saved them may have made another number of releases.
            self.reserve_releases(values.shape[1])
            self.columns[column.name][where, values.shape[1] :] = 0.0
            self.columns[column.name][where, : values.shape[1]] = values

        # Event time goes on from the later of both windows.
        self.window = max(self.window, np.int64(state["window"]))
        self.replaced += 1

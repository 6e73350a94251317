"""What every pair and every agent of a federation knows.

Numbers of agents, columns by pair, chunks on disk.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from meanstream.lab.papers.colme.pairwise_partners import BLOCK
from meanstream.lab.papers.colme.pairwise_stream_settings import PairwiseStreamSettings
from meanstream.operators.records import Ints
from meanstream.operators.validation import require

_OWN = (
    "agent",
    "count",
    "exact",
    "coarse",
    "squares",
    "total",
    "mean",
    "spread",
    "last",
    "released",
    "seen",
)

_STAYS = ("agent", "last", "released")
"""Of an agent that is forgotten: its number, its place in a round, and what it has spent."""


class PairwiseState:
    """Private: the state of a federation.

    Agents are numbered from outside by `names`, and within by first sample.

    Memory of pairs is taken when they first exchange something.
    """

    def __init__(self, settings: PairwiseStreamSettings, *, capacity: int) -> None:
        self.settings = settings
        self._grid = settings.release.grid
        self._counter = settings.means.mechanism
        self._layout = settings.layout(capacity)
        self._statistic = settings.statistic()

        rows = self._layout.rows
        self._state: dict[str, dict[str, Any]] = {
            "pair": {
                "index": np.zeros(rows, np.int32),
                "count": np.zeros(rows, np.int64),
                "value": np.zeros(rows),
                "precision": np.zeros(rows),
                "rejected": np.zeros(rows, np.bool_),
            },
            "counter": self._counter.init(rows),
            "statistic": self._statistic.init(rows, rows),
            "variance": {} if settings.scheme is None else settings.scheme.init(rows),
        }

        kinds = dict.fromkeys(("mean", "total", "spread", "seen"), np.float64)
        self._own: dict[str, Any] = {
            name: np.zeros(1024, kinds.get(name, np.int64)) for name in _OWN
        }
        self._capacity = capacity
        self._node = np.zeros(0, np.int64)  # by number of the agent, -1 before its first sample
        self._nodes = self._present = 0
        self._names: list[str] = []  # by node
        self.names: Sequence[str] = ()
        self._dirty_pairs: set[int] = set()
        self._dirty_own: set[int] = set()

    @property
    def n_agents(self) -> int:
        """Number of agents that had a sample."""
        return self._present

    def seen_since(self, time: float) -> Ints:
        """Return the numbers of the agents with a sample at `time` or later, in their order."""
        seen = np.flatnonzero(self._node >= 0)
        own = self._own
        node = self._node[seen]
        later: Ints = seen[(own["seen"][node] >= time) & (own["count"][node] > 0)]  # not forgotten
        return later

    def counts(self) -> Ints:
        """Return the number of samples of each agent, by number."""
        seen = self._node >= 0
        return np.where(seen, self._own["count"][np.where(seen, self._node, 0)], 0)

    def samples_per_partner(self) -> float | None:
        """Public: the median of each agent's samples over its partners; None where no agent has partners."""
        node = np.flatnonzero(self._own["agent"][: self._nodes] > 0)
        degree = self._layout.degree(node, np.full(len(node), self._present))
        count = self._own["count"][node]
        counts = (degree > 0) & (count > 0)  # a forgotten agent has none
        shares = count[counts] / degree[counts]

        if len(shares):
            return float(np.median(shares))
        return None

    def released_to(self, agent: int) -> dict[str, int]:
        """Return how many releases an agent made to each reader that has some, by name.

        **Privacy.** For the operator; under round_robin it is a function of the times of samples.
        """
        if self._node[agent] < 0:
            return {}
        reader, row = self._layout.readers(int(self._node[agent]), self._nodes)
        index = self._state["pair"]["index"][row]
        some = np.flatnonzero(index)

        return {
            self._names[node]: made
            for node, made in zip(reader[some].tolist(), index[some].tolist(), strict=True)
        }

    def releases_by_pair(self) -> Ints:
        """Private: return how many pairs have exchanged how many releases."""
        index = self._state["pair"]["index"]
        return np.bincount(index[index > 0], minlength=1)

    def has_received(self, agent: int) -> bool:
        """Say whether an agent has received any release."""
        node = int(self._node[agent])
        rows = self._layout.partner_rows(node, self._nodes) if node >= 0 else np.zeros(0, np.int64)
        return bool(self._state["pair"]["index"][rows].any())

    def forget(self, agent: int) -> None:
        """Drop all that is private of an agent; it must send nothing more.

        What others have received of it stays theirs, and how often it has released stays spent.
        """
        # Its own samples; its place among the agents stays.
        node = int(self._node[agent])
        if node < 0:
            return
        for name, array in self._own.items():
            if name not in _STAYS:
                array[node] = 0

        self._dirty_own.add(node // BLOCK)

        # As a reader it keeps nothing of what it received.
        rows = self._layout.partner_rows(node, self._nodes)
        for name, array in self._arrays():
            if name != "pair index":
                array[rows] = 0

        # What the noise was makes sums exact: of those that others received, it goes.
        received = self._layout.readers(node, self._nodes)[1]
        for name, array in self._arrays():
            if not name.startswith("pair "):
                array[received] = 0

        changed = self._layout.blocks(np.concatenate([rows, received]))
        self._dirty_pairs |= set(changed.tolist())

    def changes(self) -> Iterator[tuple[str, int, dict[str, Any]]]:
        """Private: give what changed since the last call, as columns in numbered chunks of two kinds."""
        for chunk in sorted(self._dirty_own):
            rows = slice(chunk * BLOCK, min((chunk + 1) * BLOCK, self._nodes))
            yield "pairwise agents", chunk, {name: array[rows] for name, array in self._own.items()}

        for chunk in sorted(self._dirty_pairs):
            rows = self._layout.rows_of(chunk)
            yield "pairs", chunk, {name: array[rows] for name, array in self._arrays()}

        self._dirty_own = set()
        self._dirty_pairs = set()

    def restore(self, kind: str, chunk: int, columns: Mapping[str, Any]) -> None:
        """Take over a chunk of `changes`, those of agents first.

        Call `restored` after the last one.
        """
        if kind == "pairwise agents":
            first = chunk * BLOCK
            n = len(columns["agent"])
            self._grow(first + n)

            for name, array in self._own.items():
                array[first : first + n] = columns[name]

            self._nodes = max(self._nodes, first + n)
            few = self.settings.partners is None
            rule = f"be at least {self._nodes}, the agents of the store"
            require(not few or self._nodes <= self._capacity, "max_agents", rule, self._capacity)

            return

        rows = self._layout.rows_of(chunk)
        for name, array in self._arrays():
            # Saved with room for more agents or for fewer: what is beyond either was never used.
            part = array[rows]
            kept = columns[name][: len(part)]
            part[: len(kept)] = kept

    def snapshot(self) -> dict[str, Any]:
        """Private: the whole state as columns, without room for agents that have not come."""
        own = {f"own {name}": array[: self._nodes].copy() for name, array in self._own.items()}
        rows = self._layout.used(self._nodes)
        return own | {name: array[rows] for name, array in self._arrays()}

    def restore_snapshot(self, columns: Mapping[str, Any], names: Sequence[str]) -> None:
        """Continue from a snapshot, with the names of all agents by number."""
        own = {name: columns[f"own {name}"] for name in _OWN}
        self.restore("pairwise agents", 0, own)
        rows = self._layout.used(self._nodes)
        for name, array in self._arrays():
            array[rows] = columns[name]

        self.restored(names)

    def restored(self, names: Sequence[str]) -> None:
        """Give the agents their numbers again."""
        self.names = names
        agent = self._own["agent"][: self._nodes] - 1
        self._node = np.full(len(names), -1, np.int64)
        known = np.flatnonzero(agent >= 0)
        self._node[agent[known]] = known
        self._present = len(known)
        first = self._layout.first_names
        self._names = [
            names[a] if a >= 0 else first[place] for place, a in enumerate(agent.tolist())
        ]

    def _arrays(self) -> Iterator[tuple[str, Any]]:
        for part, state in self._state.items():
            for name, array in state.items():
                yield f"{part} {name}", array

    def _join(self, agent: Ints, names: Sequence[str]) -> Ints:
        """Give new agents a number in the order of their first samples, or as the graph of partners does."""
        if not self._nodes and (first := self._layout.first_names):
            self._grow(len(first))
            self._nodes = len(first)
            self._names = list(first)
            self._dirty_own |= set(range(-(-len(first) // BLOCK)))

        if len(names) > len(self._node):
            self._node = np.concatenate(
                [self._node, np.full(len(names) - len(self._node), -1, np.int64)]
            )

        unseen = agent[self._node[agent] < 0]
        new, at = np.unique(unseen, return_index=True)
        declared = (
            {name: place for place, name in enumerate(self._layout.first_names)} if len(new) else {}
        )

        for number in new[np.argsort(at)].tolist():
            node = declared.get(names[number], self._nodes)
            if node == self._nodes:
                self._nodes += 1
                self._grow(self._nodes)
                self._names.append(names[number])

            self._node[number] = node
            self._own["agent"][node] = number + 1
            # A round begins behind its agent, so that all agents are queried equally often.
            self._own["last"][node] = -1 if self.settings.literal else node - 1
            self._present += 1

        return self._node[agent]

    def _grow(self, n: int) -> None:
        room = len(self._own["count"])
        if n > room:
            more = max(n, 2 * room) - room
            self._own = {
                name: np.concatenate([a, np.zeros(more, a.dtype)]) for name, a in self._own.items()
            }

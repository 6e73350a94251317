"""Whom each agent may query.

Everyone, or the partners that a public graph names; and where the state of a pair is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from meanstream.lab.papers.colme.same_mean_tests import ClassSums
from meanstream.operators.records import Floats, Ints
from meanstream.operators.validation import require

BLOCK = 512
"""Pairs that are saved together."""


class Everyone:
    """Each agent queries all others, in the order of their numbers.

    Agents that come late are appended.

    The pair of a reader and the agent that it queries is the row `agent * capacity + reader`: under
    round robin all readers query nearly the same agent, so that a step touches few blocks.

    Parameters
    ----------
    capacity : int
        Largest number of agents.

    Examples
    --------
    >>> everyone = Everyone(4)
    >>> target, row = everyone.pick(np.array([0, 1, 2]), np.array([0, 0, 1]))
    >>> target.tolist(), row.tolist()
    ([1, 0, 1], [4, 1, 6])
    """

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.rows = capacity * capacity
        self.first_names: tuple[str, ...] = ()
        self._blocks = -(-capacity // BLOCK)

    def degree(self, reader: Ints, present: Ints) -> Ints:  # noqa: ARG002 - the same for all
        """Return how many partners each reader has, when so many agents are present."""
        return present - 1

    def pick(self, reader: Ints, place: Ints) -> tuple[Ints, Ints]:
        """Return the partner at a place of each reader's list, and the row of the pair."""
        target = place + (reader <= place)
        return target, target * self.capacity + reader

    def blocks(self, rows: Ints) -> Ints:
        """Return the numbers of the blocks that hold the rows."""
        target, reader = np.divmod(rows, self.capacity)
        return np.unique((target << 16) + reader // BLOCK)

    def rows_of(self, block: int) -> slice:
        """Return the rows of a block."""
        target = block >> 16
        part = block & 0xFFFF
        start = target * self.capacity
        return slice(start + part * BLOCK, start + min((part + 1) * BLOCK, self.capacity))

    def used(self, agents: int) -> Ints:
        """Return the rows of all pairs of the first agents."""
        rows: Ints = (np.arange(agents)[:, np.newaxis] * self.capacity + np.arange(agents)).ravel()
        return rows

    def add_up(self, pair: Mapping[str, Any], reader: Ints, agents: int, mean: Floats) -> ClassSums:
        """Add up the pairs of each reader that pass the test, given its own mean."""
        sums = ClassSums(*(np.zeros(len(reader)) for _ in range(5)))
        for target in range(agents):
            row = target * self.capacity + reader
            for total, column in zip(sums, _columns(pair, row, mean), strict=True):
                np.add(total, column, out=total)

        return sums

    def readers(self, target: int, agents: int) -> tuple[Ints, Ints]:
        """Return who may query an agent, and the rows of these pairs."""
        reader = np.flatnonzero(np.arange(agents) != target)
        return reader, target * self.capacity + reader

    def partners(self, pair: Mapping[str, Any], reader: int, agents: int) -> Ints:
        """Return the agents whose pair with a reader passes the test."""
        weight, _ = _passing(pair, self.partner_rows(reader, agents))
        return np.flatnonzero(weight)

    def partner_rows(self, reader: int, agents: int) -> Ints:
        """Return the rows of the pairs in which an agent is the reader, and its own, which is empty."""
        rows: Ints = np.arange(agents) * self.capacity + reader
        return rows


class PartnerGraph:
    """Each agent queries the partners that a public file names, in the order of the file.

    Row numbers are place by place: all readers' first partners, then their second ones, so that a
    step touches few blocks.

    Parameters
    ----------
    partners : mapping of str to sequence of str
        Partners of each agent, by name. Edges are directed: a partner need not query back.

    Examples
    --------
    >>> graph = PartnerGraph({"ann": ("bob", "cem"), "bob": ("ann",)})
    >>> graph.first_names, graph.rows
    (('ann', 'bob', 'cem'), 3)
    >>> graph.pick(np.array([0, 1]), np.array([0, 0]))[0].tolist()
    [1, 0]
    """

    def __init__(self, partners: Mapping[str, Sequence[str]]) -> None:
        names = dict.fromkeys([*partners, *(name for some in partners.values() for name in some)])
        self.first_names = tuple(names)
        number = {name: place for place, name in enumerate(self.first_names)}
        degree = np.array([len(partners.get(name, ())) for name in self.first_names], np.int64)
        rank = np.zeros(len(degree), np.int64)
        rank[np.argsort(-degree, kind="stable")] = np.arange(len(degree))

        deepest = int(degree.max(initial=0))
        wide = [int(np.count_nonzero(degree > place)) for place in range(deepest)]
        self._degree = degree
        self._rank = rank
        self._first = np.concatenate([[0], np.cumsum(wide)]).astype(np.int64)
        self.rows = int(degree.sum())
        self._target = np.zeros(self.rows, np.int64)
        self._reader = np.zeros(self.rows, np.int64)

        for name, some in partners.items():
            require(name not in some, "partners", "name no agent as its own partner", name)
            require(
                len(set(some)) == len(some), "partners", "name each partner of an agent once", name
            )
            row = self._first[: len(some)] + rank[number[name]]
            self._target[row] = [number[one] for one in some]
            self._reader[row] = number[name]

    def degree(self, reader: Ints, present: Ints) -> Ints:  # noqa: ARG002 - the graph alone decides
        """Return how many partners each reader has.

        Agents that the graph does not name have none.
        """
        inside = reader < len(self._degree)
        return np.where(inside, self._degree[np.where(inside, reader, 0)], 0)

    def pick(self, reader: Ints, place: Ints) -> tuple[Ints, Ints]:
        """Return the partner at a place of each reader's list, and the row of the pair."""
        row = self._first[place] + self._rank[reader]
        return self._target[row], row

    def blocks(self, rows: Ints) -> Ints:
        """Return the numbers of the blocks that hold the rows."""
        return np.unique(rows // BLOCK)

    def rows_of(self, block: int) -> slice:
        """Return the rows of a block."""
        return slice(block * BLOCK, min((block + 1) * BLOCK, self.rows))

    def used(self, agents: int) -> Ints:  # noqa: ARG002 - the graph alone decides
        """Return all rows."""
        return np.arange(self.rows)

    def add_up(self, pair: Mapping[str, Any], reader: Ints, agents: int, mean: Floats) -> ClassSums:
        """Add up the pairs of each reader that pass the test, given its own mean."""
        most = max(agents, len(self._degree))
        means = np.zeros(most)
        means[reader] = mean
        columns = _columns(pair, np.arange(self.rows), means[self._reader])

        return ClassSums(
            *(np.bincount(self._reader, c, most).astype(np.float64)[reader] for c in columns)
        )

    def readers(self, target: int, agents: int) -> tuple[Ints, Ints]:  # noqa: ARG002 - by the graph
        """Return who may query an agent, and the rows of these pairs."""
        row = np.flatnonzero(self._target == target)
        return self._reader[row], row

    def partners(self, pair: Mapping[str, Any], reader: int, agents: int) -> Ints:
        """Return the agents whose pair with a reader passes the test."""
        row = self.partner_rows(reader, agents)
        weight, _ = _passing(pair, row)

        return np.sort(self._target[row[weight > 0]])

    def partner_rows(self, reader: int, agents: int) -> Ints:  # noqa: ARG002 - the graph decides
        """Return the rows of the pairs in which an agent is the reader."""
        if reader >= len(self._degree):
            return np.zeros(0, np.int64)
        rows: Ints = self._first[: self._degree[reader]] + self._rank[reader]
        return rows


def _passing(pair: Mapping[str, Any], row: Ints) -> tuple[Floats, Floats]:
    """Return the weight of each pair, 0 where the test fails or there is no release, and weight times statistic."""
    weight = np.where(pair["rejected"][row], 0.0, pair["precision"][row])
    return weight, weight * pair["value"][row]


def _columns(pair: Mapping[str, Any], row: Ints, mean: Floats) -> ClassSums:
    """Give what each pair adds to the sums of its reader, whose own mean is known."""
    weight, moment = _passing(pair, row)
    passes = (weight > 0).astype(np.float64)
    return ClassSums(weight, moment, passes, weight**2, weight * (pair["value"][row] - mean) ** 2)

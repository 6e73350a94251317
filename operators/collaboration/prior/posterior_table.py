"""Posteriors of very many agents by interpolation in (own mean, log of its variance), between nodes that are public.

Where the nodes lie follows from the declared bounds and from how many agents are answered, and what
stands at a node from the fitted population. So no agent's answer depends on another's raw mean: not
on the least or the greatest of them, not on which nodes the others need, and not on where in an
array an evaluation stands.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from meanstream.operators.records import Bools, Floats, Ints

CELLS_PER_STDDEV = 8
LEVEL_STEP = 0.25
FEWEST_AGENTS = 1 << 14
FEWEST_COMPONENTS = 6
"""Reading the table takes as long as to evaluate that many components."""
AGENTS_PER_CELL = 8
"""Of the finest level: all nodes together cost at most as much as three exact evaluations of every
agent."""
BLOCK = 64
CHUNK = 1 << 14
ELEMENTS = 1 << 20
LANES = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Posterior:
    """Posterior of each agent.

    Mean, variance, most likely component, its probability and its expected size.
    """

    value: Floats
    variance: Floats
    component: Ints
    membership: Floats
    class_size: Floats


Evaluate = Callable[[Floats, Floats], Posterior]


def look_up_posterior(
    evaluate: Evaluate,
    mean: Floats,
    variance: Floats,
    n_components: int,
    *,
    lower: float,
    upper: float,
) -> Posterior:
    """Evaluate exactly for few agents; interpolate in a table where that is cheaper.

    Parameters
    ----------
    evaluate : callable
        Maps own means (n,) and variances (n,) or (1,) to a `Posterior`; the bits of an entry do not
        depend on the entries next to it, nor on where it stands, for n of at least `LANES`.
    mean, variance : float array, shape (n_agents,)
        Positive and finite; those of more than the squared width of the bounds, as noisy releases
        have, are evaluated exactly.
    n_components : int
        Cost of one evaluation.
    lower, upper : float
        Declared bounds of a sample: the table covers them and as much again to either side.

    Notes
    -----
    **Privacy.** An answer is a function of the agent's own mean and variance, of the number of agents and of public
    constants. Which agents are beyond the table decides each one's own mean and variance. Which nodes are evaluated
    depends on everyone's, what stands at them does not.
    """
    exact = _padded(evaluate)
    whole = max(LANES, ELEMENTS // max(1, n_components) // LANES * LANES)
    if len(mean) < FEWEST_AGENTS or n_components < FEWEST_COMPONENTS:
        return _gather(exact, mean, variance, whole)

    lattice = _Lattice.build(lower, upper, most_cells=len(mean) // AGENTS_PER_CELL)
    inside = lattice.covers(mean, variance)
    if inside.all():
        return _gather(_Table.build(evaluate, lattice, mean, variance).read, mean, variance, CHUNK)

    table = _Table.build(evaluate, lattice, mean[inside], variance[inside])
    found = _gather(table.read, mean[inside], variance[inside], CHUNK)
    rest = _gather(exact, mean[~inside], variance[~inside], whole)
    return _merge(inside, found, rest)


def _padded(evaluate: Evaluate) -> Evaluate:
    """Evaluate whole groups of lanes.

    NumPy adds up the components of a lone agent in another order.
    """

    def padded(mean: Floats, variance: Floats) -> Posterior:
        missing = -len(mean) % LANES
        if not missing:
            return evaluate(mean, variance)
        found = evaluate(
            np.pad(mean, (0, missing), mode="edge"), np.pad(variance, (0, missing), mode="edge")
        )

        return Posterior(**{f.name: getattr(found, f.name)[: len(mean)] for f in fields(Posterior)})

    return padded


def _empty(n: int) -> dict[str, Any]:
    return {
        f.name: np.empty(n, np.int64 if f.name == "component" else np.float64)
        for f in fields(Posterior)
    }


def _gather(evaluate: Evaluate, mean: Floats, variance: Floats, chunk: int) -> Posterior:
    """Evaluate in chunks that stay in the cache."""
    out = _empty(len(mean))
    for start in range(0, len(mean), chunk):
        part = slice(start, start + chunk)
        piece = evaluate(mean[part], variance[part])
        for name, column in out.items():
            column[part] = getattr(piece, name)

    return Posterior(**out)


def _merge(first: Bools, some: Posterior, others: Posterior) -> Posterior:
    out = _empty(len(first))
    for name, column in out.items():
        column[first] = getattr(some, name)
        column[~first] = getattr(others, name)

    return Posterior(**out)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Lattice:
    """Where nodes may lie.

    Levels of the variance from that of the width down, each with cells in blocks of `BLOCK`.

    A block has one node more than cells, so that both ends of a cell are in one block.
    """

    start: float
    stop: float
    variance: Floats
    step: Floats
    first: Ints

    @classmethod
    def build(cls, lower: float, upper: float, *, most_cells: int) -> _Lattice:
        """Take as many levels as have at most that many cells within the bounds."""
        width = upper - lower
        levels = int(np.log(most_cells / CELLS_PER_STDDEV) / (LEVEL_STEP / 2)) + 1
        variance = width**2 * np.exp(-LEVEL_STEP * np.arange(levels))
        step = np.sqrt(variance) / CELLS_PER_STDDEV
        blocks = np.ceil(3 * width / (step * BLOCK)).astype(np.int64) + 1
        first = np.concatenate([[0], np.cumsum(blocks)])

        return cls(
            start=lower - width, stop=upper + width, variance=variance, step=step, first=first
        )

    def covers(self, mean: Floats, variance: Floats) -> Bools:
        inside = (mean >= self.start) & (mean <= self.stop)
        return np.asarray(inside & (variance >= self.variance[-1]) & (variance <= self.variance[0]))

    def height(self, variance: Floats) -> tuple[Ints, Floats]:
        """Level above each variance, and how far below that level it is, in levels."""
        height = (np.log(self.variance[0]) - np.log(variance)) * (1 / LEVEL_STEP)
        level = np.clip(height.astype(np.int64), 0, len(self.variance) - 2)
        return level, height - level

    def place(self, mean: Floats, level: Ints) -> tuple[Ints, Ints, Floats]:
        """Block and cell in it of each mean, and how far into the cell it is."""
        place = (mean - self.start) * (1 / self.step)[level]
        cell = place.astype(np.int64)
        return self.first[level] + cell // BLOCK, cell % BLOCK, place - cell

    def nodes(self, block: int) -> tuple[Floats, Floats]:
        """Means (BLOCK + 1,) and variance (1,) of the nodes of a block."""
        level = int(np.searchsorted(self.first, block, side="right")) - 1
        cell = (block - self.first[level]) * BLOCK + np.arange(BLOCK + 1)
        return self.start + self.step[level] * cell, self.variance[level : level + 1]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Table:
    """What stands at the nodes of the blocks that someone needs.

    Linear between nodes and between levels.
    """

    lattice: _Lattice
    slot: Ints
    shift: Floats
    stddev: Floats
    nearest: dict[str, np.ndarray[Any, Any]]

    @classmethod
    def build(cls, evaluate: Evaluate, lattice: _Lattice, mean: Floats, variance: Floats) -> _Table:
        used = np.zeros(int(lattice.first[-1]), np.bool_)
        for start in range(0, len(mean), CHUNK):
            part = slice(start, start + CHUNK)
            level, _ = lattice.height(variance[part])
            for of in (level, level + 1):
                used[lattice.place(mean[part], of)[0]] = True

        blocks = np.flatnonzero(used)
        out = _empty(len(blocks) * (BLOCK + 1))
        nodes = np.empty(len(blocks) * (BLOCK + 1))
        for i, block in enumerate(blocks.tolist()):
            part = slice(i * (BLOCK + 1), (i + 1) * (BLOCK + 1))
            nodes[part], level_variance = lattice.nodes(block)
            piece = evaluate(nodes[part], level_variance)
            for name, column in out.items():
                column[part] = getattr(piece, name)

        shift = out.pop("value") - nodes
        stddev = np.sqrt(out.pop("variance"))
        slot = (np.cumsum(used) - 1) * (BLOCK + 1)
        return cls(lattice=lattice, slot=slot, shift=shift, stddev=stddev, nearest=out)

    def read(self, mean: Floats, variance: Floats) -> Posterior:
        level, depth = self.lattice.height(variance)
        shift, stddev, _ = self._level(mean, level)
        finer_shift, finer_stddev, node = self._level(mean, level + 1)
        shift += depth * (finer_shift - shift)
        stddev += depth * (finer_stddev - stddev)
        picked = {name: column[node] for name, column in self.nearest.items()}

        return Posterior(value=mean + shift, variance=stddev * stddev, **picked)

    def _level(self, mean: Floats, level: Ints) -> tuple[Floats, Floats, Ints]:
        """Interpolate between the nodes of one level; also give the nearest of them."""
        block, cell, into = self.lattice.place(mean, level)
        node = self.slot[block] + cell
        shift = self.shift[node]
        stddev = self.stddev[node]
        shift += into * (self.shift[node + 1] - shift)
        stddev += into * (self.stddev[node + 1] - stddev)

        return shift, stddev, node + (into >= 0.5)

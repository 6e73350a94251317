"""The sums of agents that forget: what each keeps of its own samples, and what it has released of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from meanstream.operators.agents.forgetting import DecayedSums, ToldSums
from meanstream.operators.agents.release_times import Every
from meanstream.operators.noise.fixed_point import FixedPoint
from meanstream.operators.records import Floats, Ints, OwnSamples

SQUARES_BASE = np.int64(1) << 62
"""Sums of squares are kept exactly, in two words of this base."""
_SUMS = "sums_"
Columns = dict[str, np.ndarray]


class SumsNow(NamedTuple):
    """Private: exact sums of all samples of some agents so far, in grid units; squares around the middle."""

    number: Ints
    total: Ints
    squares_high: Ints
    squares_low: Ints


class WeighedSamples(NamedTuple):
    """Private: samples of some agents with their weights.

    Attributes
    ----------
    weight, squared_weight : float array
        Sums of the weights and of their squares.
    total, squares : float array
        Weighed sums of the samples less the middle of the grid, and of the squares of that.
    """

    weight: Floats
    squared_weight: Floats
    total: Floats
    squares: Floats


@dataclass(frozen=True, slots=True)
class KeptSums:
    """Columns of agents whose samples weigh less with every release that follows.

    Parameters
    ----------
    sums : DecayedSums
        What is released.
    times : Every or None
        The schedule if releases are at turns of event time, which an agent may let pass.
    grid : FixedPoint
        Of the samples.

    Notes
    -----
    **Privacy.** `told_count`, `told_total` and `told_variance` are public, the rest is private to the agent. An agent's
    own samples have the weights of its releases: those since the newest one count wholly, and the others as they will
    in the next one. So what is known of it does not depend on when a turn was closed, or on batches.
    """

    sums: DecayedSums
    times: Every | None
    grid: FixedPoint

    def columns(self, n: int) -> Columns:
        """State of `n` agents that have seen nothing."""
        ints = ("marked_total", "marked_high", "marked_low", "turn", "told_count", "told_total")
        reals = ("kept_total", "kept_squares", "told_variance")
        return {
            **{name: np.zeros(n, np.int64) for name in ints},
            **{name: np.zeros(n) for name in reals},
            **{_SUMS + name: column for name, column in self.sums.init(n).items()},
        }

    def release(self, rows: Columns, agent: Ints, *, index: Ints, now: SumsNow, turn: Ints, fresh: Floats) -> ToldSums:
        """Release once for each of some agents.

        Parameters
        ----------
        rows : dict
            The agents' state; `released_count` is that of the release before.
        agent, index : int array, shape (m,)
            Distinct agents, and the number of this release of each.
        now : SumsNow
            Of their samples in this release.
        turn : int array, shape (m,)
            The turn of event time that the release closes.
        fresh : float array, shape (m,)
            One draw each.
        """
        state = {name: rows[_SUMS + name] for name in self.sums.init(0)}
        waited = self._waited(rows, agent, turn)
        kept = self._kept(rows, agent, index, now, waited)
        told = self.sums.release(
            state,
            agent,
            index=index,
            count=now.number - rows["released_count"][agent],
            total=now.total - rows["marked_total"][agent],
            fresh=fresh,
            waited=waited,
        )
        marks = {"marked_total": now.total, "marked_high": now.squares_high, "marked_low": now.squares_low}
        said = {"told_count": told.count, "told_total": told.total, "told_variance": told.variance, "turn": turn}
        for name, values in {**marks, **said, "kept_total": kept.total, "kept_squares": kept.squares}.items():
            rows[name][agent] = values
        return told

    def own(self, rows: Columns, agent: Ints) -> OwnSamples:
        """Private: the samples of some agents, weighed; for that agent only.

        `count` is the effective number of samples, rounded down, in which sums of deviations are stated.
        """
        kept, grid = self._weighed(rows, agent), self.grid
        some = kept.weight > 0
        weight = np.where(some, kept.weight, 1.0)
        mean = kept.total / weight
        effective = np.where(some, weight * weight / np.where(some, kept.squared_weight, 1.0), 0.0)
        effective = np.floor(effective + 1e-6)
        deviations = np.maximum(kept.squares / weight - mean * mean, 0.0) * effective * grid.resolution**2
        value = np.where(some, grid.lower + (mean + grid.span // 2) * grid.resolution, np.nan)
        return OwnSamples(
            agent=agent, count=effective.astype(np.int64), mean=value, squared_deviations=np.asarray(deviations)
        )

    def _weighed(self, rows: Columns, agent: Ints) -> WeighedSamples:
        """Weigh all samples of some agents as their next release will, if there are new ones."""
        names = ("count", "total", "squares_high", "squares_low")
        now = SumsNow(*(rows[name][agent] for name in names))
        turn = rows["turn"][agent]
        if self.times is not None:
            seen = np.where(rows["count"][agent] > 0, rows["seen"][agent], 0.0)
            turn = np.floor_divide(seen, self.times.seconds).astype(np.int64)
        kept = self._kept(rows, agent, rows["released"][agent] + 1, now, self._waited(rows, agent, turn))
        new = now.number > rows["released_count"][agent]
        before = {"weight": _SUMS + "weight", "squared_weight": _SUMS + "squared_weight"}
        before |= {"total": "kept_total", "squares": "kept_squares"}
        return WeighedSamples(*(np.where(new, getattr(kept, n), rows[before[n]][agent]) for n in kept._fields))

    def _waited(self, rows: Columns, agent: Ints, turn: Ints) -> Ints | None:
        """Count the turns that went by since the release before without one."""
        if self.times is None:
            return None
        return np.where(rows["released"][agent] > 0, np.maximum(turn - rows["turn"][agent] - 1, 0), 0)

    def _kept(self, rows: Columns, agent: Ints, index: Ints, now: SumsNow, waited: Ints | None) -> WeighedSamples:
        """Decay what was kept, add what is new."""
        decay = self.sums.decay(index, waited)
        number = (now.number - rows["released_count"][agent]).astype(np.float64)
        total = now.total - rows["marked_total"][agent]
        squares = (now.squares_high - rows["marked_high"][agent]) * float(SQUARES_BASE)
        squares = squares + (now.squares_low - rows["marked_low"][agent])
        centered = (total - (now.number - rows["released_count"][agent]) * (self.grid.span // 2)).astype(np.float64)
        return WeighedSamples(
            weight=decay * rows[_SUMS + "weight"][agent] + number,
            squared_weight=decay * decay * rows[_SUMS + "squared_weight"][agent] + number,
            total=decay * rows["kept_total"][agent] + centered,
            squares=decay * rows["kept_squares"][agent] + squares,
        )

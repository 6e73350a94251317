"""An agent's own sums at moments, and where no moment can be that of a change of its mean."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from meanstream.operators.agents.state_columns import PRIVATE, Column, Columns, Table, chunks
from meanstream.operators.records import Bools, Floats, Ints

SQUARES_BASE = np.int64(1) << 62
"""Sums of squares are kept exactly, in two words of this base."""
BLOCK = 16
"""Samples between two tests of an agent."""
LEAST = 8
"""Samples of a segment, at least: of fewer nothing is known of how much they vary."""
LEAST_VARIANCE = 1 / 12
"""Of rounding to the grid, in squared grid units."""
_ROUNDED = 1e-12
"""Of sums of squares: far more than what floats round them by."""
_SURELY = 0.999
"""Part of a bound under which no rounding of either computation reaches it."""
_CELLS = 1 << 15
"""Blocks and moments that are compared at once: they stay in the processor's cache."""
_EXACT = ("number", "total")


class OwnMoment(NamedTuple):
    """Private: what an agent had at some moment.

    Its samples, their sum, and the sum of squares around the middle.
    """

    number: Ints
    total: Ints
    squares: Floats

    @staticmethod
    def columns(which: str, shape: tuple[int, ...] = (), start: float = 0) -> Table:
        """One that is kept of each agent, or several; its number begins with `start`."""
        name = f"own_{which}_"
        of = "changes"
        return (
            Column(name + "number", np.int64, shape, start=start, privacy=PRIVATE, of=of),
            Column(name + "total", np.int64, shape, privacy=PRIVATE, of=of),
            Column(name + "squares", np.float64, shape, privacy=PRIVATE, of=of),
        )

    @classmethod
    def of(cls, rows: Columns, which: str, agent: Ints) -> OwnMoment:
        """Read one that is kept of some agents."""
        number, total, squares = (rows[f"own_{which}_{name}"][agent] for name in cls._fields)
        return cls(number, total, squares)

    def put(self, rows: Columns, which: str, agent: Ints) -> None:
        """Keep it for some agents."""
        for name, values in zip(self._fields, self, strict=True):
            rows[f"own_{which}_{name}"][agent] = values

    def take(self, which: Any) -> OwnMoment:
        """Select by an index."""
        return OwnMoment(self.number[which], self.total[which], self.squares[which])


class SumsNow(NamedTuple):
    """Private: exact sums of all samples of some agents at a moment, in grid units, and event time.

    Squares are around the middle of the grid, in two words.
    """

    number: Ints
    total: Ints
    squares_high: Ints
    squares_low: Ints
    time: Floats

    @classmethod
    def of(cls, rows: Columns, agent: Ints) -> SumsNow:
        """What some agents have now."""
        names = ("count", "total", "squares_high", "squares_low", "seen")
        return cls(*(rows[name][agent] for name in names))

    @property
    def moment(self) -> OwnMoment:
        """The same for a test of changes."""
        squares = self.squares_high * float(SQUARES_BASE) + self.squares_low
        return OwnMoment(self.number, self.total, np.asarray(squares, np.float64))

    def take(self, part: slice) -> SumsNow:
        """Select some of the agents."""
        columns: list[Any] = [column[part] for column in self]
        return SumsNow(*columns)


def own_threshold(number: Ints | Floats) -> Floats:
    """Give the likelihood ratio that is a change, among that many samples."""
    return np.asarray(8.0 + 2.0 * np.log(np.maximum(number / BLOCK, 1.0)))


def own_doubts(rows: Columns, agent: Ints, now: OwnMoment, middle: int) -> Bools:
    """Say of which blocks the ratio of some split may exceed the threshold.

    Of the others it cannot.

    Parameters
    ----------
    rows : dict
        The agents' state (`OwnChanges`) before the first of the blocks.
    agent : int array, shape (m,)
        Distinct agents.
    now : OwnMoment
        At the ends of some blocks in a row of each, shape (m, n).
    middle : int
        The middle of the grid of the samples.

    Returns
    -------
    bool array, shape (m, n)

    Notes
    -----
    **Privacy.** It reads raw samples, for the agent's own answer only.

    The larger of two variances is at least the pooled one. So with `D` the squared deviations of
    all samples since the start from their mean, a ratio of more than `T` among `n` samples takes
    squared deviations of the two means of more than `D (1 - exp(-T / n))`: numbers and sums of each
    moment are enough, and one `D` of each block.
    """
    doubts = np.empty(now.number.shape, np.bool_)
    start = OwnMoment.of(rows, "start", agent).take((slice(None), np.newaxis))
    moments = rows["own_past_number"].shape[1] + now.number.shape[1]
    for chunk in chunks(len(agent), max(1, _CELLS // (moments * now.number.shape[1]))):
        doubts[chunk] = _doubts(rows, agent[chunk], start.take(chunk), now.take(chunk), middle)

    return doubts


def _doubts(rows: Columns, agent: Ints, start: OwnMoment, now: OwnMoment, middle: int) -> Bools:
    number = now.number - start.number
    whole = now.total - start.total
    n = np.maximum(number, BLOCK).astype(np.float64)
    mean = whole / n
    share = own_threshold(n) / n
    centered = (whole - number * middle).astype(np.float64)
    deviations = now.squares - start.squares - centered * centered / n - _ROUNDED * now.squares
    least = (n - 2.0) * np.expm1(share) * LEAST_VARIANCE  # rounding alone varies by as much
    limit = np.maximum(deviations * -np.expm1(-share), least) * _SURELY / n
    reached = limit * n

    numbers, sums = (
        np.column_stack([rows["own_past_" + name][agent], rows["own_marked_" + name][agent]])
        for name in _EXACT
    )
    exceeds = _apart(numbers, sums, start, mean, limit) > reached[..., np.newaxis]
    doubts = exceeds.any(axis=-1)
    blocks = np.arange(now.number.shape[1])

    if len(blocks) > 1:  # the ends of the blocks before are moments, too
        exceeds = (
            _apart(now.number[:, :-1], now.total[:, :-1], start, mean, limit)
            > reached[..., np.newaxis]
        )
        doubts |= (exceeds & (blocks[:-1] < blocks[:, np.newaxis])).any(axis=-1)

    return np.asarray(doubts)


def _apart(number: Ints, total: Ints, start: OwnMoment, mean: Floats, limit: Floats) -> Floats:
    """Compare the means before moments, (m, k), with the mean of all samples, (m, n).

    Of a change it is `limit * n`.

    With `c` samples before, `n` in all and `d` between these two means, the two parts' means have
    squared deviations of `d**2 c n / (n - c)`, more than `limit * n` if and only if
    `c (d**2 + limit)` is.
    """
    before = number - start.number
    count = np.where(before >= LEAST, before, 0).astype(np.float64)
    apart = ((total - start.total) / np.maximum(count, 1.0))[:, np.newaxis] - mean[..., np.newaxis]
    apart *= apart
    apart += limit[..., np.newaxis]
    apart *= count[:, np.newaxis]

    return apart

"""Whether an agent's own mean has changed: a test on its own samples, for that agent only; it begins anew after one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from meanstream.operators.counters.base import counter_lowest_bit
from meanstream.operators.records import Floats, Ints

BLOCK = 16
"""Samples between two tests of an agent."""
LEAST = 8
"""Samples of a segment, at least: of fewer nothing is known of how much they vary."""
ORDERS, EACH = 10, 3
"""Of each power of two up to 512 the three newest blocks whose number it divides: past moments of many ages."""
_PLACES = ORDERS * EACH
UNDONE = 12.0
"""Statistic of the newest change, on all samples since, under which there was none after all."""
_LEAST_VARIANCE = 1 / 12
"""Of rounding to the grid, in squared grid units."""
_COLUMN = (slice(None), np.newaxis)
Columns = dict[str, np.ndarray]


class OwnMoment(NamedTuple):
    """Private: what an agent had at some moment: its samples, their sum, and the sum of squares around the middle."""

    number: Ints
    total: Ints
    squares: Floats

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


class Tested(NamedTuple):
    """Private: what a test of some agents has found.

    Attributes
    ----------
    undone, changed : int array
        Places of those whose newest change was none, and of those whose mean has changed.
    since : OwnMoment
        Of each of `changed` the moment after which the new mean holds.
    """

    undone: Ints
    changed: Ints
    since: OwnMoment


@dataclass(frozen=True, slots=True)
class OwnChanges:
    """Tests each agent's samples for a change of their mean, after every `BLOCK` of them.

    Parameters
    ----------
    middle : int
        The middle of the grid of the samples.

    Notes
    -----
    **Privacy.** It reads an agent's raw samples; what it finds goes into this agent's own answer and nowhere else.

    A generalized likelihood ratio test of two normal segments against one, with the larger of the two segments'
    variances, which keeps rare events from looking like a change; the largest statistic of all moments that are kept
    is compared with 8 + 2 log(blocks). Moments are kept in a pyramid: many of the recent past, few of the remote one.
    After a change all that lies before it is left out, until the samples since say that there was none. It looks at
    numbers of samples, never at batches or clocks.

    References
    ----------
    Siegmund, Venkatraman (1995), "Using the generalized likelihood ratio statistic for sequential detection of a
    change-point". Aggarwal, Han, Wang, Yu (2003), "A framework for clustering evolving data streams", for the pyramid.
    """

    middle: int

    def columns(self, n: int) -> Columns:
        """State of `n` agents that have seen nothing."""
        return {
            "own_due": np.full(n, BLOCK, np.int64),
            "own_start_number": np.zeros(n, np.int64),
            "own_start_total": np.zeros(n, np.int64),
            "own_start_squares": np.zeros(n),
            "own_marked_number": np.zeros(n, np.int64),
            "own_marked_total": np.zeros(n, np.int64),
            "own_marked_squares": np.zeros(n),
            "own_origin_number": np.full(n, -1, np.int64),
            "own_origin_total": np.zeros(n, np.int64),
            "own_origin_squares": np.zeros(n),
            "own_past_number": np.zeros((n, _PLACES), np.int64),
            "own_past_total": np.zeros((n, _PLACES), np.int64),
            "own_past_squares": np.zeros((n, _PLACES)),
        }

    def test(self, rows: Columns, agent: Ints, now: OwnMoment) -> Tested:
        """Test some agents that have come to the end of a block.

        Parameters
        ----------
        rows : dict
            The agents' state; changed in place.
        agent : int array, shape (m,)
            Distinct agents.
        now : OwnMoment
            Of each.
        """
        undone = self._undo(rows, agent, now)
        start, past = self._moments(rows, agent)
        ratio = self._ratio(start, past, now)
        best = np.argmax(ratio, axis=1)
        blocks = (now.number - start.number[:, 0]) / BLOCK
        changed = np.flatnonzero(ratio[np.arange(len(agent)), best] > 8.0 + 2.0 * np.log(np.maximum(blocks, 1.0)))
        since = past.take((changed, best[changed]))
        OwnMoment.of(rows, "start", agent[changed]).put(rows, "origin", agent[changed])
        since.put(rows, "start", agent[changed])
        block = now.number // BLOCK
        order = np.minimum(counter_lowest_bit(block), ORDERS - 1)
        spacing = np.where(order == ORDERS - 1, order, order + 1)
        place = order * EACH + (block >> spacing) % EACH
        for name, values in zip(OwnMoment._fields, now, strict=True):
            rows[f"own_past_{name}"][agent, place] = values
        rows["own_due"][agent] = now.number + BLOCK
        return Tested(undone, changed, since)

    def _undo(self, rows: Columns, agent: Ints, now: OwnMoment) -> Ints:
        """Take back changes that the samples since do not bear out; give the places of whose."""
        place = np.flatnonzero(rows["own_origin_number"][agent] >= 0)
        if not len(place):
            return place
        a = agent[place]
        origin, start = (OwnMoment.of(rows, which, a) for which in ("origin", "start"))
        ratio = self._ratio(origin.take(_COLUMN), start.take(_COLUMN), now.take(place))[:, 0]
        undone = np.flatnonzero(ratio < UNDONE)
        origin.take(undone).put(rows, "start", a[undone])
        rows["own_origin_number"][a[undone]] = -1
        return place[undone]

    @staticmethod
    def _moments(rows: Columns, agent: Ints) -> tuple[OwnMoment, OwnMoment]:
        """Give the start, and every moment that is kept; the one of the newest release is one of them."""
        start, newest = (OwnMoment.of(rows, which, agent).take(_COLUMN) for which in ("start", "marked"))
        past = OwnMoment.of(rows, "past", agent)
        number, total, squares = (np.concatenate(both, axis=1) for both in zip(past, newest, strict=True))
        return start, OwnMoment(number, total, squares)

    def _ratio(self, start: OwnMoment, past: OwnMoment, now: OwnMoment) -> Floats:
        """Twice the log likelihood ratio of a change at each moment; 0 where there was none since the start."""
        some = (past.number >= start.number + LEAST) & (past.number <= now.number[:, np.newaxis] - LEAST)
        current = now.take(_COLUMN)
        before, mean_before, spread_before = self._segment(start, past, some)
        after, mean_after, spread_after = self._segment(past, current, some)
        variance = np.maximum(np.maximum(spread_before, spread_after), _LEAST_VARIANCE)
        square = (mean_before - mean_after) ** 2 / (variance * (1.0 / before + 1.0 / after))
        number = before + after
        return np.asarray(np.where(some, number * np.log1p(square / (number - 2.0)), 0.0))

    def _segment(self, first: OwnMoment, last: OwnMoment, some: np.ndarray) -> tuple[Floats, Floats, Floats]:
        """Give number, mean less the middle, and variance of the samples between two moments."""
        number = np.where(some, last.number - first.number, LEAST)
        total = np.where(some, last.total - first.total - number * self.middle, 0).astype(np.float64)
        mean = total / number
        spread = np.where(some, last.squares - first.squares, 0.0) - total * mean
        return number.astype(np.float64), mean, np.maximum(spread, 0.0) / (number - 1.0)

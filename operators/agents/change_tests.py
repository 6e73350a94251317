"""Whether an agent's own mean has changed.

A test on its own samples, for that agent only; it restarts after one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from meanstream.operators.agents.own_moments import (
    BLOCK,
    LEAST,
    LEAST_VARIANCE,
    OwnMoment,
    own_doubts,
    own_threshold,
)
from meanstream.operators.agents.state_columns import PUBLIC, Column, Columns, Table, chunks
from meanstream.operators.counters.base import counter_lowest_bit
from meanstream.operators.records import AnyInts, Bools, Floats, Ints

ORDERS = 10
EACH = 3
"""Of each power of two up to 512 the three newest blocks whose number it divides: past moments of
many ages."""
UNDONE = 12.0
"""Statistic of the newest change, on all samples since, under which there was none after all."""
SPELLS = 64.0
"""Samples that come in spells say less of a mean than as many independent ones, by this factor at
most."""
_STDERRS = 3.0
"""So many standard errors above 1 their factor is believed: independent samples are tested as
such."""
_TOGETHER = 1000
"""Agents that are tested at once: what is computed of them stays in the processor's cache."""
_FEW = 32
"""Agents that are tested without asking first of whom a test may find something: each call costs
more than they do."""
_COLUMN = (slice(None), np.newaxis)


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

    A generalized likelihood ratio test of two normal segments against one, with the larger of the
    two segments' variances, which keeps rare events from looking like a change; the largest
    statistic of all moments that are kept is compared with 8 + 2 log(blocks). Moments are kept in a
    pyramid: many of the recent past, few of the remote one. Where the means between them vary by
    more than independent samples can, as in spells or by the hour of the day, the statistic is of
    that many samples fewer: by the ratio of the two variances, up to 64. What lies before the
    newest change but one is left out of that. After a change all that lies before it is left out,
    until the samples since say that there was none. It looks at numbers of samples, never at
    batches or clocks.

    References
    ----------
    Siegmund, Venkatraman (1995), "Using the generalized likelihood ratio statistic for sequential detection of a
    change-point". Aggarwal, Han, Wang, Yu (2003), "A framework for clustering evolving data streams", for the pyramid.
    """

    middle: int

    columns: ClassVar[Table] = (
        Column("own_due", np.int64, start=BLOCK, privacy=PUBLIC, of="changes"),
        *OwnMoment.columns("start"),
        *OwnMoment.columns("marked"),
        *OwnMoment.columns("origin", start=-1),
        Column("own_past_number", np.int64, (ORDERS * EACH,), privacy=PUBLIC, of="changes"),
        *OwnMoment.columns("past", (ORDERS * EACH,))[1:],
    )

    def to_test(
        self, rows: Columns, agent: Ints, now: OwnMoment, blocks: Ints
    ) -> Iterator[tuple[Ints, OwnMoment]]:
        """Keep what some agents had at the ends of blocks.

        Give, in their order, those that are to be tested (`test`).

        At the others a test would find nothing; it must have been made before the next ones are
        requested.

        Parameters
        ----------
        rows : dict
            The agents' state; changed in place.
        agent : int array, shape (m,)
            Distinct agents.
        now : OwnMoment
            At the ends of some blocks in a row of each, shape (m, n).
        blocks : int array, shape (m,)
            How many of these count, 1 at least; the last of them stands in place of all that do
            not.

        Yields
        ------
        int array (k,), OwnMoment
            Distinct agents, and what each has at the end of a block.
        """
        blocks_of_row = np.arange(now.number.shape[1])
        agents = np.broadcast_to(agent[:, np.newaxis], now.number.shape)

        # Most blocks are quiet, and their moments are kept without a test.
        doubts = self.doubts(rows, agent, now)
        if not doubts.any():
            self._keep(rows, agents, now)
            return

        doubts &= blocks_of_row < blocks[:, np.newaxis]

        # Within a turn no agent is tested twice: a test may move the start of the next one.
        turn: Ints = np.cumsum(doubts, axis=1) - doubts  # tests before each block
        test_number = 0
        while True:
            quiet = (turn == test_number) & ~doubts
            self._keep(rows, agents[quiet], now.take(quiet))
            place, block = np.nonzero((turn == test_number) & doubts)
            if not len(place):
                return

            # Tests in parts, as what they compare grows with the number of moments.
            start = rows["own_start_number"][agent[place]]
            for chunk in chunks(len(place), _TOGETHER):
                yield agent[place[chunk]], now.take((place[chunk], block[chunk]))

            # Whose start has moved is tested at all blocks that follow.
            another = rows["own_start_number"][agent[place]] != start
            place, block = (
                place[another],
                block[another, np.newaxis],
            )  # of these all blocks that follow are tested
            doubts[place] |= (blocks_of_row > block) & (blocks_of_row < blocks[place, np.newaxis])
            turn[place] = np.where(
                blocks_of_row > block, test_number + blocks_of_row - block, turn[place]
            )
            test_number += 1

    def doubts(self, rows: Columns, agent: Ints, now: OwnMoment) -> Bools:
        """Say of which blocks a test may find something, shape (m, n); see `to_test`."""
        doubts = own_doubts(rows, agent, now, self.middle)

        # Agents with a change that may be taken back are in doubt while it is not borne out.
        revocable = np.broadcast_to(rows["own_origin_number"][agent, np.newaxis] >= 0, doubts.shape)
        if revocable.any():
            owners = np.broadcast_to(agent[:, np.newaxis], doubts.shape)[revocable]
            each = now.take(revocable)
            origin, start = (OwnMoment.of(rows, name, owners) for name in ("origin", "start"))
            square = self._squares(origin.take(_COLUMN), start.take(_COLUMN), each)[:, 0]
            doubts[revocable] |= self._ratio(each.number - origin.number, square) < UNDONE * SPELLS

        return doubts

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
        # A change is taken back before another one is looked for.
        undone = self._undo(rows, agent, now)
        tested = np.arange(len(agent))

        # Few agents are tested outright; of many only those in doubt.
        if len(tested) > _FEW:
            tested = np.flatnonzero(own_doubts(rows, agent, now.take(_COLUMN), self.middle))

        changed, since = self._changed(rows, agent[tested], now.take(tested))

        # The start before the change is kept, in case it must be taken back.
        changed = tested[changed]
        OwnMoment.of(rows, "start", agent[changed]).put(rows, "origin", agent[changed])
        since.put(rows, "start", agent[changed])
        self._keep(rows, agent, now)

        return Tested(undone, changed, since)

    @staticmethod
    def _keep(rows: Columns, agent: Ints, now: OwnMoment) -> None:
        """Keep moments at the ends of blocks; of those of one agent the last comes last."""
        # Moments thin out with age: each order has as many places, twice as far apart.
        block = now.number // BLOCK
        order = np.minimum(counter_lowest_bit(block), ORDERS - 1)
        spacing = np.where(order == ORDERS - 1, order, order + 1)
        place = order * EACH + (block >> spacing) % EACH

        for name, values in zip(OwnMoment._fields, now, strict=True):
            rows[f"own_past_{name}"][agent, place] = values

        rows["own_due"][agent] = now.number + BLOCK

    def _changed(self, rows: Columns, agent: Ints, now: OwnMoment) -> tuple[Ints, OwnMoment]:
        """Give the places of those whose mean has changed, and when."""
        start, past = self._moments(rows, agent)
        square = self._squares(start, past, now)

        # The moment whose two sides differ most.
        best = np.argmax(square, axis=1)  # the ratio grows with it
        number = now.number - start.number[:, 0]
        square, threshold = square[np.arange(len(agent)), best], own_threshold(number)
        number = np.maximum(number, BLOCK)
        candidates = np.flatnonzero(self._ratio(number, square) > threshold)
        moments = past.take((candidates, best[candidates]))

        # Samples that depend on each other vary more: the ratio is divided by as much.
        fewer = self._spells(rows, agent[candidates], now.take(candidates), moments.number)
        changed = (
            self._ratio(number[candidates], square[candidates] / fewer) > threshold[candidates]
        )

        return candidates[changed], moments.take(changed)

    def _undo(self, rows: Columns, agent: Ints, now: OwnMoment) -> Ints:
        """Take back changes that the samples since do not bear out; give the places of whose."""
        place = np.flatnonzero(rows["own_origin_number"][agent] >= 0)
        if not len(place):
            return place
        a = agent[place]
        origin, start = (OwnMoment.of(rows, name, a) for name in ("origin", "start"))
        square = self._squares(origin.take(_COLUMN), start.take(_COLUMN), now.take(place))[:, 0]
        number = now.number[place] - origin.number

        # Only few are doubtful, and the factor of dependence is computed for them alone.
        doubtful = np.flatnonzero(self._ratio(number, square) < UNDONE * SPELLS)
        rows_in_doubt = place[doubtful]
        square[doubtful] /= self._spells(
            rows, agent[rows_in_doubt], now.take(rows_in_doubt), now.number[rows_in_doubt]
        )
        undone = np.flatnonzero(self._ratio(number, square) < UNDONE)

        # The start goes back to where it was.
        origin.take(undone).put(rows, "start", a[undone])
        rows["own_origin_number"][a[undone]] = -1

        return place[undone]

    @staticmethod
    def _moments(rows: Columns, agent: Ints) -> tuple[OwnMoment, OwnMoment]:
        """Give the start, and every moment that is kept.

        The one of the newest release is one of them.
        """
        start, newest = (
            OwnMoment.of(rows, name, agent).take(_COLUMN) for name in ("start", "marked")
        )
        past = OwnMoment.of(rows, "past", agent)
        number, total, squares = (
            np.concatenate(arrays, axis=1) for arrays in zip(past, newest, strict=True)
        )

        return start, OwnMoment(number, total, squares)

    def _squares(self, start: OwnMoment, past: OwnMoment, now: OwnMoment) -> Floats:
        """Squared difference of the means before and after each moment over its variance.

        0 where there is none.
        """
        number = now.number[:, np.newaxis] - start.number
        before = past.number - start.number

        # Both sides need some samples, or their variances say nothing.
        valid = (before >= LEAST) & (before <= number - LEAST)
        before = np.where(valid, before, 2)
        after = np.where(valid, number - before, 2)
        whole = now.total[:, np.newaxis] - start.total - number * self.middle

        total = (past.total - start.total - before * self.middle).astype(np.float64)
        before, after = (
            before.astype(np.float64),
            after.astype(np.float64),
        )  # once: numbers below 2**53 stay the same
        total_after = whole - total

        # Variances before and after; the larger one counts, so that a calm side makes no change
        # certain.
        squares = past.squares - start.squares
        mean = total / before
        mean_after = total_after / after
        total *= mean
        variance = (squares - total) / (before - 1.0)

        total_after *= mean_after
        after_variance = now.squares[:, np.newaxis] - start.squares - squares
        after_variance -= total_after
        after_variance /= after - 1.0
        np.maximum(variance, after_variance, out=variance)
        np.maximum(variance, LEAST_VARIANCE, out=variance)

        # n0 n1 (m0 - m1)^2 / (n v).
        variance *= number
        mean -= mean_after
        mean *= mean
        mean *= before
        mean *= after
        mean /= variance
        mean[~valid] = 0.0

        return mean

    def _spells(self, rows: Columns, agent: Ints, now: OwnMoment, change: Ints) -> Floats:
        """Give by how much the means between the moments vary more than those of independent samples; 1 at least.

        Each of the spans that the newest two changes and `change`, a number of samples, part has a
        mean of its own; what lies next to one of these may be mixed, and is left out, as is what
        lies before both.
        """
        if not len(agent):  # nearly always: whom nothing is found of is not asked about
            return np.ones(0)
        start, past = self._moments(rows, agent)
        every = [
            np.concatenate([past_values, newest_values[:, np.newaxis]], axis=1)
            for past_values, newest_values in zip(past, now, strict=True)
        ]

        # Moments in the order of time; differences between neighbors are blocks of samples.
        order = np.argsort(every[0], axis=1)
        ends = OwnMoment(*(np.take_along_axis(values, order, axis=1) for values in every))
        count, total, squares = (np.diff(values, axis=1).astype(np.float64) for values in ends)
        total -= count * self.middle

        begin = ends.number[:, :-1]
        end = ends.number[:, 1:]
        origin = rows["own_origin_number"][agent, np.newaxis]

        # A block counts if no change lies within it.
        valid = (count >= LEAST) & (begin >= origin)
        span = np.zeros(count.shape, np.int8)

        for cut in (origin, start.number, change[:, np.newaxis]):
            valid &= (begin > cut) | (cut > end) | (cut <= 0)
            span += end > cut

        span[~valid] = 0
        count, total, squares = (np.where(valid, values, 0.0) for values in (count, total, squares))

        # Variance within blocks; that of their means between changes is more where they depend.
        mean = total / np.maximum(count, 1.0)
        within = (squares - total * mean).sum(axis=1) / np.maximum((count - valid).sum(axis=1), 1.0)
        between, freedom = _between_blocks(span, count, mean)
        factor = between / freedom / np.maximum(within, LEAST_VARIANCE)

        # Means that vary more than chance explains make the factor; else it is 1.
        believed = factor > 1.0 + _STDERRS * np.sqrt(2.0 / freedom)
        return np.asarray(np.where(believed, np.minimum(factor, SPELLS), 1.0))

    @staticmethod
    def _ratio(number: Ints, square: Floats) -> Floats:
        """Twice the log likelihood ratio of a change among that many samples."""
        return np.asarray(number * np.log1p(square / (number - 2.0)))


def _between_blocks(span: AnyInts, count: Floats, mean: Floats) -> tuple[Floats, Floats]:
    """Squared deviations of blocks' means from those of their spans, and degrees of freedom, 1 at least.

    A block is in one of three spans; in span 0 it counts for nothing.
    """
    squares = np.zeros(len(span))
    freedom = np.zeros(len(span))

    for number in range(1, 4):
        inside = span == number
        weight = np.where(inside, count, 0.0)
        middle = (weight * mean).sum(axis=1) / np.maximum(weight.sum(axis=1), 1.0)
        squares += (weight * (mean - middle[:, np.newaxis]) ** 2).sum(axis=1)
        freedom += np.maximum(inside.sum(axis=1) - 1, 0)

    return squares, np.maximum(freedom, 1.0)

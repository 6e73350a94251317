"""Means of agents over a sliding window: noised slots, what is released of them, own samples."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from meanstream.operators.agents.agent_memory import Memory
from meanstream.operators.agents.change_tests import OwnChanges
from meanstream.operators.agents.half_life_memory import (
    REFLECTED,
    ROUNDED,
    SUMS,
    TOLD_COUNT,
    TOLD_TOTAL,
    TOLD_VARIANCE,
    TURN,
    Outlook,
    ReleasedSums,
    keep_release,
    sample_bound,
)
from meanstream.operators.agents.own_moments import OwnMoment, SumsNow
from meanstream.operators.agents.release_times import Every, Steady
from meanstream.operators.agents.released_change_tests import MOVED, drift_of_ratio
from meanstream.operators.agents.state_columns import (
    PRIVATE,
    PUBLIC,
    Column,
    Columns,
    Table,
    columns_of_counter,
    columns_under,
    declared_columns,
    empty_columns,
    prefixed_columns,
)
from meanstream.operators.agents.vote_of_spread import SpreadVote
from meanstream.operators.counters.base import State
from meanstream.operators.counters.windowed import Sliding
from meanstream.operators.noise.distributions import GaussianNoise
from meanstream.operators.noise.fixed_point import FixedPoint
from meanstream.operators.records import Bools, Floats, Ints, OwnSamples


@dataclass(frozen=True, slots=True)
class NoisedWindow:
    """Sums of the noised increments that lie in a window, and begin again where the mean has changed.

    Increments are kept in slots, oldest first; what releases close together add is in one slot.

    Parameters
    ----------
    counter : Sliding
        Noise of sums of the newest increments.
    fresh : GaussianNoise
        Of one draw, in grid units.
    slots : int
        Slots of a row.
    tests : bool
        Test the releases for a change of the mean; sums leave out what was before one.

    Notes
    -----
    **Privacy.** Only exact integers are noised, and integers come out: release k publishes, in effect, the increment
    `x_k + round((C^{-1} fresh)_k)`. Which increments are added up follows from counts, times and what is public
    already. All releases are a function of `C x + fresh` (`Sliding`). At a turn without samples nothing is drawn.

    A candidate for a change splits the sum in two, after 1, 2, 4, ... of its newest slots; as
    `ReleaseChanges` does, it compares the squared difference of the two means with its variance,
    with the exact covariance of the noise.

    Examples
    --------
    >>> from meanstream.operators.counters.base import ENDLESS
    >>> sums = NoisedWindow(Sliding(ENDLESS, window=2), GaussianNoise(1000.0), slots=2)
    >>> from meanstream.operators.agents.state_columns import empty_columns
    >>> state, row = empty_columns(sums.columns, 1), np.array([0])
    >>> more = {"count": np.array([10]), "fresh": np.zeros(1), "joins": np.array([False])}
    >>> for k in (1, 2, 3):
    ...     told = sums.release(state, row, index=np.array([k]), total=np.array([700 * k]), sample=np.ones(1),
    ...                         left=np.zeros((1, 2), bool), **more)
    >>> told.count.tolist(), told.total.tolist()
    ([20], [3500])
    """

    counter: Sliding
    fresh: GaussianNoise
    slots: int
    tests: bool = True

    @property
    def columns(self) -> Table:
        """State of a row."""
        slots = declared_columns(
            ("counts", "noised", "parts"), np.int64, (self.slots,), privacy=PUBLIC, of="noise"
        )
        return (*slots, *columns_of_counter(self.counter))

    def release(
        self,
        state: State,
        rows: Ints,
        *,
        index: Ints,
        count: Ints,
        total: Ints,
        fresh: Floats,
        joins: Bools,
        left: Bools,
        sample: Floats,
    ) -> ReleasedSums:
        """Release once for each of some rows.

        Parameters
        ----------
        state : State
            With `columns`; changed in place.
        rows, index : int array, shape (m,)
            Distinct rows, and the number of this release of each, from 1.
        count, total : int array, shape (m,)
            Samples since the release before, and their exact sum in grid units.
        fresh : float array, shape (m,)
            One draw each.
        joins : bool array, shape (m,)
            Whether the increment belongs to the newest slot; else it begins one.
        left : bool array, shape (m, slots)
            Slots that have left the window, once there is room for a new one.
        sample : float array, shape (m,)
            Public bound on the variance of a sample, in squared grid units.
        """
        increment = total + np.rint(self.counter.increment(state, rows, fresh)).astype(np.int64)
        slots = {}
        for name, newest in (
            ("counts", count),
            ("noised", increment),
            ("parts", np.ones_like(count)),
        ):
            slots[name] = slots_with_room(state[name][rows], joins)
            slots[name][:, -1] += newest
            slots[name][left] = 0

        drift = (
            self._reset_changed(slots, index, sample)
            if self.tests
            else np.zeros(len(rows), np.int64)
        )

        for name, values in slots.items():
            state[name][rows] = values

        parts = slots["parts"].sum(axis=1)
        variance = self._covariance(parts, parts, index) * self.fresh.variance + ROUNDED * parts
        return ReleasedSums(
            slots["counts"].sum(axis=1), slots["noised"].sum(axis=1), variance, drift, index - parts
        )

    def _reset_changed(self, kept: State, index: Ints, sample: Floats) -> Ints:
        """Clear the slots before a change; say of each row whether there was one."""
        newest_first = [
            np.cumsum(kept[name][:, ::-1], axis=1) for name in ("counts", "noised", "parts")
        ]
        largest = np.zeros(len(index))
        best = np.zeros(len(index), np.int64)
        newest = 1

        while newest < self.slots:
            ratio = self._ratio(newest_first, newest, index, sample)
            best = np.where(ratio > largest, newest, best)
            largest = np.maximum(largest, ratio)
            newest *= 2

        drift = drift_of_ratio(largest)
        keep = np.where(drift == MOVED, best, self.slots)
        before_change = np.arange(self.slots) < self.slots - keep[:, np.newaxis]
        for values in kept.values():
            values[before_change] = 0

        return drift

    def _ratio(self, sums: list[Ints], newest: int, index: Ints, sample: Floats) -> Floats:
        """Squared difference of the means of the newest slots and of the others over its variance.

        0 where one of both has no samples. `sums` are those of the newest slots, by their number.
        """
        counts, noised, parts = ((column[:, newest - 1], column[:, -1]) for column in sums)
        before = counts[1] - counts[0]
        valid = (counts[0] > 0) & (before > 0)
        a, c = (1.0 / np.where(valid, number, 1) for number in (counts[0], before))
        difference = noised[0] * a - (noised[1] - noised[0]) * c

        # The difference is (a + c) New - c All.
        new, every = (np.where(valid, part, 1) for part in parts)
        weight = a + c
        noise = weight * weight * self._covariance(new, new, index)
        noise = noise + c * c * self._covariance(every, every, index)
        noise = noise - 2.0 * c * weight * self._covariance(new, every, index)
        ratio = difference * difference / (self.fresh.variance * noise + sample * weight)

        return np.where(valid, ratio, 0.0)

    def _covariance(self, first: Ints, second: Ints, index: Ints) -> Floats:
        """Covariance of the noises of the newest that many increments, row by row, in draws."""
        covariance = np.zeros(len(index))
        pairs = first * (second.max(initial=0) + 1) + second
        for pair in np.unique(pairs):
            alike = np.flatnonzero(pairs == pair)
            covariance[alike] = self.counter.part_covariance(
                int(first[alike[0]]), int(second[alike[0]]), index[alike]
            )

        return covariance


def slots_with_room(slots: np.ndarray, joins: Bools) -> np.ndarray:
    """Copy slots, each row a place to the left where a new one begins.

    The newest is empty there.
    """
    moved = np.concatenate([slots[:, 1:], np.zeros_like(slots[:, :1])], axis=1)
    return np.where(joins[:, np.newaxis], slots, moved)


_SLOT = "kept_"
"""Of columns with what an agent had when a slot began."""


@dataclass(frozen=True, slots=True)
class KeptWindow:
    """Columns of agents whose samples weigh alike while they lie in the window, and nothing after it.

    Parameters
    ----------
    sums : NoisedWindow
        What is released.
    length : int
        Of the window: in samples of the agent, or in turns of the schedule `times`.
    gap : int
        Most samples in a slot of several releases, where the window counts samples.
    times : Every or None
        The schedule if the window is of event time: a slot is a turn then.
    grid : FixedPoint
        Of the samples.
    vote : SpreadVote or None
        The votes on what a sample varies by, if there are any.

    Notes
    -----
    **Privacy.** Each column says whether it is private to the agent. A slot leaves as a whole, when its first sample
    does: at a number of samples or at a turn, which are public. An agent that is silent
    releases nothing, and what it has said last stays as it is.

    An agent's own samples are those of its releases and all that are newer, less what lies before
    the newest change of its own mean (`OwnChanges`).
    """

    sums: NoisedWindow
    length: int
    gap: int
    times: Every | None
    grid: FixedPoint
    vote: SpreadVote | None = None

    @classmethod
    def of(
        cls,
        memory: Memory,
        times: Steady | Every,
        *,
        counter: Sliding,
        fresh: GaussianNoise,
        grid: FixedPoint,
        vote: SpreadVote | None,
    ) -> KeptWindow:
        """Make it for a memory and the times of releases that go with it."""
        if isinstance(times, Every):
            length = counter.window
            return cls(NoisedWindow(counter, fresh, length), length, 0, times, grid, vote)

        length = int(memory.samples or 1)
        # Two slots next to each other have more samples than the gap: they would be one.
        slots = 2 * (length // (times.gap + 1)) + 1
        return cls(NoisedWindow(counter, fresh, slots), length, times.gap, None, grid, vote)

    @property
    def columns(self) -> Table:
        """The newest release, what each slot began with, the noised slots, own changes."""
        slots = (self.sums.slots,)
        begin = np.iinfo(np.int64).min
        return (
            *(TURN, TOLD_COUNT, TOLD_TOTAL, TOLD_VARIANCE),
            Column("slot_begin", np.int64, slots, start=begin, privacy=PUBLIC, of="memory"),
            Column(_SLOT + "number", np.int64, slots, privacy=PUBLIC, of="memory"),
            Column(_SLOT + "total", np.int64, slots, privacy=PRIVATE, of="memory"),
            Column(_SLOT + "squares", np.float64, slots, privacy=PRIVATE, of="memory"),
            *prefixed_columns(SUMS, self.sums.columns),
            *self.changes.columns,
        )

    @property
    def changes(self) -> OwnChanges:
        """Private: what tests each agent's own mean."""
        return OwnChanges(self.grid.span // 2)

    def outlook(self, count: Ints) -> Outlook:
        """Public: what releases after these numbers of samples, each in a turn, hold of a mean that stays."""
        rows = empty_columns(self.columns, 1)
        agent = np.zeros(1, np.int64)
        nothing = np.zeros(1, np.int64)
        rows_told = []
        plain = replace(self, sums=replace(self.sums, tests=False), vote=None)

        for k, number in enumerate(count):
            sums = SumsNow(np.array([number]), nothing, nothing, nothing, np.zeros(1))
            index = np.array([k + 1])
            released = plain.release(
                rows, agent, index=index, now=sums, turn=index, fresh=np.zeros(1)
            )
            rows_told.append((released.count[0], released.count[0], released.variance[0]))

        return Outlook(*np.array(rows_told, np.float64).T)

    def effective(
        self,
        index: Ints,  # noqa: ARG002
        weight: Floats,
        squared_weight: Floats,  # noqa: ARG002
        more: Floats,  # noqa: ARG002, RUF100
    ) -> Floats:
        """Public: own samples in the window before this release, of those of the last one and some more."""
        return np.minimum(weight + more, float(self.length))

    def test(self, rows: Columns, agent: Ints, now: OwnMoment) -> None:
        """Ask of some agents at the end of a block whether their own mean has changed.

        The columns say since when.
        """
        self.changes.test(rows, agent, now)

    def release(
        self, rows: Columns, agent: Ints, *, index: Ints, now: SumsNow, turn: Ints, fresh: Floats
    ) -> ReleasedSums:
        """Release once for each of some agents; see `KeptSums.release`."""
        mark = OwnMoment.of(rows, "marked", agent)
        newest = rows["slot_begin"][agent, -1]
        if self.times is None:
            joins = (index > 1) & (now.number - newest <= self.gap)
            position = now.number
            begin = mark.number
        else:
            joins = newest == turn
            position = turn
            begin = turn

        starts = {
            "slot_begin": begin,
            **{_SLOT + name: values for name, values in zip(mark._fields, mark, strict=True)},
        }

        for name, values in starts.items():
            slots = slots_with_room(rows[name][agent], joins)
            slots[:, -1] = np.where(joins, slots[:, -1], values)
            rows[name][agent] = slots

        left = self._left(rows, agent, position)
        left[:, -1] = False
        released = self.sums.release(
            columns_under(SUMS, rows),
            agent,
            index=index,
            count=now.number - mark.number,
            total=now.total - mark.total,
            fresh=fresh,
            joins=joins,
            left=left,
            sample=sample_bound(rows, agent, self.vote, self.grid),
        )

        keep_release(rows, agent, released, turn, now)
        return released

    def begin(self, rows: Columns, agent: Ints) -> Ints:
        """Private: how many samples of some agents came before those that count."""
        return self._base(rows, agent, self._here(rows, agent)).number

    def _here(self, rows: Columns, agent: Ints) -> Ints:
        """Give the number of samples, or the turn of the newest of them."""
        if self.times is None:
            return np.asarray(rows["count"][agent], np.int64)
        new = rows["count"][agent] > rows["released_count"][agent]
        seen = np.where(new, rows["seen"][agent], 0.0)

        return np.where(new, self.times.turn(seen), rows["turn"][agent])

    def own(self, rows: Columns, agent: Ints) -> OwnSamples:
        """Private: the samples of some agents in their windows, without those before a change.

        For that agent only.
        """
        sums = SumsNow.of(rows, agent).moment
        released = rows["released_count"][agent] if self.times is None else rows["turn"][agent]

        base = self._base(rows, agent, self._here(rows, agent))
        middle = self.grid.span // 2
        number = sums.number - base.number
        n = np.maximum(number, 1).astype(np.float64)
        total = (sums.total - base.total - number * middle).astype(np.float64)
        value = self.grid.lower + (total / n + middle) * self.grid.resolution
        deviations = (
            np.maximum(sums.squares - base.squares - total * total / n, 0.0)
            * self.grid.resolution**2
        )
        in_release = rows["released_count"][agent] - self._base(rows, agent, released).number

        return OwnSamples(
            agent=agent,
            count=number,
            mean=np.where(number > 0, value, np.nan),
            squared_deviations=np.asarray(deviations),
            ahead=in_release < REFLECTED * rows["told_count"][agent],
        )

    def _left(self, rows: Columns, agent: Ints, here: Ints) -> Bools:
        """Public: which slots have left the window at a turn or a number of samples, shape (m, slots)."""
        begin = rows["slot_begin"][agent]
        limit = here[:, np.newaxis] - self.length
        return np.asarray(begin < limit if self.times is None else begin <= limit)

    def _base(self, rows: Columns, agent: Ints, here: Ints) -> OwnMoment:
        """Private: after which moment the samples lie in the window, and after the newest change."""
        inside = ~self._left(rows, agent, here)
        oldest = np.argmax(inside, axis=1)
        slot = OwnMoment(*(rows[_SLOT + name][agent, oldest] for name in OwnMoment._fields))

        any_inside = inside.any(axis=1)
        base = OwnMoment(
            *(
                np.where(any_inside, *arrays)
                for arrays in zip(slot, OwnMoment.of(rows, "marked", agent), strict=True)
            )
        )
        start = OwnMoment.of(rows, "start", agent)
        later = start.number > base.number

        return OwnMoment(*(np.where(later, *arrays) for arrays in zip(start, base, strict=True)))

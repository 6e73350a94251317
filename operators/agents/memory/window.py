"""The sums of agents that remember a sliding window.

Where their slots begin, and what they have released of them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from meanstream.operators.agents.agent_memory import Memory
from meanstream.operators.agents.change_tests import OwnChanges
from meanstream.operators.agents.memory.decay import ReleasedSums
from meanstream.operators.agents.memory.kept_sums import (
    REFLECTED,
    SUMS,
    Columns,
    Outlook,
    SumsNow,
    sample_bound,
)
from meanstream.operators.agents.memory.noised_window import NoisedWindow, slots_with_room
from meanstream.operators.agents.own_moments import OwnMoment
from meanstream.operators.agents.release_times import Every, Steady
from meanstream.operators.agents.vote_of_spread import SpreadVote
from meanstream.operators.counters.windowed import Sliding
from meanstream.operators.noise.distributions import GaussianNoise
from meanstream.operators.noise.fixed_point import FixedPoint
from meanstream.operators.records import Bools, Floats, Ints, OwnSamples

_SLOT = "kept_"
"""Of columns with what an agent had when a slot began."""
_NEVER = np.iinfo(np.int64).min


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
    **Privacy.** Columns that begin with `told_`, `sums_` or `slot_` are public, but `sums_increments`; the rest is
    private to the agent. A slot leaves as a whole, when its first sample does: at a number of samples or at a turn,
    which are public. An agent that is silent releases nothing, and what it has said last stays as it is.

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

    def columns(self, n: int) -> Columns:
        """State of `n` agents that have seen nothing."""
        slots = (n, self.sums.slots)
        return {
            **{name: np.zeros(n, np.int64) for name in ("turn", "told_count", "told_total")},
            "told_variance": np.zeros(n),
            "slot_begin": np.full(slots, _NEVER),  # turn or number of samples
            _SLOT + "number": np.zeros(slots, np.int64),
            _SLOT + "total": np.zeros(slots, np.int64),
            _SLOT + "squares": np.zeros(slots),
            **{SUMS + name: column for name, column in self.sums.init(n).items()},
            **self.changes.columns(n),
        }

    @property
    def changes(self) -> OwnChanges:
        """Private: what tests each agent's own mean."""
        return OwnChanges(self.grid.span // 2)

    def outlook(self, count: Ints) -> Outlook:
        """Public: what releases after these numbers of samples, each in a turn, hold of a mean that stays."""
        rows = self.columns(1)
        agent = np.zeros(1, np.int64)
        nothing = np.zeros(1, np.int64)
        found = []
        plain = replace(self, sums=replace(self.sums, tests=False), vote=None)

        for k, number in enumerate(count):
            now = SumsNow(np.array([number]), nothing, nothing, nothing)
            index = np.array([k + 1])
            told = plain.release(rows, agent, index=index, now=now, turn=index, fresh=np.zeros(1))
            found.append((told.count[0], told.count[0], told.variance[0]))

        return Outlook(*np.array(found, np.float64).T)

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
            here = now.number
            begin = mark.number
        else:
            joins = newest == turn
            here = turn
            begin = turn

        starts = {
            "slot_begin": begin,
            **{_SLOT + name: values for name, values in zip(mark._fields, mark, strict=True)},
        }

        for name, values in starts.items():
            slots = slots_with_room(rows[name][agent], joins)
            slots[:, -1] = np.where(joins, slots[:, -1], values)
            rows[name][agent] = slots

        left = self._left(rows, agent, here)
        left[:, -1] = False
        told = self.sums.release(
            {name: rows[SUMS + name] for name in self.sums.init(0)},
            agent,
            index=index,
            count=now.number - mark.number,
            total=now.total - mark.total,
            fresh=fresh,
            joins=joins,
            left=left,
            sample=sample_bound(rows, agent, self.vote, self.grid),
        )

        now.moment.put(rows, "marked", agent)
        rows["turn"][agent] = turn
        rows["told_count"][agent] = told.count
        rows["told_total"][agent] = told.total
        rows["told_variance"][agent] = told.variance

        return told

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
        now = SumsNow(
            *(rows[name][agent] for name in ("count", "total", "squares_high", "squares_low"))
        ).moment
        released = rows["released_count"][agent] if self.times is None else rows["turn"][agent]

        base = self._base(rows, agent, self._here(rows, agent))
        middle = self.grid.span // 2
        number = now.number - base.number
        n = np.maximum(number, 1).astype(np.float64)
        total = (now.total - base.total - number * middle).astype(np.float64)
        value = self.grid.lower + (total / n + middle) * self.grid.resolution
        deviations = (
            np.maximum(now.squares - base.squares - total * total / n, 0.0)
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
        first = here[:, np.newaxis] - self.length
        return np.asarray(begin < first if self.times is None else begin <= first)

    def _base(self, rows: Columns, agent: Ints, here: Ints) -> OwnMoment:
        """Private: after which moment the samples lie in the window, and after the newest change."""
        inside = ~self._left(rows, agent, here)
        oldest = np.argmax(inside, axis=1)
        slot = OwnMoment(*(rows[_SLOT + name][agent, oldest] for name in OwnMoment._fields))

        some = inside.any(axis=1)
        base = OwnMoment(
            *(
                np.where(some, *both)
                for both in zip(slot, OwnMoment.of(rows, "marked", agent), strict=True)
            )
        )
        start = OwnMoment.of(rows, "start", agent)
        later = start.number > base.number

        return OwnMoment(*(np.where(later, *both) for both in zip(start, base, strict=True)))

"""Means of agents with a half-life: sums that forget, what is released of them, own samples."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from meanstream.operators.agents.change_tests import OwnChanges
from meanstream.operators.agents.own_moments import OwnMoment, SumsNow
from meanstream.operators.agents.release_times import Every
from meanstream.operators.agents.released_change_tests import ReleaseChanges
from meanstream.operators.agents.state_columns import (
    PRIVATE,
    PUBLIC,
    Column,
    Columns,
    Table,
    columns_of_counter,
    columns_under,
    declared_columns,
    prefixed_columns,
)
from meanstream.operators.agents.vote_of_spread import SpreadVote
from meanstream.operators.counters.base import State
from meanstream.operators.counters.decayed import Decayed
from meanstream.operators.counters.windowed import Windowed
from meanstream.operators.noise.distributions import GaussianNoise
from meanstream.operators.noise.fixed_point import FixedPoint
from meanstream.operators.records import Floats, Ints, OwnSamples

ROUNDED = 1 / 12
"""Variance of what rounding to an integer adds."""


@dataclass(frozen=True, slots=True)
class ReleasedSums:
    """Public: what a release says.

    Attributes
    ----------
    count : int array
        Samples of equal weight whose mean would vary as much: the effective number.
    total : int array
        Sum in grid units of that many samples with the released mean.
    variance : float array
        Variance of the privacy noise in `total`, in squared grid units.
    drift, since : int array or None
        Whether the mean has changed (`ReleaseChanges`), and the number of the release after which
        the sum begins; None where no one asks.
    """

    count: Ints
    total: Ints
    variance: Floats
    drift: Ints | None = None
    since: Ints | None = None


def effective_counts(weight: Floats, squared_weight: Floats) -> Floats:
    """Public: effective numbers of samples, for sums of their weights and of the squares of these."""
    return np.maximum(np.floor(weight * weight / squared_weight + 1e-6), 1.0)


@dataclass(frozen=True, slots=True)
class DecayedSums:
    """Sums in which increments weigh less at each later release.

    Parameters
    ----------
    counter : Decayed
        Noise of the decayed sums.
    fresh : GaussianNoise
        Of one draw, in grid units.
    changes : ReleaseChanges, optional
        Tests the releases for a change of the mean; sums begin again after one. By default they
        never do.

    Notes
    -----
    **Privacy.** Only exact integers are noised, and integers come out: release k adds to what is public
    `x_k + round(noise_k - D_k noise_{k-1})`, the increment with the noise that turns decayed sums into decayed sums.
    The rest, decaying what was released before and scaling it to the effective count, is computed from public numbers.
    All releases are a function of `C x + fresh` (`Decayed`).

    Examples
    --------
    >>> from meanstream.operators.counters.base import ENDLESS
    >>> sums = DecayedSums(Decayed(ENDLESS, decay=0.5), GaussianNoise(1000.0))
    >>> from meanstream.operators.agents.state_columns import empty_columns
    >>> state, row = empty_columns(sums.columns, 1), np.array([0])
    >>> more = {"count": np.array([100]), "total": np.array([7000]), "fresh": np.zeros(1)}
    >>> for k in (1, 2, 3):
    ...     told = sums.release(state, row, index=np.array([k]), **more)
    >>> told.count.tolist(), (told.total / told.count).round().tolist()
    ([233], [70.0])
    """

    counter: Decayed
    fresh: GaussianNoise
    changes: ReleaseChanges | None = None

    @property
    def columns(self) -> Table:
        """State of a row."""
        weights = ("weight", "squared_weight")
        tested = () if self.changes is None else self.changes.columns
        return (
            *declared_columns(weights, np.float64, privacy=PUBLIC, of="noise"),
            Column("noise", np.float64, privacy=PRIVATE, of="noise"),
            Column("noised", np.int64, privacy=PUBLIC, of="noise"),
            *columns_of_counter(self.counter),
            *tested,
        )

    def decay(self, index: Ints, waited: Ints | None = None) -> Floats:
        """Give what these releases multiply the past by."""
        decay = self.counter.decays(index)

        if waited is None:
            return decay
        return decay * self.counter.waited(waited)

    def left_out(self, past: Floats) -> Floats:
        """Public: weight of what lies before the newest change, given what `changes` keeps of some rows."""
        if self.changes is None:
            return np.zeros(len(past))
        return self.changes.left_out(past)

    def release(
        self,
        state: State,
        rows: Ints,
        *,
        index: Ints,
        count: Ints,
        total: Ints,
        fresh: Floats,
        waited: Ints | None = None,
        sample: Floats | None = None,
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
        waited : int array, shape (m,), optional
            Turns that each has let pass since the release before.
        sample : float array, shape (m,), optional
            Public bound on the variance of a sample, in squared grid units; with `changes`, and
            only then.
        """
        decay = self.decay(index, waited)
        if waited is not None:
            self.counter.wait(state, rows, waited)

        turn = self.counter.decays(index)
        held = state["shared"][rows] * (turn * turn)[:, np.newaxis, np.newaxis]
        before = decay * state["noise"][rows]
        noise = self.counter.step(state, rows, index, fresh)
        increment = total + np.rint(noise - before).astype(np.int64)
        noised = np.rint(decay * state["noised"][rows]).astype(np.int64) + increment

        weight = decay * state["weight"][rows] + count
        squared = decay * decay * state["squared_weight"][rows] + count
        state["noise"][rows] = noise
        state["noised"][rows] = noised
        state["weight"][rows] = weight
        state["squared_weight"][rows] = squared
        # Each release has rounded twice, and what was rounded before has decayed.
        rounding = 2 * ROUNDED / (1.0 - self.counter.decay**2)

        if self.changes is None or sample is None:
            return self._scaled(
                noised, weight, squared, state["variance"][rows] * self.fresh.variance + rounding
            )

        since = self.changes.step(state, rows, index=index, decay=decay, held=held, sample=sample)
        variance = since.noise * self.fresh.variance + rounding
        scaled = self._scaled(since.total, since.weight, since.squared_weight, variance)
        return replace(scaled, drift=since.drift, since=since.at)

    @staticmethod
    def _scaled(
        noised: Floats | Ints, weight: Floats, squared: Floats, variance: Floats
    ) -> ReleasedSums:
        """Scale sums to the effective number of samples."""
        effective = effective_counts(weight, squared)
        scale = effective / weight
        return ReleasedSums(
            effective.astype(np.int64),
            np.rint(noised * scale).astype(np.int64),
            variance * scale * scale + ROUNDED,
        )


@dataclass(frozen=True, slots=True)
class WindowedSums:
    """Sums of the newest increments.

    Parameters
    ----------
    counter : Windowed
        Noise of the sums.
    fresh : GaussianNoise
        Of one draw, in grid units.

    Notes
    -----
    **Privacy.** The sum of the increments in the window is an exact integer, noised by one.

    Examples
    --------
    >>> from meanstream.operators.counters.base import ENDLESS
    >>> sums = WindowedSums(Windowed(ENDLESS, window=2), GaussianNoise(1000.0))
    >>> from meanstream.operators.agents.state_columns import empty_columns
    >>> state, row = empty_columns(sums.columns, 1), np.array([0])
    >>> more = {"count": np.array([10]), "fresh": np.zeros(1)}
    >>> for k in (1, 2, 3):
    ...     told = sums.release(state, row, index=np.array([k]), total=np.array([700 * k]), **more)
    >>> told.count.tolist(), told.total.tolist()
    ([20], [3500])
    """

    counter: Windowed
    fresh: GaussianNoise

    @property
    def columns(self) -> Table:
        """State of a row."""
        wide = (self.counter.window,)
        return (
            Column("counts", np.int64, wide, privacy=PUBLIC, of="noise"),
            Column("totals", np.int64, wide, privacy=PRIVATE, of="noise"),
            *columns_of_counter(self.counter),
        )

    def release(
        self, state: State, rows: Ints, *, index: Ints, count: Ints, total: Ints, fresh: Floats
    ) -> ReleasedSums:
        """Release once for each of some rows; see `DecayedSums.release`."""
        for name, newest in (("counts", count), ("totals", total)):
            state[name][rows] = np.concatenate(
                [state[name][rows, 1:], newest[:, np.newaxis]], axis=1
            )

        noise = self.counter.step(state, rows, index, fresh)
        noised = state["totals"][rows].sum(axis=1) + np.rint(noise).astype(np.int64)
        variance = self.counter.noise_variance(index) * self.fresh.variance + ROUNDED
        return ReleasedSums(state["counts"][rows].sum(axis=1), noised, variance)


SUMS = "sums_"
"""Of columns with the state of the noised sums."""
REFLECTED = 0.9
"""Part of a release that must be of samples since its agent's newest change; with less, the agent
is ahead of it."""
_OWN = {
    "weight": "own_weight",
    "squared_weight": "own_squared_weight",
    "total": "kept_total",
    "squares": "kept_squares",
}
_BEFORE = "before_"
"""Of the same columns, for what lies before the newest change: it may turn out that there was
none."""
TOLD_COUNT = Column("told_count", np.int64, privacy=PUBLIC, of="memory", kept=True)
TOLD_TOTAL = Column("told_total", np.int64, privacy=PUBLIC, of="memory", kept=True)
TOLD_VARIANCE = Column("told_variance", np.float64, privacy=PUBLIC, of="memory", kept=True)
TURN = Column("turn", np.int64, privacy=PUBLIC, of="memory")
"""What the newest release said, and the turn of event time that it closed."""


class Outlook(NamedTuple):
    """Public: sums of the weights of what releases will hold, of their squares, and variance of the noise in sums."""

    weight: Floats
    squared_weight: Floats
    variance: Floats


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
    vote : SpreadVote or None
        The votes on what a sample varies by, if there are any.

    Notes
    -----
    **Privacy.** Each column says whether it is private to the agent. An agent's own samples have the weights of its
    releases: those since the newest one count wholly, and the others as they will in the next one. So what is known of
    it does not depend on when a turn was closed, or on batches. What lies before a change of its own mean
    (`OwnChanges`) is left out.
    """

    sums: DecayedSums
    times: Every | None
    grid: FixedPoint
    vote: SpreadVote | None = None

    @property
    def columns(self) -> Table:
        """Sums up to a mark and before a change, the newest release, the noise, own changes."""
        weighed = declared_columns(_OWN.values(), np.float64, privacy=PRIVATE, of="memory")
        return (
            Column("marked_total", np.int64, privacy=PRIVATE, of="memory"),
            *(TURN, TOLD_COUNT, TOLD_TOTAL),
            *weighed,
            TOLD_VARIANCE,
            *prefixed_columns(_BEFORE, weighed),
            *prefixed_columns(SUMS, self.sums.columns),
            *self.changes.columns,
        )

    @property
    def changes(self) -> OwnChanges:
        """Private: what tests each agent's own mean."""
        return OwnChanges(self.grid.span // 2)

    def outlook(self, count: Ints) -> Outlook:
        """Public: what releases after these numbers of samples will hold of a mean that stays, in grid units."""
        index = np.arange(1, len(count) + 1)
        sums = np.zeros((2, len(count)))

        # A mean that stays loses with each release what the memory forgets.
        decays = self.sums.decay(index)
        for k, added in enumerate(np.diff(count, prepend=0)):
            past = sums[:, k - 1] * [decays[k], decays[k] ** 2] if k else np.zeros(2)
            sums[:, k] = past + added

        return Outlook(
            sums[0], sums[1], self.sums.counter.noise_variance(index) * self.sums.fresh.variance
        )

    def effective(
        self, index: Ints, weight: Floats, squared_weight: Floats, more: Floats
    ) -> Floats:
        """Public: own samples of equal weight before this release, of those of the last one and some more."""
        decay = self.sums.decay(index)
        weight = decay * weight + more
        return np.asarray(weight * weight / np.maximum(decay * decay * squared_weight + more, 1.0))

    def test(self, rows: Columns, agent: Ints, now: OwnMoment) -> None:
        """Ask of some agents at the end of a block whether their own mean has changed.

        Leave out what was before.
        """
        # A change that was taken back gives its samples back.
        tested = self.changes.test(rows, agent, now)
        owners = agent[tested.undone]
        for name in _OWN.values():
            rows[name][owners] += rows[_BEFORE + name][owners]

        # After a change only what came since it counts, and the rest is kept apart.
        owners = agent[tested.changed]
        before = self._added(rows, owners, tested.since, 1.0)
        for name, column in _OWN.items():
            rows[_BEFORE + column][owners] = getattr(before, name)
            rows[column][owners] = 0.0

        tested.since.put(rows, "marked", owners)

    def release(
        self, rows: Columns, agent: Ints, *, index: Ints, now: SumsNow, turn: Ints, fresh: Floats
    ) -> ReleasedSums:
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
        waited = self._waited(rows, agent, turn)
        decay = self.sums.decay(index, waited)
        weighed = self._added(rows, agent, now.moment, decay)

        # New samples since the mark, with fresh noise, on what was kept.
        released = self.sums.release(
            columns_under(SUMS, rows),
            agent,
            index=index,
            count=now.number - rows["released_count"][agent],
            total=now.total - rows["marked_total"][agent],
            fresh=fresh,
            waited=waited,
            sample=sample_bound(rows, agent, self.vote, self.grid),
        )

        keep_release(rows, agent, released, turn, now)
        rows["marked_total"][agent] = now.total
        for name, values in zip(_OWN.values(), weighed, strict=True):
            rows[name][agent] = values

        # Samples from before a change fade as the others do.
        changed = np.flatnonzero(
            rows[_BEFORE + _OWN["weight"]][agent]
        )  # few: the others have seen no change
        for name in _OWN.values():
            past = (
                decay[changed] * decay[changed] if name == "own_squared_weight" else decay[changed]
            )
            rows[_BEFORE + name][agent[changed]] *= past

        return released

    def own(self, rows: Columns, agent: Ints) -> OwnSamples:
        """Private: the samples of some agents, weighed; for that agent only.

        `count` is the effective number of samples, rounded down, in which sums of deviations are
        stated.
        """
        # In widths of the grid, around its middle.
        weighed = self._weighed(rows, agent)
        grid = self.grid
        has_samples = weighed.weight > 0
        weight = np.where(has_samples, weighed.weight, 1.0)
        mean = weighed.total / weight

        # Of samples with unequal weights, the number of equal ones that is worth the same.
        effective = np.where(
            has_samples, weight * weight / np.where(has_samples, weighed.squared_weight, 1.0), 0.0
        )
        effective = np.floor(effective + 1e-6)
        deviations = (
            np.maximum(weighed.squares / weight - mean * mean, 0.0) * effective * grid.resolution**2
        )

        value = np.where(
            has_samples, grid.lower + (mean + grid.span // 2) * grid.resolution, np.nan
        )

        # Where own samples lost a change that releases did not, others are ahead.
        released = rows[SUMS + "weight"][agent] - self.sums.left_out(
            rows[SUMS + "change_past"][agent]
        )

        return OwnSamples(
            agent=agent,
            count=effective.astype(np.int64),
            mean=value,
            squared_deviations=np.asarray(deviations),
            ahead=rows["own_weight"][agent] < REFLECTED * released,
        )

    def begin(self, rows: Columns, agent: Ints) -> Ints:
        """Private: how many samples of some agents came before the newest change of their own mean."""
        return np.asarray(rows["own_start_number"][agent], np.int64)

    def _weighed(self, rows: Columns, agent: Ints) -> WeighedSamples:
        """Weigh all samples of some agents as their next release will, if there are new ones."""
        sums = SumsNow.of(rows, agent)
        turn = rows["turn"][agent]

        # Event time goes on while an agent is silent.
        if self.times is not None:
            seen = np.where(rows["count"][agent] > 0, rows["seen"][agent], 0.0)
            turn = self.times.turn(seen)

        decay = self.sums.decay(rows["released"][agent] + 1, self._waited(rows, agent, turn))
        weighed = self._added(rows, agent, sums.moment, decay)
        new = sums.number > rows["released_count"][agent]
        return WeighedSamples(
            *(np.where(new, getattr(weighed, n), rows[_OWN[n]][agent]) for n in weighed._fields)
        )

    def _waited(self, rows: Columns, agent: Ints, turn: Ints) -> Ints | None:
        """Count the turns that went by since the release before without one."""
        if self.times is None:
            return None
        return np.where(
            rows["released"][agent] > 0, np.maximum(turn - rows["turn"][agent] - 1, 0), 0
        )

    def _added(
        self, rows: Columns, agent: Ints, now: OwnMoment, decay: Floats | float
    ) -> WeighedSamples:
        """Decay what was kept, add what there is between the mark and another moment."""
        mark = OwnMoment.of(rows, "marked", agent)
        number = now.number - mark.number
        squares = now.squares - mark.squares
        total = now.total - mark.total - number * (self.grid.span // 2)

        return WeighedSamples(
            weight=decay * rows["own_weight"][agent] + number,
            squared_weight=decay * decay * rows["own_squared_weight"][agent] + number,
            total=decay * rows["kept_total"][agent] + total,
            squares=decay * rows["kept_squares"][agent] + squares,
        )


def keep_release(
    rows: Columns, agent: Ints, released: ReleasedSums, turn: Ints, now: SumsNow
) -> None:
    """Keep what some agents have released, and where the next release begins."""
    now.moment.put(rows, "marked", agent)
    said = (released.count, released.total, released.variance, turn)
    for column, values in zip((TOLD_COUNT, TOLD_TOTAL, TOLD_VARIANCE, TURN), said, strict=True):
        rows[column.name][agent] = values


def sample_bound(rows: Columns, agent: Ints, vote: SpreadVote | None, grid: FixedPoint) -> Floats:
    """Public: what a sample varies by at most.

    By the agent's own votes, or by the bounds (Popoviciu).
    """
    if vote is None:
        return np.full(len(agent), grid.span**2 / 4)
    return vote.variance_bound(rows["vote_noised"][agent])

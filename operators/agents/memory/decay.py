"""Noised sums that forget.

Increments are noised exactly, and what is released of them follows from public numbers.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from meanstream.operators.agents.released_change_tests import ReleaseChanges
from meanstream.operators.agents.state_columns import (
    PRIVATE,
    PUBLIC,
    Column,
    Table,
    columns_of_counter,
    declared_columns,
)
from meanstream.operators.counters.base import State
from meanstream.operators.counters.decayed import Decayed
from meanstream.operators.counters.windowed import Windowed
from meanstream.operators.noise.distributions import GaussianNoise
from meanstream.operators.records import Floats, Ints

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
        told = self._scaled(since.total, since.weight, since.squared_weight, variance)
        return replace(told, drift=since.drift, since=since.at)

    @staticmethod
    def _scaled(
        noised: Floats | Ints, weight: Floats, squared: Floats, variance: Floats
    ) -> ReleasedSums:
        """Scale sums to the effective number of samples."""
        told = effective_counts(weight, squared)
        scale = told / weight
        return ReleasedSums(
            told.astype(np.int64),
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

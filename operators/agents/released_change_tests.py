"""Whether the mean behind releases that forget has changed.

A test on the releases, whose sums then begin again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from meanstream.operators.agents.state_columns import PUBLIC, Column, Table, chunks
from meanstream.operators.counters.base import State, counter_lowest_bit
from meanstream.operators.counters.decayed import Decayed
from meanstream.operators.counters.toeplitz import toeplitz_weighted
from meanstream.operators.records import Floats, Ints

ORDERS = 6
"""Of each power of two up to 32, the newest release whose number it divides is kept: past releases
of many ages."""
CHANGED = 19.0
"""Squared difference of the means before and after, over its variance, that is a change. The
largest of the candidates exceeds it less than once in 1e4 releases of a mean that stays
(`tests/operators/agents/test_release_changes.py`)."""
WARNING = 14.0
"""Of a warning."""
NOTHING = 0
WARNED = 1
MOVED = 2
_TOGETHER = 2_000
"""Rows that are tested at once: what is kept of them stays in the processor's cache."""
_PAST = "change_past"
_WIDTH = 5
_SUM, _WEIGHT, _SQUARED, _NOISE, _WITH_BASE = range(_WIDTH)


class Since(NamedTuple):
    """Public: the noised sum since the newest change, decayed to now, and what is known of it.

    And what was found.

    Attributes
    ----------
    total, weight, squared_weight : float array
        The noised sum in grid units, the sum of the weights of its samples and that of their
        squares.
    noise : float array
        Variance of its noise, in draws.
    drift : int array
        `NOTHING`, `WARNED` or `MOVED`, at this release.
    at : int array
        Number of the release after which the sum begins; 0 for the beginning.
    """

    total: Floats
    weight: Floats
    squared_weight: Floats
    noise: Floats
    drift: Ints
    at: Ints


def drift_of_ratio(ratio: Floats) -> Ints:
    """What squared differences of means over their variance say: `NOTHING`, `WARNED` or `MOVED`."""
    return np.where(ratio > CHANGED, MOVED, np.where(ratio > WARNING, WARNED, NOTHING))


@dataclass(frozen=True, slots=True)
class ReleaseChanges:
    """Tests each release for a change since some of those before.

    After one, sums leave out what lies before it.

    Parameters
    ----------
    counter : Decayed
        Of the noise of the sums.
    draw : float
        Variance of one draw, in squared grid units.

    Notes
    -----
    **Privacy.** It reads noised sums, counts and the covariance of the noise, all public: post-processing, which spends
    nothing, and whose result is public.

    A candidate splits the sum since the last change in two. The squared difference of the two means
    over its variance, with the exact covariance of the noise and a bound on what samples vary by,
    is a chi-squared variable of one degree at most where nothing has changed; the largest of the
    candidates is compared with `CHANGED`. After a change the candidates begin again, too.
    """

    counter: Decayed
    draw: float

    @property
    def columns(self) -> Table:
        """State of a row.

        Of past releases, by the largest power of two that divides their number, and of the one at
        the change: noised sums, weights, squared weights and variances decayed to now, the
        covariance with the one at the change, and that with the buffers of the noise. Each of these
        for all releases, one after the other.
        """
        width = (_WIDTH + len(self.counter.buffers.decay)) * (ORDERS + 1)
        return (
            Column(_PAST, np.float64, (width,), privacy=PUBLIC, of="noise"),
            Column("change_at", np.int64, (ORDERS + 1,), privacy=PUBLIC, of="noise"),
        )

    def step(
        self, state: State, rows: Ints, *, index: Ints, decay: Floats, held: Floats, sample: Floats
    ) -> Since:
        """Take one release of each of some rows.

        Parameters
        ----------
        state : State
            With `noised`, `weight`, `squared_weight` and `variance` of this release; changed in
            place.
        rows, index : int array, shape (m,)
            Distinct rows, and the number of this release of each.
        decay : float array, shape (m,)
            What it multiplies the past by.
        held : float array, shape (m, k, k)
            Covariance of the buffers before its draw, in draws.
        sample : float array, shape (m,)
            Bound on the variance of a sample, public, in squared grid units.
        """
        results = [
            self._step(
                state, rows[c], index=index[c], decay=decay[c], held=held[c], sample=sample[c]
            )
            for c in chunks(max(len(rows), 1), _TOGETHER)
        ]
        return Since(*(np.concatenate(column) for column in zip(*results, strict=True)))

    def _step(
        self, state: State, rows: Ints, *, index: Ints, decay: Floats, held: Floats, sample: Floats
    ) -> Since:
        # Rows come last here: what is computed of all of them at once lies together.
        columns, at = (np.ascontiguousarray(state[name][rows].T) for name in (_PAST, "change_at"))
        past = columns.reshape(-1, *at.shape)
        past[:_SQUARED] *= decay
        past[_SQUARED:] *= decay * decay
        now = np.stack(
            [state[name][rows] for name in ("noised", "weight", "squared_weight", "variance")]
        )

        buffers = past[_WIDTH:]
        with_now = toeplitz_weighted(
            buffers.reshape(len(buffers), -1).T, self.counter.buffers.weight
        ).reshape(at.shape)
        drift = self._begin_again(past, at, with_now, self._ratio(past, at, now, with_now, sample))

        # This release takes the place of the one before it whose number has as many factors of two.
        newest = np.concatenate([now, with_now[[ORDERS]], self._with_buffers(held).T])
        buffers *= self.counter.buffers.decay[:, np.newaxis, np.newaxis]
        order = np.minimum(counter_lowest_bit(index), ORDERS - 1)
        each = np.arange(len(rows))
        past[:, order, each] = newest
        at[order, each] = index
        state[_PAST][rows] = columns.T
        state["change_at"][rows] = at.T
        base = past[:, ORDERS]

        return Since(
            total=now[_SUM] - base[_SUM],
            weight=now[_WEIGHT] - base[_WEIGHT],
            squared_weight=now[_SQUARED] - base[_SQUARED],
            noise=now[_NOISE] + base[_NOISE] - 2 * with_now[ORDERS],
            drift=drift,
            at=at[ORDERS].copy(),
        )

    @staticmethod
    def _begin_again(past: Floats, at: Ints, with_now: Floats, ratio: Floats) -> Ints:
        """Let the sums of rows whose mean has changed begin at their best candidate; say which have."""
        drift = drift_of_ratio(ratio.max(axis=0))
        moved = np.flatnonzero(drift == MOVED)
        best = np.argmax(ratio[:, moved], axis=0)

        for values in (*past, at, with_now):
            values[ORDERS, moved] = values[best, moved]

        at[:ORDERS, moved] = 0
        return drift

    @staticmethod
    def left_out(past: Floats) -> Floats:
        """Give the weight of what lies before the newest change, in sums as they are now."""
        return np.asarray(past[:, _WEIGHT * (ORDERS + 1) + ORDERS])

    def _ratio(
        self, past: Floats, at: Ints, now: Floats, with_now: Floats, sample: Floats
    ) -> Floats:
        """Squared difference of the means after and before each candidate over its variance.

        0 for no candidate.
        """
        base = past[:, ORDERS:]
        split = past[:, :ORDERS]
        current = now[:, np.newaxis]
        after = current[_WEIGHT] - split[_WEIGHT]
        before = split[_WEIGHT] - base[_WEIGHT]
        valid = (at[:ORDERS] > 0) & (np.minimum(after, before) > 0)
        after[~valid] = before[~valid] = 1.0

        a = np.divide(1.0, after, out=after)
        c = np.divide(1.0, before, out=before)
        inverse_sum = a + c
        difference = (current[_SUM] - split[_SUM]) * a
        difference -= (split[_SUM] - base[_SUM]) * c

        # a (a Now - 2 both With_now) + both (both Split - 2 c With_base) + c (c Base + 2 a
        # Base_with_now)
        noise = a * current[_NOISE] - 2.0 * (inverse_sum * with_now[:ORDERS])
        noise *= a
        noise += inverse_sum * (inverse_sum * split[_NOISE] - 2.0 * (c * split[_WITH_BASE]))
        noise += c * (c * base[_NOISE] + 2.0 * (a * with_now[ORDERS:]))
        noise *= self.draw
        samples = (current[_SQUARED] - split[_SQUARED]) * (a * a)

        samples += (split[_SQUARED] - base[_SQUARED]) * (c * c)
        samples *= sample
        noise += samples
        noise[~valid] = np.inf
        difference *= difference
        difference /= noise

        return np.asarray(difference)

    def _with_buffers(self, held: Floats) -> Floats:
        """Covariance of a release's noise with the buffers after its draw."""
        weight = self.counter.buffers.weight
        total = np.zeros(held.shape[:-1])
        for m in range(len(weight)):  # in a fixed order, whatever the batch
            total = total + held[:, :, m] * weight[m]

        return np.asarray(self.counter.buffers.decay * total + 1.0)

"""Noised sums over a window: what they hold, their exact variance, and what they depend on."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from meanstream.operators.agents.half_life_memory import ReleasedSums
from meanstream.operators.agents.released_change_tests import MOVED
from meanstream.operators.agents.state_columns import empty_columns
from meanstream.operators.agents.window_memory import NoisedWindow
from meanstream.operators.counters.base import ENDLESS
from meanstream.operators.counters.windowed import Sliding
from meanstream.operators.noise.distributions import GaussianNoise
from meanstream.operators.records import Ints

DRAW, SAMPLE, COUNT, SLOTS = 400.0, 100.0, 50, 12
COUNTER = Sliding(ENDLESS, window=SLOTS)
SUMS = NoisedWindow(COUNTER, GaussianNoise(DRAW**0.5), SLOTS)


def released(
    totals: Ints, draws: np.ndarray, sums: NoisedWindow = SUMS, joins: Any = ()
) -> list[ReleasedSums]:
    """Release increments of many rows, shape (releases, rows); those in `joins` join the slot
    before."""
    rows = np.arange(totals.shape[1])
    state, found = empty_columns(sums.columns, len(rows)), []
    for k, (total, fresh) in enumerate(zip(totals, draws, strict=True)):
        given = {
            "index": np.full(len(rows), k + 1),
            "count": np.full(len(rows), COUNT),
            "joins": np.full(len(rows), k in joins),
            "left": np.zeros((len(rows), sums.slots), bool),
            "sample": np.full(len(rows), SAMPLE),
        }
        found.append(sums.release(state, rows, total=total, fresh=fresh, **given))
    return found


def drifts(told: list[ReleasedSums]) -> np.ndarray:
    return np.array([one.drift for one in told])


def test_noise_is_that_of_the_increments_in_the_window() -> None:
    """One draw at a time: what is told of no samples is linear in the draws; the variance is the
    sum of squares."""
    n = 50
    unit = 2.0**30  # rounding is nothing against it
    sums = NoisedWindow(COUNTER, GaussianNoise(unit), SLOTS, tests=False)
    for joins in ((), (3, 4, 5, 20, 40)):
        told = released(np.zeros((n, n), np.int64), np.eye(n) * unit, sums, joins)
        for one in told:
            assert one.variance[0] == pytest.approx((one.total.astype(float) ** 2).sum(), rel=1e-6)
        assert told[-1].count[0] == COUNT * (SLOTS + sum(k > n - SLOTS - 1 for k in joins))


def test_after_a_change_a_release_says_what_came_since_and_its_exact_variance() -> None:
    n = 40
    means = np.where(np.arange(n) < 21, 100, 400)
    told = released(COUNT * means[:, np.newaxis], np.zeros((n, 1)))
    assert drifts(told)[:, 0].tolist() == [0] * 21 + [MOVED] + [0] * (n - 22)
    drawn = np.zeros((n, n))
    state = COUNTER.init(n)
    for k in range(n):
        drawn[k] = COUNTER.increment(state, np.arange(n), (np.arange(n) == k).astype(float))
    for k in (20, 21, 25, n - 1):
        begin = max(k - SLOTS + 1, 21 if k > 20 else 0)
        assert told[k].since is not None
        assert told[k].since[0] == begin
        assert told[k].count[0] == COUNT * (k + 1 - begin)
        assert told[k].total[0] / told[k].count[0] == (400 if k > 20 else 100)
        noise = drawn[begin : k + 1].sum(axis=0)
        assert told[k].variance[0] == pytest.approx(
            noise @ noise * DRAW + (k + 1 - begin) / 12, rel=1e-9
        )


def test_a_ratio_is_a_squared_difference_over_its_variance(monkeypatch: pytest.MonkeyPatch) -> None:
    """20,000 rows of noise and samples alone: how often a ratio exceeds 1 and 4, to 5 standard
    errors.

    With one candidate, as at the second and third release; later ones have several, and exceed them
    more often.
    """
    rows, rng = 20_000, np.random.default_rng(1)
    for low, expected in ((1.0, 0.3173), (4.0, 0.0455)):
        monkeypatch.setattr("meanstream.operators.agents.released_change_tests.CHANGED", low)
        monkeypatch.setattr("meanstream.operators.agents.released_change_tests.WARNING", low)
        samples = np.rint(rng.normal(0, (COUNT * SAMPLE) ** 0.5, (2, rows))).astype(np.int64)
        found = (drifts(released(samples, rng.normal(0, DRAW**0.5, (2, rows))))[1] == MOVED).mean()
        assert abs(found - expected) < 5 * (expected * (1 - expected) / rows) ** 0.5


def test_what_is_found_follows_from_what_is_released(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other data under noise that makes the same noised increments: every bit that is told is the
    same.

    A test that reads the exact sums instead, the known-bad twin, tells the two apart.
    """
    n, rng = 60, np.random.default_rng(3)
    draws = rng.normal(0, DRAW**0.5, (n, 1))
    one = np.full((n, 1), 5000)
    other = one + np.where(np.arange(n) < 30, 0, 700)[:, np.newaxis]
    increment, number = Sliding.increment, [0]

    def shifted(self: Sliding, state: Any, rows: Ints, fresh: np.ndarray) -> np.ndarray:
        number[0] += 1
        return np.asarray(increment(self, state, rows, fresh) - (other - one)[number[0] - 1, 0])

    def told(totals: Ints, sums: NoisedWindow = SUMS) -> list[tuple[int, ...]]:
        number[0] = 0
        found = released(totals, draws, sums)
        return [tuple(int(c[0]) for c in (t.count, t.total, t.drift, t.since)) for t in found]  # type: ignore[index]

    plain = told(one)
    assert any(drift == MOVED for _, _, drift, _ in told(other))
    monkeypatch.setattr(Sliding, "increment", shifted)
    assert told(other) == plain

    class ReadsExactSums(NoisedWindow):
        __slots__ = ()

        def _reset_changed(self, kept: Any, index: Ints, sample: np.ndarray) -> Ints:
            exact = {**kept, "noised": np.where(kept["counts"] > 0, kept["noised"], 0)}
            exact["noised"][:, -1] += (other - one)[int(index[0]) - 1]
            return NoisedWindow._reset_changed(self, exact, index, sample)

    bad = ReadsExactSums(COUNTER, SUMS.fresh, SLOTS)
    assert told(other, bad) != plain

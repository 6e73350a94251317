"""Changes seen in releases: exact variances against the matrix, what they depend on, false alarms
and delays."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from meanstream.operators.agents.agents import Agents, AgentsSettings
from meanstream.operators.agents.half_life_memory import DecayedSums, ReleasedSums
from meanstream.operators.agents.released_change_tests import MOVED, WARNED, ReleaseChanges
from meanstream.operators.agents.state_columns import empty_columns
from meanstream.operators.counters.base import ENDLESS
from meanstream.operators.counters.decayed import Decayed, decay_of_half_life
from meanstream.operators.noise.distributions import GaussianNoise
from meanstream.operators.noise.keyed import KeyedNoise
from meanstream.operators.records import Ints

KEY = bytes.fromhex("9b1f6c04d2a85e73bb40c9f1e6a7250d")
COUNTER = Decayed(ENDLESS, decay=decay_of_half_life(1, 8), early=(0.75, 0.875))
DRAW, SAMPLE = 400.0, 100.0
SUMS = DecayedSums(COUNTER, GaussianNoise(DRAW**0.5), ReleaseChanges(COUNTER, draw=DRAW))


def released(
    totals: Ints,
    draws: np.ndarray,
    count: int = 50,
    sums: DecayedSums = SUMS,
    sample: float = SAMPLE,
) -> list[ReleasedSums]:
    """Release increments of many rows, shape (releases, rows)."""
    rows = np.arange(totals.shape[1])
    state, found = empty_columns(sums.columns, len(rows)), []
    for k, (total, fresh) in enumerate(zip(totals, draws, strict=True)):
        index, number = np.full(len(rows), k + 1), np.full(len(rows), count)
        bound = np.full(len(rows), sample)
        found.append(
            sums.release(
                state, rows, index=index, count=number, total=total, fresh=fresh, sample=bound
            )
        )
    return found


def test_after_a_change_a_release_says_what_came_since_and_its_exact_variance() -> None:
    """Against sums by hand, and the covariance of the noise by the counter's matrix."""
    n = 40
    means = np.where(np.arange(n) < 21, 100, 400)
    told = released(50 * means[:, np.newaxis], np.zeros((n, 1)))
    drift = np.array([one.drift[0] for one in told if one.drift is not None])
    assert drift.tolist() == [0] * 21 + [MOVED] + [0] * (n - 22)
    covariance, decays = COUNTER.covariance(n), COUNTER.workload(n)
    for k in (21, 25, n - 1):
        at = int(told[k].since[0])  # type: ignore[index]
        assert at in (20, 21)
        weights = 50.0 * decays[k, at : k + 1]
        effective = weights.sum() ** 2 / (weights**2 / 50).sum()
        assert told[k].count[0] == int(effective + 1e-6)
        assert told[k].total[0] / told[k].count[0] == pytest.approx(
            (weights * means[at : k + 1]).sum() / weights.sum(), abs=0.01
        )
        decay = decays[k, at - 1]
        noise = (
            covariance[k, k]
            + decay**2 * covariance[at - 1, at - 1]
            - 2 * decay * covariance[k, at - 1]
        )
        scale = told[k].count[0] / weights.sum()
        assert told[k].variance[0] == pytest.approx(
            noise * DRAW * scale**2, rel=0.02
        )  # and the rounding


def test_a_ratio_is_a_squared_difference_over_its_variance() -> None:
    """20,000 rows of noise alone: the ratio of every candidate has mean 1 at each release, to 5
    standard errors."""
    rows, n = 20_000, 20
    rng = np.random.default_rng(1)
    counter = Decayed(ENDLESS, decay=decay_of_half_life(1, 8))
    seen: list[np.ndarray] = []

    class Watched(ReleaseChanges):
        __slots__ = ()

        def _ratio(self, *given: Any) -> np.ndarray:
            found = ReleaseChanges._ratio(self, *given)
            seen.append(found)
            return found

    sums = DecayedSums(counter, GaussianNoise(DRAW**0.5), Watched(counter, draw=DRAW))
    samples = np.rint(rng.normal(0, (50 * SAMPLE) ** 0.5, (n, rows))).astype(np.int64)
    released(samples, rng.normal(0, DRAW**0.5, (n, rows)), sums=sums)
    for ratio in seen[1:12]:  # few have changed so far, hence few have begun anew
        for candidate in ratio[ratio.max(axis=1) > 0]:
            some = candidate[candidate > 0]
            assert abs(some.mean() - 1.0) < 5 * (2 / len(some)) ** 0.5 + 0.01


def test_what_is_found_follows_from_what_is_released(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other data under noise that makes the same noised increments: every bit that is told is the
    same.

    A test that reads the exact sums instead, the known-bad twin, tells the two apart.
    """
    n, rng = 60, np.random.default_rng(3)
    draws = rng.normal(0, DRAW**0.5, (n, 1))
    one = np.full((n, 1), 5000)
    other = one + np.where(np.arange(n) < 30, 0, 700)[:, np.newaxis]
    step, shift = Decayed._step, [0.0]

    def shifted(
        self: Decayed, state: Any, rows: Ints, release: Ints, fresh: np.ndarray
    ) -> np.ndarray:
        k = int(release[0]) - 1
        shift[0] = float(self.decays(release)[0]) * shift[0] + float((other - one)[k, 0])
        return np.asarray(step(self, state, rows, release, fresh) - shift[0])

    def told(totals: Ints, sums: DecayedSums = SUMS) -> list[tuple[int, ...]]:
        found = released(totals, draws, sums=sums)
        return [tuple(int(c[0]) for c in (t.count, t.total, t.drift)) for t in found]  # type: ignore[index]

    plain = told(one)
    unshifted = told(other)
    monkeypatch.setattr(Decayed, "_step", shifted)
    assert told(other) == plain
    assert any(drift == MOVED for _, _, drift in unshifted)

    class ReadsExactSums(ReleaseChanges):
        __slots__ = ()

        def step(self, state: Any, rows: Ints, **given: Any) -> Any:
            exact = {**state, "noised": state["noised"] + np.rint(-state["noise"]).astype(np.int64)}
            return ReleaseChanges.step(self, exact, rows, **given)

    shift[0] = 0.0
    bad = DecayedSums(COUNTER, SUMS.fresh, ReadsExactSums(COUNTER, draw=DRAW))
    found = told(other, bad)
    monkeypatch.undo()
    assert found != told(one, bad)


LAWS = {
    "yes/no": lambda rng, shape: (rng.random(shape) < 0.5) * 1.0,
    "rare": lambda rng, shape: (rng.random(shape) < 0.05) * 1.0,
    "uniform": lambda rng, shape: rng.random(shape),
    "constant": lambda _, shape: np.full(shape, 0.3),
}


MEMORIES = [
    ("half-life:80", 1, 10),
    ("half-life:800", 3, 100),
    ("window:80", 1, 10),
    ("window:1000", 3, 125),
]


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize(("memory", "epsilon", "batch"), MEMORIES)
def test_false_alarms_are_rare(law: str, memory: str, epsilon: float, batch: int) -> None:
    """At most one change in 1e4 releases of 60,000 of means that stay; 4 standard deviations of a
    Poisson number."""
    settings = AgentsSettings(lower=0, upper=1, epsilon=epsilon, delta=1e-6, memory=memory)
    agents, m = Agents(settings, KeyedNoise(KEY, deployment="test", purpose="agents")), 500
    agents.add_agents([str(i) for i in range(m)])
    rng, made, changed = np.random.default_rng(4), 0, 0
    for turn in range(120):
        values = LAWS[law](rng, (batch, m))
        time = turn + np.repeat(np.arange(batch) / batch, m)
        drift = agents.update(np.tile(np.arange(m), batch), values.ravel(), time).drift
        made, changed = made + len(drift), changed + int((drift == MOVED).sum())
    assert made > 60_000
    assert changed <= made / 1e4 + 4 * (made / 1e4) ** 0.5


def test_a_large_step_is_seen_within_some_releases() -> None:
    """A step of 16 standard deviations of a release's noise in 200 rows; most are warned of before
    they are certain."""
    rows, before, n = 200, 40, 60
    rng = np.random.default_rng(6)
    weight = 50 * COUNTER.workload(before)[-1].sum()
    deviation = (COUNTER.noise_variance(np.array([before]))[0] * DRAW) ** 0.5 / weight
    step = np.where(np.arange(n) < before, 0, round(50 * 16 * deviation))
    told = released(
        np.tile(step[:, np.newaxis], (1, rows)) + 5000,
        rng.normal(0, DRAW**0.5, (n, rows)),
        sample=1.0,
    )
    drift = np.array([one.drift for one in told])
    after = drift[before:]
    delay = np.where((after == MOVED).any(axis=0), (after == MOVED).argmax(axis=0) + 1, n)
    assert np.median(delay) <= 6
    assert delay.max() < n - before
    assert ((after == WARNED).argmax(axis=0) < delay).mean() > 0.5


def test_rows_tested_together_and_in_parts_say_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bit by bit, in releases and in the state, where a third of the means move."""
    rng = np.random.default_rng(12)
    means = np.where((np.arange(40)[:, np.newaxis] > 21) & (np.arange(70) % 3 == 0), 400, 100)
    totals, draws = 50 * means, rng.normal(0, DRAW**0.5, means.shape)
    whole = released(totals, draws)
    monkeypatch.setattr("meanstream.operators.agents.released_change_tests._TOGETHER", 32)
    parts = released(totals, draws)
    assert any((one.drift == MOVED).any() for one in whole if one.drift is not None)
    for expected, actual in zip(whole, parts, strict=True):
        for name in ("count", "total", "variance", "drift", "since"):
            np.testing.assert_array_equal(getattr(actual, name), getattr(expected, name))

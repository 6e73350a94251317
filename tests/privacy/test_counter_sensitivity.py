"""The sensitivity that calibrates the noise, against the pair (B, C) that is really used: exact
column norms.

Releases are `B (C x + fresh)` with `B C = A`, the prefix sums; replacing one sample moves one entry
of `x` by at most the sensitivity `s`, so `C x` by `s` times the norm of one column of
`C = B^{-1} A`. `B` is read off `step` itself (the response to unit draws), not off the formula that
the calibration uses.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

from meanstream.lab.evidence.counters_audit import counter_columns
from meanstream.operators.agents.release_times import parse_release_times
from meanstream.operators.counters.base import ENDLESS
from meanstream.operators.counters.decayed import Decayed, decay_of_half_life
from meanstream.operators.counters.optimal import (
    LONGEST,
    Factors,
    Optimal,
    optimal_counter_sampling,
)
from meanstream.operators.counters.pm2 import Pm2
from meanstream.operators.counters.registry import (
    COUNTERS,
    FORGETTING,
    Counter,
    counter_noise,
    make_counter,
)
from meanstream.operators.counters.toeplitz import Toeplitz
from meanstream.operators.counters.windowed import Windowed
from meanstream.operators.noise.calibration import calibration_delta
from meanstream.operators.noise.keyed import GaussianNoise

HORIZONS = [1, 2, 3, 7, 8, 100, 257]
ALL = [
    (name, n) for name in sorted(COUNTERS) for n in HORIZONS if name != Optimal.name or n <= LONGEST
]


def l2_is_covered(counter: Counter) -> bool:
    worst = np.sqrt((counter_columns(counter, counter.horizon) ** 2).sum(0)).max()
    return bool(worst <= counter.l2_sensitivity * (1 + 1e-9))


def l1_is_covered(counter: Counter) -> bool:
    return bool(
        np.abs(counter_columns(counter, counter.horizon)).sum(0).max()
        <= counter.l1_sensitivity * (1 + 1e-9)
    )


@pytest.mark.parametrize(("name", "horizon"), ALL)
def test_l2_sensitivity_is_the_largest_column_norm(name: str, horizon: int) -> None:
    counter = make_counter(name, horizon=horizon)
    norms = np.sqrt((counter_columns(counter, horizon) ** 2).sum(0))
    assert norms.max() == pytest.approx(
        counter.l2_sensitivity, rel=1e-9
    )  # covered, and nothing is wasted
    assert norms.argmax() == 0 or norms[0] == pytest.approx(norms.max())


@pytest.mark.parametrize(("name", "horizon"), ALL)
def test_l1_sensitivity_is_the_largest_column_norm_or_refused(name: str, horizon: int) -> None:
    counter = make_counter(name, horizon=horizon)
    if name in ("toeplitz", "optimal"):
        with pytest.raises(ValueError, match="noise must be gaussian"):
            _ = counter.l1_sensitivity
    else:
        assert np.abs(counter_columns(counter, horizon)).sum(0).max() == pytest.approx(
            counter.l1_sensitivity, rel=1e-9
        )


@pytest.mark.parametrize("name", sorted(COUNTERS))
@pytest.mark.parametrize("epsilon", [0.3, 1.0, 4.0])
def test_all_releases_together_spend_exactly_delta(name: str, epsilon: float) -> None:
    """Everything published is post-processing of one Gaussian vector: its exact delta at epsilon is
    the budget."""
    counter, span, delta = make_counter(name, horizon=100), 1000.0, 1e-6
    noise = counter_noise(counter, epsilon=epsilon, delta=delta, sensitivity=span)
    assert isinstance(noise, GaussianNoise)
    moved = span * np.sqrt((counter_columns(counter, 100) ** 2).sum(0)).max()
    assert calibration_delta(noise.stddev / moved, epsilon) == pytest.approx(delta, rel=1e-5)


@pytest.mark.parametrize("kind", FORGETTING.values())
@pytest.mark.parametrize("epsilon", [0.3, 1.0, 4.0])
def test_an_endless_stream_spends_exactly_delta(kind: type[Counter], epsilon: float) -> None:
    """Column norms of 200 releases, after which what a sample moves is below 1e-12 of it: the
    budget, and all of it."""
    counter, span, delta = kind(ENDLESS), 1000.0, 1e-6
    noise = counter_noise(counter, epsilon=epsilon, delta=delta, sensitivity=span)
    assert isinstance(noise, GaussianNoise)
    moved = span * np.sqrt((counter_columns(counter, 200) ** 2).sum(0)).max()
    assert calibration_delta(noise.stddev / moved, epsilon) == pytest.approx(delta, rel=1e-5)


@pytest.mark.parametrize(
    "counter",
    [
        *(kind(n) for kind in FORGETTING.values() for n in HORIZONS),
        Decayed(100, early=tuple(decay_of_half_life(turn, 8.0) for turn in (0.01, 0.01, 0.3))),
        Windowed(100, window=50),
    ],
    ids=str,
)
def test_l2_sensitivity_of_sums_that_forget(counter: Counter) -> None:
    norms = np.sqrt((counter_columns(counter, counter.horizon) ** 2).sum(0))
    assert norms.max() == pytest.approx(counter.l2_sensitivity, rel=1e-9)


@dataclass(frozen=True)
class LateDecayed(Decayed):
    """Known bad: calibrates for the steady releases, though the first ones are closer together."""

    @property
    def l2_sensitivity(self) -> float:  # type: ignore[override]
        return Decayed(self.horizon, decay=self.decay).l2_sensitivity


@dataclass(frozen=True)
class OneWindow(Windowed):
    """Known bad: a sample leaves the window after so many releases, so counts no later ones."""

    @property
    def l2_sensitivity(self) -> float:
        return float(np.sqrt((self._factors.strategy[: self.window] ** 2).sum()))


def test_known_bad_twins_that_forget_are_caught() -> None:
    early = tuple(decay_of_half_life(turn, 8.0) for turn in (0.01, 0.01, 0.3))
    assert l2_is_covered(Decayed(100, early=early))
    assert l2_is_covered(Windowed(100))
    assert not l2_is_covered(LateDecayed(100, early=early))
    assert not l2_is_covered(OneWindow(100))


@dataclass(frozen=True)
class OneLevelPm2(Pm2):
    """Known bad: calibrates as if a sample met one partial sum."""

    @property
    def l2_sensitivity(self) -> float:
        return 1.0

    @property
    def l1_sensitivity(self) -> float:
        return 1.0


@dataclass(frozen=True)
class StaleToeplitz(Toeplitz):
    """Known bad: the sensitivity of a tenth of the horizon."""

    @property
    def l2_sensitivity(self) -> float:
        return Toeplitz(self.horizon // 10).l2_sensitivity


@dataclass(frozen=True)
class UnitNormOptimal(Optimal):
    """Known bad: calibrates for the columns of norm 1 of the optimization, not for the `B` that is
    really used."""

    @property
    def l2_sensitivity(self) -> float:
        return 1.0


@dataclass(frozen=True)
class HalfSeenOptimal(Optimal):
    """Known bad: looks at the first half of each column only."""

    @property
    def factors(self) -> Factors:
        whole = super().factors
        half = (whole.strategy**2)[: self.horizon // 2].sum(axis=0)
        return whole._replace(norm=float(np.sqrt(half.max())))


@pytest.mark.parametrize("schedule", ["preferred:10", "geometric:200,1.1", "geometric:1,1.01"])
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 20.0])
def test_the_optimal_counter_is_covered_whatever_it_is_made_for(
    schedule: str, epsilon: float
) -> None:
    times = parse_release_times(schedule).times(40)  # type: ignore[union-attr]
    counter = Optimal(40, optimal_counter_sampling(times, epsilon))
    norms = np.sqrt((counter_columns(counter, 40) ** 2).sum(0))
    np.testing.assert_allclose(
        norms, counter.l2_sensitivity, rtol=1e-9
    )  # of every column: nothing is wasted
    assert not l2_is_covered(HalfSeenOptimal(40, optimal_counter_sampling(times, epsilon)))


def test_known_bad_twins_are_caught() -> None:
    assert l2_is_covered(Optimal(100))
    assert not l2_is_covered(UnitNormOptimal(100))
    assert l2_is_covered(Pm2(100))
    assert l1_is_covered(Pm2(100))
    assert l2_is_covered(Toeplitz(100))
    assert not l2_is_covered(OneLevelPm2(100))
    assert not l1_is_covered(OneLevelPm2(100))
    assert not l2_is_covered(StaleToeplitz(100))


def test_a_horizon_that_is_not_refused_would_leak() -> None:
    """What the refusal at the horizon is for: at 8 releases a sample meets 4 partial sums, not the
    3 paid for."""
    assert np.abs(counter_columns(Pm2(8), 8)).sum(0).max() == 4 > Pm2(7).l1_sensitivity

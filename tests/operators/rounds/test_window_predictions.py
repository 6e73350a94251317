"""Predictions of a window's users, and the slope that reports show: exact sums, no bias, and no use
of a useless forecast."""

from __future__ import annotations

import numpy as np
import pytest

from meanstream.operators.noise.keyed import keyed_owner_words
from meanstream.operators.records import Floats
from meanstream.operators.rounds.base import round_tally_moments
from meanstream.operators.rounds.round_records import Summaries, Tally
from meanstream.operators.rounds.window_predictions import (
    STEPS,
    Slope,
    WindowPredictions,
    slope_sums,
    slope_tally,
)

NAMES = [f"user {number}" for number in range(500)]
WORDS = keyed_owner_words(NAMES)


def predictions(seed: int = 1) -> Floats:
    return np.random.default_rng(seed).normal(0.1, 0.3, len(NAMES)).clip(-1.0, 1.0)


def test_deviations_add_to_nothing_in_any_order_of_users() -> None:
    given = predictions()
    order = np.random.default_rng(2).permutation(len(NAMES))
    one, other = (
        WindowPredictions.of(WORDS, given),
        WindowPredictions.of(WORDS[order], given[order]),
    )
    assert one.digest == other.digest
    assert one.mean == other.mean == pytest.approx(given.mean(), abs=1e-6)
    assert abs(int(one.deviation.sum())) <= len(NAMES) / 2
    found = one.deviation_of(WORDS[order]) / STEPS
    assert found == pytest.approx(given[order] - given.mean(), abs=2e-6)
    assert one.variance == pytest.approx(given.var(), rel=1e-4)


def test_users_without_a_prediction_have_the_mean_of_the_others() -> None:
    given = predictions()
    given[::3] = np.nan
    found = WindowPredictions.of(WORDS, given)
    assert found.predicted == np.isfinite(given).sum()
    assert not found.deviation_of(WORDS)[::3].any()
    nothing = WindowPredictions.of(WORDS, np.full(len(NAMES), np.nan))
    assert (nothing.predicted, nothing.mean, nothing.farthest) == (0, 0.0, 0.0)
    assert len(WindowPredictions.of(WORDS[:0], given[:0]).key) == 0


def test_residuals_have_the_mean_of_the_users() -> None:
    window = WindowPredictions.of(WORDS, predictions())
    total = np.random.default_rng(3).integers(0, 2**20, len(NAMES))
    one = np.ones(len(NAMES), np.int64)
    offset = 0.8 * window.deviation_of(WORDS) / STEPS
    users = Summaries(user=WORDS, count=one, total=total, first=total, span=2**20, offset=offset)
    assert users.residual.mean() == pytest.approx(users.mean.mean(), abs=1e-6)
    half = users.take(slice(0, 250))
    assert half.residual.tolist() == users.residual[:250].tolist()


def test_sums_of_the_slope_are_a_regression() -> None:
    rng = np.random.default_rng(4)
    reports, deviation = rng.integers(-(2**40), 2**40, 300), rng.integers(-STEPS, STEPS, 300)
    parts = [
        Tally(
            150,
            round_tally_moments(reports[half]).sums + slope_tally(reports[half], deviation[half]),
        )
        for half in (slice(0, 150), slice(150, 300))
    ]
    found = slope_sums(parts[0] + parts[1], 2.0**-40)
    x, y = deviation / STEPS, reports * 2.0**-40
    assert found["products"] / found["squares"] == pytest.approx(np.polyfit(x, y, 1)[0], rel=1e-9)
    assert found["noise"] == pytest.approx(y.var(ddof=1) * found["squares"], rel=1e-9)
    assert slope_sums(Tally(), 1.0) == {"products": 0.0, "squares": 0.0, "noise": 0.0}


@pytest.mark.parametrize(("slope", "least", "most"), [(0.0, 0.0, 0.012), (0.9, 0.99, 1.0)])
def test_a_useless_forecast_is_hardly_ever_used(slope: float, least: float, most: float) -> None:
    """3 standard errors: 1 in 370 windows by chance; of 4,000 at most 48 (1.2 %) with a false-alarm
    rate below 1e-9. Noise has ten times the deviation of the forecast."""
    rng = np.random.default_rng(5)
    deviation = np.rint(0.1 * STEPS * rng.normal(size=1500)).astype(np.int64)
    scale = 1000
    used = []
    for _ in range(4000 if not slope else 400):
        values = slope * deviation / STEPS + rng.normal(size=1500) * (1.0 if not slope else 0.3)
        reports = np.rint(scale * values).astype(np.int64)
        tally = Tally(1500, round_tally_moments(reports).sums + slope_tally(reports, deviation))
        used.append(bool(Slope().after(slope_sums(tally, 1.0 / scale), 0.0).better()))
    assert least <= np.mean(used) <= most


def test_a_slope_is_drawn_to_0_and_stays_until_reports_say_otherwise() -> None:
    known = Slope(products=50.0, squares=100.0, noise=100.0)
    assert known.found == (0.5, 0.1)
    assert known.better() == pytest.approx(0.5 * (1.0 - 0.2**2))
    used = Slope(slope=0.3, products=50.0, squares=100.0, noise=100.0)
    assert used.better() == 0.3
    assert Slope(slope=0.1, products=50.0, squares=100.0, noise=100.0).better() == known.better()
    assert Slope(slope=0.9, products=10.0, squares=100.0, noise=100.0).better() == 0.0
    assert Slope.of(used.plain()) == used
    assert Slope.of(None) == Slope()

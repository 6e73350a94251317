"""Answers for the rows of a frame: how well they hold, and what they are never worse than."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest

import meanstream
from meanstream.pipelines.frames.rows_at_hand import _deviations

BOUNDS: dict[str, Any] = {"by": "shop", "value": "paid", "lower": -30.0, "upper": 60.0}
SEEDS = 5


def frame(seed: int, *, rows: int, spread: float, stddev: float, shops: int = 300) -> pa.Table:
    rng = np.random.default_rng(seed)
    shop = np.repeat(np.arange(shops), rows)
    mean = rng.normal(10, spread, shops)
    return pa.table({"shop": shop, "paid": np.clip(rng.normal(mean[shop], stddev), -30, 60)})


def answered(table: pa.Table, seed: int, **options: Any) -> Any:
    secret = f"{0x9B1F6C04D2A85E73BB40C9F1E6A7250D + 7919 * seed:032x}"
    return meanstream.private_means(table, **BOUNDS, **options, secret=secret, name="rows")


def column(result: Any, name: str) -> npt.NDArray[np.float64]:
    return np.asarray(result.table[name])


def true_means(table: pa.Table) -> npt.NDArray[np.float64]:
    shop = np.asarray(table["shop"])
    return np.bincount(shop, np.asarray(table["paid"])) / np.bincount(shop)


@pytest.mark.parametrize(
    ("epsilon", "rows", "stddev", "spread"),
    [(1.0, 50, 15.0, 3.0), (1.0, 500, 15.0, 1.0), (3.0, 200, 15.0, 1.0), (1.0, 20, 5.0, 5.0)],
)
@pytest.mark.parametrize("noise", ["auto", "laplace"])
def test_intervals_hold_the_means_of_the_rows(
    epsilon: float, rows: int, stddev: float, spread: float, noise: str
) -> None:
    """Coverage of 1,500 groups has a standard error of .0056, and of a prior learned from 300 about
    .01 a frame. The bound is 5 standard errors below .95: one false alarm in a million."""
    covered = []
    error = []

    for seed in range(SEEDS):
        table = frame(seed, rows=rows, spread=spread, stddev=stddev)
        result = answered(table, seed, epsilon=epsilon, noise=noise, target="rows")
        truth = true_means(table)
        low, high, mean, released = (
            column(result, name) for name in ("lower", "upper", "mean", "released")
        )
        covered.append(((low <= truth) & (truth <= high)).mean())
        error.append(np.square(mean - truth).sum() / np.square(released - truth).sum())

        # Never longer than what the noise of the release alone leaves.
        deviations = _deviations(result.settings, 0.95)
        assert (high - low <= 2.0001 * deviations * column(result, "noise_stddev")).all()

    assert np.mean(covered) > 0.95 - 5 * math.hypot(0.0056, 0.01 / math.sqrt(SEEDS))
    assert np.mean(error) < 1.02


def test_many_rows_leave_the_noise_alone() -> None:
    """With 4,000 rows of standard deviation 15 sampling outweighs the noise: .24 against .03."""
    table = frame(1, rows=4000, spread=0.3, stddev=15.0, shops=40)
    rows = answered(table, 1, epsilon=1.0, target="rows")
    population = answered(table, 1, epsilon=1.0)
    np.testing.assert_array_equal(column(rows, "released"), column(population, "released"))

    half = (column(rows, "upper") - column(rows, "lower")) / 2
    long_run = (column(population, "upper") - column(population, "lower")) / 2
    assert np.median(half) < 0.4 * np.median(long_run)
    assert np.abs(column(rows, "mean") - column(rows, "released")).max() < 0.02


def test_differences_and_sums_are_of_the_rows() -> None:
    table = frame(2, rows=400, spread=2.0, stddev=15.0)
    result = answered(table, 2, epsilon=3.0, target="rows", statistics=["mean", "sum"])
    truth = true_means(table)
    np.testing.assert_allclose(column(result, "sum"), 400 * column(result, "mean"), rtol=1e-12)

    # Intervals of 150 differences between pairs of neighbors: a standard error of .018.
    held = []
    for shop in range(0, 300, 2):
        low, high = result.difference(shop, shop + 1).interval
        held.append(low <= truth[shop] - truth[shop + 1] <= high)

    assert np.mean(held) > 0.95 - 4 * 0.018


def test_several_columns_and_the_sentence_below_the_table() -> None:
    table = frame(3, rows=50, spread=2.0, stddev=15.0, shops=20)
    table = table.append_column("late", pa.array(np.asarray(table["paid"]) > 10))
    options = BOUNDS | {
        "value": ["paid", "late"],
        "lower": {"paid": -30.0},
        "upper": {"paid": 60.0},
    }
    both = meanstream.private_means(table, **options, epsilon=2.0, target="rows")

    for name in ("paid", "late"):
        assert "mean of a group's rows in this frame" in both[name].meaning
        assert "no sampling" in both[name].explain()

    alone = answered(table, 3, epsilon=2.0, target="rows", collaboration="none")
    np.testing.assert_allclose(column(alone, "mean"), np.clip(column(alone, "released"), -30, 60))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"target": "row"}, "target must be 'population' or 'rows', got 'row'"),
        ({"store": "state.db"}, "target must be 'population' with store"),
        ({"schedule": "every:1d", "time": "shop"}, "target must be 'population' with schedule"),
        ({"quantiles": [0.5]}, "target must be 'population' with quantiles or exceeds"),
    ],
)
def test_what_rows_at_hand_do_not_have_is_refused(options: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        meanstream.private_means(
            frame(4, rows=2, spread=1.0, stddev=1.0),
            **BOUNDS,
            epsilon=1.0,
            **{"target": "rows"} | options,
        )

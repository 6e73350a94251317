"""Bounds that nobody knows: the histogram's sensitivity, what is chosen, and what a result says."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import meanstream
from meanstream.operators.noise.distributions import LaplaceNoise
from meanstream.operators.noise.keyed import KeyedNoise
from meanstream.operators.records import Floats
from meanstream.pipelines.frames.values import learned_bound_means, learned_bounds
from meanstream.pipelines.frames.values.learned_bound_means import LearnedBoundMeans, bounds_share
from meanstream.pipelines.frames.values.learned_bounds import (
    UNIT,
    best_bounds,
    magnitude_edges,
    noisy_magnitudes,
    row_weights,
)
from tests.pipelines.command_line import SECRET

ASKED: dict[str, Any] = {"by": "shop", "value": "paid", "epsilon": 1.0}


def source(name: str = "d") -> KeyedNoise:
    return KeyedNoise(bytes.fromhex(SECRET), deployment=name, purpose="frame")


def rows(n: int = 20_000, seed: int = 1) -> pa.Table:
    rng = np.random.default_rng(seed)
    shop = rng.integers(0, 40, n)
    paid = rng.normal(50 + shop / 10, 10)
    return pa.table({"shop": shop, "customer": rng.integers(0, 4_000, n), "paid": paid})


def means(frame: pa.Table, **changes: Any) -> LearnedBoundMeans:
    found: LearnedBoundMeans = meanstream.private_means(frame, **{**ASKED, **changes})
    return found


def exact_counts(monkeypatch: pytest.MonkeyPatch, value: Floats, weight: Any) -> Floats:
    """Histogram without noise, and with every bin kept."""
    with monkeypatch.context() as patch:
        patch.setattr(LaplaceNoise, "sample", lambda _, bits: np.zeros(len(bits)))
        patch.setattr(learned_bounds, "_is_full", lambda counts, edges: counts >= 0)
        counts, _ = noisy_magnitudes(value, weight, epsilon=0.05, units=1, source=source())
    return counts


@pytest.mark.parametrize("seed", range(20))
def test_a_replaced_value_moves_the_histogram_by_two_at_most(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Values at all scales, weights by public sizes: what the noise is calibrated to."""
    rng = np.random.default_rng(seed)
    value = rng.choice([-1.0, 1.0], 400) * 10.0 ** rng.uniform(-9, 15, 400)
    group = rng.integers(0, 5, 400)
    weight = row_weights(np.bincount(group), 0.5)[group]
    other = value.copy()
    other[rng.integers(0, 400)] = rng.choice([0.0, -1e300, 1e300, 1e-300, 3.0])

    before, after = (exact_counts(monkeypatch, v, weight) for v in (value, other))
    moved = np.abs(after - before).sum()
    assert moved <= 2.0
    assert weight.max() <= UNIT
    assert before.sum() == pytest.approx(weight.sum() / UNIT)


@pytest.mark.parametrize("units", [1, 6])
def test_the_noise_is_for_what_moves(units: int, monkeypatch: pytest.MonkeyPatch) -> None:
    scales: list[float] = []
    monkeypatch.setattr(
        LaplaceNoise, "sample", lambda law, bits: scales.append(law.scale) or np.zeros(len(bits))
    )
    weight = np.full(1000, UNIT)
    noisy_magnitudes(np.ones(1000), weight, epsilon=0.05, units=units, source=source())
    assert 2 * units * UNIT / scales[0] <= 0.05 * (1 + 1e-12)


def test_a_twin_with_half_of_the_noise_fails_that_check() -> None:
    assert 2 * UNIT / (UNIT / 0.05) > 0.05 * (1 + 1e-12)


def test_bounds_read_noisy_counts_and_sizes_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two frames whose values differ: with equal noisy counts they have equal bounds."""
    made = noisy_magnitudes(
        np.asarray(rows()["paid"]), np.full(20_000, UNIT), epsilon=0.05, units=1, source=source()
    )
    monkeypatch.setattr(learned_bound_means, "noisy_magnitudes", lambda *_, **__: made)
    one = means(rows())
    changed = rows().set_column(2, "paid", pa.array(np.asarray(rows()["paid"]) * 1e6 - 3))
    two = means(changed)
    assert (one.settings.lower, one.settings.upper) == (two.settings.lower, two.settings.upper)


def test_another_value_has_other_noise_in_every_bin() -> None:
    value = np.asarray(rows()["paid"]).copy()
    weight = np.full(len(value), UNIT)
    counts = []
    for first in (50.0, 51.0):  # of one bin: the exact counts are equal
        value[0] = first
        counts.append(noisy_magnitudes(value, weight, epsilon=0.05, units=1, source=source())[0])
    assert np.array_equal(*counts)
    value[0] = 5e6
    other = noisy_magnitudes(value, weight, epsilon=0.05, units=1, source=source())[0]
    assert not np.any((other == counts[0]) & (other > 0))


SCALES: dict[str, tuple[Floats, float, float]] = {
    "small": (np.random.default_rng(1).uniform(2e-4, 3e-4, 20_000), 1e-4, 6e-4),
    "large": (np.random.default_rng(2).normal(5e7, 1e6, 20_000), 2e7, 2e8),
    "both signs": (np.random.default_rng(3).normal(0, 30, 20_000), -200.0, 200.0),
    "zeros": (np.random.default_rng(4).exponential(8, 20_000) * ([0, 0, 1, 1] * 5_000), 0.0, 100.0),
}


@pytest.mark.parametrize("name", SCALES)
def test_bounds_are_near_the_values_at_every_scale(name: str) -> None:
    """60 histograms: in all of them at most 5 % of the values lie beyond the bounds, which are no
    wider than four times the values. In 48 or more they are near: noise fills a bin among 6 %.

    A bin far out that noise alone fills, in one of 1,000 histograms, would break it; the keys are
    chosen once.
    """
    value, low, high = SCALES[name]
    weight = np.full(len(value), UNIT)
    near = 0
    for seed in range(60):
        counts, edges = noisy_magnitudes(
            value, weight, epsilon=0.05, units=1, source=source(f"s{seed}")
        )
        lower, upper = best_bounds(counts, edges, np.full(100, 200), epsilon=0.95)
        near += low - 1e-9 <= lower < upper <= high
        assert np.mean((value < lower) | (value > upper)) <= 0.05
        assert max(upper, -lower) <= 4 * np.abs(value).max()
    assert near >= 48


def test_a_small_group_far_from_all_others_is_not_cut_off() -> None:
    """One group of 400 rows at 600 among 100,000 rows around 100."""
    rng = np.random.default_rng(1)
    group = np.repeat([0, 1, 2, 3], [50_000, 30_000, 20_000, 400])
    value = np.where(group == 3, rng.normal(600, 5, len(group)), rng.normal(100, 20, len(group)))
    sizes = np.bincount(group)
    kept = 0
    for seed in range(40):
        weight = row_weights(sizes, 0.05)[group]
        counts, edges = noisy_magnitudes(
            value, weight, epsilon=0.05, units=1, source=source(f"s{seed}")
        )
        kept += best_bounds(counts, edges, sizes, epsilon=0.95)[1] > 590
    assert kept >= 30


def test_edges_are_sorted_and_hold_zero() -> None:
    for fineness in (1, 2, 4):
        edges = magnitude_edges(fineness)
        assert np.all(np.diff(edges) > 0)
        assert 0.0 in edges
        assert np.array_equal(edges, -edges[::-1])


def test_a_result_says_what_bounds_and_means_cost_together() -> None:
    found = means(rows(), delta=1e-6)
    assert found.guarantee.startswith("(1, 1e-06)-differentially private towards the value of one")
    assert found.settings.epsilon == pytest.approx(0.95)
    assert found.bounds_epsilon == pytest.approx(0.05)
    lower, upper = found.settings.lower, found.settings.upper
    assert found.notes[1].startswith(f"The bounds [{lower:g}, {upper:g}] were learned")
    text = " ".join(found.explain().split())
    assert "guess right at most 73.1 % of the time" in text
    assert "5 rows of one person epsilon 5" in text or "epsilon 4.9" in text
    assert "epsilon in all" in text
    assert "2 calls are epsilon 2 and delta 2e-06, 30 calls are epsilon 30 and delta 3e-05" in text
    assert np.all(np.abs(np.asarray(found.table["mean"]) - 52) < 6)


def test_one_key_gives_one_result() -> None:
    key = {"secret": SECRET, "name": "shops"}
    assert means(rows(), **key).table.equals(means(rows(), **key).table)
    one, two = means(rows()), means(rows())
    assert not one.table.equals(two.table)


def test_persons_missing_values_and_further_options_go_on() -> None:
    persons = {"person": "customer", "max_groups": 3, "max_rows": 2, "quantiles": [0.5]}
    frame = rows()
    paid = np.asarray(frame["paid"]).copy()
    paid[:50] = -999
    found = means(frame.set_column(2, "paid", pa.array(paid)), missing=[-999], nulls="drop",
                  statistics=["sum"], epsilon=8.0, **persons)  # fmt: skip
    assert -200 < found.settings.lower < found.settings.upper < 200
    assert {"sum", "q0.5"} <= {*found.table.column_names}
    assert found.guarantee.startswith("(8, 0)-differentially private towards all rows of one pers")


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"store": "s.db"}, r"^store must be left out where bounds are learned: a call without"),
        ({"epsilon": None, "odds": "55%"}, r"^odds must be left out where bounds are learned"),
        ({"person": "customer", "per_person": 2}, r"^per_person must be left out where bounds"),
        ({"epsilon": 0.01}, r"^lower must be given: 20,000 rows are too few to learn bounds"),
        ({"secret": SECRET}, r"^name must be given with secret"),
        ({"lower": 0.0}, r"^upper must be given for the numbers of column 'paid'"),
        ({"value": ["paid", "customer"]}, r"^lower must be given for the numbers of column"),
        ({"private_counts": True, "delta": 1e-6}, r"^lower must be given for the numbers of col"),
    ],
)
def test_what_cannot_be_learned_is_refused_in_one_line(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        means(rows(), **changes)


def test_the_part_of_epsilon_is_a_function_of_public_numbers_of_rows() -> None:
    sizes = np.full(50, 400)
    assert bounds_share(sizes, 1.0) == 0.05
    assert bounds_share(sizes, 0.1) == 0.1
    assert bounds_share(np.full(5_000, 60), 1.0) == 0.02
    assert bounds_share(np.append(np.full(5, 60_000), 3), 1.0) == 0.1


def test_a_column_that_is_nearly_always_zero_is_refused_by_noisy_counts() -> None:
    """In 100 histograms of zeros no bin far out is taken for a full one: 2 % each may be."""
    weight = np.full(20_000, UNIT)
    refused = 0
    for seed in range(100):
        counts, edges = noisy_magnitudes(
            np.zeros(20_000), weight, epsilon=0.05, units=1, source=source(f"z{seed}")
        )
        if not counts.any():
            refused += 1
            with pytest.raises(ValueError, match=r"^lower must be given: too few values show"):
                best_bounds(counts, edges, np.full(100, 200), epsilon=0.95)
    assert refused >= 92

"""Persons in several groups: what counts of them, and what all of it costs together."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import meanstream
from meanstream.operators.noise.keyed import KeyedNoise
from meanstream.pipelines.frames.frame_columns import FrameSamples, frame_samples
from meanstream.pipelines.frames.values.whole_persons import PersonLimits, samples_within_limits
from tests.pipelines.command_line import SECRET

LIMITS = PersonLimits(max_groups=3, max_rows=2)
BOUNDS: dict[str, Any] = {"lower": 0.0, "upper": 10.0, "epsilon": 1.0, "delta": 1e-6}
ASKED: dict[str, Any] = {"by": "shop", "value": "paid", "person": "customer", **BOUNDS}


def rows(n: int = 3000, seed: int = 1) -> pa.Table:
    rng = np.random.default_rng(seed)
    return pa.table(
        {
            "shop": [f"s{g}" for g in rng.integers(0, 12, n)],
            "customer": rng.integers(0, 60, n),
            "paid": rng.uniform(0, 10, n),
        }
    )


def counted(table: pa.Table, limits: PersonLimits = LIMITS) -> FrameSamples:
    samples = frame_samples(table, by="shop", value="paid", time=None, person="customer")
    noise = KeyedNoise(bytes.fromhex(SECRET), deployment="d", purpose="frame")
    return samples_within_limits(samples, limits, noise)


def sums(samples: FrameSamples) -> dict[str, tuple[int, float]]:
    """Give the number of rows that count, and the exact sum, of each group."""
    count = np.bincount(samples.group, minlength=len(samples.names))
    total = np.bincount(samples.group, samples.value, len(samples.names))
    return dict(zip(samples.names, zip(count.tolist(), total.tolist(), strict=True), strict=True))


def test_no_person_gives_more_than_the_limits() -> None:
    samples = counted(rows())
    pairs = np.stack([samples.person, samples.group])
    each, many = np.unique(pairs, axis=1, return_counts=True)
    assert many.max() == 2
    assert np.bincount(each[0]).max() == 3
    assert each.shape[1] == 3 * 60  # every customer has rows in three shops or more


@pytest.mark.parametrize("seed", range(5))
def test_a_planted_person_changes_few_sums_by_little(seed: int) -> None:
    """All rows of one person replaced, by extremes: the l1 and l2 norms that the noise is calibrated
    to hold, and numbers of rows stay."""
    table = rows(seed=seed)
    customer = np.asarray(table["customer"])
    paid = np.asarray(table["paid"]).copy()
    paid[customer == 7] = 10.0 * np.random.default_rng(seed).integers(0, 2, (customer == 7).sum())
    other = table.set_column(2, "paid", pa.array(paid))
    before, after = sums(counted(table)), sums(counted(other))
    assert {name: n for name, (n, _) in before.items()} == {
        name: n for name, (n, _) in after.items()
    }
    moved = np.array([after[name][1] - total for name, (_, total) in before.items()])
    span = BOUNDS["upper"] - BOUNDS["lower"]
    assert np.count_nonzero(np.abs(moved) > 1e-9) <= 3
    assert np.abs(moved).max() <= 2 * span
    assert np.sqrt(np.square(moved).sum()) <= 2 * np.sqrt(3) * span


def test_the_order_of_rows_says_nothing() -> None:
    table = rows()
    order = np.random.default_rng(3).permutation(len(table))
    first, second = (sums(counted(t)) for t in (table, table.take(pa.array(order))))
    assert first.keys() == second.keys()
    for name, (count, total) in first.items():
        assert second[name][0] == count
        assert second[name][1] == pytest.approx(total, abs=1e-9)


def test_another_key_draws_other_rows() -> None:
    samples = frame_samples(rows(), by="shop", value="paid", time=None, person="customer")
    noise = KeyedNoise(bytes.fromhex(SECRET), deployment="other", purpose="frame")
    assert sums(samples_within_limits(samples, LIMITS, noise)) != sums(counted(rows()))


@pytest.mark.parametrize("noise", ["gaussian", "laplace"])
def test_all_groups_of_a_person_have_the_budget_together(noise: str) -> None:
    chosen = {"noise": "laplace", "counter": "pm1"} if noise == "laplace" else {}
    key = {"secret": SECRET, "name": "shops"}
    found = meanstream.private_means(rows(), max_groups=3, max_rows=2, **ASKED, **key, **chosen)
    assert 0.999 < found.settings.epsilon_over(3) <= 1.0
    assert found.settings.per_person == 2
    assert found.guarantee.startswith(
        "(1, 1e-06)-differentially private towards all rows of one person (column 'customer') in all groups together; "
        "at most 3 groups of a person and 2 rows in each count"
    )
    again = meanstream.private_means(rows(), max_groups=3, max_rows=2, **ASKED, **key, **chosen)
    assert again.table.equals(found.table)


def test_several_columns_of_whole_persons_share_the_budget() -> None:
    table = rows()
    table = table.append_column("late", pa.array(np.asarray(table["paid"]) > 5))
    asked = {**ASKED, "value": ["paid", "late"], "lower": [0, None], "upper": [10, None]}
    found = meanstream.private_means(table, max_groups=3, max_rows=2, **asked)
    assert 0.99 < found["late"].settings.epsilon_over(6) <= 1.0
    assert "all rows of one person in all groups together" in found.guarantee


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"max_groups": 3}, "^max_groups must be given together with max_rows, got 3$"),
        ({"max_rows": 3, "max_groups": 0}, "^max_groups must be from 1 to 1,000, got 0$"),
        ({"max_rows": 0, "max_groups": 2}, "^max_rows must be at least 1, got 0$"),
        (
            {"max_rows": 1, "max_groups": 2, "per_person": 2},
            "^per_person must be left out with max_groups",
        ),
        ({"max_rows": 1, "max_groups": 2, "person": None}, "^person must be given with max_groups"),
        (
            {"max_rows": 1, "max_groups": 2, "store": "s.db"},
            "^store must be left out with max_groups",
        ),
        (
            {"max_rows": 1, "max_groups": 2, "epsilon": None, "delta": 0.0, "odds": "55%"},
            "^odds must be left out with max_groups",
        ),
        (
            {},
            "^person must be given together with per_person, or max_groups and max_rows, got 'customer'$",
        ),
    ],
)
def test_mistakes_are_refused_in_one_line(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        meanstream.private_means(rows(50), **{**ASKED, **changes})


def worked(seed: int = 1) -> pa.Table:
    """Customers of one to fifty shops, as purchases are."""
    rng = np.random.default_rng(seed)
    shops_of = np.minimum(rng.geometric(0.15, 1500), 50)
    shop = np.concatenate([rng.choice(80, shops, replace=False) for shops in shops_of])
    mean = rng.normal(5, 1, 80)
    return pa.table(
        {
            "shop": shop,
            "customer": np.repeat(np.arange(1500), shops_of),
            "paid": np.clip(rng.normal(mean[shop], 1.7), 0, 10),
        }
    )


def test_the_number_of_groups_follows_from_who_is_where_alone() -> None:
    """More budget pays for more groups; values decide nothing, and a number gives the same bytes."""
    table = worked()
    key = {"secret": SECRET, "name": "auto"}
    chosen = []

    for epsilon in (0.5, 5.0, 50.0):
        asked = ASKED | {"max_rows": 1, "epsilon": epsilon, "delta": 0.0} | key
        auto = meanstream.private_means(table, **asked, max_groups="auto")
        number = int(auto.notes[0].partition("at most ")[2].split()[0])
        same = meanstream.private_means(table, **asked, max_groups=number)
        assert auto.table.equals(same.table)

        other = table.set_column(2, "paid", pa.array(np.zeros(len(table))))
        again = meanstream.private_means(other, **asked, max_groups="auto")
        assert again.notes[0] == auto.notes[0]
        chosen.append(number)

    assert 1 <= chosen[0] < chosen[1] < chosen[2] <= 50


def test_the_chosen_number_is_nearly_the_best() -> None:
    """By the error of what groups release and share, over four keys: within a quarter of the least."""
    table = worked()
    shop, paid = (np.asarray(table[name]) for name in ("shop", "paid"))
    truth = np.bincount(shop, paid) / np.bincount(shop)

    def error(number: int | str) -> float:
        squares = []
        for seed in range(4):
            key = {
                "secret": f"{int(SECRET, 16) ^ (seed * 0x9E3779B97F4A7C15):032x}",
                "name": "best",
            }
            asked = ASKED | {"max_rows": 1, "epsilon": 5.0, "delta": 0.0} | key
            found = meanstream.private_means(table, **asked, max_groups=number).table
            of = truth[np.asarray(found["shop"])]
            squares.append(np.square(np.asarray(found["mean"]) - of).mean())
        return float(np.mean(squares))

    assert error("auto") < 1.25 * min(error(number) for number in (1, 4, 16))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"private_counts": True}, "max_groups must be a number with private_counts"),
        ({"person": None}, "person must be given with max_groups"),
        ({"max_rows": None}, "max_rows must be a number, got None"),
        ({"store": "state.db"}, "store must be left out with max_groups"),
    ],
)
def test_where_no_number_can_follow_it_is_refused(options: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        meanstream.private_means(
            rows(), **{**ASKED, "max_rows": 2, "max_groups": "auto", **options}
        )

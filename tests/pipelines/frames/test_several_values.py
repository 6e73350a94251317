"""Several columns under one budget, truth values as shares, sums, and ratios with intervals."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import meanstream
from meanstream.pipelines.frames.budget_shares import epsilon_of_releases
from meanstream.pipelines.frames.values.several_means import fieller_intervals
from tests.pipelines.command_line import SECRET

BUDGET: dict[str, Any] = {"epsilon": 1.0, "delta": 1e-6}
KEY: dict[str, Any] = {"secret": SECRET, "name": "several"}


def rows(n: int = 4000) -> pa.Table:
    rng = np.random.default_rng(2)
    group = rng.integers(0, 8, n)
    return pa.table(
        {
            "g": group,
            "delay": rng.normal(20 + group, 5),
            "flights": rng.uniform(2, 4, n),
            "late": rng.random(n) < 0.3,
        }
    )


TABLE = rows()


def asked(frame: Any = TABLE, **changes: Any) -> Any:
    return meanstream.private_means(frame, by="g", **{**BUDGET, **KEY, **changes})


def test_truth_values_are_shares_with_bounds_of_their_own() -> None:
    found = asked(value="late").table
    ones = TABLE.set_column(3, "late", TABLE["late"].cast(pa.int8()))
    assert found.equals(asked(ones, value="late", lower=0, upper=1).table)
    assert all(0 <= share <= 1 for share in found["mean"].to_pylist())


def test_sums_are_means_times_rows() -> None:
    table = asked(value="late", statistics=["mean", "sum"]).table
    for total, mean in (("sum", "mean"), ("sum_lower", "lower"), ("sum_upper", "upper")):
        assert np.allclose(table[total], np.asarray(table[mean]) * np.asarray(table["rows"]))


@pytest.mark.parametrize("noise", ["gaussian", "laplace"])
def test_columns_share_one_budget(noise: str) -> None:
    """All columns together have at most the budget, and hardly less."""
    chosen = {"noise": "laplace", "counter": "pm1"} if noise == "laplace" else {}
    found = asked(
        value=["delay", "late", "flights"],
        lower=0,
        upper={"delay": 60, "late": 1, "flights": 5},
        **chosen,
    )
    together = [epsilon_of_releases(one.settings, 3) for one in found.results.values()]
    assert max(together) <= 1.0
    assert min(together) > 0.999
    assert found.guarantee.startswith(
        "(1, 1e-06)-differentially private towards all 3 values of one row"
    )
    assert len({one.settings.name for one in found.results.values()}) == 3


def test_each_column_is_the_release_that_it_is_alone() -> None:
    found = asked(value=["delay", "late"], lower=[0, None], upper=[60, None], statistics=["sum"])
    one = found["late"]
    alone = asked(
        value="late", epsilon=one.settings.epsilon, name=one.settings.name, statistics=["sum"]
    )
    assert one.table.equals(alone.table)
    assert found.table["late"].equals(one.table["mean"])
    assert found.table["delay_sum"].equals(found["delay"].table["sum"])
    assert "rows" in found.table.column_names
    assert len(found) == 8
    assert one.ranks().table.num_rows == 8
    assert "late" in found.explain()


def test_a_frame_of_the_kind_that_was_given_comes_back_with_rows_that_all_columns_have() -> None:
    frame = TABLE.to_pandas()
    frame.loc[[0, 3], "delay"] = np.nan
    frame.loc[[3, 5], "flights"] = np.nan
    found = asked(pd.DataFrame(frame), value=["delay", "flights"], lower=0, upper=60, nulls="drop")
    assert isinstance(found.to_frame(), pd.DataFrame)
    assert sum(found.table["rows"].to_pylist()) == 4000 - 3
    assert any("3 rows with a missing value were left out" in note for note in found.notes)


def test_numbers_that_stand_for_a_missing_value_are_nulls() -> None:
    frame = TABLE.to_pandas()
    frame.loc[[0, 3, 9], "delay"] = -999.0
    marked = pa.Table.from_pandas(frame, preserve_index=False)
    bounds = {"lower": 0, "upper": 60}
    with pytest.raises(ValueError, match=r"^value must have a value in every row, got 3 nulls"):
        asked(marked, value="delay", missing=[-999], **bounds)

    frame = frame.replace(-999.0, None)
    empty = pa.Table.from_pandas(frame, preserve_index=False)
    whole = asked(empty, value="delay", nulls="drop", **bounds)
    assert asked(marked, value="delay", missing=[-999], nulls="drop", **bounds).table.equals(
        whole.table
    )
    both = {"value": ["delay", "flights"], "nulls": "drop", **bounds}
    assert asked(marked, missing=(-999,), **both).table.equals(asked(empty, **both).table)
    with pytest.raises(ValueError, match=r"^missing must be a list of numbers"):
        asked(marked, value="delay", missing=-999, **bounds)


def test_every_result_says_what_becomes_of_values_beyond_the_bounds() -> None:
    found = asked(value="delay", lower=0, upper=60)
    rule = "count as the nearest bound, also a code such as -999 (missing=)"
    assert f"Values outside [0, 60] {rule}" in found.notes
    assert found.explain().count("Values outside") == 1

    several = asked(value=["delay", "flights"], lower=0, upper=[60, 5])
    assert f"Values outside [0, 60] (delay), [0, 5] (flights) {rule}" in several.notes


def test_a_ratio_has_an_interval() -> None:
    found = asked(ratio=("delay", "flights"), lower=0, upper=[60, 5])
    table = found.table
    assert np.allclose(table["ratio"], np.asarray(table["delay"]) / np.asarray(table["flights"]))
    assert (np.asarray(table["ratio_lower"]) < np.asarray(table["ratio"])).all()
    assert table.column_names[-3:] == ["ratio", "ratio_lower", "ratio_upper"]


def test_fiellers_intervals_cover() -> None:
    """At their level within four standard errors of 40,000 draws, .0044. Where the bottom is weak, an
    interval without ends takes the place of two half-lines: it covers more."""
    rng = np.random.default_rng(1)
    for bottom, most in ((10.0, 0.9544), (3.0, 1.0)):
        draws = (rng.normal(20, 2, 40_000), rng.normal(bottom, 1, 40_000))
        errors = (np.full(40_000, 2.0), np.ones(40_000))
        _, low, high = fieller_intervals((draws[0], errors[0]), (draws[1], errors[1]), level=0.95)
        assert 0.9456 < ((low <= 20 / bottom) & (20 / bottom <= high)).mean() < most


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "no bounds": ({"value": "delay", "upper": 60}, "^lower must be given for the numbers of column 'delay', chosen"),
    "bounds of flags": ({"value": "late", "upper": 2}, "^upper must be 1 for true and false, got 2"),
    "too few": ({"value": ["delay", "late"], "lower": [1], "upper": 2}, "^lower must have one bound for each of the 2"),
    "not named": ({"value": ["delay", "late"], "lower": 0, "upper": {"x": 1}}, "^upper must name value columns"),
    "twice": ({"value": ["late", "late"]}, "^value must name different columns"),
    "none": ({}, "^value must name a column, or up to 100 of them, got 0"),
    "half a ratio": ({"ratio": ("late",)}, "^ratio must name two different columns"),
    "a column": ({"value": pd.Series([777.0])}, "^value must be the name of a column, got Series"),
    "columns": ({"value": [pd.Series([777.0])]}, "^value must be the name of a column, got Series"),
    "a statistic": ({"value": "late", "statistics": ["median"]}, "^statistics must be of mean, sum, variance, got"),
    "a store": (
        {"value": ["late", "delay"], "store": "s.db", "secret": None, "lower": 0, "upper": 1},
        "^store must be left out",
    ),
    "odds": (
        {"value": ["late", "delay"], "epsilon": None, "delta": 0.0, "odds": "55%", "lower": 0, "upper": 1},
        "^odds must be left out with several columns",
    ),
    "no epsilon": (
        {"value": ["late", "delay"], "epsilon": None, "lower": 0, "upper": 1},
        "^epsilon must be given for several columns, got None",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_mistakes_are_refused_in_one_line(case: str) -> None:
    changes, said = REFUSED[case]
    with pytest.raises(ValueError, match=said) as refused:
        asked(**changes)
    assert "\n" not in str(refused.value)
    assert "777" not in str(refused.value)


def test_an_unknown_column_of_a_result_has_a_hint() -> None:
    found = asked(value=["delay", "late"], lower=[0, None], upper=[60, None])
    with pytest.raises(KeyError, match="did you mean 'late'"):
        found["lat"]


@pytest.mark.parametrize("skewed", [False, True])
@pytest.mark.parametrize("rows_each", [300, 3000])
def test_intervals_of_variances_hold_the_variance_of_values(skewed: bool, rows_each: int) -> None:
    """Of 240 groups a nominal share of .95 falls below .89 by chance once in 50,000 times."""
    held = []
    for seed in range(4):
        rng = np.random.default_rng([seed, rows_each])
        mean = rng.uniform(10, 30, 60)
        stddev = rng.uniform(3, 9, 60)

        def drawn(count: int, rng: Any = rng, mean: Any = mean, stddev: Any = stddev) -> Any:
            if skewed:
                values = (rng.gamma(4, 1, (count, 60)) - 4) * stddev / 2 + mean
            else:
                values = rng.normal(mean, stddev, (count, 60))
            return np.clip(values, 0, 60)

        values = drawn(rows_each)
        table = pa.table({"g": np.tile(np.arange(60), rows_each), "v": values.ravel()})
        options = {"epsilon": 2.0, "statistics": ["mean", "variance"], "name": f"variance {seed}"}
        found = asked(table, value="v", lower=0, upper=60, delta=0.0, **options).table
        truth = drawn(20_000).var(axis=0)
        low, high = (np.asarray(found[name]) for name in ("variance_lower", "variance_upper"))
        held.append((low <= truth) & (truth <= high))

    assert np.mean(held) > 0.89


def test_variances_share_the_budget_and_true_and_false_need_no_squares() -> None:
    options = {"lower": {"delay": 0}, "upper": {"delay": 60}, "statistics": "variance"}
    found = asked(value=["delay", "late"], **options)
    assert found.guarantee.startswith("(1, 1e-06)-differentially private towards all values")
    spent = epsilon_of_releases(found["late"].settings, 3)
    assert 0.98 < spent <= 1.0

    share = np.asarray(found["late"].table["released"])
    noise = np.asarray(found["late"].table["noise_stddev"])
    np.testing.assert_allclose(
        np.asarray(found.table["late_variance"]), share * (1 - share) + noise**2, rtol=1e-9
    )

    one = asked(value="delay", lower=0, upper=60, statistics=["sum", "variance"])
    assert {"mean", "sum", "variance", "variance_upper"} <= {*one.table.column_names}
    assert one.guarantee.startswith("(1, 1e-06)")


def test_squares_are_of_clipped_values_and_nulls_stay_nulls() -> None:
    far = TABLE.set_column(1, "delay", pa.array(np.asarray(TABLE["delay"]) + 1000.0))
    found = asked(far, value="delay", lower=0, upper=60, statistics=["variance"], epsilon=100.0)
    assert np.asarray(found.table["variance"]).max() < 2.0

    values = TABLE["delay"].to_pylist()
    holes = TABLE.set_column(1, "delay", pa.array([None, *values[1:]]))
    kept = asked(holes, value="delay", lower=0, upper=60, statistics=["variance"], nulls="drop")
    assert sum(kept.table["rows"].to_pylist()) == len(TABLE) - 1


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"store": "state.db"}, "store must be left out with variances"),
        ({"ratio": ("delay", "flights")}, "ratio must be left out with variances"),
        ({"odds": "55%", "epsilon": None}, "odds must be left out with several columns"),
    ],
)
def test_what_variances_do_not_have_is_refused(options: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        asked(value="delay", lower=0, upper=60, statistics=["variance"], **options)


def test_a_square_that_equals_a_missing_number_leaves_no_row_out() -> None:
    """Which rows count is public: it must not follow from a value. Of bounds 0 and 60 the middle is
    30, and the square of 33 is 9."""
    table = pa.table({"g": ["a"] * 6, "v": [33.0, 27.0, 9.0, 1.0, 50.0, 60.0]})
    options = {"lower": 0, "upper": 60, "missing": [9], "nulls": "drop"}
    plain = asked(table, value="v", **options)
    found = asked(table, value="v", statistics=["variance"], **options)
    assert found.table["rows"].to_pylist() == plain.table["rows"].to_pylist() == [5]


@pytest.mark.parametrize("kind", ["text", "encoded numbers"])
def test_variances_of_what_is_no_number_are_refused_without_a_value(kind: str) -> None:
    text = pa.array(["secret", "2"])
    values = text if kind == "text" else pa.array([777.0, 2.0]).dictionary_encode()
    table = pa.table({"g": ["a", "b"], "v": values})
    with pytest.raises(ValueError, match="value must be a column of numbers") as refused:
        asked(table, value="v", lower=0, upper=60, statistics=["variance"])

    assert "secret" not in str(refused.value)
    assert "777" not in str(refused.value)

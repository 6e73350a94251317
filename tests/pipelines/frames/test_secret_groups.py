"""Groups whose names and sizes are secret: what comes out, of which kind, and what is refused."""

from __future__ import annotations

import pickle
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import meanstream
from meanstream.operators.collaboration.registry import COLLABORATIONS
from meanstream.pipelines.frames.secret_groups.secret_result import SecretMeans
from tests.pipelines.command_line import SECRET

BUDGET: dict[str, Any] = {"epsilon": 1.0, "delta": 1e-6}
ASKED: dict[str, Any] = {"by": "shop", "value": "paid", "lower": 0.0, "upper": 10.0, **BUDGET}
KEY: dict[str, Any] = {"secret": SECRET, "name": "shops"}


def rows(n: int = 3000, seed: int = 1, shops: int = 12) -> pa.Table:
    """Shops with many rows each, and one that a single row names."""
    rng = np.random.default_rng(seed)
    shop = [f"s{g:02}" for g in rng.integers(0, shops, n)]
    columns = {
        "shop": [*shop, "once"],
        "customer": [*rng.integers(0, 900, n).tolist(), 4_000],
        "paid": [*rng.uniform(0, 10, n).tolist(), 3.0],
        "open": [*rng.integers(0, 2, n).astype(bool).tolist(), True],
    }
    return pa.table(columns)


def secret(frame: Any, **changes: Any) -> SecretMeans:
    found: SecretMeans = meanstream.private_means(
        frame, **{**ASKED, **KEY, "private_counts": True, **changes}
    )
    return found


def test_columns_order_and_rows() -> None:
    found = secret(rows())
    assert found.table.column_names == ["shop", "rows", "mean", "lower", "upper"]
    assert found.table["shop"].to_pylist() == [f"s{g:02}" for g in range(12)]
    assert [str(field.type) for field in found.table.schema] == ["string", "int64", *["double"] * 3]

    # Noise of a number of rows: Laplace, of standard deviation 2.1; ten of them by a chance of 1e-6.
    exact = np.bincount([int(name[1:]) for name in rows()["shop"].to_pylist()[:-1]])
    errors = np.asarray(found.table["rows"]) - exact
    assert np.abs(errors).max() <= 21
    assert np.any(errors != 0)


def test_a_result_decides_draws_and_explains_as_others_do() -> None:
    found = secret(rows())
    assert found.difference("s00", "s01").interval[0] < found.difference("s00", "s01").value
    assert len(found.ranks().table) == 12
    text = found.explain()
    assert "adding or removing one row" in text
    assert "public; which" not in text
    assert "17.1" in text
    assert "one person" in secret(rows(), person="customer", max_groups=2, max_rows=1).explain()


def test_declared_groups_need_no_delta_and_all_are_answered() -> None:
    declared = ["s03", "nowhere", "once", "s01"]
    found = secret(rows(), groups=declared, delta=0.0)
    assert found.table["shop"].to_pylist() == sorted(declared)
    assert found.plan.delta == 0.0
    table = {row["shop"]: row for row in found.table.to_pylist()}

    # An empty group has the interval of the others' spread, and says nothing by itself.
    width = {name: row["upper"] - row["lower"] for name, row in table.items()}
    assert width["nowhere"] > 2 * width["s01"]
    assert table["nowhere"]["rows"] <= 21
    assert table["nowhere"]["lower"] <= 5.0 <= table["nowhere"]["upper"]


def test_empty_groups_are_answered_from_the_prior() -> None:
    rng = np.random.default_rng(5)
    group = np.repeat(np.arange(40), 500)
    value = rng.normal(rng.normal(6, 0.3, 40)[group], 1.0)
    frame = pa.table({"shop": group, "paid": value})
    found = secret(frame, groups=[*range(60)], delta=0.0).table.slice(40)
    assert np.all(np.abs(np.asarray(found["mean"]) - 6) < 1.5)
    assert np.all(np.asarray(found["upper"]) - np.asarray(found["lower"]) < 5)


def test_declared_groups_of_several_columns() -> None:
    found = secret(rows(), by=["shop", "open"], groups=[("s01", True), ("s02", False)], delta=0)
    assert found.table.select(["shop", "open"]).to_pylist() == [
        {"shop": "s01", "open": True},
        {"shop": "s02", "open": False},
    ]


KINDS = {
    "pandas": lambda table: table.to_pandas(),
    "categorical": lambda table: table.to_pandas().astype({"shop": "category"}),
    "polars": pl.from_arrow,
    "polars categorical": lambda table: pl.from_arrow(table).with_columns(
        pl.col("shop").cast(pl.Categorical)
    ),
    "duckdb": duckdb.from_arrow,
    "arrow": lambda table: table,
    "dictionary": lambda table: table.set_column(0, "shop", table["shop"].dictionary_encode()),
}


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_frame_gives_the_same_and_lists_no_other_name(kind: str) -> None:
    frame = KINDS[kind](rows())
    found = secret(frame)
    assert found.table.equals(secret(rows()).table)
    answer = found.to_frame()
    assert type(answer).__module__.partition(".")[0] == type(frame).__module__.partition(".")[0]
    shown = answer.shop.dtype if isinstance(answer, pd.DataFrame) else found.table["shop"].type
    assert "once" not in repr(shown)
    if kind not in ("duckdb",):  # whose relations are of their process
        assert b"once" not in pickle.dumps(found)


def test_the_same_frame_is_the_same_release_in_any_order_of_rows() -> None:
    table = rows()
    found = secret(table)
    order = np.random.default_rng(3).permutation(len(table))
    assert secret(table.take(pa.array(order))).table.equals(found.table)
    assert not secret(table, name="other").table.equals(found.table)
    assert not secret(table, secret=None, name=None).table.equals(found.table)


def test_a_frame_that_differs_in_one_row_has_other_noise_everywhere() -> None:
    before = secret(rows()).releases
    after = secret(rows().slice(1)).releases
    assert before["shop"].equals(after["shop"])
    assert not np.any(np.asarray(before["above"]) == np.asarray(after["above"]))
    assert not np.any(np.asarray(before["below"]) == np.asarray(after["below"]))


ODD_ROWS: dict[str, dict[str, Any]] = {
    "no name": {"shop": None},
    "no value": {"paid": None},
    "not a number": {"paid": float("nan")},
    "infinite": {"paid": float("inf")},
    "missing by number": {"paid": -999.0},
    "no person": {"customer": None},
    "empty name": {"shop": ""},
    "decomposed name": {"shop": "Cafe\u0301"},
    "far out": {"paid": 1e300},
}


@pytest.mark.parametrize("kind", ODD_ROWS)
def test_no_row_is_refused_and_each_decides_by_itself(kind: str) -> None:
    row = {"shop": "s01", "customer": 5_001, "paid": 3.0, "open": True, **ODD_ROWS[kind]}
    table = pa.concat_tables([rows(), pa.table({k: [v] for k, v in row.items()}, rows().schema)])
    changes = {"person": "customer", "max_groups": 2, "max_rows": 2, "missing": [-999]}
    found = secret(table, **changes)
    counts = kind in ("empty name", "decomposed name", "far out")
    assert found.table.equals(secret(rows(), **changes).table) != counts


def test_names_have_one_spelling() -> None:
    both = ["Caf\u00e9", "Cafe\u0301"] * 100
    found = secret(pa.table({"shop": both, "paid": np.full(200, 5.0)}))
    assert found.table["shop"].to_pylist() == ["Caf\u00e9"]
    assert found.table["rows"][0].as_py() > 150


def test_persons_texts_of_any_length_are_no_refusal() -> None:
    people = ["x" * 300, "", *(f"p{number}" for number in range(998))]
    frame = pa.table({"shop": ["a"] * 1000, "who": people, "paid": np.full(1000, 5.0)})
    assert len(secret(frame, person="who", max_groups=1, max_rows=1)) == 1


@pytest.mark.parametrize("frame", [rows().slice(0, 0), rows().slice(3000)], ids=["none", "one"])
def test_a_frame_of_no_row_or_one_has_a_result_without_groups(frame: pa.Table) -> None:
    found = secret(frame)
    assert len(found) == 0
    assert found.table.schema.equals(secret(rows()).table.schema)
    assert found.to_frame().num_rows == 0
    assert "adding or removing" in found.explain()
    assert len(secret(frame, groups=["s01"], delta=0)) == 1


@pytest.mark.parametrize("collaboration", COLLABORATIONS)
def test_every_collaboration_answers(collaboration: str) -> None:
    found = secret(rows(), collaboration=collaboration)
    lower, mean, upper = (np.asarray(found.table[name]) for name in ("lower", "mean", "upper"))
    assert np.all((lower <= mean) & (mean <= upper))
    assert np.all(np.abs(mean - 5) < 1.5)


def test_true_and_false_are_answered_by_shares() -> None:
    found = secret(rows(), value="open", lower=None, upper=None)
    assert np.all(np.abs(np.asarray(found.table["mean"]) - 0.5) < 0.2)


def test_a_person_counts_within_the_limits() -> None:
    """One person with a group of its own, of a thousand rows, is one person."""
    table = rows()
    mine = pa.table(
        {
            "shop": ["mine"] * 1000,
            "customer": [5_000] * 1000,
            "paid": [9.0] * 1000,
            "open": [True] * 1000,
        }
    )
    found = secret(
        pa.concat_tables([table, mine]), person="customer", max_groups=2, max_rows=3, epsilon=4.0
    )
    assert "mine" not in found.table["shop"].to_pylist()
    assert len(found) == 12
    assert found.guarantee.endswith(
        "at most 2 groups of a person and 3 rows in each count, drawn by a secret key"
    )


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"store": "s.db"}, "^store must be left out with private_counts: no ledger counts"),
    ({"schedule": "preferred:10"}, "^schedule must be left out with private_counts: one call"),
    ({"covariates": pd.DataFrame()}, "^covariates must be left out .*, got 'DataFrame'$"),
    ({"quantiles": [0.5]}, "^quantiles must be left out with private_counts"),
    ({"exceeds": [5.0]}, "^exceeds must be left out with private_counts: ask for the mean"),
    ({"ratio": ("paid", "open")}, "^ratio must be left out with private_counts: call once"),
    ({"statistics": ["sum"]}, "^statistics must be left out with private_counts: multiply"),
    ({"odds": "55%"}, "^odds must be left out with private_counts: epsilon is the promise"),
    ({"time": "when"}, "^time must be left out with private_counts"),
    ({"releases": 2}, "^releases must be left out with private_counts"),
    ({"coverage": "anytime"}, "^coverage must be left out with private_counts"),
    ({"person": "customer", "per_person": 1}, "^per_person must be left out .*max_groups="),
    ({"person": "customer"}, "^person must be given together with max_groups and max_rows"),
    ({"noise": "gaussian"}, "^noise must be left out with private_counts: its noise is Laplace"),
    ({"value": ["paid", "open"]}, "^value must name one column with private_counts"),
    ({"nulls": "refuse"}, "^nulls must be 'drop' with private_counts: a refusal would tell"),
    ({"private_counts": "yes"}, "^private_counts must be True or False, got 'yes'$"),
    ({"private_counts": False, "groups": ["s01"]}, "^groups must be given with private_counts"),
    ({"delta": 0.0}, r"^delta must lie in \(0, 1\), such as 1e-6, .*groups= declares them"),
    ({"groups": ["s01"]}, "^delta must be 0 with groups"),
    ({"groups": [], "delta": 0}, "^groups must be a list of names"),
    ({"groups": ["a", "a"], "delta": 0}, "^groups must name each group once"),
    ({"groups": [1], "delta": 0}, "^groups must have names of the type of column 'shop', string"),
    ({"groups": ["a"], "by": ["shop", "open"], "delta": 0}, "^groups must have a tuple"),
    ({"groups": [None], "delta": 0}, "^groups must have no missing names"),
    ({"by": "paid"}, "^by must be a column of text, whole numbers or true and false"),
    ({"value": "shop"}, "^value must be a column of numbers, or of true and false, as 'shop'"),
    ({"by": "shops"}, "^by must be a column of the frame, got 'shops'; did you mean 'shop'"),
    ({"epsilon": 1e-4}, "^epsilon must be at least 0.0011, a hundredth of which"),
    ({"epsilon": None}, "^epsilon must be given"),
    ({"lower": None}, "^lower must be given for the numbers of column 'paid'"),
]


@pytest.mark.parametrize(("changes", "said"), REFUSED)
def test_what_is_not_supported_is_refused_in_one_line(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said) as refused:
        secret(rows(60), **changes)
    assert "\n" not in str(refused.value)


def test_a_column_named_like_an_answer_is_refused() -> None:
    frame = rows(60).rename_columns(["rows", "customer", "paid", "open"])
    with pytest.raises(ValueError, match=r"^by must not be named like a"):
        secret(frame, by="rows")


def test_a_plan_says_which_share_of_names_comes_out() -> None:
    sizes = pa.table({"shop": [*range(100)], "rows": [*range(1, 101)]})
    options: dict[str, Any] = {"by": "shop", "rows": "rows", "lower": 0, "upper": 10, "spread": 1}
    found = meanstream.plan_means(
        sizes, **options, delta=1e-6, epsilon=[0.5, 1, 2], private_counts=True
    ).table
    names = found["names"].to_pylist()
    plan = secret(rows(60)).plan
    assert names[1] == pytest.approx(np.mean([plan.comes_out(n) for n in range(1, 101)]))
    assert names == sorted(names)
    public = meanstream.plan_means(sizes, **options, delta=1e-6, epsilon=[0.5, 1, 2]).table
    assert np.all(np.asarray(found["large"]) > 0.5 * np.asarray(public["large"]))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"rows": None}, r"^rows must name a column of your guesses with private_counts"),
        ({"per_person": 2}, r"^per_person must be left out with private_counts"),
        ({"releases": 2}, r"^releases must be left out with private_counts"),
        ({"delta": 0}, r"^delta must lie in \(0, 1\)"),
    ],
)
def test_a_plan_reads_no_secret_numbers_of_rows(changes: dict[str, Any], said: str) -> None:
    options: dict[str, Any] = {"by": "shop", "rows": "customer", "delta": 1e-6, **changes}
    with pytest.raises(ValueError, match=said):
        meanstream.plan_means(rows(60), lower=0, upper=10, spread=1, private_counts=True, **options)

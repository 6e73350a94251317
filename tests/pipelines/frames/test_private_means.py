"""`private_means`: the engine's own releases, from a frame of any kind; refusals name the column
and the rule."""

from __future__ import annotations

import csv
import datetime
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import meanstream
from meanstream.pipelines.frames.frame_result import LearnedPopulation
from tests.pipelines.command_line import SECRET
from tests.pipelines.command_line import meanstream as command

BOUNDS: dict[str, Any] = {"lower": -30.0, "upper": 120.0, "epsilon": 1.0, "delta": 1e-6}
SAME: dict[str, Any] = {"secret": SECRET, "name": "flights"}


def samples(n: int = 3000, groups: int = 30) -> pa.Table:
    rng = np.random.default_rng(4)
    group = rng.integers(0, groups, n)
    return pa.table(
        {
            "plane": [f"N{g}" for g in group],
            "delay": np.round(rng.normal(10 + group, 20), 3),
            "when": pa.array(
                (1_357_000_000 + 60 * rng.permutation(n)).astype(np.int64) * 1000,
                pa.timestamp("ms", "UTC"),
            ),
            "carrier": pa.array(np.where(group % 2, "AA", "UA")),
            "extra": pa.array([{"x": 1}] * n),
        }
    )


TABLE = samples()
KINDS: dict[str, Callable[[pa.Table], Any]] = {
    "pyarrow": lambda table: table,
    "pandas": lambda table: table.to_pandas(),
    "polars": pl.from_arrow,
    "duckdb": duckdb.from_arrow,
}


def asked(frame: Any, **changes: Any) -> Any:
    return meanstream.private_means(
        frame, **{"by": "plane", "value": "delay", "time": "when", **BOUNDS, **SAME, **changes}
    )


@pytest.mark.parametrize("horizon", [1, 40])
def test_the_releases_are_the_engines_own(horizon: int, tmp_path: Path) -> None:
    """The same data as a file, read by the command, under one secret and one name."""
    with (tmp_path / "f.csv").open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["plane", "delay", "when"])
        columns = (
            TABLE.column("plane").to_pylist(),
            TABLE.column("delay").to_pylist(),
            TABLE.column("when").to_pylist(),
        )
        rows.writerows([p, d, t.isoformat()] for p, d, t in zip(*columns, strict=True))
    schedule = ("--schedule", "geometric:1000000000000,2") if horizon == 1 else ()
    ran = command(
        "run", "agents", "--source", f"{tmp_path}/f.csv", "--agent", "plane", "--value", "delay", "--time", "when",
        "--lower", "-30", "--upper", "120", "--epsilon", "1", "--delta", "1e-6", "--name", "flights", "--store",
        f"{tmp_path}/s.db", "--sink", f"{tmp_path}/e.jsonl", "--releases", f"{tmp_path}/r.jsonl", "--horizon",
        str(horizon), *schedule, "--quiet", environment={"MEANSTREAM_SECRET": SECRET},
    )  # fmt: skip
    assert ran.code == 0, ran.err
    events = [json.loads(line) for line in (tmp_path / "r.jsonl").read_bytes().splitlines()]
    fields = ("agent", "index", "n", "total", "mean", "noise_variance")
    found = sorted(
        tuple(row[name] for name in fields)
        for row in asked(
            TABLE, releases=horizon, schedule=None if horizon == 1 else "preferred:10"
        ).releases.to_pylist()
    )
    assert found == sorted(tuple(event[name] for name in fields) for event in events)
    assert len(found) == 30 if horizon == 1 else len(found) > 90


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_frame_gives_the_same_and_gets_its_own(kind: str) -> None:
    frame = KINDS[kind](TABLE)
    found = asked(frame)
    assert found.to_arrow().equals(asked(TABLE).to_arrow())
    own = found.to_frame()
    assert type(own).__module__.split(".")[0].lstrip("_") == type(frame).__module__.split(".")[
        0
    ].lstrip("_")
    assert [*own.columns] if kind != "pyarrow" else own.column_names == found.table.column_names


def test_means_are_private_close_and_covered() -> None:
    """Each of 400 groups of 300 rows: its mean lies in its interval of level .95 in at least .91
    (three errors)."""
    rng = np.random.default_rng(9)
    truth = rng.normal(40, 8, 400)
    table = pa.table(
        {"g": np.repeat(np.arange(400), 300), "v": rng.normal(np.repeat(truth, 300), 15)}
    )
    found = meanstream.private_means(
        table, by="g", value="v", **BOUNDS, secret=SECRET, name="c"
    ).to_arrow()
    order = np.argsort(np.asarray(found.column("g")))
    mean, low, high = (np.asarray(found.column(name))[order] for name in ("mean", "lower", "upper"))
    assert ((low <= truth) & (truth <= high)).mean() > 0.91
    released = np.asarray(found.column("released"))[order]
    assert ((mean - truth) ** 2).mean() < ((released - truth) ** 2).mean()  # .93 of it expected
    assert found.column("rows").to_pylist() == [300] * 400


def test_without_a_secret_the_noise_is_new_in_each_call() -> None:
    free = {"secret": None, "name": None}
    assert not asked(TABLE, **free).to_arrow().equals(asked(TABLE, **free).to_arrow())


def test_another_row_changes_the_noise_and_another_name_too() -> None:
    other = TABLE.set_column(1, "delay", pa.array([99.0, *TABLE.column("delay").to_pylist()[1:]]))
    first, changed, renamed = asked(TABLE), asked(other), asked(TABLE, name="flights 2")
    group = TABLE.column("plane").to_pylist()[0]
    totals = [
        {row["agent"]: row["total"] for row in found.releases.to_pylist()}
        for found in (first, changed, renamed)
    ]
    assert {name for name in totals[0] if totals[0][name] != totals[1][name]} == {group}
    assert (
        abs(totals[0][group] - totals[1][group])
        != abs(TABLE.column("delay").to_pylist()[0] - 99.0) * 4096
    )
    assert all(totals[0][name] != totals[2][name] for name in totals[0])


def test_several_columns_make_a_group_and_stay_columns() -> None:
    found = asked(TABLE, by=["carrier", "plane"]).to_arrow()
    pairs = {(row["carrier"], row["plane"]) for row in found.to_pylist()}
    expected = set(
        zip(TABLE.column("carrier").to_pylist(), TABLE.column("plane").to_pylist(), strict=True)
    )
    assert pairs == expected
    counts = {row["plane"]: row["rows"] for row in found.to_pylist()}
    assert counts == {row["plane"]: row["rows"] for row in asked(TABLE).to_arrow().to_pylist()}


@pytest.mark.parametrize("column", [
    pa.array([1, 2, 1]), pa.array(["ä", "b", "ä"]).dictionary_encode(), pa.array([True, False, True]),
    pa.array([datetime.date(2026, 1, 1), datetime.date(2026, 1, 2), datetime.date(2026, 1, 1)]),
    pa.array([b"a", b"b", b"a"], pa.binary_view()), pa.array([b"a", b"b", b"a"], pa.binary(1)),
])  # fmt: skip
def test_groups_may_be_named_by_integers_categories_dates_and_flags(column: pa.Array) -> None:
    table = pa.table({"g": column, "v": [1.0, 2.0, 3.0]})
    found = meanstream.private_means(table, by="g", value="v", **BOUNDS, **SAME).to_arrow()
    rows = dict(zip(found.column("g").to_pylist(), found.column("rows").to_pylist(), strict=True))
    assert rows == {column[0].as_py(): 2, column[1].as_py(): 1}
    assert [*rows] == sorted(rows)


@pytest.mark.parametrize("kind", [pl.Categorical, pl.Enum(["b", "ä", "c"])])
def test_groups_may_be_categories_of_polars(kind: Any) -> None:
    names = ["ä", "b", "ä"]
    frame = pl.concat(
        [pl.DataFrame({"g": pl.Series(names, dtype=kind), "v": [1.0, 2.0, 3.0]}) for _ in range(2)]
    )
    found = meanstream.private_means(frame, by="g", value="v", **BOUNDS, **SAME)
    texts = pa.table({"g": names * 2, "v": [1.0, 2.0, 3.0] * 2})
    assert found.table.equals(
        meanstream.private_means(texts, by="g", value="v", **BOUNDS, **SAME).table
    )


def three(**columns: Any) -> pa.Table:
    return pa.table({"g": ["a", "b", "a"], "v": [1.0, 2.0, 3.0], "t": [1, 2, 3]} | columns)


REFUSED: dict[str, tuple[Any, dict[str, Any], str]] = {
    "no column": (three(), {"value": "w"}, "value must be a column of the frame, got 'w'"),
    "no group": (three(), {"by": "grp"}, "by must be a column of the frame, got 'grp'"),
    "twice": (three(), {"by": ["g", "g"]}, "by must name one column or several different ones"),
    "none": (three(), {"by": []}, "by must name one column or several different ones"),
    "text": (
        three(v=["777", "1", "2"]),
        {},
        "value must be a column of numbers, got text: numbers (3) in column 'v': pc.cast(",
    ),
    "flags": (
        three(v=[True, False, True]),
        {},
        "lower must be 0 for true and false, got -30",
    ),
    "null": (
        three(v=[1.0, None, 3.0]),
        {},
        "value must have a value in every row, got 1 nulls in column 'v'; nulls='drop'",
    ),
    "nan": (
        three(v=[777.0, float("nan"), float("inf")]),
        {},
        "value must be finite in every row, got 2 that are not",
    ),
    "null group": (
        three(g=["a", None, "b"]),
        {},
        "by must have a value in every row, got 1 nulls in column 'g'",
    ),
    "floats": (three(g=[1.0, 2.0, 1.0]), {}, "by must be a column of names"),
    "time": (
        three(t=["a", "b", "c"]),
        {"time": "t"},
        "or seconds in every row, got text: other text (3) in column 't': write them all as 2026-",
    ),
    "milliseconds": (
        three(t=[1.7e12, 2.0, 3.0]),
        {"time": "t"},
        "time must lie between the years 1900 and 2100",
    ),
    "nanoseconds": (
        three(t=[1, 2, 1_700_000_000_000_000_777]),
        {"time": "t"},
        "got 1 that do not in column 't'",
    ),
    "called the same": (
        pd.DataFrame([["a", 1.0, 2.0]], columns=["g", "v", "v"]),
        {},
        "value must name one column, got 'v', which 2 are called",
    ),
    "index": (
        pd.DataFrame({"v": [1.0, 2.0]}, index=pd.Index(["a", "b"], name="g")),
        {},
        "by must be a column of the frame, got 'g', the name of its index: frame.reset_index() makes it a column",
    ),
    "categories of floats": (
        three(g=pa.array([1.0, 2.0, 1.0]).dictionary_encode()),
        {},
        "by must be a column of names",
    ),
    "octets": (three(g=[b"\xff777", b"b", b"b"]), {}, "by must have names that are UTF-8"),
    "far group": (
        three(g=pa.array([2**63 - 777, 5, 5], pa.timestamp("ms"))),
        {},
        "by must have names that are UTF-8",
    ),
    "unknown zone": (
        three(g=pa.array([5, 5, 5], pa.timestamp("s", "Nowhere/Land"))),
        {},
        "or dates that Python has",
    ),
    "runs": (
        three(
            g=pa.RunEndEncodedArray.from_arrays(pa.array([1, 3], pa.int32()), pa.array(["a", "b"]))
        ),
        {},
        "by must be a column of names",
    ),
    "spans": (
        three(g=pa.array([pa.MonthDayNano([1, 2, 3])] * 3)),
        {},
        "by must be a column of names",
    ),
    "far time": (
        three(t=pa.array([-(2**63), 5, 6], pa.timestamp("s"))),
        {"time": "t"},
        "time must lie between the years 1900 and 2100 in every row (numbers are seconds since 1970), got 1 that",
    ),
    "far day": (
        three(t=pa.array([2**31 - 1, 5, 6], pa.date32())),
        {"time": "t"},
        "time must lie between the years",
    ),
    "bounds": (three(), {"lower": 200.0}, "lower must be below upper"),
    "epsilon": (three(), {"epsilon": -1.0}, "epsilon must be positive and finite, got -1.0"),
    "epsilon in a list": (three(), {"epsilon": [1.0]}, "epsilon must be a number, got [1.0]"),
    "releases": (three(), {"releases": 0}, "releases must be a whole number of at least 1, got 0"),
    "lost releases": (
        three(),
        {"releases": 12},
        "releases must be 1 without a store or a schedule: one call releases",
    ),
    "a month of a minute": (
        three(t=[1, 2, 3]),
        {"time": "t", "releases": 12, "schedule": "every:1m"},
        "schedule must name minutes as min (every:1min), since m reads like month; for months call once a month with a",
    ),
    "secret": (three(), {"secret": "password"}, "secret must"),
    "name": (three(), {"name": None}, "name must be given with secret"),
    "no person": (
        three(),
        {"per_person": 3},
        "person must be given together with per_person, or max_groups and max_rows, got None",
    ),
    "no limit": (
        three(),
        {"person": "g"},
        "person must be given together with per_person, or max_groups and max_rows, got 'g'",
    ),
    "no such person": (
        three(),
        {"person": "h", "per_person": 3},
        "person must be a column of the frame, got 'h'",
    ),
    "person of floats": (
        three(),
        {"person": "v", "per_person": 3},
        "person must be a column of names",
    ),
    "empty person": (
        three(h=["", "777", "777"]),
        {"person": "h", "per_person": 3},
        "person must have texts of 1 to 256 bytes in every row, got 1 others in column 'h'",
    ),
    "nulls": (three(), {"nulls": "keep"}, "nulls must be 'refuse' or 'drop', got 'keep'"),
    "no name": (
        three(),
        {"value": pl.Series([777.0])},
        "value must be the name of a column, got Series",
    ),
    "mixed": (pd.DataFrame({"g": ["a", "b"], "v": [1.0, "text 777"]}), {}, "got others in 'v'"),
    "objects": (pd.DataFrame({"g": [object(), "b"], "v": [1.0, 2.0]}), {}, "got others in 'g'"),
    "taken": (
        three(mean=["a", "b", "a"]),
        {"by": "mean"},
        "by must not be named like a column of the result",
    ),
    "way": (three(), {"collaboration": "gossip"}, "collaboration must"),
    "level": (three(), {"level": 2.0}, "level must"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_a_refusal_is_one_line_that_names_column_and_rule_and_no_value(what: str) -> None:
    frame, changes, said = REFUSED[what]
    with pytest.raises(ValueError, match=re.escape(said)) as refusal:
        meanstream.private_means(frame, **{"by": "g", "value": "v", **BOUNDS, **SAME, **changes})
    assert "\n" not in str(refusal.value)
    assert "777" not in str(refusal.value)


@pytest.mark.parametrize("frame", [[1, 2], {"g": [1]}, pl.LazyFrame({"g": [1], "v": [1.0]}), None])
def test_what_is_no_frame_is_refused(frame: Any) -> None:
    with pytest.raises(TypeError, match="frame must be a frame of pandas"):
        meanstream.private_means(frame, by="g", value="v", **BOUNDS)


@pytest.mark.parametrize("kind", KINDS)
def test_an_empty_frame_gives_an_empty_one(kind: str) -> None:
    found = asked(KINDS[kind](TABLE.slice(0, 0)))
    assert len(found) == 0
    assert found.to_arrow().column_names == asked(TABLE).to_arrow().column_names
    assert "<table" in found._repr_html_() or kind == "duckdb"


def test_one_row_gives_one_mean_within_the_bounds() -> None:
    (row,) = asked(TABLE.slice(0, 1)).to_arrow().to_pylist()
    assert -30 <= row["lower"] <= row["mean"] <= row["upper"] <= 120


def test_in_a_notebook_names_are_text_and_the_guarantee_is_said() -> None:
    table = pa.table({"g": ["<script>alert(1)</script>"] * 20, "v": np.arange(20.0)})
    for kind in ("pyarrow", "pandas", "polars"):
        found = meanstream.private_means(
            KINDS[kind](table), by="g", value="v", **BOUNDS, **SAME, collaboration="none"
        )
        shown = found._repr_html_()
        assert "<script>" not in shown
        assert "&lt;script&gt;" in shown
        for text in (shown, repr(found)):
            assert "(1, 1e-06)-differentially private towards the value of one row" in text


def test_a_picture_has_an_interval_for_each_group() -> None:
    axes = asked(TABLE).plot()
    assert len(axes.get_yticklabels()) == 30
    assert axes.get_title() == "Private means: all 30 groups"
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("mean of delay (95 % interval)", "plane")
    axes.figure.clear()


def test_a_picture_of_some_groups_says_how_many_there_are() -> None:
    many = pa.table({"g": [f"g{i}" for i in range(200)], "v": np.linspace(0, 90, 200)})
    found = meanstream.private_means(
        many, by="g", value="v", **BOUNDS, **SAME, collaboration="none"
    )
    axes = found.plot(unit="minutes")
    assert axes.get_title() == "Private means: 30 of 200 groups, evenly by their means"
    assert axes.get_xlabel() == "mean of v, minutes (95 % interval)"
    assert len(axes.get_yticklabels()) == 30
    axes.figure.clear()


def test_a_notebook_shows_rounded_numbers_to_the_right_and_a_bar_for_each_interval() -> None:
    for kind in ("pandas", "polars", "pyarrow"):
        means = asked(KINDS[kind](TABLE), collaboration="none")
        shown = means._repr_html_()
        assert shown.count("text-align: right") == 6 * 11  # all columns but the name
        assert shown.count("<tr") == 11
        assert shown.count("currentColor") == 2 * 10  # readable on dark pages, too
        assert "color:" not in shown.replace("background:currentColor", "")
        assert re.search(r">-?\d+\.\d{4,}<", shown) is None
        assert "charges each row once</p>" in shown


def test_numbers_are_shown_as_far_as_their_interval_leaves_them() -> None:
    means = asked(TABLE)
    names = means.table.column_names
    cells = [line.split() for line in repr(means).splitlines()[1:11]]
    for row, texts in zip(means.to_arrow().slice(0, 10).to_pylist(), cells, strict=True):
        half = (row["upper"] - row["lower"]) / 2
        unit = 10.0 ** -max(1 - np.floor(np.log10(half)), 0)
        for name in ("mean", "lower", "upper"):
            text = texts[names.index(name)]
            assert abs(float(text) - row[name]) <= unit / 2 + 1e-9
            assert len(text.partition(".")[2]) == round(-np.log10(unit))


def test_below_a_table_stands_what_a_mean_is_of() -> None:
    means = asked(TABLE, level=0.9)
    said = (
        "`mean` estimates a group's long-run mean of values clipped to [-30, 120]; its 90 % interval includes "
        "noise and sampling"
    )
    assert means.meaning == said
    assert said in " ".join(repr(means).split())
    assert said in means._repr_html_().replace("&#x27;", "'")
    assert said in " ".join(means.explain().split())


@pytest.mark.parametrize("name", ["lower", "upper", "epsilon", "delta"])
def test_a_text_is_no_number(name: str) -> None:
    with pytest.raises(ValueError, match=f"{name} must be a number, got the text '1'"):
        asked(TABLE, **{name: "1"})


def test_values_are_in_no_message_of_the_engine(caplog: pytest.LogCaptureFixture) -> None:
    """Frames with other columns of any kind are read too: only those that are named are
    converted."""
    frame = pd.DataFrame({"g": ["a", "b"], "v": [777.25, 3.0], "o": [object(), object()]})
    found = meanstream.private_means(frame, by="g", value="v", **BOUNDS, **SAME)
    assert "777" not in repr(found) + found._repr_html_() + caplog.text


def test_integers_that_floats_round_are_clipped_like_others_and_not_shown() -> None:
    """Arrow's own refusal of 2**53 + 1 would show it."""
    found = meanstream.private_means(
        three(v=[2**53 + 1, -(2**60), 3]), by="g", value="v", **BOUNDS, **SAME
    )
    clipped = meanstream.private_means(
        three(v=[120.0, -30.0, 3.0]), by="g", value="v", **BOUNDS, **SAME
    )
    assert found.to_arrow().equals(clipped.to_arrow())


def test_quantiles_and_exceedances_are_columns_beside_the_mean() -> None:
    found = asked(TABLE, quantiles=[0.9, 0.5], exceeds=[30]).to_arrow()
    names = [
        f"{name}{end}" for name in ("q0.5", "q0.9", "exceeds30") for end in ("", "_lower", "_upper")
    ]
    assert found.column_names[7:] == names
    values = {name: np.asarray(found.column(name)) for name in found.column_names[1:]}
    for name in ("q0.5", "q0.9", "exceeds30"):
        assert (values[f"{name}_lower"] <= values[name]).all()
        assert (values[name] <= values[f"{name}_upper"]).all()
    raw = {
        g: TABLE.filter(pa.compute.equal(TABLE["plane"], g))["delay"].to_numpy()
        for g in set(TABLE["plane"].to_pylist())
    }
    groups = found.column("plane").to_pylist()
    held = dict.fromkeys(("q0.5", "q0.9", "exceeds30"), 0)
    for row, group in enumerate(groups):
        truths = (
            np.quantile(raw[group], 0.5),
            np.quantile(raw[group], 0.9),
            float((raw[group] > 30).mean()),
        )
        for name, truth in zip(held, truths, strict=True):
            held[name] += int(values[f"{name}_lower"][row] <= truth <= values[f"{name}_upper"][row])
    assert min(held.values()) >= 0.8 * len(groups)


def test_what_is_asked_of_a_histogram_comes_out_of_the_same_budget() -> None:
    plain, more = (asked(TABLE, noise="gaussian", quantiles=q) for q in ([], [0.5]))
    assert plain.settings.histogram is None
    assert more.settings.histogram_share == 0.1
    assert more.settings.rho == pytest.approx(plain.settings.rho)
    wider = np.asarray(more.to_arrow()["noise_stddev"]) / np.asarray(
        plain.to_arrow()["noise_stddev"]
    )
    assert wider == pytest.approx((0.9 / 0.8) ** 0.5, rel=1e-3)
    again = asked(TABLE, noise="gaussian", quantiles=[0.5])
    assert more.to_arrow().equals(again.to_arrow())


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"quantiles": [1.5]}, r"quantiles must lie in \(0, 1\), got 1\.5"),
        ({"exceeds": [120]}, r"exceeds must lie in \[-30\.0, 120\.0\), got 120\.0"),
        (
            {"histogram_share": 0.2},
            "histogram_share must be left out without quantiles or exceeds, got 0.2",
        ),
        (
            {"quantiles": [0.5], "histogram_share": 0.0},
            "histogram_share must be more than 0 with quantiles",
        ),
    ],
)
def test_histograms_that_cannot_be_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        asked(TABLE, **changes)


def test_groups_of_two_are_answered_with_all_of_the_bounds() -> None:
    table = pa.table({"plane": ["a", "a", "b"], "delay": [1.0, 2.0, 3.0]})
    found = asked(table, time=None, quantiles=[0.5]).to_arrow()
    assert found["q0.5_lower"].to_pylist() == [-30.0, -30.0]
    assert found["q0.5_upper"].to_pylist() == [120.0, 120.0]
    assert asked(table.slice(0, 0), time=None, quantiles=[0.5]).to_arrow().num_rows == 0


def test_groups_of_one_row_are_answered_by_all_others() -> None:
    """Noise of a group of one row has a deviation of 4.5 widths here: it says nothing, and the
    others nearly all.

    When its variance was cut back to the squared width, half of these groups were answered at a
    bound exactly.
    """
    rng = np.random.default_rng(4)
    rows = np.concatenate(
        [np.ones(60, np.int64), np.maximum(1, rng.lognormal(3.5, 1.3, 80)).astype(np.int64)]
    )
    truth = rng.normal(6, 1, len(rows))
    who = np.repeat(np.arange(len(rows)), rows)
    frame = pa.table({"group": who, "value": np.clip(rng.normal(truth[who], 3), 0, 60)})
    error = {}
    for chosen in ("learned_prior", "pooled_prior"):
        found = meanstream.private_means(
            frame,
            by="group",
            value="value",
            lower=0,
            upper=60,
            epsilon=1.0,
            delta=1e-6,
            collaboration=chosen,
            **SAME,
        ).to_frame()
        small, mean = np.asarray(found["rows"]) <= 4, np.asarray(found["mean"])
        assert ((mean > 0) & (mean < 60))[small].all()
        error[chosen] = float(np.mean((mean - truth[np.asarray(found["group"])])[small] ** 2))
    assert error["pooled_prior"] < 2 * truth.var()
    assert error["learned_prior"] < 6 * error["pooled_prior"]


def test_a_result_without_a_ledger_says_what_calls_add_up_to(tmp_path: Path) -> None:
    """With a secret, too: a frame with one row more is another release, as the row's value in both
    has other noise."""
    one, grown = asked(TABLE.slice(0, 200)), asked(TABLE.slice(0, 201))
    assert one.notes[1] == (
        "No ledger counts this call: 2 calls on different frames are epsilon 2 together, 30 calls 29.9; store= "
        "charges each row once"
    )
    assert "No ledger counts" in str(grown)
    assert "No ledger counts" not in str(
        asked(TABLE.slice(0, 200), secret=None, store=tmp_path / "s.db")
    )


@pytest.mark.parametrize(
    ("collaboration", "said", "is_learned"),
    [
        ("learned_prior", "learned_prior: posterior mean; the prior depends on the count", True),
        ("pooled_prior", "pooled_prior: posterior mean; one prior for all counts", True),
        ("none", "none: every group alone", False),
    ],
)
def test_explain_names_the_collaboration_and_the_learned_spread(
    collaboration: str, said: str, is_learned: bool, tmp_path: Path
) -> None:
    """The spread is a function of releases: rows with other values and the same releases keep it."""
    found = asked(TABLE, collaboration=collaboration)
    text = " ".join(found.explain().split())
    assert said in text
    assert found.learned.method == collaboration

    page = found.report(tmp_path / "page.html").read_text(encoding="utf-8")
    assert said in page
    for shown in (text, page):
        assert ("the means of groups differ by" in shown) is is_learned
    if is_learned:
        assert f"differ by {found.learned.spread:.3g} (standard deviation around" in text


def test_a_result_without_groups_names_its_collaboration() -> None:
    found = asked(TABLE.slice(0, 0), collaboration="pooled_prior")
    assert found.learned == LearnedPopulation(method="pooled_prior", spread=None, n_centers=0)
    assert "collaboration pooled_prior" in " ".join(found.explain().split())

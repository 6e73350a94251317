"""`private_windows`: the answers of `meanstream run rounds` on the same data, local and by a
curator, and refusals."""

from __future__ import annotations

import csv
import json
from datetime import datetime
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import polars as pl
import pyarrow as pa
import pytest

import meanstream
from tests.pipelines.command_line import SECRET
from tests.pipelines.command_line import meanstream as command

ASKED: dict[str, Any] = {
    "by": "who", "value": "v", "time": "t", "lower": 0.0, "upper": 10.0, "epsilon": 1.0, "window": "1d",
    "secret": SECRET, "name": "weekly",
}  # fmt: skip


def samples(users: int = 300, days: int = 3) -> pa.Table:
    rng = np.random.default_rng(2)
    n = users * days * 2
    day = np.repeat(np.arange(days), users * 2)
    who = np.tile(np.repeat(np.arange(users), 2), days)
    value = np.round(np.clip(rng.normal(3 + day, 1, n), 0, 10), 4)
    return pa.table(
        {"who": [f"u{i}" for i in who], "v": value, "t": 86_400 * day + rng.permutation(n) % 80_000}
    )


TABLE = samples()


@pytest.mark.parametrize("central", [False, True])
def test_the_answers_are_the_engines_own(central: bool, tmp_path: Path) -> None:
    with (tmp_path / "f.csv").open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["who", "v", "t"])
        rows.writerows(
            zip(*(TABLE.column(name).to_pylist() for name in ("who", "v", "t")), strict=True)
        )
    ran = command(
        "run", "rounds", "--source", f"{tmp_path}/f.csv", "--user", "who", "--value", "v", "--time", "t",
        "--lower", "0", "--upper", "10", "--epsilon", "1", "--window", "1d", "--name", "weekly", "--store",
        f"{tmp_path}/s.db", "--sink", f"{tmp_path}/m.jsonl", "--quiet",
        *(("--estimator", "central.mean") if central else ()),
        environment={"MEANSTREAM_SECRET": SECRET},
    )  # fmt: skip
    assert ran.code == 0, ran.err
    events = [json.loads(line) for line in (tmp_path / "m.jsonl").read_bytes().splitlines()]
    found = meanstream.private_windows(TABLE, **ASKED, central=central).to_arrow().to_pylist()
    assert len(events) == 3
    assert [
        (row["mean"], row["lower"], row["upper"], row["stderr"], row["users"]) for row in found
    ] == [(event["value"], *event["interval"], event["stderr"], event["users"]) for event in events]
    assert [row["window"] for row in found] == [
        datetime.fromisoformat(event["start"]) for event in events
    ]


@pytest.mark.parametrize("window", ["1d", "2d,1d"])
def test_watched_windows_are_the_engines_own(window: str, tmp_path: Path) -> None:
    """Declared are so many users that a narrow window is watched by default, whatever the window."""
    with (tmp_path / "f.csv").open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["who", "v", "t"])
        rows.writerows(zip(*(TABLE[name].to_pylist() for name in ("who", "v", "t")), strict=True))
    ran = command(
        "run", "rounds", "--source", f"{tmp_path}/f.csv", "--user", "who", "--value", "v", "--time", "t",
        "--lower", "0", "--upper", "10", "--epsilon", "4", "--window", window, "--name", "weekly", "--store",
        f"{tmp_path}/s.db", "--sink", f"{tmp_path}/m.jsonl", "--users", "20000", "--user-budget", "99",
        "--stages", f"{tmp_path}/stages.jsonl", "--quiet", environment={"MEANSTREAM_SECRET": SECRET},
    )  # fmt: skip
    assert ran.code == 0, ran.err
    asked = {**ASKED, "epsilon": 4.0, "window": window, "users": 20_000, "user_budget": 99.0}
    events = [json.loads(line) for line in (tmp_path / "m.jsonl").read_bytes().splitlines()]
    found = meanstream.private_windows(TABLE, **asked).to_arrow().to_pylist()
    assert [(row["mean"], row["lower"], row["upper"]) for row in found] == [
        (event["value"], *event["interval"]) for event in events
    ]
    assert b'"watch"' in (tmp_path / "stages.jsonl").read_bytes()


def test_a_curator_is_close_to_the_truth_and_covers_it() -> None:
    """The mean of 300 users' means per day; .95 intervals, three of them: all miss with probability
    1e-4."""
    found = meanstream.private_windows(TABLE, **ASKED, central=True)
    truth = [
        np.asarray(TABLE.column("v"))[np.asarray(TABLE.column("t")) // 86_400 == day].mean()
        for day in range(3)
    ]
    rows = found.to_arrow().to_pylist()
    assert any(row["lower"] <= mean <= row["upper"] for row, mean in zip(rows, truth, strict=True))
    assert np.abs(np.array([row["mean"] for row in rows]) - truth).max() < 0.6
    assert "epsilon 1 for each window" in repr(found)
    axes = found.plot()
    drawn = axes.containers[0].lines[0].get_xdata()  # in time, whatever the answers are
    assert [str(one)[:10] for one in np.asarray(drawn, "datetime64[s]")] == [
        str(row["window"])[:10] for row in rows
    ]
    assert [str(row["window"])[:10] in repr(found) for row in rows] == [True] * 3
    assert "00:00:00" not in repr(found)
    axes.figure.clear()


@pytest.mark.parametrize(
    "make", [pl.from_arrow, duckdb.from_arrow, lambda table: table.to_pandas()]
)
def test_a_frame_of_the_same_kind_comes_back(make: Any) -> None:
    frame = make(TABLE)
    found = meanstream.private_windows(frame, **ASKED, central=True)
    assert type(found.to_frame()) is type(frame)
    assert found.to_arrow().equals(
        meanstream.private_windows(TABLE, **ASKED, central=True).to_arrow()
    )


def test_a_users_budget_ends_its_part() -> None:
    found = meanstream.private_windows(TABLE, **ASKED, user_budget=2.0).to_arrow()
    assert found.column("users").to_pylist() == [300, 300, 0]
    assert found.column("refused").to_pylist() == [0, 0, 300]


def test_an_empty_frame_has_no_window() -> None:
    assert len(meanstream.private_windows(TABLE.slice(0, 0), **ASKED)) == 0


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"window": "soon"}, "window must"),
        ({"time": "when"}, "time must be a column of the frame, got 'when'"),
        ({"estimator": "central.mean"}, "estimator must be one of local privacy"),
        ({"estimator": "plan", "central": True}, "estimator must be one of central trust"),
        ({"estimator": "kent.density", "users": 500}, "estimator must be one of one mean"),
        ({"estimator": "guess"}, "estimator must"),
        ({"epsilon": 0.0}, "epsilon must"),
        ({"delta": 1e-6}, "delta must be left out without user_windows"),
        ({"user_windows": 3, "user_budget": 2.0}, "user_budget must be left out with user_windows"),
        ({"name": None}, "name must be given with secret"),
        ({"secret": "x"}, "secret must"),
    ],
)
def test_a_refusal_names_the_rule(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        meanstream.private_windows(TABLE, **{**ASKED, **changes})


def test_a_setting_that_nobody_has_is_told_by_the_name_of_the_function() -> None:
    with pytest.raises(
        TypeError,
        match=r"^private_windows\(\) got an unexpected argument 'person': by= is the person here",
    ):
        meanstream.private_windows(
            None, by="u", value="v", time="t", window="1d", lower=0, upper=1, epsilon=1, person="p"
        )


def test_windows_share_one_budget_and_the_result_says_so() -> None:
    asked = {**ASKED, "central": True, "user_windows": 20, "delta": 1e-6}
    found = meanstream.private_windows(TABLE, **asked)
    assert found.notes[0].startswith("epsilon 1, delta 1e-06 for 20 windows of a user together.")
    assert "its data does not enter later windows" in found.notes[0]
    assert "Gaussian noise, of 2.2 times less variance than Laplace" in found.notes[2]
    assert "protected       Everything that one user sends within 20 windows" in found.explain()

    # Two of three days: nobody enters the third one.
    short = meanstream.private_windows(TABLE, **{**asked, "user_windows": 2}).to_arrow()
    assert short.column("users").to_pylist() == [300, 300, 0]
    assert short.column("refused").to_pylist() == [0, 0, 300]

    # The intervals of twenty windows are nearer than those of a twentieth of epsilon each.
    shared = found.to_arrow().column("stderr").to_numpy()
    apart = {**ASKED, "central": True, "epsilon": 1.0 / 20}
    alone = meanstream.private_windows(TABLE, **apart).to_arrow().column("stderr").to_numpy()
    assert (shared < 0.9 * alone).all()


def test_a_result_says_that_calls_add_up() -> None:
    found = meanstream.private_windows(TABLE, **ASKED, central=True)
    assert found.notes[1].startswith(
        "No ledger counts this call: 2 calls on different frames are epsilon 2 together"
    )


def by_month(when: pa.Array, **changes: Any) -> Any:
    """Give the windows of two users with a sample each at every time."""
    times = pa.concat_arrays([when, when])
    table = pa.table(
        {"who": ["a"] * len(when) + ["b"] * len(when), "v": [2.0] * len(times), "t": times}
    )
    question = {**ASKED, "window": "month", "central": True, "tz": "Europe/Berlin"}
    return meanstream.private_windows(table, **{**question, **changes})


def starts(found: Any) -> list[str]:
    return [str(row["window"]) for row in found.to_arrow().to_pylist()]


def test_months_begin_at_local_midnight() -> None:
    """A time with a zone is that instant; dates and times without one are local."""
    zoned = pa.array(
        [1_774_994_399, 1_774_994_401], pa.timestamp("s", "UTC")
    )  # around midnight in Berlin
    assert starts(by_month(zoned)) == ["2026-03-01 00:00:00+01:00", "2026-04-01 00:00:00+02:00"]
    assert starts(by_month(zoned, tz=None)) == ["2026-03-01 00:00:00+00:00"]
    local = pa.array([datetime(2026, 3, 31, 23, 59), datetime(2026, 4, 1)])
    for naive in (local, local.cast(pa.date32())):
        found = by_month(naive, tz="America/New_York")
        assert starts(found) == ["2026-03-01 00:00:00-05:00", "2026-04-01 00:00:00-04:00"]
    assert found.to_arrow().column("users").to_pylist() == [2, 2]


def test_weeks_begin_on_monday_unless_said() -> None:
    day = pa.array([datetime(2026, 11, 26)])
    assert starts(by_month(day, window="week"))[0].startswith("2026-11-23")
    assert starts(by_month(day, window="week", first_weekday="Sunday"))[0].startswith("2026-11-22")


def test_calendar_windows_are_the_engines(tmp_path: Path) -> None:
    (tmp_path / "f.csv").write_text("user,value,time\n" + "".join(
        f"u{i},{i % 10},2026-0{1 + i % 3}-15T00:00:00+01:00\n" for i in sorted(range(60), key=lambda i: i % 3)
    ), encoding="utf-8")  # fmt: skip
    ran = command(
        "run", "rounds", "--source", f"{tmp_path}/f.csv", "--lower", "0", "--upper", "10", "--epsilon", "1", "--window",
        "month@Europe/Berlin", "--name", "weekly", "--store", f"{tmp_path}/s.db", "--sink", f"{tmp_path}/m.jsonl",
        "--quiet", "--estimator", "central.mean", environment={"MEANSTREAM_SECRET": SECRET},
    )  # fmt: skip
    assert ran.code == 0, ran.err
    events = [json.loads(line) for line in (tmp_path / "m.jsonl").read_bytes().splitlines()]
    frame = pl.read_csv(tmp_path / "f.csv").with_columns(
        pl.col("time").str.to_datetime(time_zone="UTC")
    )
    question = {
        **ASKED,
        "by": "user",
        "value": "value",
        "time": "time",
        "window": "month",
        "tz": "Europe/Berlin",
    }
    found = (
        meanstream.private_windows(frame, **question, estimator="central.mean", central=True)
        .to_arrow()
        .to_pylist()
    )
    assert [(row["mean"], row["window"], row["end"]) for row in found] == [
        (
            event["value"],
            datetime.fromisoformat(event["start"]),
            datetime.fromisoformat(event["end"]),
        )
        for event in events
    ]
    assert len(found) == 3


def test_what_a_user_in_all_windows_pays_is_said() -> None:
    found = meanstream.private_windows(TABLE, **ASKED, central=True)
    assert found.notes[2] == "A user in 3 windows, the most here, has epsilon 3 in all of them"
    capped = meanstream.private_windows(TABLE, **ASKED, user_budget=2.0)
    assert capped.notes[2] == "A user in 2 windows, the most here, has epsilon 2 in all of them"
    assert len(meanstream.private_windows(TABLE.slice(0, 1), **ASKED, central=True).notes) == 2


@pytest.mark.parametrize(("changes", "said"), [
    ({"window": "7d", "tz": "Europe/Berlin"}, "tz must be left out with windows that are no unit of the calendar"),
    ({"window": "month", "first_weekday": "sunday"}, "first_weekday must be left out with windows that are no weeks"),
    ({"window": "week", "first_weekday": "someday"}, "window must be week:WEEKDAY"),
    ({"window": "month", "tz": "Europe/Berln"}, "got 'Europe/Berln'; did you mean 'Europe/Berlin'"),
    ({"window": "1mo"}, "window must be SIZE, SIZE,PERIOD, session:GAP or day, week, month"),
])  # fmt: skip
def test_a_calendar_that_is_none_is_refused(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        meanstream.private_windows(TABLE, **{**ASKED, **changes})


@pytest.mark.parametrize("central", [False, True])
def test_a_user_without_a_value_takes_part_where_nulls_are_dropped(central: bool) -> None:
    """Whether a value is there is protected: the number of users is public."""
    holes = pa.table({"who": ["a", "b", "a", None], "v": [1.0, None, 2.0, 3.0], "t": [1, 2, 3, 4]})
    found = meanstream.private_windows(holes, **ASKED, nulls="drop", central=central)
    assert found.to_arrow()["users"].to_pylist() == [2]


def test_a_user_without_a_category_takes_part_where_nulls_are_dropped() -> None:
    asked = {name: given for name, given in ASKED.items() if name not in ("lower", "upper")}
    holes = pa.table({"who": ["a", "b", "c"], "v": ["x", None, "y"], "t": [1, 2, 3]})
    found = meanstream.private_windows(holes, **asked, nulls="drop", categories=["x", "y"])
    assert found.to_arrow()["users"].to_pylist() == [3, 3]


def test_rows_without_a_value_are_refused_by_default() -> None:
    holes = pa.table({"who": ["a", "b", "a"], "v": [1.0, None, 2.0], "t": [1, 2, 3]})
    with pytest.raises(
        ValueError, match="got 1 nulls in column 'v'; nulls='drop' leaves those rows out"
    ):
        meanstream.private_windows(holes, **ASKED)


def of_devices(rows: list[dict[str, Any]], part: str) -> dict[Any, list[dict[str, Any]]]:
    return {
        key: [row for row in rows if row[part] == key]
        for key in dict.fromkeys(row[part] for row in rows)
    }


WORDED = TABLE.append_column(
    "size",
    pa.array(["low" if v < 3 else "high" if v < 5 else f"{v:.0f}" for v in TABLE["v"].to_pylist()]),
)
WITHOUT = {name: value for name, value in ASKED.items() if name not in ("lower", "upper", "value")}
DECLARED = ["low", "high", "other=*"]


@pytest.mark.parametrize("asked", ["categories", "quantiles"])
def test_shares_and_quantiles_are_the_engines_own(asked: str, tmp_path: Path) -> None:
    with (tmp_path / "f.csv").open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["who", "size", "v", "t"])
        rows.writerows(
            zip(
                *(WORDED.column(name).to_pylist() for name in ("who", "size", "v", "t")),
                strict=True,
            )
        )
    own = {
        "categories": ["--value", "size", "--categories", "low,high,other=*"],
        "quantiles": ["--value", "v", "--quantiles", ".5,.9", "--lower", "0", "--upper", "10"],
    }[asked]
    ran = command(
        "run", "rounds", "--source", f"{tmp_path}/f.csv", "--user", "who", "--time", "t", *own, "--epsilon", "1",
        "--window", "1d", "--name", "weekly", "--store", f"{tmp_path}/s.db", "--sink", f"{tmp_path}/m.jsonl", "--quiet",
        environment={"MEANSTREAM_SECRET": SECRET},
    )  # fmt: skip
    assert ran.code == 0, ran.err
    events = [json.loads(line) for line in (tmp_path / "m.jsonl").read_bytes().splitlines()]
    more: dict[str, Any] = {"value": "size", "categories": DECLARED}
    if asked == "quantiles":
        more = {"value": "v", "lower": 0.0, "upper": 10.0, "quantiles": [0.5, 0.9]}
    found = meanstream.private_windows(WORDED, **WITHOUT, **more)
    part, answer = ("category", "share") if asked == "categories" else ("quantile", "value")
    expected = [
        (event["start"], name, value, *interval, event["users"])
        for event in events
        for name, value, interval in zip(
            event[asked], event["value"], event["interval"], strict=True
        )
    ]
    got = found.to_arrow().to_pylist()
    assert [
        (
            row["window"].strftime("%Y-%m-%dT%H:%M:%SZ"),
            row[part],
            row[answer],
            row["lower"],
            row["upper"],
            row["users"],
        )
        for row in got
    ] == expected
    axes = found.plot()
    assert len(of_devices(got, part)) == len(axes.get_legend().get_texts())


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"categories": ["low", "high"]}, "value must be of a category in every row"),
        ({"categories": DECLARED, "lower": 0.0}, "lower must be left out with categories"),
        ({"categories": DECLARED, "central": True}, "central must be False with categories"),
        ({"categories": ["low"]}, "categories must be 2 to 256, got 1"),
        ({"categories": "low"}, "categories must be a sequence of texts, got 'low'"),
        ({"upper": 1.0}, "lower must be given without categories, got None"),
        (
            {"value": "v", "lower": 0, "upper": 1, "quantiles": [1.5]},
            "quantiles must lie between 0 and 1",
        ),
        (
            {"value": "v", "lower": 0, "upper": 1, "quantiles": [0.5], "central": True},
            "central must be False with quantiles",
        ),
    ],
)
def test_what_categories_and_quantiles_cannot_have_is_refused(
    changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        meanstream.private_windows(WORDED, **{"value": "size", **WITHOUT, **changes})


def test_a_window_of_too_few_users_says_so() -> None:
    """One user a day later: its interval is as long as the bounds, in the frame and on paper."""
    row = {"who": "u1", "v": 3.0, "t": 40 * 86_400}
    late = pa.Table.from_pylist([row], schema=TABLE.schema)
    windows = meanstream.private_windows(pa.concat_tables([TABLE, late]), **ASKED, central=True)
    few, enough = windows.to_arrow().to_pylist()[-1], windows.to_arrow().to_pylist()[0]
    assert (few["users"], few["upper"] - few["lower"]) == (1, ASKED["upper"] - ASKED["lower"])
    lines = repr(windows).splitlines()
    assert "too few users" in lines[4]
    assert "too few users" not in lines[1]
    assert f"{enough['mean']:.1f}" in lines[1]
    assert windows._repr_html_().count("too few users") == 1


def test_windows_explain_and_report_what_they_promise(tmp_path: Path) -> None:
    windows = meanstream.private_windows(TABLE, **ASKED, central=True)
    assert "epsilon 1" in windows.explain()
    page = windows.report(tmp_path / "windows.html").read_text()
    for text in ("What is protected?", "epsilon 1 for each window", "What is estimated?"):
        assert text in page
    (tmp_path / "other.html").write_text("mine")
    with pytest.raises(ValueError, match="path must be new"):
        windows.report(tmp_path / "other.html")


@pytest.mark.parametrize("name", ["lower", "upper", "epsilon"])
def test_a_text_is_no_number(name: str) -> None:
    with pytest.raises(ValueError, match=f"{name} must be a number, got the text '1'"):
        meanstream.private_windows(TABLE, **{**ASKED, name: "1"})


def test_a_number_that_stands_for_a_missing_value_is_none() -> None:
    """As a null would be, and as far from the bound that it would be clipped to."""
    value = TABLE.column("v").to_pylist()
    codes = [-999.0 if row % 3 == 0 else one for row, one in enumerate(value)]
    nulls = [None if one == -999.0 else one for one in codes]
    dropped = {**ASKED, "nulls": "drop", "central": True}
    coded = meanstream.private_windows(
        TABLE.set_column(1, "v", pa.array(codes)), **dropped, missing=[-999]
    )
    empty = meanstream.private_windows(TABLE.set_column(1, "v", pa.array(nulls)), **dropped)
    assert coded.table.equals(empty.table)
    clipped = meanstream.private_windows(TABLE.set_column(1, "v", pa.array(codes)), **dropped)
    assert not clipped.table.equals(empty.table)


def test_missing_numbers_are_refused_where_values_are_texts() -> None:
    asked = {name: given for name, given in ASKED.items() if name not in ("lower", "upper")}
    with pytest.raises(ValueError, match="missing must be left out with categories"):
        meanstream.private_windows(TABLE, **asked, categories=["a", "b=*"], missing=[-999])


def test_a_window_that_is_not_given_is_named_with_what_it_is() -> None:
    asked = {name: given for name, given in ASKED.items() if name != "window"}
    with pytest.raises(TypeError, match=r"private_windows\(\) needs window=, such as month"):
        meanstream.private_windows(TABLE, **asked)

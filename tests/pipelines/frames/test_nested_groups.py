"""Groups within groups of a frame: the same releases, better leaves, higher levels whose sums
agree, and what is refused."""

from __future__ import annotations

import datetime
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import meanstream
from meanstream.pipelines.frames.values import means_of_column as frames_means
from tests.pipelines.command_line import SECRET
from tests.pipelines.command_line import meanstream as command

STATES, COUNTIES, ROWS = 12, 15, 10


def samples() -> pa.Table:
    """Ten rows of each county; states differ more than counties do."""
    rng = np.random.default_rng(7)
    county = np.repeat(np.arange(STATES * COUNTIES), ROWS)
    state = county // COUNTIES
    truth = 20 + rng.normal(0, 4, STATES)[state] + rng.normal(0, 1, STATES * COUNTIES)[county]
    return pa.table(
        {
            "country": state % 2,
            "state": [f"S{number:02}" for number in state],
            "county": [f"C{number % COUNTIES:02}" for number in county],
            "day": [datetime.date(2026, 1, 1 + number % 3) for number in county],
            "truth": truth,
            "pay": truth + rng.normal(0, 3, len(county)),
            "age": rng.uniform(20, 60, len(county)),
            "who": rng.integers(0, 300, len(county)),
            "groups": county,
        }
    )


TABLE = samples()


def asked(frame: Any = TABLE, **changes: Any) -> Any:
    question: dict[str, Any] = {
        "by": ["state", "county"], "value": "pay", "lower": 0.0, "upper": 40.0, "epsilon": 2.0,
        "secret": SECRET, "name": "nested", "nested": True,
    }  # fmt: skip
    return meanstream.private_means(frame, **{**question, **changes})


def assert_sums_agree(result: Any) -> None:
    """Every row of a higher level is the mean of the leaves below it, in proportion to rows."""
    leaves = result.table.to_pylist()
    every = result.consistent().table
    assert (
        every.num_rows
        == len(leaves) + sum(len(result.means_of(name)) for name in result.keys[:-1]) + 1
    )
    for row in every.to_pylist():
        named = [name for name in result.keys if row[name] is not None]
        below = [leaf for leaf in leaves if all(leaf[name] == row[name] for name in named)]
        assert row["groups"] == len(below)
        assert row["rows"] == sum(leaf["rows"] for leaf in below)
        mean = sum(leaf["rows"] * leaf["mean"] for leaf in below) / row["rows"]
        assert row["mean"] == pytest.approx(mean, abs=1e-9)
        assert row["lower"] <= row["mean"] + 1e-9
        assert row["mean"] <= row["upper"] + 1e-9


def test_releases_are_the_same_bytes_and_leaves_are_better() -> None:
    flat, nested = asked(nested=False), asked()
    assert nested.releases.equals(flat.releases)
    for name in ("state", "county", "rows", "released", "noise_stddev"):
        assert nested.table[name].equals(flat.table[name])

    truth = np.asarray(TABLE["truth"])[::ROWS]
    errors = [np.square(np.asarray(found.table["mean"]) - truth).mean() for found in (flat, nested)]
    assert errors[1] < 0.7 * errors[0]
    assert nested.notes[:-1] == flat.notes
    assert nested.guarantee == flat.guarantee


def test_a_higher_level_has_answers_and_decisions_of_its_own() -> None:
    result = asked()
    states = result.means_of("state")
    assert states.table.column_names[:6] == ["state", "groups", "rows", "mean", "lower", "upper"]
    assert states.table["state"].to_pylist() == [f"S{number:02}" for number in range(STATES)]
    assert set(states.table["groups"].to_pylist()) == {COUNTIES}
    assert set(states.table["rows"].to_pylist()) == {COUNTIES * ROWS}
    released = np.asarray(result.table["released"]).reshape(STATES, COUNTIES)
    assert np.asarray(states.table["released"]) == pytest.approx(released.mean(axis=1))
    noise = np.asarray(result.table["noise_stddev"])[0] / np.sqrt(COUNTIES)
    assert np.asarray(states.table["noise_stddev"]) == pytest.approx(np.full(STATES, noise))

    # A state's interval is far shorter than a county's.
    width = np.asarray(states.table["upper"]) - np.asarray(states.table["lower"])
    of_counties = np.asarray(result.table["upper"]) - np.asarray(result.table["lower"])
    assert width.max() < 0.8 * of_counties.min()

    mean = dict(zip(*(states.table[name].to_pylist() for name in ("state", "mean")), strict=True))
    difference = states.difference("S03", "S01")
    assert difference.value == pytest.approx(mean["S03"] - mean["S01"])
    assert len(states.compare(to="S00")) == STATES - 1
    assert len(states.ranks()) == STATES
    assert states.top(1).possibly or states.top(1).surely
    assert "sums agree" in repr(states)
    assert states.plot().get_ylabel() == "state"


@pytest.mark.parametrize(
    "by", [["state", "county"], ["country", "state", "county"], ["day", "country", "state"]]
)
def test_sums_agree_on_all_levels(by: list[str]) -> None:
    assert_sums_agree(asked(by=by))


def test_sums_agree_where_groups_have_unlike_rows_and_means_are_at_a_bound() -> None:
    rng = np.random.default_rng(1)
    some = TABLE.filter(pa.array(rng.random(len(TABLE)) < 0.3))
    assert_sums_agree(asked(some, upper=15.0))


def test_all_levels_are_one_table_parents_first() -> None:
    every = asked(by=["country", "state", "county"]).consistent()
    first = every.table.slice(0, 4).select(["country", "state", "county"]).to_pylist()
    assert [list(row.values()) for row in first] == [
        [None, None, None],
        [0, None, None],
        [0, "S00", None],
        [0, "S00", "C00"],
    ]
    assert every.to_frame().column_names[:5] == ["country", "state", "county", "groups", "rows"]
    assert "sums agree" in every.notes[-1]


def test_frames_of_any_kind_and_any_order_of_rows_give_the_same() -> None:
    expected = asked()
    shuffled = TABLE.take(pa.array(np.random.default_rng(0).permutation(len(TABLE))))
    frames: list[Any] = [shuffled, pd.DataFrame(TABLE.to_pydict()), pl.from_arrow(TABLE)]
    for frame in [*frames, TABLE.sort_by("pay")]:
        found = asked(frame)
        assert found.releases.equals(expected.releases)
        assert found.table.equals(expected.table)
        assert found.consistent().table.equals(expected.consistent().table)
        assert found.notes == expected.notes
    assert isinstance(asked(frames[1]).means_of("state").to_frame(), pd.DataFrame)
    assert isinstance(asked(frames[2]).consistent().to_frame(), pl.DataFrame)


def test_explain_and_the_notes_say_it() -> None:
    result = asked()
    text = result.explain()
    part = text[text.index("Groups within groups\n") : text.index("A person with several rows")]
    assert "they cost no privacy" in " ".join(part.split())
    assert "12 groups" in part
    assert "180 groups" in part
    assert result.notes[-1].startswith("Groups within groups: shares of the spread of means: state")
    assert result.notes[-1].endswith("likely to matter: state 100 %")
    assert text.count("Groups within groups") == 1
    assert "Groups within groups" not in asked(nested=False).explain()


def test_answers_are_made_of_releases_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows whose values are no numbers any more, under the same releases: the same tables."""
    calls: list[Any] = []
    answered = frames_means._answered

    def keep(released: Any, options: Any, target: Any, *, nested: bool) -> Any:
        answers = answered(released, options, target, nested=nested)
        calls.append((released, options, answers))
        return answers

    monkeypatch.setattr(frames_means, "_answered", keep)
    asked()
    ((released, options, answers),) = calls
    nothing = replace(released.samples, value=np.full(len(TABLE), np.nan))
    again = answered(replace(released, samples=nothing), options, "population", nested=True)
    assert again.table.equals(answers.table)
    assert again.levels.tables == answers.levels.tables
    assert again.levels.learned == answers.levels.learned


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"by": "county"}, "by must name 2 to 5 columns with nested, the highest level first, got 1"),
        (
            {"by": ["country", "day", "state", "county", "who", "groups"]},
            "by must name 2 to 5 columns with nested, the highest level first, got 6",
        ),
        ({"collaboration": "none"}, "collaboration must be 'learned_prior' with nested"),
        ({"coverage": "anytime"}, "coverage must be 'pointwise' with nested"),
        ({"covariates": ["country"]}, "covariates must be left out with nested; an attribute that is"),
        ({"by": ["state", "groups"]}, "by must not be named like a column of the result"),
        ({"nested": "yes"}, "nested must be True or False, got 'yes'"),
    ],
)  # fmt: skip
def test_what_does_not_go_with_levels_is_refused_in_one_line(
    changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match="must") as refused:
        asked(**changes)
    assert message in str(refused.value)
    assert "\n" not in str(refused.value)


def test_levels_are_asked_of_a_nested_result_by_their_names() -> None:
    for ask in (lambda result: result.means_of("state"), lambda result: result.consistent()):
        with pytest.raises(ValueError, match=r"needs groups within groups: .*nested=True"):
            ask(asked(nested=False))
    rule = r"means_of must name a column of by above the last one \(state\), got 'county'"
    with pytest.raises(ValueError, match=rule):
        asked().means_of("county")
    assert asked(by=["state", "groups"], nested=False).table.column_names[1] == "groups"


def test_several_columns_sums_and_persons_have_levels_too() -> None:
    both = asked(value=["pay", "age"], upper={"pay": 40, "age": 80}, ratio=("pay", "age"))
    for name in ("pay", "age"):
        assert_sums_agree(both[name])
        assert len(both[name].means_of("state")) == STATES
    assert "Groups within groups" in both.explain()

    sums = asked(statistics=["mean", "sum"]).consistent().table
    total = np.asarray(sums["rows"]) * np.asarray(sums["mean"])
    assert np.asarray(sums["sum"]) == pytest.approx(total)

    for more in ({"per_person": 2}, {"max_groups": 3, "max_rows": 2}):
        assert_sums_agree(asked(person="who", **more))
    quantiles = [asked(quantiles=[0.5], nested=nested).table["q0.5"] for nested in (True, False)]
    assert quantiles[0].equals(quantiles[1])


def test_a_store_repeats_its_levels_and_leaves_out_what_it_has_forgotten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.fsync", lambda _: None)
    monkeypatch.setenv("MEANSTREAM_SECRET", SECRET)
    store = tmp_path / "s.db"
    question = {"secret": None, "name": None, "store": store, "releases": 3}
    some = TABLE.slice(0, 900)
    found = asked(some, **question)
    again = asked(some.sort_by("age"), **question)
    assert again.table.equals(found.table)
    assert again.consistent().table.equals(found.consistent().table)
    assert len(asked(**question).means_of("state")) == STATES

    # A group that is forgotten is in no sum.
    assert command("store", "forget", '["S00","C03"]', "--store", str(store)).code == 0
    left = asked(**question)
    assert len(left) == STATES * COUNTIES - 1
    assert left.means_of("state").table["groups"].to_pylist()[0] == COUNTIES - 1
    assert_sums_agree(left)


def frame(state: Any, county: Any, value: Any) -> pd.DataFrame:
    return pd.DataFrame({"state": state, "county": county, "pay": value})


@pytest.mark.parametrize(
    "rows",
    [
        frame([1], [1], [3.0]),
        frame([1, 2], [1, 2], [3.0, 4.0]),
        frame([1] * 20, [1] * 20, np.linspace(0, 40, 20)),
        frame([1] * 20, [1] * 10 + [2] * 10, np.linspace(0, 40, 20)),
        frame([1] * 10 + [2] * 10, [1] * 20, np.linspace(0, 40, 20)),
        frame(np.repeat(np.arange(5), 4), np.arange(20), np.linspace(0, 40, 20)),
        frame(np.repeat(np.arange(20), 5), np.repeat(np.arange(20), 5), np.linspace(0, 40, 100)),
        frame(np.repeat(np.arange(5), 40), np.tile(np.arange(8), 25), np.full(200, 40.0)),
    ],
    ids=["one row", "two rows", "one leaf", "one parent", "two parents", "a row each",
         "single children", "equal at a bound"],
)  # fmt: skip
@pytest.mark.parametrize("epsilon", [0.01, 1000.0])
@pytest.mark.filterwarnings("error")
def test_singular_data_give_numbers_within_the_bounds(rows: pd.DataFrame, epsilon: float) -> None:
    result = asked(rows, epsilon=epsilon)
    assert_sums_agree(result)
    every = result.consistent().table
    for name in ("mean", "lower", "upper"):
        values = np.asarray(every[name])
        assert ((values >= 0) & (values <= 40)).all()


def test_a_group_of_one_leaf_is_that_leaf() -> None:
    """Its parent has the same answer and the same interval; other parents have intervals of their own."""
    first = TABLE.slice(0, 300).filter(pa.array(np.arange(300) % 150 < 140))
    only = pa.table({name: first[name] for name in ("state", "county", "pay")})
    lonely = pa.table({"state": ["T"] * 10, "county": ["C00"] * 10, "pay": np.linspace(10, 30, 10)})
    result = asked(pa.concat_tables([only, lonely]))
    ends = ["mean", "lower", "upper"]
    leaf = result.table.filter(pa.array([s == "T" for s in result.table["state"].to_pylist()]))
    states = result.means_of("state").table
    assert states["groups"].to_pylist() == [14, 14, 1]
    assert states.slice(2).select(ends).to_pylist() == leaf.select(ends).to_pylist()


def test_no_groups_have_no_levels() -> None:
    result = asked(TABLE.slice(0, 0))
    assert len(result) == 0
    assert len(result.means_of("state")) == 0
    assert result.consistent().table.num_rows == 0

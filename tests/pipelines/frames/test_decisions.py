"""Differences, ranks and top lists of a result: from the answers, by names of groups."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import pyarrow as pa
import pytest

import meanstream
from tests.pipelines.command_line import SECRET
from tests.pipelines.command_line import meanstream as command

mpl.use("Agg")

BOUNDS: dict[str, Any] = {"lower": -30.0, "upper": 120.0, "epsilon": 1.0, "delta": 1e-6}
SIZES = (2000, 40, 3000, 500, 2500)


def rows() -> pa.Table:
    rng = np.random.default_rng(5)
    group = np.repeat(np.arange(5), SIZES)
    names = np.array(["A", "B", "C", "D", "E"])[group]
    value = rng.normal(10.0 * (group + 1), 5.0)
    return pa.table({"ward": names, "day": group % 2, "stay": value})


def answered(by: Any = "ward", **changes: Any) -> Any:
    return meanstream.private_means(
        rows(), by=by, value="stay", **{**BOUNDS, "secret": SECRET, "name": "d", **changes}
    )


def test_a_difference_is_that_of_the_answers() -> None:
    result = answered()
    mean = dict(zip(*(result.table[name].to_pylist() for name in ("ward", "mean")), strict=True))
    difference = result.difference("C", "A")
    assert difference.value == pytest.approx(mean["C"] - mean["A"])
    assert difference.interval[0] < 20 < difference.interval[1]
    assert difference.probability > 0.99
    swapped = result.difference("A", "C")
    assert swapped.interval == pytest.approx((-difference.interval[1], -difference.interval[0]))
    assert "above with probability" in str(difference)


def test_all_are_compared_with_one_and_ranked() -> None:
    result = answered()
    compared = result.compare(to="A").table
    assert compared["ward"].to_pylist() == [n for n in result.table["ward"].to_pylist() if n != "A"]
    assert (np.asarray(compared["lower"]) < np.asarray(compared["difference"])).all()

    ranked = result.ranks().table.to_pylist()
    assert [row["rank"] for row in ranked] == [1, 2, 3, 4, 5]
    sets = {row["ward"]: (row["lower"], row["upper"]) for row in ranked}
    assert sets["E"][0] == 1
    assert sets["A"][1] == 5
    assert sets["E"][1] <= 2 + (sets["D"][0] == 1)

    top = result.top(2)
    assert set(top.surely) | set(top.possibly) == {n for n, (low, _) in sets.items() if low <= 2}
    assert set(top.surely) == {n for n, (_, high) in sets.items() if high <= 2}
    assert result.plot(kind="ranks").get_title() == "Ranks of all 5 groups"
    assert "Private means" in result.plot().get_title()


def test_names_of_several_columns_are_tuples() -> None:
    result = answered(by=["ward", "day"])
    assert result.difference(("C", 0), ("A", 0)).value > 0
    assert result.difference(["C", 0], ("A", "0")) == result.difference(("C", 0), ("A", 0))
    assert ("E", 0) in result.top(5).surely + result.top(5).possibly


def test_a_known_center_is_shared_and_intervals_for_any_time_are_independent() -> None:
    shared = answered(collaboration="james_stein")
    assert shared.joint.center_variance > 0
    assert shared.table.column_names == answered().table.column_names
    anytime = answered(collaboration="james_stein", coverage="anytime")
    assert anytime.joint.center_variance == 0
    wide, short = (one.difference("E", "B").interval for one in (anytime, shared))
    assert wide[1] - wide[0] > short[1] - short[0]


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda r: r.difference("A", "F"), r"^group must be one of the result, got 'F'"),
        (lambda r: r.difference("A", "A"), "^difference must be of two different groups, got 'A'$"),
        (lambda r: r.compare(to=3), "^group must be one of the result, got 3$"),
        (lambda r: r.compare(to={}), "^group must be one of the result, got {}$"),
        (
            lambda r: r.top(0),
            "^top must be a whole number from 1 to the number of groups, 5, got 0$",
        ),
        (lambda r: r.top(2.5), "^top must be a whole number"),
        (lambda r: r.plot(kind="rank"), "^kind must be 'means' or 'ranks', got 'rank'$"),
    ],
)
def test_mistakes_are_named_in_one_line(call: Any, said: str) -> None:
    with pytest.raises(ValueError, match=said) as refused:
        call(answered())
    assert "\n" not in str(refused.value)


def test_a_group_named_like_a_column_is_told() -> None:
    table = rows().rename_columns(["rank", "day", "stay"])
    result = meanstream.private_means(table, by="rank", value="stay", **BOUNDS)
    with pytest.raises(ValueError, match=r"^by must not be named like a column of this table"):
        result.ranks()


def test_a_store_answers_the_same_questions(tmp_path: Path) -> None:
    store = tmp_path / "s.db"
    result = answered(secret=None, name=None, store=store)

    def get(*words: str) -> str:
        ran = command("get", *words, "--store", str(store))
        return (ran.out + ran.err).decode()

    assert get("--difference", "C", "A").startswith(
        f"C - A: {result.difference('C', 'A').value:g} ["
    )
    assert "surely in" in get("--top", "5")
    assert get("--top", "2", "--json").count('"agent"') == len(
        result.top(2).surely + result.top(2).possibly
    )
    assert "must have one of AGENT, --difference" in get()
    assert "got 'F'" in get("--difference", "A", "F")
    assert "twice" in get("--difference", "A", "A")
    assert "from 1 to the number of agents, 5, got 9" in get("--top", "9")


def test_a_group_from_a_frame_is_named_as_python_writes_it() -> None:
    """A key that a frame gives is a number of NumPy, which shows as np.int64(1)."""
    result = answered("day")
    note = result.compare(to=np.int64(1)).notes[0]
    assert note.startswith("Differences from 1: ")

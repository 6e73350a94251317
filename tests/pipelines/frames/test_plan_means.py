"""`plan_means` predicts what `private_means` then has, and `explain` and `report` say what was
promised."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import meanstream
from tests.pipelines.command_line import meanstream as command
from tests.pipelines.frames.test_frame_persons import of_patients
from tests.pipelines.frames.test_growing_frames import monthly, months
from tests.pipelines.frames.test_private_means import SAME, SECRET, TABLE, asked

RNG = np.random.default_rng(12)
SIZES = np.concatenate([np.full(40, 60), np.full(60, 150), np.full(50, 600)])
GROUP = np.repeat(np.arange(150), SIZES)
MEANS = RNG.normal(15, 1.5, 150)
STAYS = pa.table({"ward": GROUP, "days": RNG.normal(MEANS[GROUP], 3.0)})
GUESSED: dict[str, Any] = {"by": "ward", "lower": 0, "upper": 30, "spread": 1.5, "stddev": 3.0}


@pytest.mark.parametrize("epsilon", [1.0, 4.0])
def test_half_widths_are_those_of_the_intervals(epsilon: float) -> None:
    """Of a prior that is learned from 150 groups: within six tenths of what is predicted for one that is
    known, and for a variance of one row that is."""
    (row,) = meanstream.plan_means(STAYS, **GUESSED, epsilon=epsilon).to_frame().to_pylist()
    found = meanstream.private_means(
        STAYS, by="ward", value="days", lower=0, upper=30, epsilon=epsilon, delta=1e-6, collaboration="james_stein",
        **SAME,
    ).to_frame()  # fmt: skip
    rows, low, high = (np.asarray(found[name]) for name in ("rows", "lower", "upper"))
    for name, size in (("small", 60), ("median", 150), ("large", 600)):
        assert np.median((high - low)[rows == size]) / 2 == pytest.approx(row[name], rel=0.6)


def test_numbers_of_rows_alone_are_enough_and_the_same() -> None:
    counts = pd.DataFrame({"ward": np.arange(150), "n": SIZES})
    planned = meanstream.plan_means(counts, rows="n", **GUESSED)
    assert planned.table.equals(meanstream.plan_means(STAYS, **GUESSED).table)
    assert planned.notes[0] == (
        "Half-widths of 95% intervals for groups of this many rows (small: 60, median: 150, large: 600), for 150 groups"
    )


def test_rows_of_a_person_beyond_the_limit_do_not_count() -> None:
    persons = STAYS.append_column("who", pa.array(np.arange(len(STAYS)) // 3))
    planned = meanstream.plan_means(persons, **GUESSED, person="who", per_person=1)
    rows = pa.table({"ward": np.arange(150), "n": SIZES // 3})
    expected = meanstream.plan_means(rows, rows="n", **GUESSED, per_person=1)
    assert planned.table.equals(expected.table)
    assert "small: 20" in planned.notes[0]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"person": "who"}, "person must be given with per_person, got 'who'"),
        (
            {"person": "ward", "per_person": 1, "rows": "days"},
            "person must be left out with rows, got 'ward'",
        ),
        ({"person": "nobody", "per_person": 1}, "person must be a column of the frame"),
        ({"epsilon": "1"}, "epsilon must be a number, got the text '1'"),
    ],
)
def test_a_plan_refuses_what_it_cannot_use(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=re.escape(said)):
        meanstream.plan_means(STAYS, **GUESSED | changes)


def test_more_epsilon_is_narrower_and_persons_and_calls_are_wider() -> None:
    plain, persons, year = (
        meanstream.plan_means(STAYS, **GUESSED, **more).to_frame().to_pylist()
        for more in ({}, {"per_person": 3}, {"releases": 12})
    )
    for name in ("small", "median", "large"):
        widths = [row[name] for row in plain]
        assert widths == sorted(widths, reverse=True)
        assert all(
            a[name] < b[name]
            for other in (persons, year)
            for a, b in zip(plain, other, strict=True)
        )
    assert [row["guessed_right"] for row in plain] == sorted(row["guessed_right"] for row in plain)
    assert plain[2]["guessed_right"] == pytest.approx(0.715, abs=0.001)


@pytest.mark.parametrize(("changes", "said"), [
    ({"by": "wards"}, "by must be a column of the frame, got 'wards'; did you mean 'ward'?"),
    ({"rows": "days"}, "rows must be a column of whole numbers of at least 1, got 'days'"),
    ({"spread": 0}, "spread must be positive"), ({"epsilon": []}, "epsilon must be at least one number"),
    ({"epsilon": [-1.0]}, "epsilon must be positive"),
])  # fmt: skip
def test_what_cannot_be_planned_is_refused(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=re.escape(said)):
        meanstream.plan_means(STAYS, **{**GUESSED, **changes})


def test_an_explanation_has_the_promise_its_odds_and_what_was_spent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MEANSTREAM_SECRET", SECRET)
    found = monthly(months(1, 1), tmp_path / "wards.db")
    text = found.explain().replace("\n  ", " ")
    for said in (
        "(1, 1e-06)-differentially private towards the value of one row",
        "they guess right at most 70.6 % of the time (a coin:",
        " 10 rows of one person  epsilon 10, guessed right at most nearly 100 % of the time",
        "11 of 12 releases are left",
        "rho (zero-concentrated DP)  0.5",
    ):
        assert said in text
    verified = command("ledger", "verify", "--store", str(tmp_path / "wards.db"), "--json").json
    assert str(verified["head"]) in text
    assert str(tmp_path) not in text
    assert max(map(len, found.explain().splitlines())) <= 90


def test_a_report_is_one_page_that_refers_to_nothing_and_replaces_only_its_own(
    tmp_path: Path,
) -> None:
    named = STAYS.set_column(0, "<ward>", STAYS["ward"]).slice(0, 300)
    question = {
        "by": "<ward>",
        "value": "days",
        "lower": 0,
        "upper": 30,
        "epsilon": 1.0,
        "delta": 1e-6,
    }
    found = meanstream.private_means(named, **question, collaboration="none")
    page = found.report(tmp_path / "page.html").read_text(encoding="utf-8")
    assert "<h2>What is protected?</h2>" in page
    assert "Private means of days by &lt;ward&gt;" in page
    assert "http" not in page.replace("http-equiv", "")
    found.report(tmp_path / "page.html")
    other = tmp_path / "notes.html"
    other.write_text("my notes", encoding="utf-8")
    with pytest.raises(ValueError, match="path must be new, or a page that report"):
        found.report(other)
    assert other.read_text(encoding="utf-8") == "my notes"


def test_an_explanation_of_persons_is_about_them() -> None:
    text = of_patients().explain()
    assert "everything except one person's rows in a group" in text.replace("\n  ", " ")
    assert "A person in several groups" in text
    assert "2 groups with rows of one person" in text


def test_an_explanation_of_laplace_noise_has_pure_odds() -> None:
    found = asked(TABLE, noise="laplace", counter="pm1", spread_share=0, collaboration="none")
    assert "at most 69.7 % of the time" in found.explain().replace("\n  ", " ")


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"spread": None}, "plan_means() needs spread=, your guess at the standard deviation"),
        ({"by": None}, "plan_means() needs by=, the column of groups"),
        ({"value": "days"}, "unexpected argument 'value': a plan reads numbers of rows and no values"),
        ({"store": "s.db"}, "unexpected argument 'store': releases= is the number of calls"),
        ({"epsilom": 1}, "unexpected argument 'epsilom'; did you mean 'epsilon'?"),
    ],
)  # fmt: skip
def test_a_missing_or_unknown_argument_is_answered_with_what_it_is(
    changes: dict[str, Any], said: str
) -> None:
    arguments = {name: given for name, given in {**GUESSED, **changes}.items() if given is not None}
    with pytest.raises(TypeError, match=re.escape(said)):
        meanstream.plan_means(STAYS, **arguments)


def test_arguments_by_position_are_answered_with_their_names() -> None:
    by_position: Any = meanstream.plan_means
    with pytest.raises(TypeError, match="takes the frame alone by position: name the others"):
        by_position(STAYS, "ward", 0, 30)


def test_an_equal_mechanism_under_another_name_is_not_shown() -> None:
    """Of one release, `two_level.staircase` and `pm1.staircase` are one law."""
    asked_of_one = {"by": "ward", "value": "days", "lower": 0, "upper": 30, "epsilon": 1}
    once = meanstream.private_means(STAYS, **asked_of_one)
    assert not any("next best" in note for note in once.notes)
    assert "next best" not in once.explain()
    named = meanstream.private_means(STAYS, **asked_of_one, noise="laplace", counter="pm1")
    assert any("next best: pm1.staircase" in note for note in named.notes)

"""A frame that grows from call to call, with a store: one release per call and group, charged once,
from all rows."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pytest

import meanstream
from meanstream.pipelines.frames import stored as frames_stored
from meanstream.streaming.store.database import Database, StoreError
from meanstream.streaming.store.state_store import Store
from meanstream.streaming.store.store_audit import audit_ledger
from tests.pipelines.command_line import meanstream as command
from tests.pipelines.frames.test_private_means import BOUNDS, SECRET, TABLE, asked

GROUPS = 8
MONTH = 50
"""Rows of each group in a month."""


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.fsync", lambda _: None)
    monkeypatch.setenv("MEANSTREAM_SECRET", SECRET)


def months(first: int, last: int, *, raised: float = 0.0) -> pa.Table:
    """Give the rows of some months; `raised` changes the value of the first row of month 2."""
    parts = []
    for month in range(first, last + 1):
        rng = np.random.default_rng(month)
        group = np.tile(np.arange(GROUPS), MONTH)
        value = rng.normal(10 + group, 5).round(3)
        if month == 2:
            value[0] += raised
        when = 1_700_000_000 + 2_592_000 * month + rng.permutation(len(group))
        parts.append(pa.table({"ward": [f"W{g}" for g in group], "days": value, "when": when}))
    return pa.concat_tables(parts)


def monthly(frame: Any, store: Path, **changes: Any) -> Any:
    return meanstream.private_means(
        frame, **{"by": "ward", "value": "days", "time": "when", **BOUNDS, "store": store, "name": "wards",
           "collaboration": "none", **changes}
    )  # fmt: skip


def public(found: Any) -> list[tuple[Any, ...]]:
    """Give all that a result has published."""
    return [tuple(row.values()) for row in found.releases.to_pylist()]


def rows_of(found: Any) -> set[int]:
    return set(found.to_arrow().column("rows").to_pylist())


def ledger_rows(store: Path) -> int:
    return int(command("ledger", "verify", "--store", str(store), "--json").json["rows"])


def test_each_month_is_one_release_of_all_rows_so_far(tmp_path: Path) -> None:
    store = tmp_path / "s.db"
    for month in (1, 2, 3):
        found = monthly(months(1, month), store)
        assert rows_of(found) == {month * MONTH}
        assert set(found.to_arrow().column("releases_left").to_pylist()) == {12 - month}
        assert found.releases.num_rows == month * GROUPS == ledger_rows(store)
        left = f"{12 - month} of 12 releases are left for each group"
        assert (
            found.notes[1] == f"The ledger has charged 8 releases of 8 groups in this call; {left}"
        )
    assert command("audit", "store", str(store)).code == 0


def test_noise_of_a_year_of_calls_is_at_most_twice_that_of_one(tmp_path: Path) -> None:
    """Of Gaussian noise: that of a sum is that of one call times 1.45 to 1.77."""
    year, once = (
        monthly(months(1, 1), tmp_path / "y.db", noise="gaussian"),
        monthly(months(1, 1), tmp_path / "o.db", releases=1, noise="gaussian"),
    )
    noise = [np.asarray(found.to_arrow().column("noise_stddev")) for found in (year, once)]
    assert (noise[0] / noise[1] < 1.5).all()
    last = (
        year.settings.sum_variance(np.arange(1, 13)).max()
        / once.settings.sum_variance(np.array([1]))[0]
    )
    assert last**0.5 < 1.8


def test_the_same_rows_again_are_the_same_bytes_and_cost_nothing(tmp_path: Path) -> None:
    store = tmp_path / "s.db"
    first = monthly(months(1, 2), store)
    rows = months(1, 2).take(np.random.default_rng(3).permutation(2 * MONTH * GROUPS))
    again = monthly(pl.from_arrow(rows), store)
    assert public(again) == public(first)
    assert again.to_arrow().equals(first.to_arrow())
    assert again.notes[1].startswith(
        "The ledger has charged 0 releases of 8 groups in this call; 11 of 12"
    )
    assert ledger_rows(store) == GROUPS


def test_groups_without_new_rows_keep_their_release(tmp_path: Path) -> None:
    store = tmp_path / "s.db"
    first, more = monthly(months(1, 1), store), months(2, 2)
    found = monthly(
        pa.concat_tables([months(1, 1), more.filter(pa.compute.equal(more["ward"], "W3"))]), store
    )
    assert public(found)[:GROUPS] == public(first)
    assert [row[0] for row in public(found)[GROUPS:]] == ["W3"]
    left = dict(
        zip(
            *(found.to_arrow().column(name).to_pylist() for name in ("ward", "releases_left")),
            strict=True,
        )
    )
    assert left == {f"W{g}": 10 if g == 3 else 11 for g in range(GROUPS)}
    assert "10 to 11 of 12 releases are left" in found.notes[1]


def test_late_rows_and_new_groups_count_in_the_next_call(tmp_path: Path) -> None:
    """Rows of January that came in February, before the last that was read, and equal ones: each
    counts once."""
    store, january = tmp_path / "s.db", months(1, 1)
    known, late = january.slice(40), january.slice(0, 40)
    monthly(known, store)
    new = pa.table({"ward": ["new", "new"], "days": [3.0, 3.0], "when": [1_600_000_000] * 2})
    found = monthly(pa.concat_tables([new, known, late, months(2, 2)]), store)
    counts = dict(
        zip(*(found.to_arrow().column(name).to_pylist() for name in ("ward", "rows")), strict=True)
    )
    assert counts == {"new": 2} | {f"W{g}": 2 * MONTH for g in range(GROUPS)}


def test_what_is_released_does_not_depend_on_how_late_rows_were(tmp_path: Path) -> None:
    """Means are of all rows: the sum and the noise of the second release are those of rows in
    order."""
    january, both = months(1, 1), months(1, 2)
    monthly(january.slice(40), tmp_path / "late.db")
    monthly(january.slice(40), tmp_path / "order.db")
    late = monthly(both, tmp_path / "late.db")
    shuffled = monthly(
        both.take(np.random.default_rng(5).permutation(len(both))), tmp_path / "order.db"
    )
    assert public(late) == public(shuffled)


def test_without_times_rows_may_come_in_any_order(tmp_path: Path) -> None:
    store, both = tmp_path / "s.db", months(1, 2)
    monthly(months(1, 1), store, time=None)
    found = monthly(both.take(np.random.default_rng(5).permutation(len(both))), store, time=None)
    assert rows_of(found) == {2 * MONTH}


def changed(table: pa.Table) -> pa.Table:
    return table.set_column(1, "days", pa.array([99.0, *table.column("days").to_pylist()[1:]]))


def moved(table: pa.Table) -> pa.Table:
    return table.set_column(2, "when", pa.array([1.0, *table.column("when").to_pylist()[1:]]))


ANOTHER: dict[str, tuple[Callable[[pa.Table], pa.Table], int]] = {
    "a changed value": (changed, 1),
    "a changed time": (moved, 1),
    "a missing row": (lambda table: table.slice(1), 1),
    "another group": (
        lambda table: table.set_column(0, "ward", pa.array(["W7", *table["ward"].to_pylist()[1:]])),
        1,
    ),
    "only the new month": (lambda table: table.slice(MONTH * GROUPS), MONTH * GROUPS),
}


@pytest.mark.parametrize("what", ANOTHER)
def test_a_frame_without_a_row_that_was_read_is_refused_before_anything_is_charged(
    what: str, tmp_path: Path
) -> None:
    store, (other, missing) = tmp_path / "s.db", ANOTHER[what]
    monthly(months(1, 1), store)
    said = (
        f"frame must hold every row that its store has read, got {missing} of 400 changed or missing: pass all rows so "
        "far, as they were; corrected data need another store, and both budgets add up"
    )
    with pytest.raises(ValueError, match=re.escape(said)):
        monthly(other(months(1, 2)), store)
    assert ledger_rows(store) == GROUPS
    assert rows_of(monthly(months(1, 2), store)) == {2 * MONTH}


@pytest.mark.parametrize(
    ("option", "known", "other"),
    [("value", "days", "cost"), ("time", "when", "cost"), ("by", "ward", "house")],
)
def test_a_store_says_which_column_it_is_about(
    option: str, known: str, other: str, tmp_path: Path
) -> None:
    store, frame = tmp_path / "s.db", months(1, 1)
    monthly(frame, store)
    columns = {
        "cost": pa.array(range(len(frame)), pa.float64()),
        "house": pa.array(["H"] * len(frame)),
    }
    frame = pa.table(dict(zip(frame.column_names, frame.columns, strict=True)) | columns)
    said = f"{option} has changed: this store is about '{known}', got '{other}'"
    with pytest.raises(ValueError, match=re.escape(said)):
        monthly(frame, store, **{option: other})
    assert ledger_rows(store) == GROUPS


def test_a_column_of_a_store_may_get_another_name(tmp_path: Path) -> None:
    """The rows are the same, so the budget is theirs."""
    store = tmp_path / "s.db"
    monthly(months(1, 1), store)
    renamed = months(1, 1).rename_columns(["ward", "stay", "when"])
    assert monthly(renamed, store, value="stay").charge.made == 0


def test_a_frame_that_lacks_a_group_is_refused(tmp_path: Path) -> None:
    monthly(months(1, 1), tmp_path / "s.db")
    rest = months(1, 1).filter(pa.compute.not_equal(months(1, 1)["ward"], "W3"))
    with pytest.raises(
        ValueError, match="frame must have every group that its store knows, got '1 missing'"
    ):
        monthly(rest, tmp_path / "s.db")


def test_where_the_budget_is_spent_rows_in_no_release_are_named(tmp_path: Path) -> None:
    store = tmp_path / "s.db"
    for month in (1, 2):
        monthly(months(1, month), store, releases=2)
    found = monthly(months(1, 3), store, releases=2)
    assert rows_of(found) == {2 * MONTH}
    assert found.notes[1].endswith(
        "0 releases of 8 groups in this call; 0 of 2 releases are left for each group"
    )
    assert found.notes[2] == (
        "400 rows of 8 groups are in no release: these groups have made all 2 of their releases; a new store begins "
        "another budget (epsilon 2 together for a row in both)"
    )
    assert ledger_rows(store) == 2 * GROUPS


def test_settings_of_a_store_stay(tmp_path: Path) -> None:
    store = tmp_path / "s.db"
    monthly(months(1, 1), store)
    for changes, said in (
        ({"epsilon": 2.0}, r"epsilon must be 1\.0 as in the store that is continued"),
        ({"releases": 24}, "releases must be 12 as in the store that is continued"),
    ):
        with pytest.raises(StoreError, match=said):
            monthly(months(1, 2), store, **changes)
    with pytest.raises(ValueError, match="secret must be left out with a store"):
        monthly(months(1, 1), store, secret=SECRET)


def test_a_call_that_died_goes_on_and_charges_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After each commit of a call that reads its rows in four parts: the result is that of a call
    that went through."""
    whole = monthly(months(1, 2), tmp_path / "whole.db")
    for part in range(4):
        store, left = tmp_path / f"{part}.db", [part]
        with monkeypatch.context() as patch:
            patch.setattr(frames_stored, "BATCH", 200)
            patch.setattr(frames_stored._FrameEngine, "_deliver", _dies_after(left))
            with pytest.raises(InterruptedError):
                monthly(months(1, 2), store)
        found = monthly(months(1, 2), store)
        assert (public(found), found.notes[0]) == (public(whole), whole.notes[0])
        assert ledger_rows(store) == GROUPS


def _dies_after(left: list[int]) -> Callable[..., None]:
    def deliver(*_: Any, **__: Any) -> None:
        if left[0] == 0:
            raise InterruptedError
        left[0] -= 1

    return deliver


def test_digests_of_rows_tell_nothing_without_the_secret(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two stores of one frame under different secrets have no digest in common; under one secret
    they are equal."""
    found = []
    for number, secret in enumerate((SECRET, SECRET, "1" + SECRET[1:])):
        monkeypatch.setenv("MEANSTREAM_SECRET", secret)
        store = tmp_path / f"{number}.db"
        monthly(months(1, 1), store)
        opened = Store.read(store)
        found.append(
            {int(d) for _, note in opened.chunks(frames_stored.ROWS_READ) for d in note["digest"]}
        )
        opened.close()
    assert found[0] == found[1]
    assert not found[0] & found[2]
    assert len(found[0]) == MONTH * GROUPS


def test_a_store_releases_what_a_call_without_one_does(tmp_path: Path) -> None:
    stored = {"secret": None, "name": "flights", "store": tmp_path / "s.db", "releases": 1}
    first = asked(TABLE, **stored).to_arrow()
    assert first.drop_columns(["releases_left"]).equals(asked(TABLE).to_arrow())


def test_a_store_tells_quantiles_of_what_its_ledger_holds(tmp_path: Path) -> None:
    """The same as without one, and again; another list of quantiles costs nothing, another
    threshold is refused."""
    stored = {
        "secret": None,
        "name": "flights",
        "store": tmp_path / "s.db",
        "exceeds": [30],
        "releases": 1,
    }
    first = asked(TABLE, **stored, quantiles=[0.9]).to_arrow()
    assert first.drop_columns(["releases_left"]).equals(
        asked(TABLE, quantiles=[0.9], exceeds=[30]).to_arrow()
    )
    other = asked(TABLE, **stored, quantiles=[0.5, 0.9]).to_arrow()
    assert other.column("q0.9").equals(first.column("q0.9"))
    assert ledger_rows(tmp_path / "s.db") == 30
    with pytest.raises(StoreError, match="exceeds"):
        asked(TABLE, **{**stored, "exceeds": [20]}, quantiles=[0.9])


def test_a_schedule_releases_within_a_call_and_at_its_end(tmp_path: Path) -> None:
    stored = {
        "secret": None,
        "store": tmp_path / "s.db",
        "releases": 5,
        "schedule": "geometric:10,4",
    }
    ordered = TABLE.sort_by("when")
    short, whole = asked(ordered.slice(0, 1000), **stored), asked(ordered, **stored)
    with pytest.raises(ValueError, match="time must be given with schedule"):
        asked(TABLE, **stored, time=None)
    assert max(row["index"] for row in whole.releases.to_pylist()) == 4
    assert whole.releases.slice(0, short.releases.num_rows).equals(short.releases)


@pytest.mark.parametrize("still_there", [True, False])
def test_a_forgotten_group_is_left_out_and_its_rows_are_gone(
    still_there: bool, tmp_path: Path
) -> None:
    """Whether the frame still has its rows or not: they are not read again, and the store notes
    nothing of them."""
    store = tmp_path / "s.db"
    first = monthly(months(1, 1), store)
    assert command("store", "forget", "W3", "--store", str(store)).code == 0
    both = months(1, 2)
    rest = both if still_there else both.filter(pa.compute.not_equal(both["ward"], "W3"))
    found = monthly(rest, store)
    assert set(found.to_arrow().column("ward").to_pylist()) == {
        f"W{g}" for g in range(GROUPS) if g != 3
    }
    assert rows_of(found) == {2 * MONTH}
    assert found.notes[2] == "1 group is left out: the store has forgotten it"
    assert public(found)[:GROUPS] == public(first)  # public releases stay public
    opened = Store.read(store)
    number = opened.agents().index("W3")
    noted = np.concatenate([note["agent"] for _, note in opened.chunks(frames_stored.ROWS_READ)])
    opened.close()
    assert number not in noted
    assert len(noted) == 2 * MONTH * (GROUPS - 1)


def test_a_call_without_space_charges_nothing_and_is_repeated_with_space(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wherever the space ends: one line, and with space the releases that a whole disk has."""
    rows = pa.table({"g": [f"g{i % 40}" for i in range(800)], "v": [i % 9.0 for i in range(800)]})
    tables = [rows.slice(0, 400), rows]
    given: dict[str, Any] = {"by": "g", "value": "v", "lower": 0, "upper": 10, "epsilon": 1.0}
    begin = Database._begin

    def answer(store: Path, table: pa.Table) -> list[object]:
        result = meanstream.private_means(table, store=store, name="full", **given)
        return list(result.to_arrow().to_pylist())

    expected = [answer(tmp_path / "whole.db", table) for table in tables]
    whole = audit_ledger(tmp_path / "whole.db")
    failed = []
    for pages in range(3, (tmp_path / "whole.db").stat().st_size // 4096, 3):
        store = tmp_path / f"{pages}.db"
        left = list(zip(tables, expected, strict=True))

        def limited(database: Database, *, read_only: bool, pages: int = pages) -> None:
            begin(database, read_only=read_only)
            database.rows(f"PRAGMA max_page_count = {pages}")

        def until_it_is_full(left: list[Any] = left, store: Path = store) -> None:
            while left:
                assert answer(store, left[0][0]) == left[0][1]
                del left[0]

        with monkeypatch.context() as patch:
            patch.setattr(Database, "_begin", limited)
            with pytest.raises(StoreError, match="must have space"):
                until_it_is_full()

        failed.append(len(left))
        for table, same in left:
            assert answer(store, table) == same
        assert audit_ledger(store) == whole
    assert {*failed} == {1, 2}

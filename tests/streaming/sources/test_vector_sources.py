"""Sources of vectors, and their sums: columns to coordinates, exact sums in any order."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meanstream.operators.rounds.round_grids import UNIT, VectorGrid
from meanstream.streaming.events.event_columns import Batch, Rejects
from meanstream.streaming.kafka.connection.values import PartitionRecords
from meanstream.streaming.rounds.summarize_users import join_summaries, summarize
from meanstream.streaming.sources.formats.json_records import JsonFormat
from meanstream.streaming.sources.mapping import ColumnMapping
from meanstream.streaming.sources.source_records import RecordParser
from tests.streaming.rounds.test_rounds_vectors import LOWER, NAMES, UPPER, source, vectors, write
from tests.streaming.support.parsed_values import parse_values


def read(path: Path) -> Batch:
    opened = source(path)
    try:
        return opened.next_batch(10_000)
    finally:
        opened.close()


# -- sources -------------------------------------------------------------------------------------------------


def test_formats_agree_and_coordinates_are_in_the_order_of_their_names(tmp_path: Path) -> None:
    rows = vectors(100)
    expected = np.array([v for _, v, _ in rows])
    for kind in ("csv", "jsonl", "parquet"):
        batch = read(write(tmp_path, kind, rows))
        assert batch.samples.value.shape == (100, 3)
        assert np.array_equal(batch.samples.value, expected)
        assert not len(batch.rejects)


def test_a_record_with_any_bad_coordinate_is_a_dead_letter_with_its_reason(tmp_path: Path) -> None:
    good = ["a,1,0,2,3"] * 40
    bad = {
        "a,1,0,,3": "missing_value",
        "a,nan,0,2,3": "not_finite",
        "a,1,0,2,x": "bad_value",
        "a,1,,2,3": "missing_time",
    }
    path = tmp_path / "bad.csv"
    path.write_text("\n".join(["who,z,t,x,y", *good, *bad]) + "\n")
    batch = read(path)
    assert len(batch.samples) == 40
    assert dict(zip(batch.rejects.position, batch.rejects.reason, strict=True)) == {
        42 + number: reason for number, reason in enumerate(bad.values())
    }
    records = [
        '{"who":"a","x":1,"y":2,"z":3,"t":0}',
        '{"who":"a","x":1,"y":true,"z":3,"t":0}',
        '{"who":"a","x":1,"t":0}',
    ]
    (tmp_path / "bad.jsonl").write_text("\n".join(records) + "\n")
    batch = read(tmp_path / "bad.jsonl")
    assert (len(batch.samples), batch.rejects.reason) == (1, ["bad_value", "missing_value"])


def test_messages_of_a_topic_are_read_as_lines_are() -> None:
    mapping = ColumnMapping(agent="who", values=NAMES, time="t")
    values = [
        b'{"who":"a","x":1,"y":2,"z":3,"t":0}',
        b'{"who":"a","x":1,"y":null,"z":3,"t":0}',
        None,
    ]
    records = PartitionRecords(np.array([1, 1, 2]), np.array([4, 5, 0]), values)
    rejects = Rejects()
    samples = parse_values(RecordParser(JsonFormat(mapping), mapping), records, rejects, 1000)
    assert samples.value.tolist() == [[1.0, 2.0, 3.0]]
    assert sorted(rejects.reason) == ["malformed", "missing_value"]


def test_a_missing_column_is_named(tmp_path: Path) -> None:
    path = write(tmp_path, "csv", vectors(10))
    with pytest.raises(ValueError, match="value column must be in the source, got 'w'"):
        source(path, ("x", "w"))
    with pytest.raises(ValueError, match="columns must be distinct"):
        source(path, ("x", "x"))


# -- sums ----------------------------------------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32), st.integers(1, 60), st.integers(1, 6))
def test_sums_of_vectors_do_not_depend_on_order_or_cuts(seed: int, n: int, cuts: int) -> None:
    rng = np.random.default_rng(seed)
    grid = VectorGrid(np.array(LOWER), np.array(UPPER))
    user, time = rng.integers(0, 4, n), rng.integers(0, 3, n).astype(float)  # many at the same time
    value = rng.normal((6.0, 1.0, 250.0), (20.0, 1.0, 60.0), (n, 3))
    whole = summarize(user, value, time, grid)
    order = rng.permutation(n)
    parts = [
        summarize(user[p], value[p], time[p], grid) for p in np.array_split(order, cuts) if len(p)
    ]
    joined = join_summaries(parts)
    assert all(
        np.array_equal(a, b)
        for a, b in zip(whole.columns().values(), joined.columns().values(), strict=True)
    )
    points = grid.encode(value)
    for place, number in enumerate(whole.user.tolist()):
        mine = np.flatnonzero(user == number)
        assert whole.total[place].tolist() == points[mine].sum(axis=0).tolist()
        earliest = mine[time[mine] == time[mine].min()]
        assert whole.first[place].tolist() == min(
            points[earliest].tolist()
        )  # a sample that was there, not a mixture


def test_whatever_comes_in_a_number_of_the_grid_goes_out() -> None:
    """Known bad beside it: features that leave [-1, 1] are cut."""
    absurd = np.array([[1e308, -1e308, 0.0], [-1e300, 1e-300, 1e9]])
    for features in (None, lambda x: 1e6 * x):
        points = VectorGrid(np.array(LOWER), np.array(UPPER), features).encode(absurd)
        assert points.min() >= 0
        assert points.max() <= UNIT.span

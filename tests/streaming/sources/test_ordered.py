"""A file that is read in several parts is replayed whole and in order, wherever reading stops and
goes on."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from meanstream.operators.records import Floats
from meanstream.streaming.events.event_columns import Rejects
from meanstream.streaming.sources import ordered_source as ordered
from meanstream.streaming.sources.formats.csv_file import CsvSource
from meanstream.streaming.sources.mapping import ColumnMapping
from meanstream.streaming.sources.ordered_source import KeptRejects, OrderedSource

N, PART = 200, 64
TIMES: Floats = 1000.0 + np.arange(N)
ONE_BACK = TIMES.copy()
ONE_BACK[[PART - 1, PART]] = TIMES[[PART, PART - 1]]
"""In order within each part, but for the first of the second."""


@pytest.fixture(autouse=True)
def _small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ordered, "READ_ROWS", PART)


def written(path: Path, times: Floats) -> Path:
    lines = [f"agent {i % 3},{i},{t}" for i, t in enumerate(times.tolist())]
    lines.insert(150, "agent 0,many,1000")
    path.write_text("\n".join(["agent,value,time", *lines]) + "\n")
    return path


@pytest.mark.parametrize(
    "times", [TIMES, ONE_BACK, TIMES[::-1]], ids=["in order", "a step back", "backwards"]
)
@pytest.mark.parametrize("size", [30, PART, 1000])
@pytest.mark.parametrize("stop", [0, 1, 3])
def test_every_row_comes_once_in_order(times: Floats, size: int, stop: int, tmp_path: Path) -> None:
    path = written(tmp_path / "x.csv", times)
    batches = []
    source = OrderedSource(CsvSource(path, ColumnMapping(id=None)))
    while not (batch := source.next_batch(size)).exhausted:
        batches.append(batch)
        if len(batches) == stop:
            source.close()
            source = OrderedSource(CsvSource(path, ColumnMapping(id=None)))
            source.restore(batch.position)
    with closing(source):
        found = np.concatenate([batch.samples.value for batch in batches])
    assert np.array_equal(found, np.argsort(times, kind="stable"))
    assert [len(batch.rejects) for batch in batches] == [1] + [0] * (len(batches) - 1)
    assert max(len(batch.samples) for batch in batches) <= size


@pytest.mark.parametrize(("most", "fits"), [(N + 1, True), (N, False)])
def test_the_most_rows_are_counted_over_all_parts(most: int, fits: bool, tmp_path: Path) -> None:
    """Rejected records count, too."""
    source = OrderedSource(
        CsvSource(written(tmp_path / "x.csv", TIMES), ColumnMapping(id=None)), max_rows=most
    )
    with closing(source):
        if fits:
            assert len(source.next_batch(10).samples) == 10
        else:
            with pytest.raises(
                ValueError, match=f"source must have at most {N} records to be sorted"
            ):
                source.next_batch(10)


def test_a_batch_ends_where_a_period_does(tmp_path: Path) -> None:
    path = written(tmp_path / "x.csv", TIMES)
    with closing(OrderedSource(CsvSource(path, ColumnMapping(id=None)), cut=50.0)) as source:
        sizes = [len(source.next_batch(45).samples) for _ in range(10)]
    # Periods of 50 rows, parts of 64, 64 and 63, batches of at most 45: a batch holds rows of one
    # period and one part.
    assert sizes == [45, 5, 14, 36, 28, 22, 41, 9, 0, 0]


def test_rejected_records_are_kept_packed_and_come_back_as_they_were() -> None:
    """Ten million bad lines are 110 MB, not a gigabyte."""
    kept, all_of_them = KeptRejects(), Rejects()
    for number in range(300):
        some = Rejects()
        some.add(
            f"reason {number % 7}", number << 40, size=None if number % 3 else 1 << (number % 41)
        )
        all_of_them.extend(some)
        kept.extend(some)
    assert (len(kept), kept.part(0, 300), kept.part(290, 999)) == (
        300,
        all_of_them,
        all_of_them.part(290, 300),
    )
    assert sum(part.itemsize for part in (kept._reason, kept._position, kept._size)) == 11

"""One record is the bytes between two line ends: neither a stray line end nor a stray quote shifts
the others."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from meanstream.streaming.sources.formats.csv_file import CsvSource
from meanstream.streaming.sources.mapping import ColumnMapping

SPLITS = b"x,1\ry,2"  # two rows to whoever takes a bare carriage return for a line end
JOINS = (
    b'"q,3,2013-01-01T00:00:00Z',
    b'r",4,2013-01-01T00:00:00Z',
)  # one row to whoever lets quotes pass line ends


@pytest.mark.parametrize("batch_size", [1, 7, 40, 1000])
@pytest.mark.parametrize("end", [b"\n", b"\r\n"])
@pytest.mark.parametrize("quoted", [False, True])
def test_a_split_and_a_join_do_not_make_up_for_each_other(
    tmp_path: Path, batch_size: int, end: bytes, quoted: bool
) -> None:
    form = b'"a%d",%d,"2013-01-01T00:00:00Z"' if quoted else b"a%d,%d,2013-01-01T00:00:00Z"
    lines = [form % (i % 5, i) for i in range(200)]
    lines[10], lines[50:52] = SPLITS, JOINS
    (tmp_path / "x.csv").write_bytes(end.join([b"agent,value,time", *lines, b""]))
    values: dict[int, float] = {}
    bad: list[int] = []
    with closing(CsvSource(tmp_path / "x.csv", ColumnMapping())) as source:
        while not (batch := source.next_batch(batch_size)).exhausted:
            values |= dict(
                zip(batch.samples.position.tolist(), batch.samples.value.tolist(), strict=True)
            )
            bad += batch.rejects.position
    assert sorted(bad) == [12, 52]
    assert values.pop(53) == 4.0  # a stray quote in the middle of a field is a part of it
    assert values == {i + 2: float(i) for i in range(200) if i not in (10, 50, 51)}

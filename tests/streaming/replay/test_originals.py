"""Raw records are found at their positions in every kind of file, and written into a private file
only."""

from __future__ import annotations

import gzip
import json
import os
import stat
import zipfile
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from meanstream.streaming.replay import raw_records as originals
from meanstream.streaming.replay.raw_records import (
    raw_records_heading,
    read_raw_records,
    write_raw_records,
)

LINES = [b"agent,value,time,id", *(b"a%d,%d,%d,id %d\r" % (i % 3, i, i, i) for i in range(2, 200))]
LINES[7] = b'\xff"broken'
LINES[9] = b""
LINES[11] = b"x" * 5000
TEXT = b"\n".join(LINES)


def write(path: Path) -> str:
    if path.suffix == ".gz":
        path.write_bytes(gzip.compress(TEXT))
    elif path.suffix == ".zip":
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr(path.stem, TEXT)
    else:
        path.write_bytes(TEXT)
    return str(path)


@pytest.mark.parametrize("name", ["f.csv", "f.tsv", "f.jsonl", "f.csv.gz", "f.ndjson.zip"])
@pytest.mark.parametrize("block", [1, 3, 1 << 16])
def test_lines_are_found_as_they_stand(
    name: str, block: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(originals, "READ_LINES", block)
    asked = [2, 8, 12, 10, 199, 500, 8]  # 10 is blank, 500 beyond the end, 8 twice
    found = list(read_raw_records(write(tmp_path / name), np.array(asked)))
    assert found == [(n, LINES[n - 1]) for n in (2, 8, 12, 199)]
    assert list(read_raw_records(str(tmp_path / name), np.zeros(0, np.int64))) == []
    assert raw_records_heading(str(tmp_path / name)) == (
        LINES[0] if "csv" in name or "tsv" in name else None
    )


def test_a_line_that_is_too_long_is_left_out_unless_asked_for(tmp_path: Path) -> None:
    location = write(tmp_path / "f.csv")
    assert list(read_raw_records(location, np.array([11, 12, 13]), max_record_bytes=1000)) == [
        (11, LINES[10]),
        (13, LINES[12]),
    ]
    assert len(list(read_raw_records(location, np.array([12]), max_record_bytes=8192))) == 1


def test_rows_of_parquet_are_json_objects(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(originals, "READ_ROWS", 3)
    n = 20
    table = pa.table(
        {
            "agent": pa.array([f"ä{i}" for i in range(n)]).dictionary_encode(),
            "value": pa.array([Decimal(f"{i}.25") for i in range(n)]),
            "time": pa.array(
                [datetime(2020, 1, 1, i, tzinfo=UTC) for i in range(n)], pa.timestamp("ns", "UTC")
            ),
            "text": [b"t"] * n,
            "bytes": [b"\xff\x00"] * n,
            "nothing": pa.nulls(n),
            "list": [[i] for i in range(n)],
        }
    )
    parquet.write_table(table, tmp_path / "f.parquet", row_group_size=7)
    found = list(read_raw_records(str(tmp_path / "f.parquet"), np.array([20, 1, 7, 8, 21])))
    assert [number for number, _ in found] == [1, 7, 8, 20]
    assert json.loads(found[1][1]) == {
        "agent": "ä6",
        "value": 6.25,
        "time": "2020-01-01 06:00:00.000000000Z",
        "text": "t",
        "bytes": "/wA=",
        "nothing": None,
        "list": [6],
    }


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("f.txt", "source must be a file of type .csv, .tsv, .jsonl, .ndjson, .parquet"),
        ("synthetic:3,9", "source must be a file of type"),
        ("missing.csv", "source must be a readable file"),
        ("damaged.parquet", "source must be an undamaged Parquet file"),
    ],
)
def test_what_cannot_be_read_is_refused(name: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "damaged.parquet").write_bytes(b"no parquet")
    with pytest.raises(ValueError, match=message):
        list(read_raw_records(str(tmp_path / name), np.array([1])))


def test_written_lines_make_a_file_of_the_same_kind_that_only_its_owner_reads(
    tmp_path: Path,
) -> None:
    location = write(tmp_path / "f.csv")
    mask = os.umask(0)
    try:
        assert write_raw_records(tmp_path / "raw.csv", location, np.array([8, 12, 900])) == 2
    finally:
        os.umask(mask)
    assert (tmp_path / "raw.csv").read_bytes() == b"\n".join([LINES[0], LINES[7], LINES[11], b""])
    assert stat.S_IMODE((tmp_path / "raw.csv").stat().st_mode) == 0o600


def test_a_place_that_is_there_or_that_others_read_is_refused(tmp_path: Path) -> None:
    location = write(tmp_path / "f.csv")
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "letters.parquet").mkdir()
    before = sorted(tmp_path.iterdir())
    for place in (location, "/dev/stdout", "/dev/stderr", "/dev/tty", tmp_path / "link"):
        with pytest.raises(ValueError, match=r"raw_to must be a new file, got .*, which exists"):
            write_raw_records(Path(place), location, np.array([8]))
    for place, message in (
        ("-", "raw_to must be a new file, got '-'"),
        (
            tmp_path / "letters.parquet" / "raw",
            "raw_to must be a file outside of a folder of events",
        ),
        (tmp_path / "no" / "raw", "raw_to must be in a writable folder"),
    ):
        with pytest.raises(ValueError, match=message):
            write_raw_records(Path(place), location, np.array([8]))
    assert sorted(tmp_path.iterdir()) == before


def test_nothing_raw_is_left_where_reading_failed(tmp_path: Path) -> None:
    location = write(tmp_path / "f.csv.gz")
    (tmp_path / "f.csv.gz").write_bytes((tmp_path / "f.csv.gz").read_bytes()[:-20])
    with pytest.raises(ValueError, match="source must be an undamaged file"):
        write_raw_records(tmp_path / "raw", location, np.array([2, 900]))
    assert not (tmp_path / "raw").exists()

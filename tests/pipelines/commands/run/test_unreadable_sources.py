"""Archives, types of columns and damage: one line, exit 1 or 2, and the next run goes on."""

from __future__ import annotations

import errno
import gzip
import os
import re
import zipfile
from datetime import UTC, date, datetime
from decimal import Decimal
from hashlib import sha256
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet

from tests.pipelines.command_line import SECRET, Ran, arguments, meanstream, options

KEY = {"MEANSTREAM_SECRET": SECRET}
TEXT = b"agent,value,time\n" + b"".join(
    b"a%d,%d,%d\n" % (i % 3, i * 7919 % 10, i) for i in range(100_000)
)
WIDE = b"agent,value,time,note\n" + b"".join(
    b"a%d,%d,%d,%s\n" % (i % 3, i * 7919 % 10, i, sha256(b"%d" % i).hexdigest().encode())
    for i in range(100_000)
)
"""Longer than what is read before a run begins."""


def run(folder: Path, source: Path | str, **changes: Any) -> Ran:
    columns = {"agent": "agent", "value": "value", "time": "time", "lower": 0, "upper": 10}
    named = options(folder, source=source, quiet=True, **columns, **changes)
    return meanstream("run", "agents", *arguments(named), environment=KEY)


def one_line(ran: Ran) -> str:
    assert ran.code in (1, 2)
    (line,) = ran.err.decode().splitlines()
    return line


@pytest.mark.parametrize("sort", [True, False])
def test_damage_in_the_middle_ends_the_run_and_the_next_one_goes_on(
    sort: bool, tmp_path: Path
) -> None:
    source, packed = tmp_path / "x.csv.gz", gzip.compress(TEXT, 1)
    source.write_bytes(packed[: len(packed) - 1000])
    assert "source must be an undamaged file" in one_line(
        run(tmp_path, source, sort=sort, batch_size=12_500)
    )
    source.write_bytes(packed)
    assert run(tmp_path, source, sort=sort, batch_size=12_500).code == 0


def test_a_zip_that_cannot_be_opened_is_one_line(tmp_path: Path) -> None:
    source = tmp_path / "x.csv.zip"
    with zipfile.ZipFile(source, "w") as archive:
        archive.writestr("x.csv", TEXT[:1000])
    plain = source.read_bytes()
    at = plain.rfind(b"PK\x01\x02")
    for offset, value in ((6, 1), (8, 99)):  # encrypted; of a method that nobody knows
        spoiled = bytearray(plain)
        spoiled[offset], spoiled[at + offset + 2] = value, value
        source.write_bytes(bytes(spoiled))
        assert "source must be an undamaged zip file without a password" in one_line(
            run(tmp_path, source)
        )
    source.write_bytes(b"a,1,2\n")
    said = one_line(run(tmp_path, source))
    assert "source must be an undamaged zip file" in said
    assert "a,1" not in said


@pytest.mark.parametrize(
    ("column", "array"),
    [
        ("value", pa.array([True])),
        ("value", pa.array([[1.0]])),
        ("agent", pa.array([1.5])),
        ("agent", pa.array([{"a": 1}])),
        ("time", pa.array([True])),
        ("time", pa.array([1], pa.time32("s"))),
    ],
)
def test_types_that_mean_nothing_are_one_line(column: str, array: pa.Array, tmp_path: Path) -> None:
    table = pa.table({"agent": ["a"], "value": [1.0], "time": [1], **{column: array}})
    parquet.write_table(table, tmp_path / "x.parquet")
    ran = run(tmp_path, tmp_path / "x.parquet")
    assert f"{column} column must hold" in one_line(ran)
    assert ran.code == 2
    assert [path.name for path in tmp_path.iterdir()] == ["x.parquet"]  # nothing was begun


def test_damaged_parquet_is_one_line(tmp_path: Path) -> None:
    source = tmp_path / "x.parquet"
    parquet.write_table(
        pa.table({"agent": ["a"] * 99, "value": [1.0] * 99, "time": range(99)}), source
    )
    whole = source.read_bytes()
    source.write_bytes(whole[: len(whole) // 2])
    assert "source must be a Parquet file" in one_line(run(tmp_path, source))
    source.write_bytes(whole[:4] + bytes(255 ^ byte for byte in whole[4:60]) + whole[60:])
    assert "source must be an undamaged Parquet file" in one_line(run(tmp_path, source))


@pytest.mark.parametrize(
    "first",
    [
        "N14228,41.25,2013-01-01T00:00:00Z,F9",
        "secret,NA,1356998400,x",
        "a,nan,,b",
        ".5,a,b,c",
        "N14228;41.25;F9",
        "N14228\t41.25\tF9",
        "N14228;F9,25;x",
    ],
)
def test_a_file_without_a_header_shows_nothing_of_its_first_record(
    first: str, tmp_path: Path
) -> None:
    (tmp_path / "x.csv").write_text(f"{first}\n" * 3)
    ran = run(tmp_path, tmp_path / "x.csv")
    assert ran.code == 2
    assert (
        "agent column must be in the source, got 'agent'; its first line holds numbers"
        in one_line(ran)
    )
    assert not any(field in one_line(ran) for field in re.split("[,;\t]", first) if len(field) > 1)
    (tmp_path / "x.csv").write_text("tailnum,delay,hour,id\n")
    assert "tailnum, delay, hour, id" in one_line(run(tmp_path, tmp_path / "x.csv"))


@pytest.mark.parametrize(
    ("name", "header", "hint"),
    [
        (
            "x.csv",
            "Time;Shop;Amount",
            "; columns must be separated by commas, and this header has ';'",
        ),
        (
            "x.csv",
            '"Time";"Shop";"Amount"',
            "; columns must be separated by commas, and this header has ';'",
        ),
        (
            "x.csv",
            "Time\tShop\tAmount",
            r"; columns must be separated by commas, and this header has '\t'",
        ),
        (
            "x.csv.gz",
            "Time|Shop|Amount",
            "; columns must be separated by commas, and this header has '|'",
        ),
        (
            "x.tsv",
            "Time,Shop,Amount",
            "; columns must be separated by tabs, and this header has ','",
        ),
    ],
)
def test_a_header_with_other_separators_is_told_so(
    name: str, header: str, hint: str, tmp_path: Path
) -> None:
    text = f"{header}\n".encode()
    (tmp_path / name).write_bytes(gzip.compress(text) if name.endswith(".gz") else text)
    assert one_line(run(tmp_path, tmp_path / name)).endswith(hint)
    text = text.replace(b'"', b"").replace(
        b"Time", b"agent,Time" if name != "x.tsv" else b"agent\tTime"
    )
    (tmp_path / name).write_bytes(gzip.compress(text) if name.endswith(".gz") else text)
    assert "separated by" not in one_line(
        run(tmp_path, tmp_path / name)
    )  # it has the right ones, and lacks a column


@pytest.mark.parametrize("name", ["x.csv", "x.csv.gz", "x.csv.zip", "x.jsonl", "x.parquet"])
def test_a_file_that_nobody_may_read_is_one_line_and_nothing_is_begun(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / name).write_bytes(TEXT[:100])

    def denied(*_: Any, **__: Any) -> None:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    monkeypatch.setattr(gzip, "open", denied)
    monkeypatch.setattr(zipfile, "ZipFile", denied)
    monkeypatch.setattr(parquet, "ParquetFile", denied)
    monkeypatch.setattr(Path, "open", denied)
    ran = run(tmp_path, tmp_path / name)
    assert ran.code == 2
    assert "source must be " in one_line(ran)
    assert repr(str(tmp_path / name)) in one_line(ran)
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_a_folder_a_pipe_and_a_device_are_no_files(tmp_path: Path) -> None:
    (tmp_path / "folder.csv").mkdir()
    os.mkfifo(tmp_path / "pipe.csv")
    (tmp_path / "device.csv").symlink_to("/dev/zero")
    for name in ("folder.csv", "pipe.csv", "device.csv", "absent.csv"):
        ran = run(tmp_path, tmp_path / name)
        assert ran.code == 2
        assert f"source must be a readable file, got '{tmp_path / name}'" in one_line(ran)
    assert not (tmp_path / "state.db").exists()


@pytest.mark.parametrize(
    "source", ["kafk://127.0.0.1:9092/samples", "127.0.0.1:9092/samples", "broker:9092", "kafka/x"]
)
def test_what_looks_like_an_address_is_told_the_form_of_one(source: str, tmp_path: Path) -> None:
    ran = run(tmp_path, source)
    hint = " or an address such as kafka://HOST:PORT/TOPIC" if ":" in source else ""
    assert one_line(ran) == f"meanstream: source must be a readable file{hint}, got {source!r}"


def damaged_heads() -> dict[str, bytes]:
    """Archives that show at their beginning that nothing can be read."""
    whole = gzip.compress(TEXT, 1)
    small = gzip.compress(TEXT[:3000])
    early = bytearray(whole)
    early[40] ^= 255
    checksum = bytearray(small)
    checksum[-6] ^= 255
    return {
        "torn": whole[:15],
        "plain": TEXT[:99],
        "early": bytes(early),
        "small torn": small[:-4],
        "checksum": bytes(checksum),
    }


@pytest.mark.parametrize("kind", ["csv", "tsv", "jsonl", "ndjson"])
@pytest.mark.parametrize("damage", damaged_heads())
@pytest.mark.parametrize("sort", [True, False])
def test_damage_at_the_head_is_refused_before_anything_is_begun(
    sort: bool, damage: str, kind: str, tmp_path: Path
) -> None:
    source = tmp_path / f"x.{kind}.gz"
    source.write_bytes(damaged_heads()[damage])
    ran = run(tmp_path, source, sort=sort)
    assert "source must be an undamaged file" in one_line(ran)
    assert ran.code == 2
    assert list(tmp_path.iterdir()) == [source]


@pytest.mark.parametrize("sort", [True, False])
def test_a_wrong_checksum_at_the_end_is_one_line_and_the_next_run_goes_on(
    sort: bool, tmp_path: Path
) -> None:
    whole = tmp_path / "whole"
    whole.mkdir()
    source, packed = tmp_path / "x.csv.gz", gzip.compress(WIDE, 1)
    for bad in (packed[:-8] + b"1234" + packed[-4:], packed + b"something behind it"):
        source.write_bytes(bad)
        ran = run(tmp_path, source, sort=sort, batch_size=22_500)
        assert (ran.code, one_line(ran).partition(", got")[0]) == (
            1,
            "meanstream: source must be an undamaged file",
        )
    source.write_bytes(packed)
    assert run(tmp_path, source, sort=sort, batch_size=22_500).code == 0
    (whole / "x.csv.gz").write_bytes(packed)
    assert run(whole, whole / "x.csv.gz", sort=sort, batch_size=22_500).code == 0
    assert (tmp_path / "releases.jsonl").read_bytes() == (whole / "releases.jsonl").read_bytes()


COLUMNS: dict[str, pa.Array] = {
    "nested": pa.array([[1.0]] * 4),
    "struct": pa.array([{"a": 1}] * 4),
    "map": pa.array([[("a", 1)]] * 4, pa.map_(pa.string(), pa.int64())),
    "decimal": pa.array([Decimal("1.25")] * 4, pa.decimal128(38, 10)),
    "decimal256": pa.array([Decimal("1.25")] * 4, pa.decimal256(76, 10)),
    "half": pa.array([1.5] * 4, pa.float16()),
    "unsigned": pa.array([2**64 - 1, 1, 2, None], pa.uint64()),
    "bool": pa.array([True, False, None, True]),
    "text": pa.array(["1", "x", "", None]),
    "view": pa.array(["1", "2", "3", None], pa.string_view()),
    "bytes": pa.array([b"1", b"\xff", b"", None], pa.large_binary()),
    "fixed": pa.array([b"\0\xff"] * 4, pa.binary(2)),
    "date": pa.array([date(2013, 1, 1)] * 4),
    "time": pa.array([1] * 4, pa.time64("ns")),
    "duration": pa.array([1] * 4, pa.duration("s")),
    "moment": pa.array([2**63 - 1, -(2**63), 0, None], pa.timestamp("us")),
    "zoned": pa.array(
        [datetime(2013, 1, 1, tzinfo=UTC)] * 4, pa.timestamp("ns", "America/New_York")
    ),
    "words": pa.array(["a", "b", None, "a"]).dictionary_encode(),
    "numbers": pa.array([1.0, 2.0, None, 1.0]).dictionary_encode(),
    "no words": pa.DictionaryArray.from_arrays(pa.array([None] * 4, pa.int8()), pa.array(["a"])),
    "nothing": pa.nulls(4),
    "no numbers": pa.nulls(4, pa.float64()),
    "no decimals": pa.nulls(4, pa.decimal128(10, 2)),
    "no times": pa.nulls(4, pa.timestamp("us")),
}


@pytest.mark.parametrize("part", ["agent", "value", "time", "id", "schema_version"])
@pytest.mark.parametrize("kind", COLUMNS)
def test_whatever_a_column_holds_is_taken_rejected_or_one_line(
    kind: str, part: str, tmp_path: Path
) -> None:
    good = {
        "agent": pa.array(["a", "b", "a", "b"]),
        "value": pa.array([1.0, 2.0, 3.0, 4.0]),
        "time": range(4),
    }
    parquet.write_table(pa.table({**good, part: COLUMNS[kind]}), tmp_path / "x.parquet")
    more = {"id": "id"} if part == "id" else {}
    ran = run(
        tmp_path, tmp_path / "x.parquet", json=True, dead_letters=tmp_path / "d.jsonl", **more
    )
    if ran.code:
        assert f"{part} column must hold" in one_line(ran)
        assert ran.code == 2
        assert [path.name for path in tmp_path.iterdir()] == ["x.parquet"]  # nothing was begun
    else:
        # A column without any value is as none: one warning says so.
        empty = ran.json["accepted"] == 0 and f"field that --{part} names".encode() in ran.err
        assert ran.err.count(b"\n") == 1 if empty else ran.err == b""
        assert ran.json["accepted"] + sum(ran.json["rejected"].values()) == ran.json["events"] == 4

"""What one record, or a small file, may cost; and a long record among short ones."""

from __future__ import annotations

import json
import random
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from meanstream.streaming.open_source import open_source
from meanstream.streaming.sources.formats import avro_cursor, parquet_rows
from meanstream.streaming.sources.formats.avro_cursor import AvroCursor
from meanstream.streaming.sources.formats.avro_records import joined_with_pad
from meanstream.streaming.sources.formats.avro_schema import parse_avro_schema
from meanstream.streaming.sources.formats.parquet_file import ParquetSource
from meanstream.streaming.sources.mapping import ColumnMapping
from meanstream.streaming.sources.source_protocol import UnreadableSourceError

MAPPING = ColumnMapping(id="id")
ITEMS: tuple[Any, ...] = (
    ["null", "int"],
    "string",
    "bytes",
    "boolean",
    "double",
    "null",
    {"type": "map", "values": ["null", "long"]},
    {"type": "array", "items": {"type": "array", "items": ["null", "string"]}},
    {
        "type": "record",
        "name": "P",
        "fields": [{"name": n, "type": t} for n, t in (("a", "long"), ("b", "string"))],
    },
    {"type": "enum", "name": "E", "symbols": ["x", "y"]},
    {"type": "fixed", "name": "F", "size": 3},
)


@pytest.mark.parametrize("length", [1 << 17, (1 << 17) + 1, 300_000])
def test_a_long_field_is_good_in_any_company(length: int, tmp_path: Path) -> None:
    for others in (0, 200):
        path = tmp_path / f"{others}.csv"
        rows = [f"a,{i},{1000 + i},k{i},\n" for i in range(others)] + [
            f"a,7,3000,k,{'x' * length}\n"
        ]
        path.write_text("agent,value,time,id,note\n" + "".join(rows))
        for size in (1000, 5):
            with closing(open_source(str(path), MAPPING, sort=False)) as source:
                batches = []
                while not (batch := source.next_batch(size)).exhausted:
                    batches.append(batch)
            assert sum(len(batch.rejects) for batch in batches) == 0
            assert batches[-1].samples.value[-1] == 7.0


@pytest.mark.parametrize("items", ITEMS, ids=[json.dumps(one)[:30] for one in ITEMS])
@pytest.mark.parametrize("kind", ["array", "map"])
def test_few_records_and_many_end_alike(
    kind: str, items: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Byte by byte where there are few, by arrays where there are many: as whole, and after as many
    steps."""
    rng = random.Random(11)  # noqa: S311 - test data
    schema = parse_avro_schema(
        json.dumps({"type": kind, "values" if kind == "map" else "items": items})
    )
    values = [bytes(rng.choice((0, 0, 1, 2, 2, 3, 4, 6, 8, 128, 255)) for _ in range(rng.randrange(1, 30))) + b"\x00"
              for _ in range(300)]  # fmt: skip
    data, start, end = joined_with_pad(values)
    found = []
    for few in (0, 10_000):
        monkeypatch.setattr(avro_cursor, "FEW", few)
        cursor = AvroCursor(data, {})
        whole = cursor.read(schema, start, end)
        found.append((whole.tolist(), cursor._left[whole].tolist()))
    assert found[0] == found[1]
    assert 0 < sum(found[0][0]) < 300


@pytest.mark.parametrize("blocks", [1, 3000])
def test_one_record_of_many_items_is_read_in_time_that_its_bytes_bound(blocks: int) -> None:
    """A hundred kilobytes; one step by arrays for each item took four seconds."""
    each = 50_000 // blocks
    block = bytes([each << 1 & 127 | 128, each >> 6 & 127 | 128, each >> 13]) + b"\x02\x02" * each
    value = block * blocks + b"\x00"
    data, start, end = joined_with_pad([value, value[:-1], b"\x00"])
    began = time.process_time()
    schema = parse_avro_schema(json.dumps({"type": "array", "items": ["null", "int"]}))
    assert AvroCursor(data, {}).read(schema, start, end).tolist() == [True, False, True]
    assert time.process_time() - began < 1.0  # 0.15 s on a quiet machine


def write_rows(path: Path, rows: int, long: str, *, of: str, **options: Any) -> None:
    """Write a text into two of three rows of a column, once if it may be."""
    good = {"agent": "a", "value": "1.5", "time": "2013-01-01", "id": "k"}
    columns = {}
    for name, text in good.items():
        codes = pa.array([1 if name == of and i % 3 else 0 for i in range(rows)], pa.int32())
        columns[name] = pa.DictionaryArray.from_arrays(codes, pa.array([text, long]))
    pq.write_table(pa.table(columns), path, compression="zstd", store_schema=False, **options)


@pytest.mark.parametrize("of", ["agent", "value", "time", "id"])
def test_a_text_that_stands_for_many_rows_is_never_written_out(of: str, tmp_path: Path) -> None:
    """Two kilobytes of a file are two gigabytes of names; each other row is a sample."""
    path, rows = tmp_path / "x.parquet", 6000
    write_rows(path, rows, "x" * 300_000, of=of)
    assert path.stat().st_size < 10_000
    before = pa.total_allocated_bytes()
    most = 0
    with closing(ParquetSource(path, MAPPING)) as source:
        batch = source.next_batch(5000)
        most = max(most, pa.default_memory_pool().max_memory() - before)
        reason = {"agent": "bad_agent", "value": "bad_value", "time": "bad_time", "id": "bad_id"}[
            of
        ]
        assert (len(batch.samples), set(batch.rejects.reason)) == (1667, {reason})
        assert len(source.next_batch(5000).samples) == 333
    assert most < 200 << 20


def test_where_a_batch_of_rows_ends_does_not_depend_on_how_long_texts_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pieces are smaller; batches are not, and rejects come in the same order."""
    path = tmp_path / "x.parquet"
    rng = np.random.default_rng(3)
    names = [("x" * 5000 if i % 5 == 0 else "") if i % 3 == 0 else f"a{i % 7}" for i in range(900)]
    values = [None if rng.random() < 0.2 else float(i) for i in range(900)]
    table = {
        "agent": names,
        "value": values,
        "time": np.arange(900.0),
        "id": [f"k{i}" for i in range(900)],
    }
    pq.write_table(pa.table(table), path, row_group_size=400, use_dictionary=False)
    found = []
    for size in (32 << 20, 20_000):
        monkeypatch.setattr(parquet_rows, "PIECE_BYTES", size)
        with closing(ParquetSource(path, MAPPING)) as source:
            batches = [source.next_batch(250) for _ in range(5)]
        found.append(
            [(b.samples.position.tolist(), b.rejects.reason, b.rejects.position) for b in batches]
        )
        assert [b.position["row"] for b in batches] == [250, 500, 750, 900, 900]
    assert found[0] == found[1]


def test_row_groups_of_long_texts_that_memory_does_not_hold_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parquet_rows, "CHUNK_BYTES", 1 << 20)
    path = tmp_path / "x.parquet"
    write_rows(path, 300, "x" * 10_000, of="agent", use_dictionary=False)
    with pytest.raises(
        UnreadableSourceError, match=r"at most 1 MiB of long texts .* smaller row groups"
    ):
        ParquetSource(path, MAPPING)
    write_rows(path, 300, "x" * 10_000, of="agent", use_dictionary=False, row_group_size=50)
    with closing(ParquetSource(path, MAPPING)) as source:
        assert len(source.next_batch(1000).rejects) == 200

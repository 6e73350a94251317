"""Raw records of a source at given places.

For the operator's eyes, inside the trust domain only.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from contextlib import closing
from decimal import Decimal
from pathlib import Path
from typing import Any, TypeGuard

import numpy as np
import pyarrow as pa
from pyarrow import parquet

from meanstream.operators.records import Ints
from meanstream.operators.validation import require
from meanstream.streaming.kafka.connection.kafka_location import KafkaLocation, is_kafka_location
from meanstream.streaming.open_source import source_class, source_kind
from meanstream.streaming.own_paths import require_no_store_file
from meanstream.streaming.sources.formats.csv_file import CsvSource
from meanstream.streaming.sources.lines import MAX_LINE_BYTES, LineReader
from meanstream.streaming.store.database import new_file

READ_LINES = 1 << 16
READ_ROWS = 1 << 14


def read_raw_records(
    location: str, positions: Ints, *, max_record_bytes: int = MAX_LINE_BYTES
) -> Iterator[tuple[int, bytes]]:
    """Read the records at some positions of a source, each with its position, in the order of positions.

    A line of text comes as it stands, without its end; a row of Parquet as a JSON object; of a
    topic the value of a message, if it is one line, and otherwise an object `{"base64": ...}` that
    holds it. Memory is bounded by a block of the source and its longest record.

    **Privacy.** Private: this is the raw data that dead letters leave out.
    """
    if is_kafka_location(location):
        from meanstream.streaming.kafka.reading.scan import scan_records

        records = scan_records(KafkaLocation.parse(location), positions)
        return ((at, value if _is_line(value) else _in_base_64(value)) for at, value in records)

    path, kind = _file(location)
    wanted = np.unique(positions)
    if not len(wanted):
        return iter(())

    if kind == ".parquet":
        return _rows(path, wanted)
    return _lines(path, wanted, max_record_bytes)


def raw_records_heading(location: str) -> bytes | None:
    """Read the line that the records of a file need before them; None if they need none."""
    if is_kafka_location(location):
        return None
    path, kind = _file(location)
    if source_class(kind) is not CsvSource:
        return None

    with closing(LineReader(path)) as reader:
        taken = reader.next_block(1)

    lines = [] if taken is None else taken[0].lines()

    if lines:
        return lines[0]
    return None


def write_raw_records(
    path: Path, location: str, positions: Ints, *, max_record_bytes: int = 0
) -> int:
    """Copy records into a new file of the operator, one per line; return how many there were.

    The file is of the source's kind (of Parquet and topics: JSONL), so that its records can be
    mended and fed in again.

    **Privacy.** Private: raw data. The file can be read by its owner only.
    """
    head = raw_records_heading(location)
    records = read_raw_records(
        location, positions, max_record_bytes=max(max_record_bytes, MAX_LINE_BYTES)
    )
    written = 0

    require(str(path) != "-", "raw_to", "be a new file", "-")
    require_no_store_file("raw_to", path)
    outside = "be a file outside of a folder of events"
    require(path.parent.suffix != ".parquet", "raw_to", outside, str(path))

    with new_file(path, "raw_to", refused=ValueError, failed=None) as file:
        if head is not None:
            file.write(head + b"\n")

        for _, record in records:
            file.write(record + b"\n")
            written += 1

    return written


def _file(location: str) -> tuple[Path, str]:
    """Find the file and the kind that its name says."""
    kind = source_kind(location)
    path = Path(location)
    require(kind.startswith("."), "source", "be a file or a topic to read records from", location)
    require(path.is_file(), "source", "be a readable file", location)

    return path, kind


def _is_line(value: bytes | None) -> TypeGuard[bytes]:
    return value is not None and value != b"" and b"\n" not in value and b"\r" not in value


def _in_base_64(value: bytes | None) -> bytes:
    return json.dumps(
        {"base64": None if value is None else base64.b64encode(value).decode()}
    ).encode()


def _lines(path: Path, wanted: Ints, max_record_bytes: int) -> Iterator[tuple[int, bytes]]:
    with closing(LineReader(path, max_line_bytes=max_record_bytes)) as reader:
        while (taken := reader.next_block(READ_LINES)) is not None:
            block, _ = taken
            for i in np.flatnonzero(np.isin(block.number, wanted)).tolist():
                line = block.part(i, i + 1)
                yield int(line.number[0]), bytes(line.data).removesuffix(b"\n")

            if reader.line >= wanted[-1]:
                return


def _rows(path: Path, wanted: Ints) -> Iterator[tuple[int, bytes]]:
    try:
        with parquet.ParquetFile(path) as file:
            first = 1
            for group in range(file.metadata.num_row_groups):
                after = first + file.metadata.row_group(group).num_rows
                rows = wanted[(wanted >= first) & (wanted < after)]
                if len(rows):
                    yield from _rows_of(file, group, first, rows)

                first = after
    except (pa.ArrowException, OSError):
        raise ValueError(f"source must be an undamaged Parquet file, got {path.name!r}") from None


def _rows_of(
    file: parquet.ParquetFile, group: int, first: int, wanted: Ints
) -> Iterator[tuple[int, bytes]]:
    """Read rows of one group, whose first row has the number `first`."""
    for batch in file.iter_batches(READ_ROWS, row_groups=[group]):
        in_batch = wanted[(wanted >= first) & (wanted < first + len(batch))]
        if len(in_batch):
            chosen = pa.Table.from_batches([batch]).take(pa.array(in_batch - first))
            columns = {
                name: _plain(column)
                for name, column in zip(chosen.column_names, chosen.columns, strict=True)
            }

            for i, number in enumerate(in_batch.tolist()):
                row = {name: column[i] for name, column in columns.items()}
                yield number, json.dumps(row, ensure_ascii=False, default=_text).encode()

        first += len(batch)


def _plain(column: pa.ChunkedArray) -> list[Any]:
    """Give the values of a column as JSON has them, or close to it; times as text."""
    values: list[Any] = (
        column.cast(pa.string()) if pa.types.is_temporal(column.type) else column
    ).to_pylist()
    return values


def _text(value: Any) -> Any:
    """Write what JSON does not have.

    Decimals as numbers, bytes as text, or in base 64 if they are none.
    """
    if isinstance(value, Decimal):
        return float(value)

    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return base64.b64encode(value).decode()

    return str(value)

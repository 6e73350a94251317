"""Samples from a CSV file."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyarrow import csv as arrow_csv

from streaming.columns import Rejects
from streaming.mapping import ColumnMapping
from streaming.sources.lines import MAX_LINE_BYTES, LineBlock
from streaming.sources.text import Parsed, TextSource

NULLS = ("", "NA", "N/A", "null", "NULL", "None")
"""Texts that mean a missing value."""

TEXTS: dict[str, pa.DataType] = {}
PLANS: tuple[dict[str, pa.DataType], ...] = (
    {"value": pa.float64(), "time": pa.timestamp("us", "UTC")},
    {"value": pa.float64(), "time": pa.timestamp("us")},
    TEXTS,
)
"""Types to read the columns as, the last of which takes every text; the one that served last is tried first."""


class CsvSource(TextSource):
    """A CSV file with a header line; `.tsv` is separated by tabs. A record is one line.

    Raises
    ------
    ValueError
        Before any data is read, if the header lacks a mapped column or has it twice.
    """

    def __init__(
        self, path: Path, mapping: ColumnMapping, *, id_key: bytes = b"", max_line_bytes: int = MAX_LINE_BYTES
    ) -> None:
        super().__init__(path, mapping, id_key=id_key, max_line_bytes=max_line_bytes)
        self._plans = list(PLANS)
        self._delimiter = "\t" if ".tsv" in path.suffixes else ","
        try:
            self._header = self._read_header()
            wanted = mapping.resolve(self._header)
        except ValueError:
            self.close()
            raise
        self._fields = {part: self._header.index(column) for part, column in wanted.items()}

    def parse_block(self, block: LineBlock, rejects: Rejects) -> Parsed:
        """Read all lines with pyarrow; lines with too many or too few fields are rejected."""
        for types in list(self._plans) if _is_utf8(block.data) else [TEXTS]:
            try:
                table, bad = self._read(block, types)
            except pa.ArrowInvalid:
                if types is TEXTS:
                    raise
                continue
            self._plans.sort(key=lambda plan, served=types: plan is not served)  # type: ignore[misc]
            break
        if table.num_rows + len(bad) != len(block):  # a stray quote or carriage return joined or split lines
            raise pa.ArrowInvalid("rows are not lines")
        number = block.number
        if bad:
            size = np.diff(block.end, prepend=0)
            for i in bad:
                rejects.add("malformed", int(number[i]), int(size[i]))
            number = np.delete(number, bad)
        return {part: _one_chunk(table.column(f"f{i}")) for part, i in self._fields.items()}, number

    def _read(self, block: LineBlock, types: dict[str, pa.DataType]) -> tuple[pa.Table, list[int]]:
        bad: list[int] = []

        def invalid(row: arrow_csv.InvalidRow) -> str:
            bad.append(row.number - 1)
            return "skip"

        used = {f"f{i}": types.get(part, pa.binary()) for part, i in self._fields.items()}
        table = arrow_csv.read_csv(
            pa.BufferReader(block.data),
            read_options=arrow_csv.ReadOptions(
                use_threads=False,
                block_size=len(block.data) + 1,
                column_names=[f"f{i}" for i in range(len(self._header))],
            ),
            parse_options=arrow_csv.ParseOptions(
                delimiter=self._delimiter,
                quote_char='"' if np.any(np.frombuffer(block.data, np.uint8) == ord('"')) else False,
                ignore_empty_lines=False,
                invalid_row_handler=None if types is TEXTS and not _is_utf8(block.data) else invalid,
            ),
            convert_options=arrow_csv.ConvertOptions(
                column_types=used,
                include_columns=list(used),
                null_values=NULLS,
                strings_can_be_null=True,
                check_utf8=False,
            ),
        )
        return table, bad

    def parse_line(self, line: bytes) -> dict[str, bytes | None] | str:
        """Read one line with the standard library, strictly."""
        try:
            rows = list(csv.reader([line.decode("latin-1")], delimiter=self._delimiter, strict=True))
        except csv.Error:
            return "malformed"
        if len(rows) != 1 or len(rows[0]) != len(self._header):
            return "malformed"
        texts = {part: rows[0][i] for part, i in self._fields.items()}
        return {part: None if text in NULLS else text.encode("latin-1") for part, text in texts.items()}

    def _read_header(self) -> list[str]:
        taken = self._reader.next_block(1)
        lines = [] if taken is None else taken[0].lines()
        if not lines:
            raise ValueError(f"source must start with a header line, got an empty one in {self.name!r}")
        try:
            text = lines[0].removeprefix(b"\xef\xbb\xbf").decode()
            header = next(csv.reader([text], delimiter=self._delimiter, strict=True))
        except (UnicodeDecodeError, csv.Error):
            raise ValueError(f"source must start with a UTF-8 header line, got another in {self.name!r}") from None
        return [name.strip() for name in header]


def _is_utf8(data: memoryview) -> bool:
    if np.frombuffer(data, np.int8).min(initial=0) >= 0:
        return True
    try:
        str(data, "utf-8")
    except UnicodeDecodeError:
        return False
    return True


def _one_chunk(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()

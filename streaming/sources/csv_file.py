"""Samples from a CSV file."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyarrow import csv as arrow_csv

from streaming.columns import Rejects
from streaming.mapping import ColumnMapping, kind_of
from streaming.sources.lines import MAX_LINE_BYTES, LineBlock, LineReader
from streaming.sources.records import Parsed, RecordParser, Texts, is_utf8
from streaming.sources.text import TextSource

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

    Parameters
    ----------
    path : Path
        Plain, `.gz` or `.zip` file.
    mapping : ColumnMapping
        Which column means what.
    id_key : bytes
        Secret key of the hash of ids.
    max_line_bytes : int
        Longer lines are skipped and reported.

    Raises
    ------
    ValueError
        Before any data is read, if the header lacks a mapped column or has it twice.
    """

    def __init__(
        self, path: Path, mapping: ColumnMapping, *, id_key: bytes = b"", max_line_bytes: int = MAX_LINE_BYTES
    ) -> None:
        reader = LineReader(path, max_line_bytes=max_line_bytes)
        try:
            delimiter = "\t" if ".tsv" in path.suffixes else ","
            form = CsvFormat(_read_header(reader, delimiter), delimiter, mapping)
        except ValueError:
            reader.close()
            raise
        super().__init__(reader, RecordParser(form, mapping, id_key=id_key))


class CsvFormat:
    """Lines of so many fields as the header has.

    Parameters
    ----------
    header : list of str
        Names of the fields.
    delimiter : str
        What separates fields.
    mapping : ColumnMapping
        Which column means what.
    """

    def __init__(self, header: list[str], delimiter: str, mapping: ColumnMapping) -> None:
        self._plans = list(PLANS)
        self._delimiter = delimiter
        self._header = header
        self._fields = {part: header.index(column) for part, column in mapping.resolve(header).items()}

    def parse_block(self, block: LineBlock, rejects: Rejects) -> Parsed:
        """Read all lines with pyarrow; lines with too many or too few fields are rejected."""
        for types in list(self._plans) if is_utf8(block.data) else [TEXTS]:
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

        used = {f"f{i}": types.get(kind_of(part), pa.binary()) for part, i in self._fields.items()}
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
                invalid_row_handler=None if types is TEXTS and not is_utf8(block.data) else invalid,
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

    def parse_record(self, record: bytes) -> Texts | str:
        """Read one line with the standard library, strictly."""
        try:
            rows = list(csv.reader([record.decode("latin-1")], delimiter=self._delimiter, strict=True))
        except csv.Error:
            return "malformed"
        if len(rows) != 1 or len(rows[0]) != len(self._header):
            return "malformed"
        texts = {part: rows[0][i] for part, i in self._fields.items()}
        return {part: None if text in NULLS else text.encode("latin-1") for part, text in texts.items()}


def _read_header(reader: LineReader, delimiter: str) -> list[str]:
    taken = reader.next_block(1)
    lines = [] if taken is None else taken[0].lines()
    name = reader.path.name
    if not lines:
        raise ValueError(f"source must start with a header line, got an empty one in {name!r}")
    try:
        text = lines[0].removeprefix(b"\xef\xbb\xbf").decode()
        header = next(csv.reader([text], delimiter=delimiter, strict=True))
    except (UnicodeDecodeError, csv.Error):
        raise ValueError(f"source must start with a UTF-8 header line, got another in {name!r}") from None
    return [column.strip() for column in header]


def _one_chunk(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()

"""Samples from a CSV file."""

from __future__ import annotations

import csv
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyarrow import compute as pc
from pyarrow import csv as arrow_csv

from meanstream.operators.records import Bools
from meanstream.streaming.events.event_columns import Rejects
from meanstream.streaming.sources.decode import RawColumns
from meanstream.streaming.sources.formats.plain_rows import PlainRows
from meanstream.streaming.sources.lines import MAX_LINE_BYTES, LineBlock, LineReader
from meanstream.streaming.sources.mapping import ColumnMapping, mapping_kind
from meanstream.streaming.sources.source_protocol import Opening
from meanstream.streaming.sources.source_records import Parsed, RecordParser, Texts, is_utf8_record
from meanstream.streaming.sources.text_decoding import TextSource

BYTE_ORDER_MARK = b"\xef\xbb\xbf"
NULLS = ("", "NA", "N/A", "null", "NULL", "None")
"""Texts that mean a missing value."""
SEPARATORS = {",": "commas", "\t": "tabs", ";": "semicolons", "|": "bars"}
"""What separates columns, here or in files of others."""

FEW = 4
"""Names are read as a dictionary while each comes at least that many times in a block."""

csv.field_size_limit((1 << 31) - 1)
"""Python's own limit, 128 KiB, is of a field: a record would be good in a large block, and
malformed in a small one."""

TEXTS: dict[str, pa.DataType] = {}
PLANS: tuple[dict[str, pa.DataType], ...] = (
    {"value": pa.float64(), "time": pa.timestamp("us", "UTC")},
    {"value": pa.float64(), "time": pa.timestamp("us")},
    TEXTS,
)
"""Types to read the columns as, the last of which takes every text; the one that served last is
tried first."""


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
    """

    @classmethod
    def open(cls, location: str, mapping: ColumnMapping, opening: Opening) -> Self:
        """Open a file; nothing but its head is read."""
        return cls(
            Path(location), mapping, id_key=opening.id_key, max_line_bytes=opening.max_line_bytes
        )

    def __init__(
        self,
        path: Path,
        mapping: ColumnMapping,
        *,
        id_key: bytes = b"",
        max_line_bytes: int = MAX_LINE_BYTES,
    ) -> None:
        mapping.require_table(path.name)
        reader = LineReader(path, max_line_bytes=max_line_bytes)
        try:
            delimiter = "\t" if ".tsv" in path.suffixes else ","
            form = CsvFormat(_read_header(reader, delimiter), delimiter, mapping)
        except ValueError:
            reader.close()
            raise

        super().__init__(reader, RecordParser(form, mapping, id_key=id_key))


class CsvFormat:
    """Lines of that many fields as the header has.

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
        found = mapping.resolve(
            header, shown=not _has_data(header), more=csv_separator_hint(header, delimiter)
        )
        self._fields = {part: header.index(column) for part, column in found.items()}
        self._few_agents = self._quoted = True
        self._rows = PlainRows.of_header(self._fields, len(header), delimiter)
        self._plain: RawColumns | None = None  # of the block whose lines were looked at last

    def stands_out(self, block: LineBlock) -> Bools | None:
        """Say which lines pyarrow could take for more or less than one row.

        Those with a stray quote or line end.

        In all others quotes come in pairs around a field, so that each line ends outside of quotes
        and is one row.
        """
        # Plain rows are read at once: no line of theirs stands out.
        self._plain = None if self._rows is None else self._rows.read(block.data, len(block))
        if self._plain is not None:
            return None

        data = np.frombuffer(block.data, np.uint8)
        has_returns, has_quotes, has_mark = block.holds(b"\r", b'"', BYTE_ORDER_MARK[:1])
        self._quoted = has_quotes  # in some line of this block, whose parts are read next

        if not (has_returns or has_quotes or has_mark):
            return None
        # pyarrow drops a byte order mark where a block begins
        odd = block.begin_with(BYTE_ORDER_MARK) if has_mark else np.zeros(len(block), np.bool_)
        if has_returns:
            returns = np.flatnonzero(data == ord("\r"))
            odd[block.line_of(returns[data[returns + 1] != ord("\n")])] = True

        if has_quotes:
            _mark_stray_quotes(data, block, ord(self._delimiter), odd)

        if odd.any():
            return odd
        return None

    def parse_block(self, block: LineBlock, rejects: Rejects) -> Parsed:
        """Read all lines with pyarrow, none of which stands out.

        Those with too many or too few fields are rejected.
        """
        if self._plain is not None:
            plain, self._plain = self._plain, None
            return plain, block.number

        for types in list(self._plans) if is_utf8_record(block.data) else [TEXTS]:
            try:
                table, bad = self._read(block, types)
            except pa.ArrowInvalid:
                if types is TEXTS:
                    raise
                continue

            if types is not TEXTS and not self._finite(table):
                continue  # nan(...) is no number, and only its text tells
            self._plans.sort(key=lambda plan, served=types: plan is not served)  # type: ignore[misc]
            break

        # Rows and lines must be the same, or numbers of lines in dead letters would be wrong.
        if table.num_rows + len(bad) != len(
            block
        ):  # never, as no line stands out; rather slow than shifted
            raise pa.ArrowInvalid("rows are not lines")

        number = block.number

        # Bad rows are named by their line; the others go on.
        if bad:
            for i in bad:
                rejects.add("malformed", int(number[i]), len(block.part(i, i + 1).lines()[0]))

            number = np.delete(number, bad)

        columns = {part: _one_chunk(table.column(f"f{i}")) for part, i in self._fields.items()}
        if self._few_agents:  # a name that comes often is looked up once for a block
            self._few_agents = FEW * len(columns["agent"].dictionary) <= len(block)

        return columns, number

    def _finite(self, table: pa.Table) -> bool:
        columns = [
            table.column(f"f{i}")
            for part, i in self._fields.items()
            if mapping_kind(part) == "value"
        ]

        return all(pc.all(pc.is_finite(column)).as_py() is not False for column in columns)

    def _read(self, block: LineBlock, types: dict[str, pa.DataType]) -> tuple[pa.Table, list[int]]:
        # Arrow tells which rows it cannot read; their lines are noted.
        bad: list[int] = []

        def invalid(row: arrow_csv.InvalidRow) -> str:
            bad.append(row.number - 1)
            return "skip"

        used = {
            f"f{i}": types.get(mapping_kind(part), pa.binary()) for part, i in self._fields.items()
        }
        if self._few_agents:
            used[f"f{self._fields['agent']}"] = pa.dictionary(pa.int32(), pa.binary())

        table = arrow_csv.read_csv(
            pa.BufferReader(block.data),
            read_options=arrow_csv.ReadOptions(
                use_threads=False,
                block_size=len(block.data) + 1,
                column_names=[f"f{i}" for i in range(len(self._header))],
            ),
            parse_options=arrow_csv.ParseOptions(
                delimiter=self._delimiter,
                quote_char='"' if self._quoted else False,
                ignore_empty_lines=False,
                invalid_row_handler=None
                if types is TEXTS and not is_utf8_record(block.data)
                else invalid,
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
        # Strictly, as a row that Arrow refused may be read in two ways.
        """Read one line with the standard library, strictly."""
        try:
            rows = list(
                csv.reader([record.decode("latin-1")], delimiter=self._delimiter, strict=True)
            )
        except csv.Error:
            return "malformed"

        if len(rows) != 1 or len(rows[0]) != len(self._header):
            return "malformed"
        texts = {part: rows[0][i] for part, i in self._fields.items()}
        return {
            part: None if text in NULLS else text.encode("latin-1") for part, text in texts.items()
        }


def _mark_stray_quotes(
    data: npt.NDArray[np.uint8], block: LineBlock, delimiter: int, odd: Bools
) -> None:
    """Mark the lines in which quotes do not pair.

    Each first one opens a field, each second one closes it.

    A doubled quote inside a field closes it and opens it again.
    """
    quote = ord('"')
    line_end = ord("\n")

    # Quotes by line: their number must be even.
    at = np.flatnonzero(data == quote)
    per_line = np.diff(np.searchsorted(at, block.end), prepend=0)
    uneven = per_line % 2 == 1
    odd |= uneven

    if uneven.any():
        at = at[~np.repeat(uneven, per_line)]

    if not len(at):
        return

    # An opening quote stands at the beginning of a field, a closing one at its end.
    opening = at[0::2]
    closing = at[1::2]  # of lines that have an even number of them
    before = data[opening - 1]
    after = data[closing + 1]
    before[0] = before[0] if opening[0] else line_end
    stray = (before != delimiter) & (before != line_end) & (before != quote)
    stray |= (after != delimiter) & (after != line_end) & (after != ord("\r")) & (after != quote)
    odd[block.line_of(opening[stray])] = True


def csv_separator_hint(header: Sequence[str], delimiter: str = ",") -> str:
    """Say what columns are separated by, where a header is one long name with other separators.

    To end a message with.

    Examples
    --------
    >>> csv_separator_hint(["Time;Shop;Amount"]), csv_separator_hint(["time", "a;b"])
    ("; columns must be separated by commas, and this header has ';'", '')
    """
    # One long name with another separator: the file is of another dialect.
    one = header[0] if len(header) == 1 else ""
    other = next((other for other in SEPARATORS if other != delimiter and other in one), None)

    if other:
        return (
            f"; columns must be separated by {SEPARATORS[delimiter]}, and this header has {other!r}"
        )

    return ""


def _has_data(header: Sequence[str]) -> bool:
    """Say whether a header may be a first record, which a message must not show.

    Whatever separates its fields.
    """
    return any(
        _is_datum(part.strip('" ')) for name in header for part in re.split(r"[,;|\t]", name)
    )


def _is_datum(name: str) -> bool:
    """Say whether a name of a header may be a value or a time: it is no header then."""
    return (
        name in NULLS or name[:1] in "+-.0123456789" or name.lower() in ("nan", "inf", "infinity")
    )


def _read_header(reader: LineReader, delimiter: str) -> list[str]:
    taken = reader.next_block(1)
    lines = [] if taken is None else taken[0].lines()
    name = reader.path.name

    # The header decides which column is which part of a sample.
    if taken is not None and "oversized" in taken[1].reason:
        raise ValueError(f"source must start with a header line, got one too long in {name!r}")

    if not lines:
        raise ValueError(f"source must start with a header line, got an empty one in {name!r}")

    try:
        text = lines[0].removeprefix(BYTE_ORDER_MARK).decode()
        header = next(csv.reader([text], delimiter=delimiter, strict=True))
    except UnicodeDecodeError:
        raise ValueError(
            f"source must start with a UTF-8 header line, got another in {name!r}"
        ) from None
    except csv.Error:
        hint = csv_separator_hint([] if delimiter in text else [text], delimiter)
        raise ValueError(
            f"source must start with a header line of CSV, got another in {name!r}{hint}"
        ) from None

    return [column.strip() for column in header]


def _one_chunk(column: pa.ChunkedArray) -> pa.Array:
    if column.num_chunks == 1:
        return column.chunk(0)
    return column.combine_chunks()

"""Rows of a Parquet file in bounded memory, and a digest of what was read of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
from pyarrow import compute as pc
from pyarrow import parquet

from meanstream.operators.records import Ints
from meanstream.streaming.events.event_columns import Position
from meanstream.streaming.sources.read_digest import ReadDigest
from meanstream.streaming.sources.source_protocol import UnreadableSourceError, other_source_file

PARQUET_DAMAGE = (pa.ArrowException, OSError)
PIECE_BYTES = 32 << 20
"""Bytes of text that are in memory at once, where a page has no more."""
CHUNK_BYTES = 512 << 20
TEXT_BYTES = 4096
"""A column of texts this long on average must not have more in one row group: a page of it is in
memory as a whole."""
CODED_BYTES = 64 << 10
"""Bytes of a small dictionary, as stored; a text that is written out takes four bytes for its
length alone."""
_READ_BYTES = 1 << 18


class ParquetRows:
    """Reads columns of a Parquet file in pieces of bounded memory.

    A column may store a text once for any number of rows: a kilobyte then stands for gigabytes.
    Where that is more than a piece may have, texts come as dictionaries, and are looked at once
    each.

    Parameters
    ----------
    path : Path
        The file.
    file : ParquetFile
        The same, open.
    columns : sequence of str
        What to read.
    """

    def __init__(self, path: Path, file: parquet.ParquetFile, columns: Sequence[str]) -> None:
        self.path = path
        self.columns = list(columns)
        self._file = file

        # Texts may be long: they are read in pieces that memory holds.
        self._texts = [name for name in columns if _is_text(file.schema_arrow.field(name).type)]

        for group in range(file.metadata.num_row_groups):
            for chunk in _chunks(file.metadata.row_group(group), self._texts):
                if chunk.total_uncompressed_size > max(CHUNK_BYTES, TEXT_BYTES * chunk.num_values):
                    raise UnreadableSourceError(
                        f"source must have at most {CHUNK_BYTES >> 20} MiB of long texts in a column of a row group, "
                        f"got more in {path.name!r}: write it with smaller row groups"
                    )

    def first(self) -> Iterator[pa.RecordBatch]:
        """Give the first row, if there is one."""
        if self._file.metadata.num_row_groups:
            yield from self._file.iter_batches(1, row_groups=[0], columns=self.columns)

    def read(self, row: int, most: int) -> Iterator[pa.RecordBatch]:
        """Read from a row on, at most that many rows at once.

        A piece ends with its row group at the latest.
        """
        # Row groups that were read are stepped over.
        for group in range(self._file.metadata.num_row_groups):
            rows = self._file.metadata.row_group(group).num_rows
            if row < rows:
                for batch in self._read_group(group, most):
                    if row < len(batch):
                        yield batch.slice(row)

                    row = max(row - len(batch), 0)
            else:
                row -= rows

    def _read_group(self, group: int, most: int) -> Iterator[pa.RecordBatch]:
        # As many rows at once as fit into a piece, by their stored size.
        found = self._file.metadata.row_group(group)
        stored = sum(chunk.total_uncompressed_size for chunk in _chunks(found, self._texts))
        pieces = min(most, max(PIECE_BYTES * max(found.num_rows, 1) // max(stored, 1), 1))
        if stored * found.num_rows <= PIECE_BYTES or self._longest(group) * pieces <= PIECE_BYTES:
            coded = [
                chunk.path_in_schema for chunk in _chunks(found, self._texts) if _is_coded(chunk)
            ]
            with self._by_dictionary(coded) as file:
                yield from file.iter_batches(
                    pieces, row_groups=[group], columns=self.columns, use_threads=False
                )

            return

        # Long texts that repeat come as dictionaries, so that each is in memory once.
        with self._by_dictionary(self._texts) as file:
            yield from file.iter_batches(
                pieces, row_groups=[group], columns=self.columns, use_threads=False
            )

    def _longest(self, group: int) -> int:
        """Give the length of the longest text that the row group's dictionaries have."""
        with self._by_dictionary(self._texts) as file:
            first = next(file.iter_batches(1, row_groups=[group], columns=self._texts), None)

        columns = (
            [] if first is None else [c for c in first.columns if pa.types.is_dictionary(c.type)]
        )
        return max(
            (pc.max(pc.binary_length(column.dictionary)).as_py() or 0 for column in columns),
            default=0,
        )

    def _by_dictionary(self, texts: Sequence[str]) -> parquet.ParquetFile:
        """Open the file once more: columns of these texts come as dictionaries."""
        return parquet.ParquetFile(
            self.path, metadata=self._file.metadata, read_dictionary=list(texts)
        )


class ParquetDigest:
    """A running digest of the columns that were read of a Parquet file, as they are stored, a row group at a time.

    The file's own description, which says where everything is, goes first.

    Parameters
    ----------
    path : Path
        The file.
    metadata : FileMetaData
        Its description.
    columns : sequence of str
        What is read.
    """

    def __init__(self, path: Path, metadata: Any, columns: Sequence[str]) -> None:
        self._path = path
        self._metadata = metadata
        self._columns = list(columns)
        self._digest = ReadDigest()
        self._groups = self._rows = 0  # that it has

    def position(self, row: int) -> Position:
        """Give the position after that many rows."""
        with self._path.open("rb") as file:
            # The digest covers the file's description, and the columns that are read.
            if not self._groups:
                self._digest = ReadDigest()
                _update(self._digest, file, self._metadata_offset(file), None)

            while self._rows < row:
                group = self._metadata.row_group(self._groups)
                for chunk in _chunks(group, self._columns):
                    start = chunk.dictionary_page_offset or chunk.data_page_offset
                    _update(self._digest, file, start, chunk.total_compressed_size)

                self._groups, self._rows = self._groups + 1, self._rows + group.num_rows

        return {"row": row, "columns": self._columns, "digest": self._digest.text()}

    def require(self, name: str, position: Position) -> None:
        """Refuse a file that is not the one that a position is of."""
        # A file is the same if all that was read of it is.
        same = (
            position["row"] <= self._metadata.num_rows
            and self.position(int(position["row"])) == position
        )

        if not same:
            raise other_source_file(name)

    @staticmethod
    def _metadata_offset(file: BinaryIO) -> int:
        size = file.seek(-8, 2)
        return size - int.from_bytes(file.read(4), "little")


def parquet_in_order(column: pa.Array) -> pa.Array:
    """Bring the entries of a dictionary into the order in which they come, without those that do not come here.

    Names are numbered as they would be if they were written out.
    """
    if not pa.types.is_dictionary(column.type):
        return column

    # The order of entries must not tell how the file was written.
    at: Ints = column.indices.fill_null(-1).to_numpy(zero_copy_only=False)
    first = np.full(len(column.dictionary) + 1, len(at))
    first[at[::-1]] = np.arange(len(at))[
        ::-1
    ]  # of an entry that is repeated the last assignment holds
    used = np.flatnonzero(first[:-1] < len(at))

    if np.array_equal(used, np.arange(len(first) - 1)) and np.all(first[1:-1] > first[:-2]):
        return column
    order = used[np.argsort(first[used])]
    number = np.full(len(first), -1, np.int32)
    number[order] = np.arange(len(order))
    indices = pa.array(number[at], mask=at < 0 if column.null_count else None)

    return pa.DictionaryArray.from_arrays(indices, column.dictionary.take(pa.array(order)))


def _update(digest: ReadDigest, file: BinaryIO, start: int, left: int | None) -> None:
    """Add bytes of a file to a digest; None: up to its end."""
    file.seek(start)
    while (left is None or left) and (
        data := file.read(_READ_BYTES if left is None else min(left, _READ_BYTES))
    ):
        digest.take(data)
        left = None if left is None else left - len(data)


def _chunks(group: Any, columns: Sequence[str]) -> Iterator[Any]:
    """Give what a row group has of some columns, with all that is nested in them."""
    for i in range(group.num_columns):
        chunk = group.column(i)
        if any(
            chunk.path_in_schema == name or chunk.path_in_schema.startswith(f"{name}.")
            for name in columns
        ):
            yield chunk


def _is_coded(chunk: Any) -> bool:
    """Say whether a column of texts has few different ones, which the file stores once.

    Then each is looked up once.
    """
    dictionary = chunk.data_page_offset - (chunk.dictionary_page_offset or chunk.data_page_offset)
    return bool(
        0 < dictionary <= CODED_BYTES and chunk.total_uncompressed_size < 4 * chunk.num_values
    )


def _is_text(kind: pa.DataType) -> bool:
    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    return any(
        is_kind(kind)
        for is_kind in (
            pa.types.is_string,
            pa.types.is_binary,
            pa.types.is_large_string,
            pa.types.is_large_binary,
        )
    )

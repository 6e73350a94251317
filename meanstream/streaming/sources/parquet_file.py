"""Samples from a Parquet file."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Self

import numpy as np
import pyarrow as pa
from pyarrow import parquet

from meanstream.streaming.events.columns import Batch, Position, Rejects, no_sample_columns
from meanstream.streaming.sources.decode import Decoder
from meanstream.streaming.sources.mapping import ColumnMapping
from meanstream.streaming.sources.source import Opening, UnreadableSourceError, require_source_position

_DAMAGE = (pa.ArrowException, OSError)
_HEAD, _PIECE, _PIECES = 1 << 20, 1 << 14, 64
"""Bytes at the beginning by which a file is recognized, and of so many pieces all over the rest."""


class ParquetSource:
    """A bounded Parquet file, read a batch at a time; position: row, and a digest that recognizes the file.

    Raises
    ------
    ValueError
        Before anything is begun, if the file is not Parquet, a mapped column is missing or of a meaningless type, or
        its first row group is damaged. Damage further on ends a run where it is met.
    """

    bounded = True

    @classmethod
    def open(cls, location: str, mapping: ColumnMapping, opening: Opening) -> Self:
        """Open a file; its schema and its first row are read."""
        return cls(Path(location), mapping, id_key=opening.id_key)

    def __init__(self, path: Path, mapping: ColumnMapping, *, id_key: bytes = b"") -> None:
        self.name = path.name
        self._path = path
        mapping.require_table(path.name)
        try:
            self._file = parquet.ParquetFile(path)
        except _DAMAGE:
            raise UnreadableSourceError(f"source must be a Parquet file, got {str(path)!r}") from None
        self._decoder = Decoder(mapping, id_key=id_key)
        try:
            self._columns = mapping.resolve(self._file.schema_arrow.names)
            self._decoder.require_types(
                {part: self._file.schema_arrow.field(column).type for part, column in self._columns.items()}
            )
            self._try_first()
        except ValueError:
            self.close()
            raise
        self._row = 0
        self._batches: Iterator[pa.RecordBatch] | None = None

    def next_batch(self, max_samples: int) -> Batch:
        """Decode the next rows."""
        if self._batches is None:
            self._batches = self._read(self._row, max_samples)
        rows = self._undamaged(self._batches)
        if rows is None:
            return Batch(no_sample_columns(), Rejects(), self._position(), exhausted=True)
        position = np.arange(self._row + 1, self._row + 1 + len(rows))
        self._row += len(rows)
        raw = {part: rows.column(column) for part, column in self._columns.items()}
        samples, rejects = self._decoder.decode(raw, position)
        return Batch(samples, rejects, self._position())

    def restore(self, position: Position) -> None:
        """Continue at a row; a position of before there was a digest knows the number of rows alone."""
        require_source_position(position, "row", self.name)
        same = position.get("digest", self._digest) == self._digest
        if position["rows"] != self._file.metadata.num_rows or not same:
            raise ValueError(f"source must be the file that this store was filled from, got another {self.name!r}")
        self._row, self._batches = int(position["row"]), None

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _position(self) -> Position:
        return {"row": self._row, "rows": self._file.metadata.num_rows, "digest": self._digest}

    @cached_property
    def _digest(self) -> str:
        """Recognize the file: all of a small one; of others the beginning, the end and pieces, two megabytes."""
        digest = hashlib.blake2b(digest_size=16)
        try:
            with self._path.open("rb") as file:
                size = file.seek(0, 2)
                file.seek(-8, 2)
                footer = int.from_bytes(file.read(4), "little") + 8  # what is where, with sizes and extremes
                digest.update(size.to_bytes(8, "little"))
                places = [(0, _HEAD), (size - footer, footer)]
                places += [(_HEAD + (size - _HEAD) * k // _PIECES, _PIECE) for k in range(_PIECES) if size > _HEAD]
                for place, length in places:
                    file.seek(place)
                    digest.update(file.read(length))
        except OSError:
            raise self._damaged() from None
        return digest.hexdigest()

    def _try_first(self) -> None:
        """Refuse a file whose first row cannot be read, while nothing has been begun."""
        if self._file.metadata.num_row_groups:
            columns = list(self._columns.values())
            self._undamaged(self._file.iter_batches(1, row_groups=[0], columns=columns))

    def _undamaged(self, batches: Iterator[pa.RecordBatch]) -> pa.RecordBatch | None:
        try:
            return next(batches, None)
        except _DAMAGE:
            raise self._damaged() from None

    def _damaged(self) -> UnreadableSourceError:
        return UnreadableSourceError(f"source must be an undamaged Parquet file, got {self.name!r}")

    def _read(self, row: int, size: int) -> Iterator[pa.RecordBatch]:
        """Read from a row on, starting at the row group that holds it."""
        metadata, group = self._file.metadata, 0
        while group < metadata.num_row_groups and row >= metadata.row_group(group).num_rows:
            row -= metadata.row_group(group).num_rows
            group += 1
        groups = list(range(group, metadata.num_row_groups))
        for batch in self._file.iter_batches(size, row_groups=groups, columns=list(self._columns.values())):
            if row < len(batch):
                yield batch.slice(row)
            row = max(row - len(batch), 0)

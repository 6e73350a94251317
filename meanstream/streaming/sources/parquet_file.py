"""Samples from a Parquet file."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Self

import numpy as np
import pyarrow as pa
from pyarrow import parquet

from meanstream.streaming.events.columns import Batch, Position, Rejects, no_sample_columns
from meanstream.streaming.sources.decode import Decoder
from meanstream.streaming.sources.mapping import ColumnMapping
from meanstream.streaming.sources.source import Opening, UnreadableSourceError, require_source_position


class ParquetSource:
    """A bounded Parquet file, read a batch at a time; position: row.

    Raises
    ------
    ValueError
        Before any data is read, if the file is not Parquet, or a mapped column is missing or of a meaningless type.
    """

    bounded = True

    @classmethod
    def open(cls, location: str, mapping: ColumnMapping, opening: Opening) -> Self:
        """Open a file; nothing but its schema is read."""
        return cls(Path(location), mapping, id_key=opening.id_key)

    def __init__(self, path: Path, mapping: ColumnMapping, *, id_key: bytes = b"") -> None:
        self.name = path.name
        try:
            self._file = parquet.ParquetFile(path)
        except (pa.ArrowException, OSError):
            raise UnreadableSourceError(f"source must be a Parquet file, got {str(path)!r}") from None
        self._decoder = Decoder(mapping, id_key=id_key)
        try:
            self._columns = mapping.resolve(self._file.schema_arrow.names)
            self._decoder.require_types(
                {part: self._file.schema_arrow.field(column).type for part, column in self._columns.items()}
            )
        except ValueError:
            self.close()
            raise
        self._row = 0
        self._batches: Iterator[pa.RecordBatch] | None = None

    def next_batch(self, max_samples: int) -> Batch:
        """Decode the next rows."""
        if self._batches is None:
            self._batches = self._read(self._row, max_samples)
        try:
            rows = next(self._batches, None)
        except (pa.ArrowException, OSError):
            raise UnreadableSourceError(f"source must be an undamaged Parquet file, got {self.name!r}") from None
        if rows is None:
            return Batch(no_sample_columns(), Rejects(), self._position(), exhausted=True)
        position = np.arange(self._row + 1, self._row + 1 + len(rows))
        self._row += len(rows)
        raw = {part: rows.column(column) for part, column in self._columns.items()}
        samples, rejects = self._decoder.decode(raw, position)
        return Batch(samples, rejects, self._position())

    def restore(self, position: Position) -> None:
        """Continue at a row."""
        require_source_position(position, "row", self.name)
        if position["rows"] != self._file.metadata.num_rows:
            raise ValueError(f"source must be the file that this store was filled from, got another {self.name!r}")
        self._row, self._batches = int(position["row"]), None

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _position(self) -> Position:
        return {"row": self._row, "rows": self._file.metadata.num_rows}

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

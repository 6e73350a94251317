"""Samples from a Parquet file."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Self

import numpy as np
import pyarrow as pa
from pyarrow import parquet

from meanstream.operators.records import Ints
from meanstream.streaming.events.event_columns import (
    Batch,
    Position,
    Rejects,
    SampleColumns,
    concatenate_columns,
)
from meanstream.streaming.sources.decode import REASONS, Decoder
from meanstream.streaming.sources.formats.parquet_rows import (
    PARQUET_DAMAGE,
    ParquetDigest,
    ParquetRows,
    parquet_in_order,
)
from meanstream.streaming.sources.mapping import ColumnMapping
from meanstream.streaming.sources.source_protocol import (
    Opening,
    UnreadableSourceError,
    require_source_position,
)


class ParquetSource:
    """A bounded Parquet file, read a batch at a time.

    Position: row, and a digest of what was read up to there.
    """

    bounded = True

    @classmethod
    def open(cls, location: str, mapping: ColumnMapping, opening: Opening) -> Self:
        """Open a file; its schema and its first row are read."""
        return cls(Path(location), mapping, id_key=opening.id_key)

    def __init__(self, path: Path, mapping: ColumnMapping, *, id_key: bytes = b"") -> None:
        self.name = path.name
        mapping.require_table(path.name)

        try:
            self._file = parquet.ParquetFile(path)
        except PARQUET_DAMAGE:
            raise UnreadableSourceError(
                f"source must be a Parquet file, got {str(path)!r}"
            ) from None

        self._decoder = Decoder(mapping, id_key=id_key)
        try:
            self._columns = mapping.resolve(self._file.schema_arrow.names)
            self._decoder.require_types(
                {
                    part: self._file.schema_arrow.field(column).type
                    for part, column in self._columns.items()
                }
            )
            self._rows = ParquetRows(path, self._file, sorted(set(self._columns.values())))
            self._undamaged(self._rows.first())
        except ValueError:
            self.close()
            raise

        self._digest = ParquetDigest(path, self._file.metadata, self._rows.columns)
        self._row = 0
        self._batches: Iterator[pa.RecordBatch] | None = None
        self._waiting: pa.RecordBatch | None = None  # rows that were read and are of a later batch

    def next_batch(self, max_samples: int) -> Batch:
        """Decode the next rows, as many as are requested.

        How long their values are does not decide where it ends.
        """
        if self._batches is None:
            self._batches = self._rows.read(self._row, max_samples)

        parts: list[SampleColumns] = []
        rejects = Rejects()
        left = max_samples
        while left and (rows := self._take(left)) is not None:
            position: Ints = np.arange(self._row + 1, self._row + 1 + len(rows))
            self._row, left = self._row + len(rows), left - len(rows)
            raw = {
                part: parquet_in_order(rows.column(column))
                for part, column in self._columns.items()
            }
            samples, bad = self._decoder.decode(raw, position)
            parts.append(samples)
            rejects.extend(bad)

        if len(parts) > 1:
            rejects = _by_reason(rejects)

        return Batch(
            concatenate_columns(parts), rejects, self._position(), exhausted=left == max_samples
        )

    def restore(self, position: Position) -> None:
        """Continue at a row; what stands before must be what was read."""
        require_source_position(position, "row", self.name)
        digest = self._digest  # the columns that were read may have been others

        if position.get("columns") != self._rows.columns:
            digest = ParquetDigest(
                self._rows.path, self._file.metadata, position.get("columns", ())
            )

        try:
            digest.require(self.name, position)
        except OSError:
            raise self._damaged() from None

        self._row = int(position["row"])
        self._batches = None
        self._waiting = None

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _position(self) -> Position:
        try:
            return self._digest.position(self._row)
        except OSError:
            raise self._damaged() from None

    def _take(self, most: int) -> pa.RecordBatch | None:
        """Give the next rows of one piece; None after the last."""
        if self._waiting is None and self._batches is not None:
            self._waiting = self._undamaged(self._batches)

        rows = self._waiting
        if rows is None:
            return None
        self._waiting = rows.slice(most) if len(rows) > most else None

        return rows.slice(0, most)

    def _undamaged(self, batches: Iterator[pa.RecordBatch]) -> pa.RecordBatch | None:
        try:
            return next(batches, None)
        except PARQUET_DAMAGE:
            raise self._damaged() from None

    def _damaged(self) -> UnreadableSourceError:
        return UnreadableSourceError(f"source must be an undamaged Parquet file, got {self.name!r}")


def _by_reason(rejects: Rejects) -> Rejects:
    """Put the rejects of several pieces in the order that they have in one."""
    order = sorted(range(len(rejects)), key=lambda i: REASONS.index(rejects.reason[i]))
    found = Rejects()
    for i in order:
        found.add(rejects.reason[i], rejects.position[i])

    return found

"""Whether a file is still the one that a store has read."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

from pyarrow import parquet

from meanstream.streaming.events.event_columns import Position
from meanstream.streaming.sources.formats.parquet_rows import PARQUET_DAMAGE, ParquetDigest
from meanstream.streaming.sources.lines import LineReader
from meanstream.streaming.sources.source_protocol import other_source_file


def require_same_file(path: Path, position: Position) -> None:
    """Refuse a file in which anything that was read has changed, whatever its columns mean.

    Nothing is decoded.

    Records are known by their places. In a file into which lines were inserted, the places of
    records that were not used may hold samples that were counted.
    """
    whole: Position = position["source"] if "sorted_row" in position else position
    if "row" not in whole:
        with closing(LineReader(path)) as reader:
            reader.seek(whole)

        return

    try:
        same = (
            ParquetDigest(path, parquet.read_metadata(path), whole.get("columns", ())).position(
                whole["row"]
            )
            == whole
        )
    except PARQUET_DAMAGE:
        same = False

    if not same:
        raise other_source_file(path.name)

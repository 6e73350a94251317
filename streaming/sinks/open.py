"""From what a user types to a sink."""

from __future__ import annotations

from pathlib import Path

from streaming.sinks.jsonl import JsonlSink, StreamSink
from streaming.sinks.parquet import ParquetSink
from streaming.sinks.sink import Sink, Trust


def open_sink(location: str, *, trust: Trust) -> Sink:
    """Open a `.jsonl` file, a `.parquet` folder, or `-` for standard output.

    Raises
    ------
    ValueError
        If the extension is unknown or the place cannot be written to.
    """
    if location == "-":
        return StreamSink(trust=trust)
    path = Path(location)
    if path.suffix == ".jsonl":
        return JsonlSink(path, trust=trust)
    if path.suffix == ".parquet":
        return ParquetSink(path, trust=trust)
    raise ValueError(f"sink must be a .jsonl file, a .parquet folder or '-', got {location!r}")

"""From what a user types to a sink."""

from __future__ import annotations

from pathlib import Path

from operators.validation import require
from streaming.sinks.jsonl import JsonlSink, StreamSink
from streaming.sinks.parquet import ParquetSink
from streaming.sinks.sink import Sink, Trust

STDOUT = "-"


def check_place(role: str, location: str) -> None:
    """Refuse a place that could not be opened, without making it.

    Raises
    ------
    ValueError
        Naming the role, the rule and the place.
    """
    if location == STDOUT:
        return
    path = Path(location)
    rule = "be a .jsonl file, a .parquet folder or '-'"
    require(path.suffix in (".jsonl", ".parquet"), role, rule, location)
    require(path.parent.is_dir(), role, "be in an existing folder", location)


def open_sink(location: str, *, trust: Trust) -> Sink:
    """Open a `.jsonl` file, a `.parquet` folder, or `-` for standard output.

    Raises
    ------
    ValueError
        If the extension is unknown or the place cannot be written to.
    """
    check_place("sink", location)
    if location == STDOUT:
        return StreamSink(trust=trust)
    path = Path(location)
    return (JsonlSink if path.suffix == ".jsonl" else ParquetSink)(path, trust=trust)

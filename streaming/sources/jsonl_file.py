"""Samples from a file of one JSON object per line."""

from __future__ import annotations

from pathlib import Path

from streaming.mapping import ColumnMapping
from streaming.sources.json_records import JsonFormat
from streaming.sources.lines import MAX_LINE_BYTES, LineReader
from streaming.sources.records import RecordParser
from streaming.sources.text import TextSource


class JsonlSource(TextSource):
    """A JSONL file. Agent and id are strings or integers, the value a number, the time a string or a number.

    Parameters
    ----------
    path : Path
        Plain, `.gz` or `.zip` file.
    mapping : ColumnMapping
        Which field means what.
    id_key : bytes
        Secret key of the hash of ids.
    max_line_bytes : int
        Longer lines are skipped and reported.
    """

    def __init__(
        self, path: Path, mapping: ColumnMapping, *, id_key: bytes = b"", max_line_bytes: int = MAX_LINE_BYTES
    ) -> None:
        reader = LineReader(path, max_line_bytes=max_line_bytes)
        super().__init__(reader, RecordParser(JsonFormat(mapping), mapping, id_key=id_key))

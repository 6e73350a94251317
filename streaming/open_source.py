"""From what a user types to a source: the registry of sources."""

from __future__ import annotations

import importlib
import re
from pathlib import Path
from typing import Any

from meanstream.operators.validation import require
from meanstream.streaming.sources.lines import MAX_LINE_BYTES
from meanstream.streaming.sources.mapping import ColumnMapping
from meanstream.streaming.sources.ordered_source import OrderedSource
from meanstream.streaming.sources.read_ahead import ReadAhead
from meanstream.streaming.sources.source_protocol import AgentsOfStore, Opening, Source

SOURCES: dict[str, str] = {
    ".csv": "meanstream.streaming.sources.formats.csv_file:CsvSource",
    ".tsv": "meanstream.streaming.sources.formats.csv_file:CsvSource",
    ".jsonl": "meanstream.streaming.sources.formats.jsonl_file:JsonlSource",
    ".ndjson": "meanstream.streaming.sources.formats.jsonl_file:JsonlSource",
    ".parquet": "meanstream.streaming.sources.formats.parquet_file:ParquetSource",
    "kafka:": "meanstream.streaming.kafka.reading.kafka_source:KafkaSource",
    "follow:": "meanstream.streaming.sources.growing_file:GrowingFile",
    "-:": "meanstream.streaming.sources.growing_file:StandardInput",
    "synthetic:": "meanstream.streaming.sources.synthetic_source:SyntheticSource",
}
"""A file's extension or an address's scheme, and where the class is that opens it:
"module:Class"."""

_ADDRESS = re.compile(r"\w+:/|[\w.-]+:\d+(/|,|$)")
"""A misspelled scheme, or a host and its port without one."""

PACKED = (".gz", ".zip")
"""What may follow the extension of a text file."""


def source_kind(location: str) -> str:
    """Tell the kind of a source, a key of `SOURCES`: by its scheme, or by the extension of a file.

    Examples
    --------
    >>> source_kind("kafka://localhost:9092/samples"), source_kind("flights.csv.gz")
    ('kafka:', '.csv')
    """
    scheme = location.partition(":")[0] + ":"
    if scheme in SOURCES:
        return scheme
    suffixes = [
        suffix.lower() for suffix in Path(location).suffixes if suffix.lower() not in PACKED
    ]
    kind = suffixes[-1] if suffixes else ""
    known = ", ".join(key for key in SOURCES if key.startswith("."))
    require(
        kind in SOURCES, "source", f"be a file of type {known} (text also .gz or .zip)", location
    )

    return kind


def source_class(kind: str) -> Any:
    """Import the class of a kind of source."""
    module, _, name = SOURCES[kind].partition(":")
    return getattr(importlib.import_module(module), name)


def open_source(
    location: str,
    mapping: ColumnMapping,
    *,
    sort: bool = True,
    cut: float | None = None,
    id_key: bytes = b"",
    max_line_bytes: int = MAX_LINE_BYTES,
    owner: str | None = None,
    until_end: bool = False,
    name: str | None = None,
    agents: AgentsOfStore | None = None,
) -> Source:
    """Open `kafka://HOST:PORT/TOPIC`, `synthetic:AGENTS,SAMPLES[,SEED]`, `follow:FILE`, `-`, or a file by its kind.

    Extensions: .csv, .tsv, .jsonl, .ndjson, each also .gz or .zip, and .parquet.
    """
    opening = Opening(
        id_key=id_key,
        max_line_bytes=max_line_bytes,
        owner=owner,
        until_end=until_end,
        name=name,
        agents=agents,
    )

    is_file = location.partition(":")[0] + ":" not in SOURCES
    require(
        not is_file or Path(location).is_file(),
        "source",
        f"be a readable file{_or_address(location)}",
        location,
    )
    source: Source = source_class(source_kind(location)).open(location, mapping, opening)

    if not is_file:
        return source

    if sort:
        return OrderedSource(source, cut=cut)
    return ReadAhead(source)


def _or_address(location: str) -> str:
    """Name the form of an address, where what was typed looks like one."""
    if _ADDRESS.match(location):
        return " or an address such as kafka://HOST:PORT/TOPIC"
    return ""

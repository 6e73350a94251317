"""From what a user types to a sink: the registry of sinks."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import TYPE_CHECKING, cast

from meanstream.operators.validation import require
from meanstream.streaming.sinks.sink_protocol import (
    Sink,
    SinkKind,
    SinkOpening,
    Trust,
    path_on_disk,
)

if TYPE_CHECKING:
    from meanstream.streaming.kafka.writing.kafka_sink import KafkaSinks

STDOUT = "-"
SINKS: dict[str, tuple[str, str]] = {
    ".jsonl": ("a .jsonl file", "meanstream.streaming.sinks.jsonl_sink:JsonlSink"),
    ".parquet": ("a .parquet folder", "meanstream.streaming.sinks.parquet_sink:ParquetSink"),
    "kafka:": (
        "kafka://HOST:PORT/TOPIC",
        "meanstream.streaming.kafka.writing.kafka_sink:KafkaSink",
    ),
    "iceberg:": (
        "iceberg://CATALOG/NAMESPACE.TABLE",
        "meanstream.integrations.iceberg_sink:IcebergSink",
    ),
    STDOUT: (f"{STDOUT!r}", "meanstream.streaming.sinks.jsonl_sink:StreamSink"),
}
"""An extension, a scheme or `-`: how a user types it, and where the class is that opens it,
"module:Class"."""

FILES = tuple(kind for kind in SINKS if kind.startswith("."))
"""The kinds on disk, by the extension of a file or folder."""


def _sink_class(option: str, location: str) -> SinkKind:
    """Import the class of the sink of a place.

    Examples
    --------
    >>> _sink_class("sink", "means.jsonl")
    <class 'meanstream.streaming.sinks.jsonl_sink.JsonlSink'>
    """
    kind = _kind_of(location)
    *most, last = (typed for typed, _ in SINKS.values())
    require(kind in SINKS, option, f"be {', '.join(most)} or {last}", location)
    module, _, name = SINKS[kind][1].partition(":")

    return cast(SinkKind, getattr(importlib.import_module(module), name))


def check_sink_location(role: str, location: str) -> None:
    """Refuse a place that could not be opened, without making it.

    A topic is looked for on its brokers.
    """
    _sink_class(role, location).check(location, role)


def canonical_sink_location(location: str) -> str:
    """Say which place a location means: no two roles may have the same one.

    Examples
    --------
    >>> canonical_sink_location("kafka://Host:9092,other:9092/releases?create=4")
    'kafka://host:9092,other:9092/releases'
    >>> canonical_sink_location("-")
    '-'
    """
    if _kind_of(location) in SINKS:
        return _sink_class("sink", location).canonical_location(location)
    return path_on_disk(location)


def _kind_of(location: str) -> str:
    scheme, there, _ = location.partition("://")
    return (
        location if location == STDOUT else f"{scheme.lower()}:" if there else Path(location).suffix
    )


def open_sink(
    location: str, *, trust: Trust, role: str = "sink", kafka: KafkaSinks | None = None
) -> Sink:
    """Open a `.jsonl` file, a `.parquet` folder, a topic, a table of releases, or `-` for standard output."""
    return _sink_class(role, location).open(
        location, SinkOpening(trust=trust, option=role, topics=kafka)
    )

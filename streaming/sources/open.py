"""From what a user types to a source."""

from __future__ import annotations

from pathlib import Path

from streaming.kafka.location import KafkaLocation, is_kafka
from streaming.mapping import ColumnMapping
from streaming.sources.ahead import ReadAhead
from streaming.sources.csv_file import CsvSource
from streaming.sources.jsonl_file import JsonlSource
from streaming.sources.lines import MAX_LINE_BYTES
from streaming.sources.ordered import OrderedSource
from streaming.sources.parquet_file import ParquetSource
from streaming.sources.source import Source
from streaming.sources.synthetic import KIND, SyntheticPopulation, SyntheticSource

TEXT_SOURCES: dict[str, type[CsvSource] | type[JsonlSource]] = {
    ".csv": CsvSource,
    ".tsv": CsvSource,
    ".jsonl": JsonlSource,
    ".ndjson": JsonlSource,
}


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
) -> Source:
    """Open `kafka://HOST:PORT/TOPIC`, `synthetic:AGENTS,SAMPLES[,SEED]`, or a file by its extension.

    Extensions: .csv, .tsv, .jsonl, .ndjson, each also .gz or .zip, and .parquet.

    Parameters
    ----------
    location : str
        Path of the file, address of the topic, or the synthetic stream's parameters.
    mapping : ColumnMapping
        Which column means what.
    sort : bool
        Replay a file in event-time order, from memory; otherwise as it stands, in bounded memory, a batch ahead.
        A topic is always read as it stands.
    cut : float or None
        Seconds of event time: a batch of a sorted file ends at each multiple.
    id_key : bytes
        Secret key of the hash of ids.
    max_line_bytes : int
        Longer lines or values are skipped and reported.
    owner : str, optional
        Topic: public id of the store that reads it; without it the topic is checked and cannot be read.
    until_end : bool
        Topic: end where it ends when reading begins. Everything else always ends.

    Raises
    ------
    ValueError
        Before any data is read: no such file, unknown extension, missing column; no broker, topic or right to read it.
    """
    if is_kafka(location):
        from streaming.kafka.source import KafkaSource

        place = KafkaLocation.parse(location)
        return KafkaSource(
            place, mapping, owner=owner, until_end=until_end, id_key=id_key, max_record_bytes=max_line_bytes
        )
    if location.partition(":")[0] == KIND:
        mapping.resolve(("agent", "value", "time"))
        return SyntheticSource(SyntheticPopulation.parse(location))
    path = Path(location)
    if not path.is_file():
        raise ValueError(f"source must be a readable file, got {location!r}")
    suffixes = [suffix.lower() for suffix in path.suffixes if suffix.lower() not in (".gz", ".zip")]
    kind = suffixes[-1] if suffixes else ""
    source: Source
    if kind == ".parquet":
        source = ParquetSource(path, mapping, id_key=id_key)
    elif kind in TEXT_SOURCES:
        source = TEXT_SOURCES[kind](path, mapping, id_key=id_key, max_line_bytes=max_line_bytes)
    else:
        known = ", ".join([*TEXT_SOURCES, ".parquet"])
        raise ValueError(f"source must be a file of type {known} (text also .gz or .zip), got {location!r}")
    return OrderedSource(source, cut=cut) if sort else ReadAhead(source)

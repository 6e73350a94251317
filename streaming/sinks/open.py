"""From what a user types to a sink."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from operators.validation import require
from streaming.sinks.jsonl import JsonlSink, StreamSink
from streaming.sinks.parquet import ParquetSink
from streaming.sinks.sink import Sink, Trust

if TYPE_CHECKING:
    from streaming.kafka.sink import KafkaSinks

STDOUT = "-"


def check_place(role: str, location: str) -> None:
    """Refuse a place that could not be opened, without making it; a topic is looked for on its brokers.

    Raises
    ------
    ValueError
        Naming the role, the rule and the place.
    """
    if location == STDOUT:
        return
    if _is_kafka(location):
        from streaming.kafka.location import KafkaLocation
        from streaming.kafka.outputs import check_topic

        check_topic(KafkaLocation.parse(location, role=role))
        return
    path = Path(location)
    rule = "be a .jsonl file, a .parquet folder, kafka://HOST:PORT/TOPIC or '-'"
    require(path.suffix in (".jsonl", ".parquet"), role, rule, location)
    require(path.parent.is_dir(), role, "be in an existing folder", location)


def place_of(location: str) -> str:
    """Say which place a location means: no two roles may have the same one.

    Examples
    --------
    >>> place_of("kafka://Host:9092,other:9092/releases?create=4")
    'kafka://host:9092,other:9092/releases'
    >>> place_of("-")
    '-'
    """
    if location == STDOUT:
        return location
    if _is_kafka(location):
        address, _, topic = location.partition("?")[0].rpartition("/")
        brokers = ",".join(sorted(address.partition("://")[2].lower().split(",")))
        return f"kafka://{brokers}/{topic}"
    return str(Path(location).resolve())


def open_sink(location: str, *, trust: Trust, role: str = "sink", kafka: KafkaSinks | None = None) -> Sink:
    """Open a `.jsonl` file, a `.parquet` folder, a Kafka topic, or `-` for standard output.

    Parameters
    ----------
    location : str
        What the user typed.
    trust : Trust
        Who can read the sink.
    role : str
        Option that named it, for messages.
    kafka : KafkaSinks, optional
        What opens topics, the same for all roles of a run: they share transactions.

    Raises
    ------
    ValueError
        If the extension is unknown or the place cannot be written to.
    """
    if kafka is not None and _is_kafka(location):
        from streaming.kafka.location import KafkaLocation

        return kafka.open(KafkaLocation.parse(location, role=role), trust=trust)
    require(not _is_kafka(location), role, "be a file or '-' here", location)
    check_place(role, location)
    if location == STDOUT:
        return StreamSink(trust=trust)
    path = Path(location)
    return (JsonlSink if path.suffix == ".jsonl" else ParquetSink)(path, trust=trust)


def _is_kafka(location: str) -> bool:
    from streaming.kafka.location import is_kafka

    return is_kafka(location)

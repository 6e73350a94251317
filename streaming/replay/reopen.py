"""A source that a store has read, opened once more: for records that it did not use."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from pyarrow import parquet

from meanstream.operators.records import Ints
from meanstream.streaming.events.event_columns import (
    Position,
    column_partitions,
    column_positions,
    topics_own_positions,
)
from meanstream.streaming.kafka.connection.kafka_location import KafkaLocation, is_kafka_location
from meanstream.streaming.open_source import open_source
from meanstream.streaming.sources.formats.parquet_rows import PARQUET_DAMAGE, ParquetDigest
from meanstream.streaming.sources.growing_file import FOLLOW
from meanstream.streaming.sources.lines import LineReader
from meanstream.streaming.sources.mapping import ColumnMapping
from meanstream.streaming.sources.source_protocol import (
    Source,
    other_source_file,
    require_source_position,
)
from meanstream.streaming.sources.synthetic_source import KIND, SyntheticPopulation, SyntheticSource

if TYPE_CHECKING:
    from meanstream.streaming.kafka.reading.scan import ScannedTopic


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


@dataclass(frozen=True, slots=True)
class Opened:
    """A bounded source, and whether it still has every record that was ever in it."""

    source: Source
    complete: bool = True


Reopen = Callable[[Position, Ints | None], Opened]
"""Opens a source, given its position in the store: so that it has the records at some positions, or
from its beginning.

`ValueError` if it is not the source that the store was filled from.
"""


def reopening(location: str, mapping: ColumnMapping, *, id_key: bytes = b"") -> Reopen:
    """Make what opens a source again, in the order in which it stands."""
    path = location.removeprefix(FOLLOW)
    recognized: list[tuple[Position, tuple[int, ...]]] = []

    def file_again(position: Position, at: Ints | None) -> Opened:  # noqa: ARG001 - a file is read from its beginning
        source = open_source(path, mapping, sort=False, id_key=id_key)
        if not isinstance(source, SyntheticSource) and (position, _stamp(path)) not in recognized:
            try:
                require_same_file(Path(path), position)
            except ValueError:
                source.close()
                raise

            recognized[:] = [(position, _stamp(path))]

        return Opened(source)

    def topic_again(position: Position, at: Ints | None) -> Opened:
        parsed = KafkaLocation.parse(location, several=True)
        if "topics" in position:
            return topics_again(parsed, position, at)
        topic = one_topic(parsed, position, at)

        return Opened(topic, complete=topic.complete)

    def one_topic(one: KafkaLocation, position: Position, at: Ints | None) -> ScannedTopic:
        from meanstream.streaming.kafka.reading.scan import ScannedTopic

        require_source_position(position, "topic_id", one.topic)
        partitions = [int(number) for number in position["partitions"]]
        start = dict.fromkeys(partitions, 0) if at is None else _first_of_each(at)
        return ScannedTopic(one, mapping, start=start, known_id=position["topic_id"], id_key=id_key)

    def topics_again(parsed: KafkaLocation, position: Position, at: Ints | None) -> Opened:
        from meanstream.streaming.kafka.reading.several_topics import ScannedTopics

        topics = []
        for number, one in enumerate(parsed.each()):
            own = None if at is None else topics_own_positions(number, at)
            if own is None or len(own):
                topics.append((number, one_topic(one, position["topics"][one.topic], own)))

        whole = ScannedTopics(parsed.topic, topics)
        return Opened(whole, complete=whole.complete)

    if is_kafka_location(location):
        return topic_again
    return file_again


def reopened_source_name(location: str) -> str:
    """Tell the name under which a source stands in dead letters and in a store.

    Examples
    --------
    >>> reopened_source_name("data/flights.csv.gz"), reopened_source_name("kafka://127.0.0.1:9092/samples?group=a")
    ('flights.csv.gz', 'samples')
    """
    if is_kafka_location(location):
        return KafkaLocation.parse(location, several=True).topic
    if location.partition(":")[0] == KIND:
        return SyntheticSource(SyntheticPopulation.parse(location)).name

    return Path(location).name


def _first_of_each(positions: Ints) -> dict[int, int]:
    """Give the first place of each partition."""
    partition = column_partitions(positions)
    offsets = column_positions(positions)
    return {
        number: int(offsets[partition == number].min()) for number in np.unique(partition).tolist()
    }


def _stamp(path: str) -> tuple[int, ...]:
    """Give what changes when anyone writes to a file.

    It is read once, however often it is opened.
    """
    status = os.stat(path)
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns

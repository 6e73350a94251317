"""Values of messages to batches of samples, whatever brought them.

The engine's parser, reasons and dead letters.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Literal, get_args

import numpy as np
from apache_beam.utils.timestamp import Timestamp

from meanstream.operators.records import Floats, Ints
from meanstream.pipelines.beam.element_types.beam_samples import AgentBatch
from meanstream.pipelines.beam.worker.beam_metrics import metric_counter
from meanstream.pipelines.beam.worker.worker_secret import SecretLocation
from meanstream.streaming.events.event_columns import (
    Rejects,
    SampleColumns,
    column_partitions,
    column_positions,
)
from meanstream.streaming.events.wire import DeadLetter, PrivateDeadLetter
from meanstream.streaming.kafka.connection.kafka_location import KafkaLocation
from meanstream.streaming.kafka.connection.values import PartitionRecords, block_of_values
from meanstream.streaming.kafka.reading.kafka_messages import TopicParser, topic_parser
from meanstream.streaming.rounds.summarize_users import valid_values
from meanstream.streaming.sources.decode import Decoder, RawColumns
from meanstream.streaming.sources.formats.csv_file import CsvFormat
from meanstream.streaming.sources.mapping import ColumnMapping
from meanstream.streaming.sources.record_paths import Places
from meanstream.streaming.sources.source_records import RecordParser
from meanstream.streaming.store.secret_source import key_derived_from_secret

DEAD_LETTERS = "dead_letters"

PrivacyUnit = Literal["sample", "user"]
"""What is protected: of agents one sample's value; of rounds all samples of a user, with their
number and times."""

UNITS = get_args(PrivacyUnit)


class MessageParser:
    """Private: values to samples; what is not good is counted and noted with the engine's reason.

    Parameters
    ----------
    mapping : ColumnMapping
        Which field means what.
    secret : SecretLocation, optional
        Where the secret is from which hashes of ids and persons are keyed; used only if there is
        such a column.
    max_future : float
        Seconds that a sample may lie ahead of the clock.
    privacy_unit : str
        Whose figures these are: of a "user" they are the operator's.
    location : KafkaLocation, optional
        The topic, if it is one: its registry says how values are read. By default each is a JSON
        object.
    columns : tuple of str, optional
        Instead, each value is a line of CSV of these.
    """

    def __init__(  # noqa: PLR0917 - made in one place
        self,
        mapping: ColumnMapping,
        secret: SecretLocation | None,
        max_future: float,
        privacy_unit: PrivacyUnit,
        location: KafkaLocation | None = None,
        columns: tuple[str, ...] | None = None,
    ) -> None:
        self._private = privacy_unit == "user"
        if self._private:  # then only names and times decide who takes part
            mapping = mapping.model_copy(update={"owner": "user"})

        key = (
            b""
            if not mapping.optional
            else key_derived_from_secret((secret or SecretLocation()).load(), "sample ids")
        )
        self._parser = value_parser(mapping, location, columns, id_key=key)
        self.wanted = self._parser.wanted
        """What messages must bring next to their values."""
        self._max_future = max_future

    def parse(self, records: PartitionRecords) -> tuple[SampleColumns, Rejects]:
        """Parse many at once."""
        rejects = Rejects()
        samples = self._parser.parse(records, rejects)
        future = samples.time > time.time() + self._max_future
        if future.any():
            rejects.add_many("in_future", samples.position[future & valid_values(samples.value)])
            samples = samples.take(~future)

        metric_counter("events", private=self._private).inc(len(records.values))
        for reason in rejects.reason:
            metric_counter("rejected_", reason, private=self._private).inc()

        return samples, rejects


def value_parser(
    mapping: ColumnMapping,
    location: KafkaLocation | None = None,
    columns: tuple[str, ...] | None = None,
    *,
    id_key: bytes = b"",
) -> TopicParser:
    """Make what reads values: JSON objects, what a topic's registry says, or lines of CSV."""
    if columns is not None:
        return TopicParser(mapping, id_key=id_key, make_values=partial(CsvValues, columns))

    if location is None:
        return TopicParser(mapping, id_key=id_key)
    return topic_parser(location, mapping, id_key=id_key)


def parsed_compact(samples: SampleColumns) -> AgentBatch:
    """Keep the names that occur: those of all messages so far are no part of an element."""
    used, agent = np.unique(samples.agent, return_inverse=True)
    names = [samples.names[place] for place in used.tolist()]
    hashes = (samples.key, samples.position, samples.person)
    return AgentBatch(names, agent.astype(np.int64), samples.value, samples.time, *hashes)


def dead_letter_kind_of_parse(
    privacy_unit: PrivacyUnit,
) -> type[DeadLetter] | type[PrivateDeadLetter]:
    """Say whose the dead letters are.

    That a record of a user was none is protected as its samples are.
    """
    if privacy_unit == "user":
        return PrivateDeadLetter
    return DeadLetter


def dead_letters_of_parse(
    rejects: Rejects, source: str, privacy_unit: PrivacyUnit
) -> Iterator[DeadLetter | PrivateDeadLetter]:
    """Redacted: why and where, never what it said; public for agents."""
    kind = dead_letter_kind_of_parse(privacy_unit)
    position = np.array(rejects.position, np.int64)
    places = zip(
        column_partitions(position).tolist(), column_positions(position).tolist(), strict=True
    )

    for reason, (partition, place), size in zip(rejects.reason, places, rejects.size, strict=True):
        yield kind(reason=reason, source=source, partition=partition, position=place, size=size)  # type: ignore[arg-type]


def parsed_timestamp(seconds: Floats | np.float64) -> Timestamp:
    """Give Beam's time, rounded down."""
    return Timestamp(micros=int(np.floor(seconds * 1e6)))


class CsvValues:
    """Values that are one line each, of the same columns; one that holds more lines is malformed.

    Parameters
    ----------
    columns : sequence of str
        Names of the fields, in order.
    mapping : ColumnMapping
        Which column means what.
    decoder : Decoder
        Of the source.
    places : mapping of str to places, optional
        Of no meaning here: a field has its column.
    """

    def __init__(
        self,
        columns: Sequence[str],
        mapping: ColumnMapping,
        decoder: Decoder,
        places: Mapping[str, Places] | None = None,  # noqa: ARG002 - as other parsers of values are made
    ) -> None:
        mapping.require_table("lines of CSV")
        self._parser = RecordParser(
            CsvFormat(list(columns), ",", mapping), mapping, decoder=decoder
        )

    def parse(
        self, records: PartitionRecords, number: Ints, beside: RawColumns, rejects: Rejects
    ) -> list[SampleColumns]:
        """Parse all at once."""
        values = [value or b"" for value in records.values]
        lines = [value.removesuffix(b"\n").removesuffix(b"\r") for value in values]
        single = np.fromiter(
            (b"\n" not in one and b"\r" not in one and one != b"" for one in lines),
            np.bool_,
            len(lines),
        )

        for place in np.flatnonzero(~single).tolist():
            rejects.add("malformed", int(number[place]), len(values[place]))

        kept = [line for line, good in zip(lines, single.tolist(), strict=True) if good]
        if not kept:
            return []
        return [self._parser.parse(block_of_values(kept, number[single]), rejects, beside)]

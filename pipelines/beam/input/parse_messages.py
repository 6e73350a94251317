"""Messages of any source to samples, in a pipeline.

With KafkaIO, Pub/Sub, files or a service of one's own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import apache_beam as beam
import numpy as np
from apache_beam.pvalue import TaggedOutput
from apache_beam.transforms.window import GlobalWindow, GlobalWindows, TimestampedValue
from apache_beam.utils.timestamp import MAX_TIMESTAMP, Timestamp
from apache_beam.utils.windowed_value import WindowedValue

from meanstream.operators.limits import MAX_FUTURE
from meanstream.operators.validation import require
from meanstream.pipelines.beam.element_types.agent_batch import AgentBatch
from meanstream.pipelines.beam.input.beam_messages import (
    VALUE,
    Message,
    message_keys,
    message_of_element,
    require_messages,
)
from meanstream.pipelines.beam.input.parse_lines import (
    UNITS,
    MessageParser,
    PrivacyUnit,
    dead_letter_kind_of_parse,
    parsed_compact,
    parsed_timestamp,
    value_parser,
)
from meanstream.pipelines.beam.worker.beam_steps import Step
from meanstream.pipelines.beam.worker.beam_windows import with_window_time
from meanstream.pipelines.beam.worker.transform_outputs import typed_outputs
from meanstream.pipelines.beam.worker.worker_secret import SecretLocation
from meanstream.streaming.events.event_columns import SampleColumns, column_position
from meanstream.streaming.kafka.connection.kafka_location import KafkaLocation
from meanstream.streaming.kafka.connection.values import HEADERS, PartitionRecords
from meanstream.streaming.sources.mapping import ColumnMapping

BATCH = 1 << 14
"""Messages of a batch, at most; a bundle ends a batch too."""
REJECTED = "rejected"
"""The output of what was no sample."""


class Parsed(NamedTuple):
    """What `ParseMessages` gives.

    Attributes
    ----------
    samples : PCollection of AgentBatch
        Private: samples in batches, each at the time of its first one; for `CollaborateAgents`,
        `RunRounds` and their parts. `SampleRows` makes rows with a schema of them.
    rejected : PCollection of PrivateDeadLetter, or of DeadLetter
        Which messages were not used, and why: private for rounds, public for agents (see
        `privacy_unit`).
    """

    samples: beam.PCollection
    rejected: beam.PCollection


class SampleRow(NamedTuple):
    """Private: one sample, as a row with a schema."""

    agent: str
    value: float
    time: float


class ParseMessages(beam.PTransform):  # type: ignore[misc]
    """Private: messages of any source to batches of samples, by the engine's parser, reasons and bounds.

    Input, in the global window: bytes or text; pairs of key and value, as `ReadFromKafka` gives
    them; rows with a field `value` and, where they are there, `key`, `timestamp` (milliseconds),
    `topic`, `partition`, `offset` and `headers`, as `ReadFromKafka(with_metadata=True)` gives them;
    or Pub/Sub messages. A value is a JSON object or, with `columns`, a line of CSV or, with
    `registry_of`, what a Schema Registry says. Everything else is `malformed`. `mapping` may read a
    part from next to the value (`@key`, `@topic`, `@header.NAME`, and `@timestamp`, which is the
    element's own where a row has no such field).

    A source that gives a message again gives a sample again. What tells samples apart is the column
    of ids or, without one, a Pub/Sub message's id, or topic, partition and offset of a row: each
    counts once in its window. Bytes, text and pairs have nothing of the kind. Event time is the
    source's: give downstream windows the lateness that they shall allow.

    **Privacy.** Dead letters carry no part of a message. For agents that a message was none is public; for rounds it
    is private with the number of messages.

    Parameters
    ----------
    mapping : ColumnMapping
        Which field means what.
    columns : sequence of str, optional
        Values are lines of CSV of these columns, without a header.
    registry_of : str, optional
        `kafka://HOST:PORT/TOPIC?registry=URL`: values are read as the registry of this topic says;
        workers read a file of properties (`config=`) themselves.
    value : str
        The field that is the message, where elements have fields.
    name : str
        What dead letters call the source.
    secret : SecretLocation, optional
        Where workers find the secret from which the hash of ids is keyed; used only if there is a
        column of ids.
    batch_size : int
        Messages of a batch, at most.
    max_future : float
        Seconds that a sample may lie ahead of the clock.
    privacy_unit : str
        "user", the default, for rounds: dead letters and figures (`events`, `rejected_REASON`) are
        the operator's. "sample", for agents alone, where they are public.

    Raises
    ------
    ValueError
        For an option here; for a PCollection that has no such messages where it is applied.

    Examples
    --------
    >>> from apache_beam.runners.portability.fn_api_runner import FnApiRunner
    >>> messages = [b'{"agent": "a", "value": 3.5, "time": 60}', b"{", None]
    >>> with beam.Pipeline(FnApiRunner()) as pipeline:
    ...     parsed = pipeline | beam.Create(messages) | ParseMessages(ColumnMapping(), privacy_unit="sample")
    ...     _ = parsed.samples | SampleRows() | "Show samples" >> beam.Map(lambda row: print(tuple(row)))
    ...     _ = parsed.rejected | "Show rejected" >> beam.Map(lambda letter: print(letter.reason))
    ('a', 3.5, 60.0)
    malformed
    malformed
    """

    def __init__(
        self,
        mapping: ColumnMapping,
        *,
        columns: Sequence[str] | None = None,
        registry_of: str | None = None,
        value: str = VALUE,
        name: str = "messages",
        secret: SecretLocation | None = None,
        batch_size: int = BATCH,
        max_future: float = MAX_FUTURE,
        privacy_unit: PrivacyUnit = "user",
    ) -> None:
        super().__init__()
        require(
            isinstance(mapping, ColumnMapping),
            "mapping",
            "be a ColumnMapping",
            type(mapping).__name__,
        )
        texts = columns is None or (
            not isinstance(columns, str) and all(isinstance(one, str) for one in columns)
        )
        require(texts, "columns", "be the names of the columns", columns)

        require(
            columns is None or registry_of is None,
            "columns",
            "be left out with registry_of",
            columns,
        )

        require(
            isinstance(batch_size, int) and batch_size >= 1,
            "batch_size",
            "be at least 1",
            batch_size,
        )
        require(max_future >= 0, "max_future", "be at least 0", max_future)
        require(
            privacy_unit in UNITS, "privacy_unit", f"be one of {', '.join(UNITS)}", privacy_unit
        )

        if registry_of is not None:
            location = KafkaLocation.parse(registry_of, role="registry_of")
            require(location.registry is not None, "registry_of", "name a registry", registry_of)

        given = None if columns is None else tuple(columns)
        self._wanted = value_parser(mapping, columns=given).wanted
        self._letter = dead_letter_kind_of_parse(privacy_unit)
        self._value = value

        secret = None if not mapping.optional else secret or SecretLocation()
        self._parse = ParseEach(
            name,
            mapping,
            secret,
            batch_size,
            max_future,
            privacy_unit,
            given,
            registry_of,
            value,
            self._wanted,
        )

    def expand(self, pcoll: beam.PCollection) -> Parsed:
        """Parse in batches."""
        window_fn = pcoll.windowing.windowfn
        require(
            isinstance(window_fn, GlobalWindows),
            "messages",
            "be in the global window",
            type(window_fn).__name__,
        )
        require_messages(pcoll.element_type, self._value, self._wanted)
        split = pcoll | "Parse" >> beam.ParDo(self._parse).with_outputs(REJECTED, main="samples")

        return Parsed(*typed_outputs(split, {"samples": AgentBatch, REJECTED: self._letter}))


class SampleRows(beam.PTransform):  # type: ignore[misc]
    """Private: batches of samples to rows with a schema, each at its own event time, for steps of one's own.

    Ids, and whose sample it is within its agent, stay behind: give `CollaborateAgents` the batches.
    The rows are as private as the samples.
    """

    def expand(self, pcoll: beam.PCollection) -> beam.PCollection:
        """Take batches apart."""
        return pcoll | beam.ParDo(_Rows()).with_output_types(SampleRow)


class _Rows(Step):
    """Private: a batch to rows."""

    def process(self, element: AgentBatch) -> Iterator[TimestampedValue]:
        """Take it apart."""
        rule = "have one value each where they become rows"
        require(element.value.ndim == 1, "samples", rule, f"{element.value.ndim} dimensions")
        columns = element.agent.tolist(), element.value.tolist(), element.time.tolist()
        for agent, value, time in zip(*columns, strict=True):
            row = SampleRow(element.names[agent], value, time)
            yield with_window_time(parsed_timestamp(np.float64(time)), row)


class ParseEach(Step):
    """Private: messages to batches; a bundle is a batch, or several."""

    def __init__(  # noqa: PLR0917 - made in one place
        self,
        name: str,
        mapping: ColumnMapping,
        secret: SecretLocation | None,
        batch_size: int,
        max_future: float,
        privacy_unit: PrivacyUnit,
        columns: tuple[str, ...] | None = None,
        registry_of: str | None = None,
        value: str = VALUE,
        wanted: tuple[str, ...] = (),
    ) -> None:
        self._name = name
        self._mapping = mapping
        self._secret = secret
        self._batch_size = batch_size
        self._max_future = max_future
        self._unit = privacy_unit
        self._columns = columns
        self._registry_of = registry_of
        self._value = value
        self._wanted = wanted

    def setup(self) -> None:
        """Find the secret, if there are ids to hash."""
        location = None if self._registry_of is None else KafkaLocation.parse(self._registry_of)
        self._parser = MessageParser(
            self._mapping, self._secret, self._max_future, self._unit, location, self._columns
        )

    def start_bundle(self) -> None:
        """Begin without messages."""
        self._messages: list[Message] = []
        self._first: Timestamp = MAX_TIMESTAMP

    def process(self, element: Any, time: Any = beam.DoFn.TimestampParam) -> Iterator[Any]:
        """Take a message."""
        self._messages.append(message_of_element(element, time.micros, field=self._value))
        self._first = min(self._first, time)

        if len(self._messages) >= self._batch_size:
            yield from self._batch()

    def finish_bundle(self) -> Iterator[Any]:
        """Parse the rest."""
        yield from self._batch()

    def _batch(self) -> Iterator[Any]:
        messages = self._messages
        first = self._first
        self.start_bundle()

        if not messages:
            return
        absent: dict[str, Any] = {HEADERS: {}}
        beside = {
            name: [one.beside.get(name, absent.get(name)) for one in messages]
            for name in self._wanted
        }
        rows = np.arange(len(messages))
        none = np.zeros(len(messages), np.int64)
        samples, rejects = self._parser.parse(
            PartitionRecords(none, rows, [one.value for one in messages], beside)
        )

        if len(samples):
            found = parsed_compact(_distinguish(samples, messages))
            yield WindowedValue(found, parsed_timestamp(samples.time.min()), (GlobalWindow(),))

        kind = dead_letter_kind_of_parse(self._unit)
        for reason, row, size in zip(rejects.reason, rejects.position, rejects.size, strict=True):
            place = {"partition": messages[row].partition, "position": messages[row].position}
            letter = kind(reason=reason, source=self._name, size=size, **place)  # type: ignore[arg-type]
            yield TaggedOutput(REJECTED, WindowedValue(letter, first, (GlobalWindow(),)))


def _distinguish(samples: SampleColumns, messages: Sequence[Message]) -> SampleColumns:
    """Give samples the places of their messages and, where they have no ids, keys of what tells messages apart."""
    row = samples.position.tolist()
    names = [messages[place].name for place in row] if samples.key is None else []
    position = column_position(
        np.array([messages[place].partition for place in row], np.int64),
        np.array([messages[place].position for place in row], np.int64),
    )
    key = message_keys(names) if any(names) else samples.key

    return replace(samples, key=key, position=position)

"""Messages of any source to samples, in a pipeline.

With KafkaIO, Pub/Sub, files or a service of one's own.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import apache_beam as beam
import numpy as np
from apache_beam.io.gcp.pubsub import PubsubMessage
from apache_beam.pvalue import TaggedOutput
from apache_beam.transforms.window import GlobalWindow, GlobalWindows, TimestampedValue
from apache_beam.utils.timestamp import MAX_TIMESTAMP, Timestamp
from apache_beam.utils.windowed_value import WindowedValue

from meanstream.operators.limits import MAX_FUTURE
from meanstream.operators.records import Ints, Words
from meanstream.operators.validation import closest_valid, require
from meanstream.pipelines.beam.element_types.beam_samples import AgentBatch
from meanstream.pipelines.beam.element_types.elements import element_fields
from meanstream.pipelines.beam.input.parse_lines import (
    UNITS,
    MessageParser,
    PrivacyUnit,
    dead_letter_kind_of_parse,
    parsed_compact,
    parsed_timestamp,
    value_parser,
)
from meanstream.pipelines.beam.worker.beam_steps import Step, typed_outputs, with_window_time
from meanstream.pipelines.beam.worker.worker_secret import SecretLocation
from meanstream.streaming.events.event_columns import (
    PARTITION_SHIFT,
    SampleColumns,
    column_position,
    hash_ids,
)
from meanstream.streaming.kafka.connection.kafka_location import KafkaLocation
from meanstream.streaming.kafka.connection.values import HEADERS, PartitionRecords
from meanstream.streaming.sources.mapping import ColumnMapping

VALUE = "value"
"""The field that is a message's value, where an element has fields."""
_MOST_PARTITIONS = 1 << 18


class Message(NamedTuple):
    """Private: one message.

    Attributes
    ----------
    value : bytes or None
        What a sample is read from.
    next to : mapping
        Other parts by their names: `@key`, `@topic`, `@headers`, and `@timestamp` in milliseconds.
    name : str
        The same each time it is delivered, and no other's; empty if nothing tells.
    partition, position : int
        Where it stands in its source; 0 where nothing tells.
    """

    value: bytes | None
    beside: Mapping[str, Any] = {}
    name: str = ""
    partition: int = 0
    position: int = 0


NOTHING = Message(None)
"""What an element is that is no message."""


def require_messages(element_type: Any, value: str, wanted: Sequence[str]) -> None:
    """Hold the type of a PCollection to what is read of its messages.

    Examples
    --------
    >>> require_messages(bytes, "value", ["@key"])
    Traceback (most recent call last):
    ValueError: mapping must name fields of the value where elements are bytes or text, got '@key'
    """
    if element_type in (bytes, str):
        away = [name for name in wanted if name != "@timestamp"]
        require(
            not away,
            "mapping",
            "name fields of the value where elements are bytes or text",
            ", ".join(away),
        )

    kind = isinstance(element_type, type) and issubclass(element_type, PubsubMessage)
    names = None if kind else element_fields(element_type)
    if names is not None and value not in names:
        hint = closest_valid(value, names, listed="the messages have")
        raise ValueError(f"value must name a field of the messages, got {value!r}{hint}")


def message_of_element(element: Any, stamp: int, *, field: str = VALUE) -> Message:
    """Take a message out of an element.

    Bytes, text, a key and a value, a Pub/Sub message, or a row with a field.
    """
    try:
        return _taken(element, stamp, field)
    except Exception:
        return NOTHING


def _taken(element: Any, stamp: int, field: str) -> Message:
    at = {"@timestamp": stamp // 1000} if stamp > 0 else {}
    if isinstance(element, PubsubMessage):
        name = element.message_id or ""
        return Message(
            element.data, {**at, HEADERS: element.attributes or {}}, name, 0, _number_of(name)
        )

    named = _fields(element)
    if named is not None:
        if field in named:
            return _of_row(named, field, at)
        return NOTHING

    if type(element) is tuple and len(element) == 2:
        key = element[0]
        return Message(
            _bytes(element[1]), {**at, "@key": key if isinstance(key, bytes | str) else None}
        )

    return Message(_bytes(element), at)


def _of_row(named: Mapping[str, Any], field: str, at: Mapping[str, Any]) -> Message:
    """Take the fields that Kafka's connectors give.

    An offset tells a message from all others of its partition.
    """
    beside: dict[str, Any] = {**at, HEADERS: _headers(named.get("headers") or ())}
    if _is_count(stamp := named.get("timestamp"), 1 << 53):
        beside["@timestamp"] = stamp

    for name in ("key", "topic"):
        if isinstance(named.get(name), bytes | str):
            beside[f"@{name}"] = named[name]

    partition = named.get("partition", 0)
    offset = named.get("offset")
    placed = _is_count(offset, 1 << PARTITION_SHIFT) and _is_count(partition, _MOST_PARTITIONS)
    if not placed:
        return Message(_bytes(named[field]), beside)

    name = f"{beside.get('@topic', '')}/{partition}/{offset}"
    return Message(_bytes(named[field]), beside, name, partition, offset)  # type: ignore[arg-type]  # checked above


def _is_count(value: Any, limit: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < limit


def _fields(element: Any) -> Mapping[str, Any] | None:
    if isinstance(element, Mapping):
        return element
    if isinstance(element, beam.Row):
        return dict(vars(element))

    names = getattr(type(element), "_fields", None)

    if isinstance(element, tuple) and names is not None:
        return dict(zip(names, element, strict=True))
    return None


def _headers(given: Any) -> dict[str, Any]:
    """Take headers as a mapping or as a list of names with values.

    Of a name that is there twice the last one.
    """
    pairs = given.items() if isinstance(given, Mapping) else given
    try:
        found = [(one.key, one.value) if isinstance(one, beam.Row) else tuple(one) for one in pairs]
        return {
            name: text
            for name, text in found
            if isinstance(name, str) and isinstance(text, bytes | str)
        }
    except (AttributeError, TypeError, ValueError):
        return {}


def _bytes(value: Any) -> bytes | None:
    if isinstance(value, str):
        return value.encode(errors="surrogatepass")  # a lone surrogate is no UTF-8, and malformed

    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    return None


def message_keys(names: Sequence[str]) -> Words:
    """Give the key that tells a message apart, the same at each delivery; 0 where nothing tells."""
    given = np.array([bool(one) for one in names], np.bool_)
    text = [one.encode(errors="surrogatepass") for one in names if one]
    offsets: Ints = np.concatenate([[0], np.cumsum([len(one) for one in text], dtype=np.int64)])
    keys = np.zeros(len(names), np.uint64)
    keys[given] = hash_ids(np.frombuffer(b"".join(text), np.uint8), offsets)

    return keys


def _number_of(message_id: str) -> int:
    """Give the number of a message, as the service counts; of an id that is none, a hash.

    Examples
    --------
    >>> _number_of("10613943437398923"), _number_of("m1") == _number_of("m1") < 2**62
    (10613943437398923, True)
    """
    if message_id.isascii() and message_id.isdigit() and len(message_id) <= 18:
        return int(message_id)
    return int.from_bytes(hashlib.blake2b(message_id.encode(), digest_size=8).digest()) >> 2


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

    **Privacy.** Dead letters carry no part of a message. For agents that a message was none is
    public; for rounds it is private with the number of messages.

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

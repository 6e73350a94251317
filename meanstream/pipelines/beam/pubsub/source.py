"""A Pub/Sub subscription into a pipeline, where the runner reads it: on Dataflow, or on Beam's runner for trials."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import apache_beam as beam
import numpy as np
from apache_beam.io.gcp.pubsub import PubsubMessage
from apache_beam.options.pipeline_options import StandardOptions
from apache_beam.pvalue import TaggedOutput
from apache_beam.transforms.window import GlobalWindow
from apache_beam.utils.timestamp import Timestamp
from apache_beam.utils.windowed_value import WindowedValue

from meanstream.operators.limits import MAX_FUTURE
from meanstream.operators.records import Ints, Words
from meanstream.operators.validation import require
from meanstream.pipelines.beam.agent_batch import AgentBatch
from meanstream.pipelines.beam.parse import (
    DEAD_LETTERS,
    UNITS,
    MessageParser,
    PrivacyUnit,
    dead_letter_kind_of_parse,
    parsed_compact,
    parsed_timestamp,
)
from meanstream.pipelines.beam.pubsub.message import Message
from meanstream.pipelines.beam.pubsub.names import check_pubsub_name
from meanstream.pipelines.beam.secret import SecretPlace
from meanstream.pipelines.beam.steps import Step
from meanstream.streaming.events.hashing import hash_ids
from meanstream.streaming.kafka.messages import TopicParser
from meanstream.streaming.kafka.values import PartitionRecords
from meanstream.streaming.sources.mapping import ColumnMapping

BATCH = 1 << 14
"""Messages of a batch, at most; a bundle ends a batch too."""
READERS = ("DataflowRunner", "BundleBasedDirectRunner")
"""Runners that read Pub/Sub for a pipeline in Python."""


class FromPubSub(NamedTuple):
    """What `ReadPubSub` gives.

    Attributes
    ----------
    samples : PCollection of AgentBatch
        Private: samples in batches; for `RunRounds`, `CollaborateAgents` and their parts.
    dead_letters : PCollection of PrivateDeadLetter, or of DeadLetter
        Which messages were not used, and why: private for rounds, public for agents (see `privacy_unit`).
        `position` is the message id, where that is a number, and otherwise a hash of it.
    """

    samples: beam.PCollection
    dead_letters: beam.PCollection


class ReadPubSub(beam.PTransform):  # type: ignore[misc]
    """Private: JSON messages of a subscription to batches of samples.

    Which message is good is the engine's parser's decision; what is not good becomes a dead letter with the engine's
    reason. Messages come in any order and may come again: what tells samples apart is the column of ids or, without
    one, the message id, which is the same at each delivery. `CollaborateAgents` and `RunRounds` take each sample once
    in its window, however far apart its messages come.

    **Where it runs.** The runner reads the subscription, takes care of acknowledgement, and tells event time: from
    `timestamp_attribute`, or else from when messages were published. On Dataflow; and on `BundleBasedDirectRunner`,
    which is for trials: it acknowledges at once, and takes the clock for event time. Others are refused: the Python
    SDK has no reader of Pub/Sub for FnApiRunner, Prism and Flink. There, have a Kafka topic.

    **Privacy.** Dead letters carry no part of a message.

    Parameters
    ----------
    subscription : str
        `projects/PROJECT/subscriptions/NAME`, without a second reader. A sample in the payload is as in a Kafka value.
    mapping : ColumnMapping
        Which field means what.
    timestamp_attribute : str, optional
        Attribute that holds the event time (milliseconds since the epoch, or RFC 3339), which moves event time on. A
        sample's own time is that of its payload: give downstream windows the lateness that they shall allow.
    id_label : str, optional
        On Dataflow: attribute by which the runner itself drops repeated messages.
    secret : SecretPlace, optional
        Where workers find the secret from which the hash of ids is keyed; used only if there is a column of ids.
    batch_size : int
        Messages of a batch, at most.
    max_future : float
        Seconds that a sample may lie ahead of the clock.
    privacy_unit : str
        "user", the default, for rounds: dead letters and figures (`events`, `rejected_REASON`) are the operator's, as
        they tell how many samples somebody sends and when. "sample", for agents alone, where that is public.

    Raises
    ------
    ValueError
        Here for options; where it is applied, for a runner that cannot read Pub/Sub, or without `--streaming`.

    Examples
    --------
    >>> ReadPubSub("samples", ColumnMapping())
    Traceback (most recent call last):
    ValueError: subscription must be projects/PROJECT/subscriptions/NAME, got 'samples'
    """

    def __init__(
        self,
        subscription: str,
        mapping: ColumnMapping,
        *,
        timestamp_attribute: str | None = None,
        id_label: str | None = None,
        secret: SecretPlace | None = None,
        batch_size: int = BATCH,
        max_future: float = MAX_FUTURE,
        privacy_unit: PrivacyUnit = "user",
    ) -> None:
        super().__init__()
        name = check_pubsub_name("subscription", "subscriptions", subscription)
        require(batch_size >= 1, "batch_size", "be at least 1", batch_size)
        require(privacy_unit in UNITS, "privacy_unit", f"be one of {', '.join(UNITS)}", privacy_unit)
        self._letter = dead_letter_kind_of_parse(privacy_unit)
        self._id_label = id_label
        self._messages = beam.io.ReadFromPubSub(
            subscription=subscription, with_attributes=True, timestamp_attribute=timestamp_attribute, id_label=id_label
        )
        wanted = TopicParser(mapping).wanted
        rule = "be read from the data alone, whose layout is plain or connect"
        require(not wanted, "mapping", rule, ", ".join(wanted))
        self._parse = ParseMessages(name, mapping, secret, batch_size, max_future, privacy_unit)

    def expand(self, pbegin: Any) -> FromPubSub:
        """Refuse runners that would fail later, then read and parse."""
        runner = type(pbegin.pipeline.runner).__name__
        rule = "be DataflowRunner, or on one machine BundleBasedDirectRunner, where Pub/Sub is read"
        require(runner in READERS, "runner", rule, runner)
        streaming = pbegin.pipeline.options.view_as(StandardOptions).streaming
        require(bool(streaming), "streaming", "be given where Pub/Sub is read (--streaming)", streaming)
        require(self._id_label is None or runner == READERS[0], "id_label", f"be for {READERS[0]}", self._id_label)
        parse = beam.ParDo(self._parse).with_outputs(DEAD_LETTERS, main="samples").with_output_types(AgentBatch)
        messages = pbegin | "Read" >> self._messages
        messages.element_type = Message
        split = messages | "Parse" >> parse
        split.samples.element_type, split[DEAD_LETTERS].element_type = AgentBatch, self._letter
        return FromPubSub(split.samples, split[DEAD_LETTERS])


class ParseMessages(Step):
    """Private: messages to batches; a bundle is a batch, or several."""

    def __init__(  # noqa: PLR0917 - made in one place
        self,
        name: str,
        mapping: ColumnMapping,
        secret: SecretPlace | None,
        batch_size: int,
        max_future: float,
        privacy_unit: PrivacyUnit,
    ) -> None:
        self._name = name
        self._mapping = mapping
        self._secret = secret
        self._batch_size = batch_size
        self._max_future = max_future
        self._unit = privacy_unit

    def setup(self) -> None:
        """Find the secret, if there are ids to hash."""
        self._parser = MessageParser(self._mapping, self._secret, self._max_future, self._unit)

    def start_bundle(self) -> None:
        """Begin without messages."""
        self._values: list[bytes | None] = []
        self._ids: list[str] = []
        self._first: Timestamp | None = None

    def process(self, element: PubsubMessage, time: Any = beam.DoFn.TimestampParam) -> Iterator[Any]:
        """Take a message."""
        self._values.append(element.data)
        self._ids.append(element.message_id or "")
        self._first = time if self._first is None else min(self._first, time)
        if len(self._values) >= self._batch_size:
            yield from self._batch()

    def finish_bundle(self) -> Iterator[Any]:
        """Parse the rest."""
        yield from self._batch()

    def _batch(self) -> Iterator[Any]:
        values, ids, first = self._values, self._ids, self._first
        self.start_bundle()
        if first is None:
            return
        rows = np.arange(len(values))
        samples, rejects = self._parser.parse(PartitionRecords(np.zeros(len(values), np.int64), rows, values))
        row, kind = samples.position, dead_letter_kind_of_parse(self._unit)
        numbers = [_number_of(one) for one in ids]
        if len(samples):
            key = pubsub_source_keys(ids)[row] if samples.key is None else samples.key
            numbered = replace(samples, key=key, position=np.array(numbers, np.int64)[row])
            yield WindowedValue(parsed_compact(numbered), parsed_timestamp(samples.time.min()), (GlobalWindow(),))
        for reason, place, size in zip(rejects.reason, rejects.position, rejects.size, strict=True):
            letter = kind(reason=reason, source=self._name, position=numbers[place], size=size)  # type: ignore[arg-type]
            yield TaggedOutput(DEAD_LETTERS, WindowedValue(letter, first, (GlobalWindow(),)))


def pubsub_source_keys(ids: Sequence[str]) -> Words:
    """Give the key that tells a message apart, the same at each delivery; 0 where the runner gives no id."""
    given = np.array([bool(one) for one in ids], np.bool_)
    text = [one.encode() for one in ids if one]
    offsets: Ints = np.concatenate([[0], np.cumsum([len(one) for one in text], dtype=np.int64)])
    keys = np.zeros(len(ids), np.uint64)
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

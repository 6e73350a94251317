"""A Pub/Sub subscription into a pipeline, where the runner reads it.

On Dataflow, or on Beam's runner for trials.
"""

from __future__ import annotations

import struct
from typing import Any, NamedTuple

import apache_beam as beam
from apache_beam.coders import typecoders
from apache_beam.io.gcp.pubsub import PubsubMessage
from apache_beam.options.pipeline_options import StandardOptions

from meanstream.operators.limits import MAX_FUTURE
from meanstream.operators.validation import require
from meanstream.pipelines.beam.element_types.events import VERSION, DamagedBytesError, OwnCoder
from meanstream.pipelines.beam.input.parse_lines import PrivacyUnit, value_parser
from meanstream.pipelines.beam.input.parse_messages import BATCH, ParseMessages
from meanstream.pipelines.beam.pubsub.pubsub_client import check_pubsub_name
from meanstream.pipelines.beam.worker.worker_secret import SecretLocation
from meanstream.streaming.sources.mapping import ColumnMapping

READERS = ("DataflowRunner", "BundleBasedDirectRunner")
"""Runners that read Pub/Sub for a pipeline in Python."""


class FromPubSub(NamedTuple):
    """What `ReadPubSub` gives.

    Attributes
    ----------
    samples : PCollection of AgentBatch
        Private: samples in batches; for `RunRounds`, `CollaborateAgents` and their parts.
    dead_letters : PCollection of PrivateDeadLetter, or of DeadLetter
        Which messages were not used, and why: private for rounds, public for agents (see
        `privacy_unit`). `position` is the message id, where that is a number, and otherwise a hash
        of it.
    """

    samples: beam.PCollection
    dead_letters: beam.PCollection


class ReadPubSub(beam.PTransform):  # type: ignore[misc]
    """Private: JSON messages of a subscription to batches of samples.

    Which message is good is the engine's parser's decision; what is not good becomes a dead letter
    with the engine's reason. Messages come in any order and may come again: what tells samples
    apart is the column of ids or, without one, the message id, which is the same at each delivery.
    `CollaborateAgents` and `RunRounds` take each sample once in its window, however far apart its
    messages come.

    **Where it runs.** The runner reads the subscription, takes care of acknowledgement, and tells
    event time: from `timestamp_attribute`, or else from when messages were published. On Dataflow;
    and on `BundleBasedDirectRunner`, which is for trials: it acknowledges at once, and takes the
    clock for event time. Others are refused: the Python SDK has no reader of Pub/Sub for
    FnApiRunner, Prism and Flink. There, have a Kafka topic.

    **Privacy.** Dead letters carry no part of a message.

    Parameters
    ----------
    subscription : str
        `projects/PROJECT/subscriptions/NAME`, without a second reader. A sample in the payload is
        as in a Kafka value.
    mapping : ColumnMapping
        Which field means what.
    timestamp_attribute : str, optional
        Not for rounds (`privacy_unit="user"`). Attribute that holds the event time (milliseconds
        since the epoch, or RFC 3339), which moves event time on. A sample's own time is that of its
        payload: give downstream windows the lateness that they shall allow.
    id_label : str, optional
        On Dataflow: attribute by which the runner itself drops repeated messages.
    secret : SecretLocation, optional
        Where workers find the secret from which the hash of ids is keyed; used only if there is a
        column of ids.
    batch_size : int
        Messages of a batch, at most.
    max_future : float
        Seconds that a sample may lie ahead of the clock.
    privacy_unit : str
        "user", the default, for rounds: dead letters and figures (`events`, `rejected_REASON`) are
        the operator's, as they tell how many samples someone sends and when. "sample", for agents
        alone, where that is public.

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
        secret: SecretLocation | None = None,
        batch_size: int = BATCH,
        max_future: float = MAX_FUTURE,
        privacy_unit: PrivacyUnit = "user",
    ) -> None:
        super().__init__()
        name = check_pubsub_name("subscription", "subscriptions", subscription)
        rule = "be left out for rounds, whose windows must not close by samples' times"
        require(
            timestamp_attribute is None or privacy_unit != "user",
            "timestamp_attribute",
            rule,
            timestamp_attribute,
        )

        self._id_label = id_label
        self._messages = beam.io.ReadFromPubSub(
            subscription=subscription,
            with_attributes=True,
            timestamp_attribute=timestamp_attribute,
            id_label=id_label,
        )

        wanted = value_parser(mapping).wanted
        rule = "be read from the data alone, whose layout is plain or connect"
        require(not wanted, "mapping", rule, ", ".join(wanted))
        self._parse = ParseMessages(
            mapping,
            name=name,
            secret=secret,
            batch_size=batch_size,
            max_future=max_future,
            privacy_unit=privacy_unit,
        )

    def expand(self, pbegin: Any) -> FromPubSub:
        """Refuse runners that would fail later, then read and parse."""
        runner = type(pbegin.pipeline.runner).__name__
        rule = "be DataflowRunner, or on one machine BundleBasedDirectRunner, where Pub/Sub is read"
        require(runner in READERS, "runner", rule, runner)
        streaming = pbegin.pipeline.options.view_as(StandardOptions).streaming
        require(
            bool(streaming), "streaming", "be given where Pub/Sub is read (--streaming)", streaming
        )

        require(
            self._id_label is None or runner == READERS[0],
            "id_label",
            f"be for {READERS[0]}",
            self._id_label,
        )
        messages = pbegin | "Read" >> self._messages
        messages.element_type = Message

        return FromPubSub(*(messages | "Parse" >> self._parse))


_HEAD = struct.Struct("<BI")


class Message(PubsubMessage):  # type: ignore[misc]
    """Private: names Beam's messages where this coder is to write them.

    There are none of this class.
    """


class MessageCoder(OwnCoder):
    """Private: a message's data and id.

    Attributes, times and the ordering key stay behind: no one reads them.
    """

    def encode(self, value: PubsubMessage) -> bytes:
        """Id, then data."""
        name = (value.message_id or "").encode()
        return _HEAD.pack(VERSION, len(name)) + name + (value.data or b"")

    def decode(self, encoded: bytes) -> PubsubMessage:
        """Split them."""
        if len(encoded) < _HEAD.size or encoded[0] != VERSION:
            raise DamagedBytesError(f"message must be of version {VERSION}, got others")
        end = _HEAD.size + _HEAD.unpack_from(encoded)[1]
        return PubsubMessage(encoded[end:], {}, message_id=encoded[_HEAD.size : end].decode())


typecoders.registry.register_coder(Message, MessageCoder)

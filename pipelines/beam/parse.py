"""Values of messages to batches of samples, whatever brought them: the engine's parser, reasons and dead letters."""

from __future__ import annotations

import time
from collections.abc import Iterator

import numpy as np
from apache_beam.coders import typecoders
from apache_beam.utils.timestamp import Timestamp

from operators.records import Floats
from pipelines.beam.agents.records import AgentBatch
from pipelines.beam.events import EventCoder
from pipelines.beam.metrics import counter
from pipelines.beam.secret import SecretPlace
from streaming.columns import Rejects, SampleColumns, partition_of, place_in_partition
from streaming.events import DeadLetter
from streaming.kafka.values import Records, parse_records
from streaming.mapping import ColumnMapping
from streaming.secret import derived_key
from streaming.sources.json_records import JsonFormat
from streaming.sources.lines import MAX_LINE_BYTES
from streaming.sources.records import RecordParser

DEAD_LETTERS = "dead_letters"


class DeadLetterCoder(EventCoder):
    """Public: a record that was not used."""

    kind = DeadLetter


typecoders.registry.register_coder(DeadLetter, DeadLetterCoder)


class MessageParser:
    """Private: JSON values to samples; what is not good is counted and noted with the engine's reason.

    Parameters
    ----------
    mapping : ColumnMapping
        Which field means what.
    secret : SecretPlace, optional
        Where the secret is from which the hash of ids is keyed; used only if there is a column of ids.
    max_future : float
        Seconds that a sample may lie ahead of the clock.
    """

    def __init__(self, mapping: ColumnMapping, secret: SecretPlace | None, max_future: float) -> None:
        key = b"" if mapping.id is None else derived_key((secret or SecretPlace()).load(), "sample ids")
        self._parser = RecordParser(JsonFormat(mapping), mapping, id_key=key)
        self._max_future = max_future

    def parse(self, records: Records) -> tuple[SampleColumns, Rejects]:
        """Parse many at once."""
        rejects = Rejects()
        samples = parse_records(self._parser, records, rejects, MAX_LINE_BYTES)
        future = samples.time > time.time() + self._max_future
        if future.any():
            rejects.add_many("in_future", samples.position[future])
            samples = samples.take(~future)
        counter("events").inc(len(records.values))
        for reason in rejects.reason:
            counter("rejected_", reason).inc()
        return samples, rejects


def compact(samples: SampleColumns) -> AgentBatch:
    """Keep the names that occur: those of all messages so far are no part of an element."""
    used, agent = np.unique(samples.agent, return_inverse=True)
    names = [samples.names[place] for place in used.tolist()]
    return AgentBatch(names, agent.astype(np.int64), samples.value, samples.time, samples.key, samples.position)


def letters(rejects: Rejects, source: str) -> Iterator[DeadLetter]:
    """Public: why and where, never what it said."""
    position = np.array(rejects.position, np.int64)
    places = zip(partition_of(position).tolist(), place_in_partition(position).tolist(), strict=True)
    for reason, (partition, place), size in zip(rejects.reason, places, rejects.size, strict=True):
        yield DeadLetter(reason=reason, source=source, partition=partition, position=place, size=size)  # type: ignore[arg-type]


def timestamp(seconds: Floats | np.float64) -> Timestamp:
    """Give Beam's time, rounded down."""
    return Timestamp(micros=int(np.floor(seconds * 1e6)))

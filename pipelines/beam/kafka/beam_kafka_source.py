"""A Kafka topic into a pipeline, without a JVM.

Exactly the offsets that are requested, or all that ever comes.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, NamedTuple

import apache_beam as beam

from meanstream.operators.limits import MAX_FUTURE
from meanstream.operators.validation import require
from meanstream.pipelines.beam.element_types.beam_samples import AgentBatch
from meanstream.pipelines.beam.input.parse_lines import (
    DEAD_LETTERS,
    UNITS,
    PrivacyUnit,
    dead_letter_kind_of_parse,
)
from meanstream.pipelines.beam.kafka.offsets import UNBOUNDED, PartitionRange
from meanstream.pipelines.beam.kafka.read_kafka import (
    TURN_SECONDS,
    PlanRanges,
    ReadPartition,
    ReadRange,
)
from meanstream.pipelines.beam.worker.transform_arguments import as_seconds
from meanstream.pipelines.beam.worker.worker_secret import SecretLocation
from meanstream.streaming.kafka.connection.kafka_location import KafkaLocation
from meanstream.streaming.sources.mapping import ColumnMapping

BATCH = 1 << 14
"""Records of a batch, at most."""
MOST_TURN_SECONDS = 300.0
"""A checkpoint waits for the end of a turn, and is given up after some minutes."""


class FromKafka(NamedTuple):
    """What `ReadKafka` gives.

    Attributes
    ----------
    samples : PCollection of AgentBatch
        Private: samples in batches of one partition each; for `RunRounds`, `CollaborateAgents` and
        their parts.
    dead_letters : PCollection of PrivateDeadLetter, or of DeadLetter
        Which records were not used, and why: private for rounds, public for agents (see
        `privacy_unit`).
    """

    samples: beam.PCollection
    dead_letters: beam.PCollection


class ReadKafka(beam.PTransform):  # type: ignore[misc]
    """Private: JSON values of a topic to batches of samples, each committed record once, at offsets that Beam keeps.

    Which record is good is the engine's parser's decision; what is not good becomes a dead letter
    with the engine's reason. A partition is read by one worker, in order. Its event time is its
    newest sample: give downstream windows the lateness that they shall allow. Of rounds
    (`privacy_unit="user"`) it is the clock, once all was read that was there at that moment:
    samples' times are protected. Where reading ends, no sample of rounds is late. A runner's
    checkpoint holds offset and event time of each partition, and reading resumes there, on any
    worker. No consumer group is joined and nothing is committed to Kafka, so that a topic can be
    read next to an engine and as often as one likes.

    Ranges and `until_end` run on every runner. Without end: on Flink, with `--streaming`,
    `--checkpointing_interval` and `--finish_bundle_before_checkpointing`, and without
    `--shutdown_sources_after_idle_ms`: once the step before the reading one has ended, no
    checkpoint and no savepoint is completed any more. Prism (2.77) takes the event time of one
    partition for that of all, and drops slower ones as late; FnApiRunner would never end.

    **Privacy.** Dead letters carry no part of a record.

    Parameters
    ----------
    location : str
        `kafka://HOST:PORT/TOPIC?OPTION=VALUE`, as the engine's source takes it. Workers read a file
        of properties (`config=`) themselves: secrets do not travel with the pipeline.
    mapping : ColumnMapping
        Which field means what. By their ids `CollaborateAgents` and `RunRounds` take each sample
        once in its window; without a column of ids by topic, partition and offset, so that a record
        counts once however often it is read.
    ranges : mapping of int to (int, int), optional
        Replay: first offset and the offset after the last one of each partition that is read, and
        nothing else.
    until_end : bool
        Without `ranges`: read what the topic holds when the pipeline begins. False: go on for ever.
    secret : SecretLocation, optional
        Where workers find the secret from which the hash of ids is keyed; used only if there is a
        column of ids.
    batch_size : int
        Records of a batch, at most.
    max_future : float
        Seconds that a sample may lie ahead of the clock; one that lies further would move event
        time for everyone.
    turn : float or str
        Without end: a partition has one turn in that many seconds, 1 to 300. While it is read no
        checkpoint is made, and what comes while it is let be is read at most so much later. Beam's
        runner for Flink (2.70) keeps something of each turn: docs/beam.md says how long a
        job may read, and how it goes on.
    drain : bool
        Without end: read what is there, and then end, so that event time passes all windows. For
        the last run of a job, which goes on from its savepoint.
    idle_seconds : float, optional
        Without end, with "sample": a partition in which nothing came for so long is taken to be
        that long behind the clock. By default event time waits for every partition.
    privacy_unit : str
        "user" for rounds: dead letters and figures (`events`, `rejected_REASON`) are the
        operator's, as they tell how many samples someone sends and when, and event time is the
        clock. "sample", for agents alone, where that is public. Must be given where reading does
        not end; else it is "user".

    Examples
    --------
    >>> ReadKafka("kafka://127.0.0.1:9092/samples?gap=skip", ColumnMapping())
    Traceback (most recent call last):
    ValueError: gap must be 'refuse' on Beam (a range is read whole or not at all), got 'skip'
    """

    def __init__(
        self,
        location: str,
        mapping: ColumnMapping,
        *,
        ranges: Mapping[int, tuple[int, int]] | None = None,
        until_end: bool = True,
        secret: SecretLocation | None = None,
        batch_size: int = BATCH,
        max_future: float = MAX_FUTURE,
        turn: float | str = TURN_SECONDS,
        drain: bool = False,
        idle_seconds: float | None = None,
        privacy_unit: PrivacyUnit | None = None,
    ) -> None:
        super().__init__()
        rule = "be 'sample' for agents or 'user' for rounds, whose windows close by the clock, with until_end=False"
        require(
            until_end or ranges is not None or privacy_unit is not None,
            "privacy_unit",
            rule,
            privacy_unit,
        )
        privacy_unit = privacy_unit or "user"

        place = KafkaLocation.parse(location)
        rule = "be 'refuse' on Beam (a range is read whole or not at all)"
        require(place.gap == "refuse", "gap", rule, place.gap)
        require(
            ranges is None or place.partitions is None,
            "partitions",
            "be named once",
            place.partitions,
        )

        for partition, (start, stop) in (ranges or {}).items():
            ok = partition >= 0 <= start <= stop < UNBOUNDED
            require(
                ok,
                "ranges",
                "be offsets from low to high of each partition",
                (partition, start, stop),
            )

        require(batch_size >= 1, "batch_size", "be at least 1", batch_size)
        bounded = ranges is not None or until_end
        require(
            idle_seconds is None or not bounded,
            "idle_seconds",
            "be left out where reading ends",
            idle_seconds,
        )

        require(
            idle_seconds is None or idle_seconds > 0, "idle_seconds", "be positive", idle_seconds
        )
        rule = "be left out for rounds, whose event time is the clock"
        require(idle_seconds is None or privacy_unit != "user", "idle_seconds", rule, idle_seconds)
        require(
            privacy_unit in UNITS, "privacy_unit", f"be one of {', '.join(UNITS)}", privacy_unit
        )

        self._letter = dead_letter_kind_of_parse(privacy_unit)
        self._plan = PlanRanges(
            location, None if ranges is None else dict(ranges), until_end=until_end
        )
        seconds = as_seconds("turn", turn)
        require(
            1 <= seconds <= MOST_TURN_SECONDS, "turn", f"be in 1..{MOST_TURN_SECONDS:g} s", seconds
        )
        require(not (bounded and drain), "drain", "be left out where reading ends", drain)

        kind = ReadRange if bounded else partial(ReadPartition, turn=seconds, drain=drain)
        secret = None if not mapping.optional else secret or SecretLocation()
        self._read = kind(
            location, mapping, secret, batch_size, max_future, idle_seconds, privacy_unit
        )

    def expand(self, pbegin: Any) -> FromKafka:
        """Plan once, then read each partition.

        The first shuffle keeps the impulse a step of its own at every parallelism. With parallelism
        1 Flink would join it with the plan, give the two another id, and not find its state again
        after scaling.
        """
        begin = pbegin | "Begin" >> beam.Impulse() | "Apart" >> beam.Reshuffle()
        plan = beam.ParDo(self._plan).with_output_types(PartitionRange)
        ranges = begin | "Plan" >> plan | "Once" >> beam.Reshuffle()
        split = ranges | "Read" >> beam.ParDo(self._read).with_outputs(
            DEAD_LETTERS, main="samples"
        ).with_output_types(AgentBatch)
        split.samples.element_type = AgentBatch
        split[DEAD_LETTERS].element_type = self._letter

        return FromKafka(split.samples, split[DEAD_LETTERS])

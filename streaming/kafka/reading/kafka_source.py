"""Samples from a Kafka topic, at offsets that the store decides."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Self

from meanstream.streaming.events.event_columns import (
    SEPARATOR,
    Batch,
    Position,
    Rejects,
    SampleColumns,
    concatenate_columns,
    no_sample_columns,
)
from meanstream.streaming.kafka.claims.claims_directory import DirectoryBusyError, OwnAgents
from meanstream.streaming.kafka.connection.kafka_client import KafkaLostError
from meanstream.streaming.kafka.connection.kafka_location import KafkaLocation
from meanstream.streaming.kafka.connection.schema_registry import RegistryAwayError
from meanstream.streaming.kafka.connection.values import PartitionRecords
from meanstream.streaming.kafka.reading.kafka_messages import topic_parser
from meanstream.streaming.kafka.reading.kafka_reader import (
    BEHIND,
    BEHIND_SECONDS,
    CHUNK,
    FIRST_SECONDS,
    MORE_SECONDS,
    TopicReader,
)
from meanstream.streaming.kafka.reading.several_topics import TopicReaders
from meanstream.streaming.sources.lines import MAX_LINE_BYTES
from meanstream.streaming.sources.mapping import ColumnMapping
from meanstream.streaming.sources.source_protocol import AgentsOfStore, Opening, SourceLostError

logger = logging.getLogger("meanstream.kafka")

HELD_SECONDS = 0.5
"""So long after a registry did not answer it is queried again."""
GATHER_SECONDS = 1.0
"""So long records are gathered if they come faster than one can take them."""
PART = 16_384
"""So many records are taken and parsed at once: what is made of them stays in the processor's
cache."""


@dataclass(slots=True)
class _Gathered:
    """Private: what was taken since a position; of the last records no sample may be made yet."""

    before: Position
    records: PartitionRecords | None = None
    parts: list[SampleColumns] = field(default_factory=list)
    rejects: Rejects = field(default_factory=Rejects)


class KafkaSource:
    """Reads messages of a topic: committed records only, each once, from where the store stands.

    A value is a JSON object, or with `registry=` Avro or JSON of a schema that the registry knows;
    parts of a sample may stand next to it (`@key`, `@timestamp`, `@header.NAME`). Every record
    becomes a sample or a dead letter; an empty value and a tombstone are malformed. While the
    registry does not answer reading waits.

    A partition belongs to one store (`ownership`). An agent lives where the partition of its key is
    read: give several engines fixed sets of partitions, each with its own store. An engine may move
    to another machine together with its store. Partitions added to the topic are read too, unless
    the set is fixed: then the engine stops, because keys, hence agents, may have moved to
    partitions of another store; begun again it refuses these. A shard's set grows when it is begun
    again.

    Several topics are read side by side, whole, by one store; their name is all of theirs in order,
    and theirs are the numbers of `meanstream.streaming.events.event_columns`.

    Position: next offset of each partition, the id of the topic and the number of its partitions;
    of several, of each.

    Parameters
    ----------
    location : KafkaLocation
        Topic or topics, group, partitions, and what to do at the beginning and at gaps.
    mapping : ColumnMapping
        Which JSON field means what.
    owner : str, optional
        Public random id of the store. Without it connection, topic and rights are checked, but
        nothing can be read.
    name : str, optional
        Name of the deployment: another store of this name may not own a partition in any group.
    until_end : bool
        End where the partitions end when reading begins; otherwise wait for more.
    id_key : bytes
        Secret key of the hash of ids.
    max_record_bytes : int
        Larger values are skipped and reported.
    idle_seconds : float
        Event time waits for a partition whose end was reached so long ago at most. What a
        transaction that stands open has written is more to come.
    agents : AgentsOfStore, optional
        Agents that live in the store: with fixed partitions, those of other stores are refused
        (`directory`), with their samples or, of rounds, when the engine asks (`claim`).
    watch_seconds : float
        Time between two looks at the topic: for new partitions, and whether it was deleted and made
        again, which Kafka tells no one. What is read of the new one until then counts; then the
        engine stops.
    """

    watched = True
    """Its topic is read whatever is in it."""

    waits = True
    """`next_batch` waits for records itself."""

    @classmethod
    def open(cls, location: str, mapping: ColumnMapping, opening: Opening) -> Self:
        """Open a topic: it is there and may be read; no record is."""
        return cls(
            KafkaLocation.parse(location, several=True),
            mapping,
            owner=opening.owner,
            name=opening.name,
            until_end=opening.until_end,
            id_key=opening.id_key,
            max_record_bytes=opening.max_line_bytes,
            agents=opening.agents,
        )

    def __init__(
        self,
        location: KafkaLocation,
        mapping: ColumnMapping,
        *,
        owner: str | None = None,
        name: str | None = None,
        until_end: bool = False,
        id_key: bytes = b"",
        max_record_bytes: int = MAX_LINE_BYTES,
        idle_seconds: float = 5.0,
        watch_seconds: float = 10.0,
        agents: AgentsOfStore | None = None,
    ) -> None:
        self.name = location.topic
        self.bounded = until_end
        self.is_part = location.is_part
        self.by_registry = location.registry is not None
        self._idle_seconds = idle_seconds
        self._held: _Gathered | None = None  # what others must say something of
        self._problem: str | None = None
        self._parser = topic_parser(
            location, mapping, id_key=id_key, max_record_bytes=max_record_bytes
        )

        opened = partial(
            TopicReader,
            owner=owner,
            name=name,
            bounded=until_end,
            watch_seconds=watch_seconds,
            beside=self._parser.wanted,
            joins=self._parser.joins,
            read=self._parser.read_at_once,
            agents=agents,
        )

        # Several topics are read by a reader each, and merged.
        one = SEPARATOR not in location.topic
        self._reader: TopicReader | TopicReaders = (
            opened(location) if one else TopicReaders(location, opened)
        )
        self._homes: OwnAgents | None = None
        self._claims_at_once = agents is None or agents.at_once

        # Stores that share a topic must agree on which agent lives where.
        if agents is not None and owner is not None and location.is_part:
            self._homes = OwnAgents(location, owner, name, agents)

    def next_batch(self, max_samples: int) -> Batch:
        """Give the records that are there, or wait a moment for one."""
        # A bounded topic that was read to its end says so once more at each call.
        reader = self._reader
        nothing = no_sample_columns()
        try:
            if self.bounded and self._held is None and reader.done:
                position = self._position()
                lags = reader.lags()
                return Batch(
                    nothing, Rejects(), position, exhausted=True, active=(), lag=0, lags=lags
                )

            gathered = self._held or _Gathered(self._position())
        except (KafkaLostError, ValueError) as error:
            raise SourceLostError(str(error)) from None

        # Records that need an answer of others are kept, not lost, until there is one.
        try:
            self._gather(gathered, max_samples)
            samples = concatenate_columns(gathered.parts)
            rejects = gathered.rejects
            if self._homes is not None and self._claims_at_once:
                samples = self._homes.only_own(samples, rejects)
        except (RegistryAwayError, DirectoryBusyError) as error:
            return self._hold(gathered, str(error))

        self._held = None
        self._problem = None
        lags = reader.lags()
        active = reader.active(time.monotonic(), self._idle_seconds)

        return Batch(
            samples,
            rejects,
            self._position(),
            active=active,
            lag=sum(lags.values()),
            lags=lags,
            commit_age=reader.commit_age,
        )

    def _gather(self, gathered: _Gathered, most: int) -> None:
        """Take what is there and parse it, a part at a time.

        It is in the processor's cache then.
        """
        left = most
        first = FIRST_SECONDS

        # A part may still be held from a call in which the registry was away.
        end = math.inf
        self._parse(gathered)

        while left > 0 and gathered is not self._held:
            gathered.records = self._take(min(PART, left), first, more=left < most)
            taken = 0 if gathered.records is None else len(gathered.records.offset)
            self._parse(gathered)

            # A part that is not full tells that nothing more waits.
            if taken < CHUNK or time.monotonic() > end:
                break
            end = min(
                end, time.monotonic() + GATHER_SECONDS
            )  # the first part may have waited, and takes longer
            left -= taken
            first = BEHIND_SECONDS if most - left >= BEHIND else MORE_SECONDS

    def _take(self, count: int, first: float, *, more: bool) -> PartitionRecords | None:
        try:
            if more and self._reader.done:
                return None
            return self._reader.take(count, first, more=more)
        except (KafkaLostError, ValueError) as error:
            raise SourceLostError(str(error)) from None

    def _parse(self, gathered: _Gathered) -> None:
        """Parse what was taken last."""
        # A part counts as parsed only once all of it could be: rejects are noted together with it.
        if gathered.records is not None:
            rejects = Rejects()  # none of them is noted if the registry is away
            gathered.parts.append(self._parser.parse(gathered.records, rejects))
            gathered.rejects.extend(rejects)
            gathered.records = None

    def _hold(self, gathered: _Gathered, problem: str) -> Batch:
        """Keep records that no one can read now, as if they were not taken.

        Event time waits for them.
        """
        # Say once why nothing is read; the log must not repeat it every turn.
        if self._problem is None:
            logger.warning("reading %r waits: %s", self.name, problem)

        self._held = gathered
        self._problem = problem

        # The client drops what it would fetch meanwhile, so memory stays bounded.
        self._reader.rest()
        time.sleep(HELD_SECONDS)
        lags = self._reader.lags()
        active = self._reader.partitions
        nothing = no_sample_columns()

        return Batch(
            nothing, Rejects(), gathered.before, active=active, lag=sum(lags.values()), lags=lags
        )

    def _position(self) -> Position:
        """Tell offsets, and which ids had a schema.

        These are requested after a restart, whatever ids come before.
        """
        # Ids that had a schema are part of the position: a restart must not ask for them again.
        known = None if self._parser.registry is None else sorted(self._parser.registry.familiar)
        return {**self._reader.position(), **({"schemas": known} if known else {})}

    def elsewhere(self, names: Collection[str]) -> set[str]:
        """Say which agents live in another store that reads this topic."""
        if self._homes is None:
            return set()
        return self._homes.elsewhere(names)

    def claim(self, names: Sequence[str], *, patient: bool) -> set[str] | None:
        """Let users live in the store who live in none yet.

        Say who lives in another, None if no one can say now.
        """
        if self._homes is None:
            return set()

        try:
            found = self._homes.claim(names, patient=patient)
        except DirectoryBusyError as error:
            # Windows wait, and the run goes on: the directory is asked again at the next turn.
            if self._problem is None:
                logger.warning("windows of %r wait: %s", self.name, error)

            self._problem = str(error)
            return None
        except ValueError as error:
            raise SourceLostError(str(error)) from None

        self._problem = None
        return found

    def begin(self) -> None:
        """Own the partitions and find where to begin, for a store without a position.

        The first batch does too.
        """
        _ = self._reader.done
        if self._homes is not None:
            self._homes.begin()

    def restore(self, position: Position) -> None:
        """Continue at the offsets of the store."""
        if position.get("topic") != self.name:
            raise ValueError(
                f"source must be the topic that this store was filled from, got {self.name!r}"
            )

        # Ids of schemas that were known stay known, so that a replay rejects the same records.
        if self._parser.registry is not None:
            self._parser.registry.familiar.update(position.get("schemas", ()))

        self._reader.begin(position)
        if self._homes is not None:
            self._homes.begin()

    def hold(self) -> bool:
        """Read on to where the partitions end now, and no further.

        False if no broker says where.
        """
        try:
            return self._reader.hold()
        except (KafkaLostError, ValueError) as error:
            raise SourceLostError(str(error)) from None

    def reached_hold(self) -> bool:
        """Say whether all of that was given out."""
        return self._held is None and self._reader.reached_hold()

    def go_on(self) -> None:
        """Read what has come since, too."""
        self._reader.go_on()

    def close(self) -> None:
        """Let go of the brokers.

        The last offsets for lag tools are committed if a broker answers.
        """
        self._reader.close()
        if self._homes is not None:
            self._homes.close()

    def commit(self, position: Position) -> None:
        """Tell lag tools what the store has committed.

        Best effort, without waiting, once a second at most.
        """
        self._reader.commit(position)

    def rest(self) -> None:
        """Take nothing for a while, in bounded memory; about once a second."""
        self._reader.rest()

    @property
    def client(self) -> str:
        """Name of the option that named the topic."""
        return self._reader.role

    def connection_problem(self) -> str | None:
        """Say why no broker answers, or the registry does not; or None."""
        return self._reader.problem() or self._problem

    @property
    def cluster(self) -> str:
        """Id of the cluster, which stays when brokers change their addresses."""
        return self._reader.cluster

    @property
    def skipped(self) -> int:
        """Offsets that retention took away before they were read (`gap=skip`)."""
        return self._reader.skipped

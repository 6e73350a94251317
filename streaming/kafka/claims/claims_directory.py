"""In which store each agent of a topic lives, told by all stores that read it, so that none is released by two.

A store that reads some of the partitions claims an agent with its first sample, in a compacted
topic of one partition next to the samples: the first claim in the log stands, anyone who wrote it.
When an agent's key moves to a partition of another store, that store finds the claim and does not
take the samples.

Only the claims of stores that belong together count: of one group, or of one name.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import msgspec
import numpy as np

from meanstream.streaming.events.encode import UNREADABLE
from meanstream.streaming.events.event_columns import Rejects, SampleColumns
from meanstream.streaming.kafka.connection.kafka_client import (
    KafkaException,
    TopicPartition,
    make_client_admin,
    make_client_consumer,
    make_client_producer,
)
from meanstream.streaming.kafka.connection.kafka_location import KafkaLocation
from meanstream.streaming.kafka.connection.kafka_topics import ensure_topic
from meanstream.streaming.sources.source_protocol import AgentsOfStore

ANSWER_SECONDS = 5.0
CONFIG = {"cleanup.policy": "compact"}
VERSION = 1


class _Claim(msgspec.Struct):
    schema_version: int
    agent: str
    store: str
    group: str
    name: str | None
    move: int


_CLAIM = msgspec.json.Decoder(_Claim)


class DirectoryBusyError(RuntimeError):
    """No one answers just now."""


@dataclass(frozen=True, slots=True)
class _Home:
    store: str
    move: int


def _directory_topic(samples: str) -> str:
    """Name the topic of claims next to a topic of samples.

    Examples
    --------
    >>> _directory_topic("delays")
    'delays.meanstream-agents'
    """
    return f"{samples}.meanstream-agents"


class AgentClaims:
    """Claims agents for a store, and says which live in another.

    Parameters
    ----------
    location : KafkaLocation
        The topic of samples.
    owner : str
        Public id of the store.
    name : str or None
        Name of the deployment.
    agents : AgentsOfStore
        Those that live in the store already, or did once.

    Notes
    -----
    **Privacy.** A claim says that an agent has sent a sample that is valid in form, and which store
    it lives in: both are public of agents. Of rounds who has sent something is protected until a
    window has ended: a user is claimed when it takes part in its first one, which is public then,
    in the order of reports.
    """

    def __init__(
        self, location: KafkaLocation, owner: str, name: str | None, agents: AgentsOfStore
    ) -> None:
        claims_location = replace(
            location, topic=_directory_topic(location.topic), create=1, partitions=None
        )
        self._group = location.group
        self._owner = owner
        self._name = name
        self._agents = agents
        self._topic = claims_location.topic
        admin = make_client_admin(claims_location)
        ensure_topic(admin, claims_location, config=CONFIG)

        self._homes: dict[str, _Home] = {}
        self._claims = 0
        self._next = 0
        self._consumer = make_client_consumer(
            claims_location, wait=False, enable_partition_eof=True, auto_offset_reset="earliest"
        )
        self._consumer.assign([TopicPartition(self._topic, 0, 0)])
        self._producer = make_client_producer(claims_location, wait=False)

    def elsewhere(self, names: Collection[str]) -> set[str]:
        """Say which agents live in another store; nothing is claimed."""
        self._read()
        return {name for name in names if self._is_elsewhere(name)}

    def claim_own(self) -> None:
        """Claim the agents that live in the store already.

        Those that it was given, from the store that had them.
        """
        self._read()
        moves = self._agents.moves
        own = [name for name in self._agents.names if name not in self._agents.given]
        self._write(
            [
                name
                for name in own
                if (home := self._homes.get(name)) is None or home.move < moves.get(name, 0)
            ]
        )

    def claim(self, names: Sequence[str]) -> set[str]:
        """Claim agents that have sent something, but those that live elsewhere already.

        Say which these are.
        """
        new = [name for name in names if name not in self._homes and name not in self._agents.given]
        if new:
            self._write(new)

        return {name for name in names if self._is_elsewhere(name)}

    def known(self, names: Collection[str]) -> set[str]:
        """Say which agents someone has claimed, as far as it is known here."""
        return {name for name in names if name in self._homes or name in self._agents.given}

    @property
    def room(self) -> int:
        """How many more agents may be claimed."""
        return max(self._agents.most - self._claims, 0)

    def close(self) -> None:
        """Let go of the brokers."""
        self._consumer.close()
        self._producer.close()

    def _is_elsewhere(self, name: str) -> bool:
        home = self._homes.get(name)
        return name in self._agents.given or (home is not None and home.store != self._owner)

    def _write(self, names: Sequence[str]) -> None:
        """Write claims, and read on until all of them have come back.

        What stands before one of them is known then.
        """
        for name in names:
            claim = _Claim(
                VERSION, name, self._owner, self._group, self._name, self._agents.moves.get(name, 0)
            )
            while True:
                try:
                    self._producer.produce(
                        self._topic, msgspec.json.encode(claim), f"{self._owner}/{name}", 0
                    )
                    break
                except BufferError:
                    self._producer.poll(0.1)

        if self._producer.flush(ANSWER_SECONDS):
            raise DirectoryBusyError(f"claims of agents are not written to {self._topic!r}")
        self._read()

    def _read(self) -> None:
        """Take all claims that are there."""
        deadline = time.monotonic() + ANSWER_SECONDS
        try:
            _, end = self._consumer.get_watermark_offsets(
                TopicPartition(self._topic, 0), timeout=ANSWER_SECONDS
            )
            while self._next < end:
                for message in self._consumer.consume(10_000, 0.1):
                    if message.error() is None:
                        self._take(message.value())
                        deadline = time.monotonic() + ANSWER_SECONDS

                (next_place,) = self._consumer.position([TopicPartition(self._topic, 0)])
                self._next = max(self._next, next_place.offset)

                if time.monotonic() > deadline:
                    raise DirectoryBusyError(f"claims of agents are not read from {self._topic!r}")
        except KafkaException as error:
            raise DirectoryBusyError(str(error.args[0])) from None

    def _take(self, value: bytes | None) -> None:
        """Take a claim, in the order of the log; what is none, or of strangers, changes nothing."""
        try:
            claim = _CLAIM.decode(value or b"")
        except UNREADABLE:
            return

        related = claim.group == self._group or (
            claim.name is not None and claim.name == self._name
        )
        if claim.schema_version != VERSION or not related:
            return

        self._claims += claim.store == self._owner
        home = self._homes.get(claim.agent)
        if home is None or claim.move > home.move:
            self._homes[claim.agent] = _Home(claim.store, claim.move)


START_SECONDS = 30.0
_UNKNOWN, _OWN, _ELSEWHERE, _NO_ROOM = range(4)
_REASONS = {_ELSEWHERE: "other_store", _NO_ROOM: "too_many_agents"}

Answer = TypeVar("Answer")


class OwnAgents:
    """Asks the directory once for each agent; opened when it is queried first."""

    def __init__(
        self, location: KafkaLocation, owner: str, name: str | None, agents: AgentsOfStore
    ) -> None:
        self._parameters = location, owner, name, agents
        self._directory: AgentClaims | None = None
        self._names: list[str] = []
        self._fate = np.zeros(0, np.int8)  # by the code of the source's list of names

    def begin(self) -> None:
        """Claim what lives in the store."""
        _patiently(lambda: self._opened().claim_own())

    def elsewhere(self, names: Collection[str]) -> set[str]:
        """Say which agents live in another store."""
        if names:
            return _patiently(lambda: self._opened().elsewhere(names))
        return set()

    def claim(self, names: Sequence[str], *, patient: bool) -> set[str]:
        """Claim for the store who is claimed by none, in this order.

        Say who lives elsewhere or has no room.
        """
        if patient:
            return _patiently(lambda: self._claim(names))
        return self._claim(names)

    def only_own(self, samples: SampleColumns, rejects: Rejects) -> SampleColumns:
        """Leave out the samples of agents that live elsewhere, and of those for whom there is no room."""
        if samples.names is not self._names:
            self._names = samples.names
            self._fate = np.zeros(0, np.int8)

        missing = len(samples.names) - len(self._fate)
        self._fate = np.concatenate([self._fate, np.full(missing, _UNKNOWN, np.int8)])
        self._ask(np.unique(samples.agent[self._fate[samples.agent] == _UNKNOWN]).tolist())
        fate = self._fate[samples.agent]

        if (fate == _OWN).all():
            return samples

        for kind, reason in _REASONS.items():
            rejects.add_many(reason, samples.position[fate == kind])

        return samples.take(fate == _OWN)

    def close(self) -> None:
        """Let go of the brokers."""
        if self._directory is not None:
            self._directory.close()

    def _ask(self, codes: list[int]) -> None:
        if not codes:
            return
        names = {self._names[code]: code for code in codes}
        elsewhere, without_room = self._claimed(list(names))
        for name, code in names.items():
            self._fate[code] = _ELSEWHERE if name in elsewhere else _OWN

        for name in without_room:
            self._fate[names[name]] = _NO_ROOM

    def _claim(self, names: Sequence[str]) -> set[str]:
        elsewhere, without_room = self._claimed(names)
        return elsewhere.union(without_room)

    def _claimed(self, names: Sequence[str]) -> tuple[set[str], Sequence[str]]:
        """Claim those for whom there is room; give who lives elsewhere, and for whom there is none."""
        directory = self._opened()
        claimed = directory.known(names)
        room = directory.room
        new = [name for name in names if name not in claimed]

        return directory.claim([*claimed, *new[:room]]), new[room:]

    def _opened(self) -> AgentClaims:
        if self._directory is None:
            self._directory = AgentClaims(*self._parameters)

        return self._directory


def _patiently(ask: Callable[[], Answer]) -> Answer:
    """Ask until someone answers, for a while."""
    end = time.monotonic() + START_SECONDS
    while True:
        try:
            return ask()
        except DirectoryBusyError as error:
            if time.monotonic() > end:
                raise ValueError(
                    f"source must have a topic of claims that answers, got {error}"
                ) from None

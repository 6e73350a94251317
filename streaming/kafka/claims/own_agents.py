"""Of samples of a shared topic those of the store's own agents."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from typing import TypeVar

import numpy as np

from meanstream.streaming.events.event_columns import Rejects, SampleColumns
from meanstream.streaming.kafka.claims.claims_directory import AgentClaims, DirectoryBusyError
from meanstream.streaming.kafka.connection.kafka_location import KafkaLocation
from meanstream.streaming.sources.source_protocol import AgentsOfStore

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
        directory = self._opened()
        names = {self._names[code]: code for code in codes}
        known = directory.known(names)
        room = directory.room
        new = [name for name in names if name not in known]
        elsewhere = directory.claim([*known, *new[:room]])

        for name, code in names.items():
            self._fate[code] = _ELSEWHERE if name in elsewhere else _OWN

        for name in new[room:]:
            self._fate[names[name]] = _NO_ROOM

    def _claim(self, names: Sequence[str]) -> set[str]:
        directory = self._opened()
        known = directory.known(names)
        room = directory.room
        new = [name for name in names if name not in known]

        return directory.claim([*known, *new[:room]]) | set(new[room:])

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

"""Features of an engine: each keeps its own part of the state, and one commit has them all."""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, Protocol

from meanstream.streaming.crash import CrashPoint, crash_step
from meanstream.streaming.engine.engine_delivery import CommittedDelivery, DueAnswers, Outbox
from meanstream.streaming.engine.engine_intake import Intake
from meanstream.streaming.engine.engine_loop import EngineLoop, Stats, Taken
from meanstream.streaming.engine.engine_stats import EngineStats
from meanstream.streaming.engine.own_events import OwnEvents
from meanstream.streaming.events.base import Event
from meanstream.streaming.events.encode import EventLines
from meanstream.streaming.events.event_columns import Position, Rejects
from meanstream.streaming.sinks.sink_protocol import Sinks
from meanstream.streaming.sources.source_protocol import let_source_rest
from meanstream.streaming.store.spend_ledger import LedgerRows
from meanstream.streaming.store.state_snapshot import Columns
from meanstream.streaming.store.state_store import Store


@dataclass(slots=True)
class Commit(Generic[Taken]):
    """What one transaction is about.

    Attributes
    ----------
    taken
        What the watermark has made of the batches since the last commit.
    rejects : Rejects
        Records that were not used.
    rows : LedgerRows
        What asks to be charged.
    ended : bool
        Whether a bounded source has ended.
    refused : sequence of int
        Which of the rows were refused; known once they are charged.
    """

    taken: Taken
    rejects: Rejects
    rows: LedgerRows
    ended: bool
    refused: Sequence[int] = ()


class Keeper(Generic[Taken]):
    """A feature of an engine; by default it keeps nothing.

    An engine lists its keepers, and their order is the order of their effects. What `note`, `save`
    and `post` write is in one transaction with the charges, which come before `post`: nothing
    leaves that was not paid for.
    """

    def restore(self, store: Store, state: Mapping[str, Any]) -> None:
        """Go on from the last commit."""

    def begin(self) -> dict[str, Any]:
        """Bring the statistics up to date; give what the log says of the beginning."""
        return {}

    def note(self, store: Store, commit: Commit[Taken]) -> dict[str, Any]:  # noqa: ARG002 - by default nothing
        """Give what the engine's state says of it, and write what belongs to the position."""
        return {}

    def save(self, store: Store) -> None:
        """Write the columns that changed."""

    def post(self, commit: Commit[Taken]) -> Iterable[EventLines]:  # noqa: ARG002
        """Give the events that leave after the commit."""
        return ()

    def count(self, commit: Commit[Taken]) -> None:
        """Count what was committed; a transaction that failed must write the same again."""


class Pieces(Protocol):
    """State in numbered pieces, each written once."""

    def restore(self, number: int, columns: Columns) -> None:
        """Put a piece back."""

    def changes(self) -> tuple[Mapping[int, Columns], Sequence[int]]:
        """Give new pieces, and the numbers of those to drop, since the last call."""


class PiecesKeeper(Keeper[Any]):
    """Keeps pieces as chunks of one kind."""

    def __init__(self, kind: str, pieces: Pieces) -> None:
        self._kind = kind
        self._pieces = pieces

    def restore(self, store: Store, state: Mapping[str, Any]) -> None:  # noqa: ARG002
        """Put all pieces back."""
        for number, columns in store.chunks(self._kind):
            self._pieces.restore(number, columns)

    def save(self, store: Store) -> None:
        """Write new pieces and drop old ones."""
        new, dropped = self._pieces.changes()
        for number, columns in new.items():
            store.put_chunk(self._kind, number, columns)

        store.drop_chunks(self._kind, dropped)


class IntakeKeeper(Keeper[Any]):
    """Keeps what waits for event time, and the names of all agents."""

    def __init__(self, intake: Intake, stats: EngineStats) -> None:
        self._intake = intake
        self._stats = stats
        self._saved_agents = 0

    def restore(self, store: Store, state: Mapping[str, Any]) -> None:
        """Go on with what waits."""
        self._intake.restore(store, state["intake"])

    def begin(self) -> dict[str, Any]:
        """Count the agents, of which logs of rounds say nothing."""
        self._stats.agents = self._saved_agents = len(self._intake.names)
        return {}

    def note(self, store: Store, commit: Commit[Any]) -> dict[str, Any]:  # noqa: ARG002
        """Write new names and samples."""
        return {"intake": self._intake.save(store, self._saved_agents)}

    def count(self, commit: Commit[Any]) -> None:  # noqa: ARG002
        """Know which names are saved."""
        self._saved_agents = len(self._intake.names)


class EndKeeper(Keeper[Any]):
    """Keeps whether the source has ended, which `EngineLoop.resume` reads."""

    def note(self, store: Store, commit: Commit[Any]) -> dict[str, Any]:  # noqa: ARG002
        """Say so."""
        return {"ended": commit.ended}


class KeptEngine(EngineLoop[Stats, Taken]):
    """The commit of an engine that lists its keepers."""

    keepers: Sequence[Keeper[Taken]] = ()

    @abstractmethod
    def _charges(self, taken: Taken) -> LedgerRows:
        """Write what asks to be charged as it will leave the process."""

    def _delivery_to(
        self,
        sinks: Sinks,
        outbox: Outbox,
        charged: tuple[type[Event], str],
        answers: Collection[OwnEvents],
        due: DueAnswers | None = None,
    ) -> CommittedDelivery:
        """Make the delivery of what this engine commits; `charged` events go to the sink of a role."""
        kind, role = charged

        return CommittedDelivery(
            store=self._store,
            sinks=sinks,
            stats=self.stats,
            clock=self._clock,
            health=self.health,
            crash=self._crash,
            meanwhile=partial(let_source_rest, self._source),
            charged=kind,
            charged_role=role,
            outbox=outbox,
            answers=answers,
            due=due,
        )

    def _restore(self, state: dict[str, Any]) -> None:
        for keeper in self.keepers:
            keeper.restore(self._store, state)

    def _begun(self) -> dict[str, Any]:
        begun: dict[str, Any] = {}
        for keeper in self.keepers:
            begun |= keeper.begin()

        return begun

    def _commit(self, position: Position, taken: Taken, rejects: Rejects, *, ended: bool) -> None:
        began = time.perf_counter()
        store = self._store
        commit = Commit(taken, rejects, self._charges(taken), ended)

        # All or nothing: position, state, charges and events are in one transaction.
        with store.transaction():
            with crash_step(CrashPoint.SAVE_POSITION, self._crash):
                self._save_position(position, commit)

            with crash_step(CrashPoint.SAVE_SNAPSHOT, self._crash):
                for keeper in self.keepers:
                    keeper.save(store)

            # The charge is committed with what it is for: none leaves unless it was paid for.
            with crash_step(CrashPoint.CHARGE_LEDGER, self._crash):
                self.delivery.require_same(commit.rows.output)
                commit.refused = store.ledger.charge(commit.rows)

            with crash_step(CrashPoint.FILL_OUTBOX, self._crash):
                for keeper in self.keepers:
                    for events in keeper.post(commit):
                        store.post(events.kind.topic, events.lines)

        for keeper in self.keepers:
            keeper.count(commit)

        self.stats.commits += 1
        self.stats.commit_seconds = time.perf_counter() - began

    def _save_position(self, position: Position, commit: Commit[Taken]) -> None:
        """Save where the source goes on, what the keepers note, and what is delivered."""
        self._positions[self._source.name] = position
        state: dict[str, Any] = {"positions": self._positions}
        for keeper in self.keepers:
            state |= keeper.note(self._store, commit)

        self._store.put_state(self.state_name, state)
        self._save_history()
        self.delivery.save()

"""Engines with a defect that costs events or privacy when they are killed: known-bad twins, which
tests must catch.

Each function spoils the process that calls it.
"""

from __future__ import annotations

import os
from typing import Any

from meanstream.streaming.agents.agents_engine import Engine
from meanstream.streaming.agents.agents_releases import release_rows
from meanstream.streaming.engine.engine_delivery import CommittedDelivery
from meanstream.streaming.events.encode import EventLines
from meanstream.streaming.events.wire import Release
from meanstream.streaming.kafka.writing.kafka_transaction import KafkaTransaction
from meanstream.streaming.sinks.sink_protocol import Sinks
from meanstream.streaming.store import deployment_store as deployment


def notes_before_flush() -> None:
    """Take for delivered what was only handed over."""
    deliver, flush = CommittedDelivery._deliver, Sinks.flush
    current: list[CommittedDelivery] = []

    def remember(self: CommittedDelivery, *arguments: Any, **named: Any) -> None:
        current[:] = [self]
        deliver(self, *arguments, **named)

    def note_and_flush(self: Sinks) -> None:
        store, note = current[0]._store, current[0]._note()
        outbox = max((row[0] for row in store.outbox()), default=note["outbox"])
        with store.transaction():
            store.put_state("delivered", {**note, "ledger": store.ledger.last(), "outbox": outbox})
        flush(self)

    CommittedDelivery._deliver = remember  # type: ignore[method-assign]
    Sinks.flush = note_and_flush  # type: ignore[method-assign]


def redraws_noise() -> None:
    """Draw noise anew in each process."""
    noise = deployment.noise_from_secret
    deployment.noise_from_secret = lambda secret, name: noise(secret + os.urandom(16), name)


def releases_before_charging() -> None:
    """Let a release out before it is in the ledger."""
    commit = Engine._commit

    def release_and_commit(
        self: Engine, position: Any, released: Any, *arguments: Any, **named: Any
    ) -> None:
        rows = release_rows(released, self._intake.names, self._settings)
        sinks = self.delivery._sinks
        sinks.write("releases", EventLines(Release, rows.output))
        sinks.flush()
        commit(self, position, released, *arguments, **named)

    Engine._commit = release_and_commit  # type: ignore[method-assign]
    CommittedDelivery._write_charged = lambda self: self._store.ledger.last()  # type: ignore[method-assign]


def forgets_the_marker() -> None:
    """Write a delivery again without asking whether it is there."""

    def ready(self: KafkaTransaction) -> None:
        if self._writer is None:
            self._delivery = self._start().delivery

    KafkaTransaction._ready = ready  # type: ignore[method-assign]

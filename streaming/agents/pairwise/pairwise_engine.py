"""The engine of agents that query each other.

What each receives is charged before its estimate leaves.
"""

from __future__ import annotations

import math
import time
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from meanstream.operators.rings import ring_module
from meanstream.streaming.agents.agents_delivery import OWN_ANSWERS, Delivery
from meanstream.streaming.agents.agents_engine import Engine
from meanstream.streaming.agents.agents_releases import release_dead_letter_lines
from meanstream.streaming.agents.pairwise.pairs_picture import pairs_picture
from meanstream.streaming.agents.pairwise.pairwise_estimates import DuePairwiseEstimates
from meanstream.streaming.crash import CrashPoint, crash_step
from meanstream.streaming.engine.own_events import Key, OwnEvents
from meanstream.streaming.events.encode import encode_columns_as_lines
from meanstream.streaming.events.event_columns import Position, Rejects
from meanstream.streaming.events.release_ids import release_ids
from meanstream.streaming.events.times import iso_time, iso_times, known_time
from meanstream.streaming.events.wire import PairRelease
from meanstream.streaming.sinks.sink_group import Sinks
from meanstream.streaming.store.database import StoreError
from meanstream.streaming.store.spend_ledger import LedgerRows
from meanstream.streaming.store.state_store import Store

KINDS = ("pairwise agents", "pairs")
"""Kinds of the chunks of what agents know."""


class PairwiseEngine(Engine):
    """Reads samples, lets each agent query one other at each of them, and lets estimates out.

    As `Engine`, it commits a turn before anything of it leaves, and continues from the last commit.
    A release goes from one agent to another inside the process: the ledger keeps it, and no sink
    has it.

    Parameters
    ----------
    pairs : PairwiseStreamSettings
        Of `meanstream.lab.papers.colme`.
    options : EngineOptions
        `max_agents` is the capacity of the federation.
    partners_file : Path, optional
        Where the graph of partners comes from, so that whoever answers from the store finds it.
    **more
        As for `Engine`.

    Notes
    -----
    **Privacy.** What leaves is the estimate of an agent, for that agent only: a function of its own samples and of what
    it received. Who queried whom, and how many releases there were, depends on values under restricted_round_robin:
    both stay in the store and in private figures.
    """

    def __init__(self, *, pairs: Any, partners_file: Path | None = None, **more: Any) -> None:
        # The engine of agents, with pairs in the place of its releases.
        self._pairs = pairs
        self._partners_file = partners_file
        super().__init__(settings=pairs.release, **more)
        kind = ring_module("lab.papers.colme.pairwise_stream").PairwiseStream
        self.stream: Any = kind(pairs, more["noise"], capacity=self._options.max_agents)
        self.agents = self.stream
        self.stats.look_ahead = None

        # Who queried whom depends on values under the other schedule, and is on no page.
        if pairs.schedule == "round_robin":
            self.stats.pairs_picture = partial(pairs_picture, self.stream)

    def _make_delivery(self, sinks: Sinks, **more: Any) -> Delivery:
        due = DuePairwiseEstimates(self._pairs, self._options, self._partners_file)
        return super()._make_delivery(
            sinks, due=due, charged=PairRelease, answers=PAIRWISE_ANSWERS, **more
        )

    def _restore(self, state: dict[str, Any]) -> None:
        self._intake.restore(self._store, state["intake"])

        restore_pairs(self._store, self.stream, self._intake.names)
        self._event_time = -math.inf if state["event_time"] is None else state["event_time"]
        self._by_clock = bool(state["by_clock"])

    def _begun(self) -> dict[str, Any]:
        self.stats.agents = self._saved_agents = len(self._intake.names)
        self._note_waiting(released=True)
        return {"agents": self.stats.agents, "event_time": iso_time(self._event_time)}

    def _update(self, active: tuple[int, ...], rejects: Rejects, *, ended: bool) -> list[Any]:  # noqa: ARG002
        due = self._intake.due(active, ended=ended and self._options.drain)
        made = []

        # The watermark orders samples; each may make its agent query others.
        if len(due.time):
            made = [self.stream.take(due.agent, due.value, due.time, self._intake.names)]
            self._event_time = float(due.time[-1])
            self._by_clock = False

        self._note_waiting(released=True)
        return made

    def _commit(
        self, position: Position, taken: list[Any], rejects: Rejects, *, ended: bool
    ) -> None:
        began = time.perf_counter()

        # Rows of the ledger are what agents told their readers.
        store = self._store
        names = self._intake.names
        rows = pair_rows(
            taken, names, self._pairs.release, released=self._pairs.variance == "released"
        )

        with store.transaction():
            with crash_step(CrashPoint.SAVE_POSITION, self._crash):
                self._save_pairs_state(position, ended=ended)

            with crash_step(CrashPoint.SAVE_SNAPSHOT, self._crash):
                for kind, chunk, columns in self.stream.changes():
                    store.put_chunk(kind, chunk, columns)

            # Charges first, as everywhere.
            with crash_step(CrashPoint.CHARGE_LEDGER, self._crash):
                if store.ledger.charge(rows):  # cannot be: pairs and ledger are committed together
                    raise StoreError(
                        f"store must have the pairs of its ledger, got {str(store.path)!r}: it was changed"
                    )

            with crash_step(CrashPoint.FILL_OUTBOX, self._crash):
                letters = release_dead_letter_lines(self._letters.admit(rejects), self._source.name)
                store.post(letters.kind.topic, letters.lines)
                self._unused.save(rejects)

        self._saved_agents = len(names)
        self.stats.messages += len(rows)

        # What readers could learn is public: messages, and samples for each partner.
        self.stats.samples_per_partner = self.stream.samples_per_partner()
        self.stats.rejected.update(rejects.reason)
        self.stats.commits += 1
        self.stats.commit_seconds = time.perf_counter() - began

    def _save_pairs_state(self, position: Position, *, ended: bool) -> None:
        self._positions[self._source.name] = position
        state: dict[str, Any] = {
            "positions": self._positions,
            "intake": self._intake.save(self._store, self._saved_agents),
            "ended": ended,
            "event_time": known_time(self._event_time),
            "by_clock": self._by_clock,
        }
        self._store.put_state("engine", state)
        self._save_history()
        self.delivery.save()


def restore_pairs(store: Store, stream: Any, names: list[str]) -> None:
    """Fill a `PairwiseStream` with what the last commit saved."""
    for kind in KINDS:
        for chunk, columns in store.chunks(kind):
            stream.restore(kind, chunk, columns)

    stream.restored(names)


def pair_rows(batches: list[Any], names: list[str], release: Any, *, released: bool) -> LedgerRows:
    """Write what agents released to their readers, as ledger rows.

    With variances, where these are released.
    """
    # One column for each field, over all batches.
    columns: dict[str, Any] = {
        name: np.concatenate([np.zeros(0, kind), *[getattr(one, name) for one in batches]])
        for name, kind in (
            *dict.fromkeys(
                ("agent", "reader", "index", "charge", "count", "total"), np.int64
            ).items(),
            *dict.fromkeys(("mean", "noise_variance", "variance", "time"), np.float64).items(),
            ("version", np.uint64),
        )
    }
    agent, reader, index = (columns[name].tolist() for name in ("agent", "reader", "index"))
    fields: dict[str, Any] = {
        "release_id": pair_release_ids(names, agent, reader, index, deployment=release.name),
        "agent": [names[a] for a in agent],
        "reader": [names[r] for r in reader],
        "index": index,
        "time": iso_times(columns["time"]),
        "n": columns["count"].tolist(),
        "total": columns["total"].tolist(),
        "mean": columns["mean"].tolist(),
        "noise_variance": columns["noise_variance"].tolist(),
    }

    # A variance is only written where it was released, and where it is known.
    if released:
        finite = np.isfinite(columns["variance"])
        fields["variance"] = [
            v if ok else None for v, ok in zip(columns["variance"].tolist(), finite, strict=True)
        ]

    privacy = {
        "epsilon": float(release.epsilon),
        "delta": float(release.delta),
        "mode": release.mode,
    }

    return LedgerRows(
        agent=agent,
        release_index=columns["charge"].tolist(),
        input_version=columns["version"].view(np.int64).tolist(),
        time=columns["time"].tolist(),
        output=list(encode_columns_as_lines(PairRelease, fields, privacy).lines),
    )


def pair_release_ids(
    names: list[str],
    agent: list[int],
    reader: list[int],
    index: list[int],
    *,
    deployment: str | None,
) -> list[str]:
    """Give the ids of releases.

    Deployment, who was queried, who queried, which release of the one to the other it is.

    Examples
    --------
    >>> pair_release_ids(["tail 7", "N14228"], [0], [1], [3], deployment="pairs")
    ['pairs/tail%207:N14228:3']
    """
    # The id names both: who told, and who was told.
    first = [
        one.removesuffix(":0")
        for one in release_ids(names, agent, [0] * len(agent), deployment=deployment)
    ]

    return [
        f"{one}:{other}"
        for one, other in zip(first, release_ids(names, reader, index), strict=True)
    ]


def _knows_estimates(store: Store, since: int, keys: set[Key]) -> bool:  # noqa: ARG001 - not in the ledger
    """Compare with the last commit.

    Estimates are written after it, and written again of it after a crash.
    """
    # A place of answers may be ahead of the store only by what the store knows.
    numbers = [np.zeros(0, np.int64)]
    counts = [np.zeros(0, np.int64)]
    for _, columns in store.chunks(KINDS[0]):
        numbers.append(columns["agent"] - 1)
        counts.append(columns["count"])

    agent = np.concatenate(numbers)
    count = np.concatenate(counts)
    names = store.agents()
    known = {names[a]: n for a, n in zip(agent.tolist(), count.tolist(), strict=True) if a >= 0}
    state = store.state("engine")
    time = (
        -math.inf
        if state is None or state["event_time"] is None
        else round(state["event_time"], 6) + 1e-6
    )

    return all(at <= time and n <= known.get(agent, 0) for at, agent, n in keys)


_ESTIMATES = next(one for one in OWN_ANSWERS if one.role == "estimates")
PAIRWISE_ANSWERS = (
    OwnEvents(
        role=_ESTIMATES.role,
        option=_ESTIMATES.option,
        key=_ESTIMATES.key,
        knows=_knows_estimates,
        named=False,
    ),
)
"""Of the sinks of agents that query each other."""

"""Frames with a ledger.

The engine itself reads the frame, on a store that charges each release before it is given.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from meanstream.operators.agents.admission import COUNTS, Fates
from meanstream.operators.agents.agents import Agents, ReleaseBatch
from meanstream.operators.agents.agents_settings import AgentsSettings
from meanstream.operators.agents.released_rows import with_noise_terms
from meanstream.operators.agents.vote_of_spread import BY_CONTENT
from meanstream.operators.records import Ints, Words
from meanstream.operators.validation import require
from meanstream.pipelines.frames.frame_columns import FrameSamples
from meanstream.pipelines.frames.frame_pairs import (
    content_order,
    frame_pairs,
    pairs_of_agents,
    row_digests,
)
from meanstream.pipelines.frames.frame_releases import FrameReleases, LedgerCharge
from meanstream.streaming.agents.agents_engine import Engine
from meanstream.streaming.agents.agents_releases import releases_of_ledger
from meanstream.streaming.agents.forget_agent import ROWS_READ
from meanstream.streaming.engine.engine_options import EngineOptions
from meanstream.streaming.engine.forgotten import forgotten_agents
from meanstream.streaming.engine.keepers import Commit, Keeper
from meanstream.streaming.events.event_columns import Batch, Position, Rejects, SampleColumns
from meanstream.streaming.sinks.sink_protocol import Sinks
from meanstream.streaming.store.database import StoreError
from meanstream.streaming.store.deployment_store import Deployment, open_deployment
from meanstream.streaming.store.state_store import Store

POINTWISE_CALLS = "frame_pointwise_calls"
"""State of a store: how many calls gave intervals that hold each by itself."""

BATCH = 1 << 18
"""Rows of a commit."""
COLUMNS = "frame_columns"
"""State that says which columns of a frame a store is about."""
FOREVER = 1e300
"""Seconds that event time may run ahead of the clock: a frame's times are whatever its column
says."""


class _FrameSource:
    """Gives the rows of a frame that a store has not read, in event-time order.

    Parameters
    ----------
    samples : FrameSamples
        All rows.
    unread : int array
        Places of those that the store has not read.
    digests : uint64 array
        Of all rows.
    """

    name = "frame"
    bounded = True

    def __init__(self, samples: FrameSamples, unread: Ints, digests: Words) -> None:
        self.samples = samples
        self._unread = unread
        self._digests = digests
        self._at = self._saved = 0
        self._before = len(samples.group) - len(unread)

    def next_batch(self, max_samples: int) -> Batch:
        """Give the next rows, in event-time order."""
        # Rows that the store has read are not given again.
        rows = self._unread[self._at : self._at + max_samples]
        s = self.samples
        group = s.group[rows].astype(np.int64)
        person = s.person_hashes(rows)
        columns = SampleColumns(
            s.names, group, s.value[rows], s.times()[rows], None, rows + 1, person
        )
        self._at += len(rows)

        return Batch(
            columns, Rejects(), {"rows": self._before + self._at}, exhausted=not len(columns)
        )

    def restore(self, position: Position) -> None:
        """Go on where the store is: it has noted which rows it has read."""

    def close(self) -> None:
        """Nothing is open."""

    def to_note(self, agents: Sequence[str]) -> dict[str, np.ndarray]:
        """Give what is to be noted of the rows since the last time, for agents of these numbers."""
        # Digests of the rows are noted with the number of their agent, so that forgetting an agent
        # finds them.
        part, self._saved = self._unread[self._saved : self._at], self._at
        place = {name: number for number, name in enumerate(agents)}
        number = np.array([place.get(name, -1) for name in self.samples.names], np.int64)
        return {"digest": self._digests[part], "agent": number[self.samples.group[part]]}


class _FrameEngine(Engine):
    """Notes in each commit which rows it has read, and pairs all of them before the last releases."""

    def __init__(
        self,
        source: _FrameSource,
        deployment: Deployment,
        options: EngineOptions,
        columns: Mapping[str, str | None],
    ) -> None:
        super().__init__(
            # A frame is delivered by the call itself: no event leaves the engine.
            source=source,
            settings=deployment.settings,
            noise=deployment.noise,
            store=deployment.store,
            sinks=Sinks(),
            options=options,
        )

        # Where the engine reads its rows, and what it notes of them.
        self._rows = source
        self._noise = deployment.noise
        self._counts: list[Ints] = []  # places of rows that this call has read, and that count
        self._last = False
        self.keepers = [*self.keepers, _RowsKeeper(source, self.agents, columns, deployment.store)]

    def _update(
        self, active: tuple[int, ...], rejects: Rejects, *, ended: bool
    ) -> list[ReleaseBatch]:
        self._last = ended
        return super()._update(active, rejects, ended=ended)

    def _note(self, fates: Fates | None, position: Ints, rejects: Rejects) -> None:
        super()._note(fates, position, rejects)
        self._counts.append(position - 1 if fates is None else position[fates == COUNTS] - 1)
        settings = self.agents.settings

        # With the last rows all are known that count, and pairs can be made by their content.
        if self._last and settings.pairs == BY_CONTENT and settings.vote is not None:
            samples = self._rows.samples
            pairs = frame_pairs(samples, np.concatenate(self._counts), settings.grid, self._noise)
            self.agents.count_pairs(pairs_of_agents(pairs, samples.names, self.agents.names))


class _RowsKeeper(Keeper[Any]):
    """Notes which rows were read, and what their columns are called."""

    def __init__(
        self,
        source: _FrameSource,
        agents: Agents,
        columns: Mapping[str, str | None],
        store: Store,
    ) -> None:
        self._source = source
        self._agents = agents
        self._columns = columns
        self._notes = max((number for number, _ in store.chunks(ROWS_READ)), default=-1)

    def note(self, store: Store, commit: Commit[Any]) -> dict[str, Any]:  # noqa: ARG002
        """Write what is new of both."""
        rows = self._source.to_note(self._agents.names)
        if len(rows["digest"]):
            self._notes += 1
            store.put_chunk(ROWS_READ, self._notes, rows)
            store.put_state(COLUMNS, dict(self._columns))

        return {}


def releases_by_store(
    path: Path,
    samples: FrameSamples,
    settings: AgentsSettings,
    options: EngineOptions,
    *,
    columns: Mapping[str, str | None],
) -> FrameReleases:
    """Run an engine on the rows that its store has not read.

    Give all releases that the ledger holds. `columns` are the names of the frame's columns by
    option, which a refusal compares with those of the store's last call.
    """
    # The store's settings, secret and name must be those that made it.
    deployment = _opened(path, settings)
    try:
        store = deployment.store

        # A group that was forgotten stays so, whatever rows the frame has.
        agents = store.agents()
        forgotten = forgotten_agents(store).tolist()
        samples = samples.without_groups({agents[number] for number in forgotten})
        about = _other_columns(store, columns)
        _require_own_groups({*agents} - {agents[number] for number in forgotten}, samples, about)

        # Rows are in an order of their content under the key: that of the frame decides nothing.
        digests = row_digests(deployment.noise, deployment.settings.grid, samples)
        order = content_order(samples, digests)
        samples = samples.in_order(order)
        digests = digests[order]
        unread = new_rows(store, digests, about)

        # Rows of a frame are believed: they have no clock to run ahead and come late at will.
        most_agents = max(len(samples.names), options.max_agents)
        believed: dict[str, Any] = {
            "max_future": FOREVER,
            "quorum": 1,
            "allowed_lateness": 0.0,
            "late": "accept",
        }
        chosen = replace(options, batch_size=BATCH, max_agents=most_agents, **believed)

        # Whether this call's intervals hold by themselves must be noted before anything is
        # released.
        pointwise = _pointwise_calls(store, options)
        engine = _FrameEngine(
            _FrameSource(_after_those(samples, unread), unread, digests),
            deployment,
            chosen,
            columns,
        )
        made = engine.run().releases

        # The ledger's head is part of the result: whoever has both can compare them.
        head = store.ledger.head()

        return FrameReleases(
            samples=samples.with_groups_in_order(store.agents()),
            settings=deployment.settings,
            every=[
                with_noise_terms(deployment.settings, releases)
                for releases in releases_of_ledger(store.ledger)
                if len(releases)
            ],
            counted=engine.agents.counts(),
            charge=LedgerCharge(made=made, rows=head.rows, head=head.chain.hex(), store=path.name),
            forgotten=frozenset(forgotten),
            pointwise_calls=pointwise,
        )
    finally:
        deployment.store.close()


def _pointwise_calls(store: Store, options: EngineOptions) -> int:
    """Count the calls before whose intervals hold each by itself, and note this one if it is one of them.

    Of a store that noted none, its releases say that there was one.
    """
    noted = store.state(POINTWISE_CALLS)
    before = int(store.ledger.head().rows > 0) if noted is None else int(noted)

    # Noted at once: a call that fails later has been looked at, too.
    with store.transaction():
        store.put_state(POINTWISE_CALLS, before + (options.coverage == "pointwise"))

    return before


def _opened(path: Path, settings: AgentsSettings) -> Deployment:
    try:
        return open_deployment(path, settings, environment=os.environ)
    except StoreError as error:
        # The words of the frame's own arguments, not those of the engine.
        # What the engine calls its horizon is `releases` here.
        text = str(error)
        raise StoreError(
            text.replace("horizon must", "releases must", 1) if text.startswith("horizon") else text
        ) from None


def _other_columns(store: Store, columns: Mapping[str, str | None]) -> str:
    """Sentence on the first column that has another name than at the store's last call, or none."""
    # Another column under the same store would be released with the same noise.
    columns_before = store.state(COLUMNS) or {}
    for option, name in columns.items():
        if option in columns_before and columns_before[option] != name:
            return (
                f"{option} has changed: this store is about {columns_before[option]!r}, got {name!r}; another column "
                "needs another store"
            )

    return ""


def _require_own_groups(agents: set[str], samples: FrameSamples, about: str) -> None:
    """Refuse a store with groups that the frame does not have, before anything is read or charged."""
    others = agents - set(samples.names)
    if others and about:
        raise ValueError(about)

    require(
        not others, "frame", "have every group that its store knows", f"{len(others):,} missing"
    )


def _after_those(samples: FrameSamples, unread: Ints) -> FrameSamples:
    """Give unread rows that have no times places after those that were read."""
    if samples.time is not None:
        return samples

    # Rows without times come after those of earlier calls.
    time = np.zeros(len(samples.group))
    time[unread] = len(time) - len(unread) + np.arange(len(unread))

    return replace(samples, time=time)


def new_rows(store: Store, digests: Words, about: str = "") -> Ints:
    """Give the places of the rows that a store has not read, in the order of the frame.

    Of rows that are equal in all that counts, as many are read as the store has read. `about` says
    why rows may be missing.
    """
    # A row is known by its digest; equal rows are counted.
    notes = [columns["digest"] for _, columns in store.chunks(ROWS_READ)]
    read = np.sort(np.concatenate([np.zeros(0, np.uint64), *notes]))
    order = np.argsort(digests, kind="stable")
    ordered = digests[order]
    rank = np.arange(len(ordered)) - np.searchsorted(ordered, ordered)
    times_read = np.searchsorted(read, ordered, side="right") - np.searchsorted(read, ordered)

    # Every row that was read must be there again, or the frame has changed.
    missing = len(read) - int(np.count_nonzero(rank < times_read))

    if missing and about:
        raise ValueError(about)

    if missing:
        raise ValueError(
            f"frame must hold every row that its store has read, got {missing:,} of {len(read):,} changed or missing: "
            "pass all rows so far, as they were; corrected data need another store, and both budgets add up"
        )

    return np.sort(order[rank >= times_read])

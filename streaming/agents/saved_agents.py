"""The state of agents in a store.

Whole chunks, and the rows that have changed since these were written.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from meanstream.operators.agents.agents import CHUNK, Agents, AgentsSettings
from meanstream.operators.noise.keyed import KeyedNoise
from meanstream.operators.records import Ints, OwnSamples
from meanstream.streaming.store.database import StoreError
from meanstream.streaming.store.deployment_store import saved_deployment_settings
from meanstream.streaming.store.state_store import Store
from meanstream.streaming.store.store_identity import OF_AGENTS

AGENTS = "agents"
CHANGED = "changed agents"
"""Kinds of chunks: of 1024 agents each, and of the agents that a commit has changed."""
FEW = 8
"""A commit that changes less than an eighth of the agents in its chunks writes these alone."""
MOST_PIECES = 64
"""Commits after which chunks are written whole again; at the latest when half of their agents have
changed."""


class SavedAgents:
    """Saves agents in each commit of an engine, and writes little where few of many have changed.

    Examples
    --------
    >>> saved = SavedAgents()
    >>> saved.may_add(np.arange(3), agents=100), saved.may_add(np.arange(30), agents=100)
    (True, False)
    """

    def __init__(self) -> None:
        self._pieces = self._rows = 0
        self._chunks: set[int] = set()  # of the agents in pieces

    def restore(self, store: Store, agents: Agents) -> None:
        """Give agents, which have been added, the state of the last commit."""
        for chunk, columns in store.chunks(AGENTS):
            agents.restore_chunk(chunk, columns)

        for _, columns in store.chunks(CHANGED):
            self._note(columns["agent"])
            agents.put_rows(columns["agent"], columns)

    def save(self, store: Store, agents: Agents) -> None:
        """Write what has changed since the last `mark_clean`, within a transaction."""
        changed = agents.changed()
        if not self.may_add(changed, agents=agents.n_agents):
            self.save_whole(store, agents)
        elif len(changed):
            store.put_chunk(CHANGED, self._pieces, {"agent": changed, **agents.rows(changed)})
            self._note(changed)

    def save_whole(self, store: Store, agents: Agents) -> None:
        """Write whole chunks, and remove from the store what agents had been before."""
        for chunk in sorted(self._chunks.union(agents.dirty_chunks())):
            store.put_chunk(AGENTS, chunk, agents.snapshot_chunk(chunk, copy=False))

        store.drop_chunks(CHANGED, range(self._pieces))
        self._pieces = 0
        self._rows = 0
        self._chunks = set()

    def may_add(self, changed: Ints, *, agents: int) -> bool:
        """Say whether few have changed, and not many with those that are in pieces."""
        chunks = set(np.unique(changed // CHUNK).tolist())
        now, ever = (min(len(some) * CHUNK, agents) for some in (chunks, chunks | self._chunks))
        little = FEW * len(changed) <= now and 2 * (self._rows + len(changed)) <= ever
        return little and self._pieces < MOST_PIECES

    def _note(self, changed: Ints) -> None:
        self._pieces += 1
        self._rows += len(changed)
        self._chunks.update(np.unique(changed // CHUNK).tolist())


def noise_of_copy() -> KeyedNoise:
    """Make the noise of agents that release nothing: it is never asked for."""
    return KeyedNoise(secrets.token_bytes(32), deployment="copy", purpose="none")


def agents_at_rest(store: Store, settings: AgentsSettings) -> tuple[Agents, SavedAgents]:
    """Private: the agents of a store as the last commit has them, and what saves them.

    They are to be looked at and rearranged, never to release.
    """
    agents = Agents(settings, noise_of_copy())
    saved = SavedAgents()
    agents.add_agents(store.agents())
    saved.restore(store, agents)
    agents.mark_clean()

    return agents, saved


def saved_sample_counts(store: Store) -> Ints:
    """Read how many samples of each agent count, by number."""
    counts = np.zeros(len(store.agents()), np.int64)
    for chunk, columns in store.chunks(AGENTS):
        counts[chunk * CHUNK : chunk * CHUNK + len(columns["count"])] = columns["count"]

    for _, columns in store.chunks(CHANGED):
        counts[columns["agent"]] = columns["count"]

    return counts


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnState:
    """Private: the agents of a store as the last commit has them.

    Attributes
    ----------
    names : list of str
        Names of the store's agents, by number.
    own : OwnSamples
        Their samples, summed up.
    event_time : float
        Event time up to which samples are included, in seconds.
    commit : dict
        Plain values that differ between any two commits that took samples in.
    """

    names: list[str]
    own: OwnSamples
    event_time: float
    commit: dict[str, Any]


def own_settings(path: Path) -> AgentsSettings:
    """Read the settings that a store was begun with."""
    to_all = (
        "each release is for one reader; `run agents` with its default --schedule has some for all"
    )
    with Store.read(path) as store:
        return saved_deployment_settings(store.begun_settings(OF_AGENTS, with_pairs=to_all))


def own_settings_if_begun(path: Path) -> AgentsSettings | None:
    """Read the settings that a store was begun with.

    None if there is no store that an engine has begun.
    """
    try:
        if path.is_file():
            return own_settings(path)
        return None
    except StoreError:  # anyone who opens it for writing says what is wrong
        return None


def read_own_state(
    path: Path, settings: AgentsSettings, known: OwnState | None = None
) -> OwnState | None:
    """Read the agents of a store.

    None if nothing was taken in, what is known if nothing was since.
    """
    with Store.read(path) as store:
        state = store.state("engine")
        if state is None or state["event_time"] is None:
            return None
        commit = {
            "positions": state["positions"],
            "event_time": state["event_time"],
            "intake": state["intake"],
        }

        if known is not None and known.commit == commit:
            return known
        agents, _ = agents_at_rest(store, settings)

    return OwnState(
        names=agents.names, own=agents.own(), event_time=state["event_time"], commit=commit
    )

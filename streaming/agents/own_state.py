"""What the agents of a store know of themselves, read while the engine runs on it."""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from meanstream.operators.agents.agents import Agents, AgentsSettings
from meanstream.operators.noise.keyed import KeyedNoise
from meanstream.operators.records import OwnSamples
from meanstream.streaming.agents.saved_agents import SavedAgents
from meanstream.streaming.store.database import StoreError
from meanstream.streaming.store.kind import OF_AGENTS, require_store_kind
from meanstream.streaming.store.state_store import Store
from meanstream.streaming.store.store_deployment import saved_deployment_settings


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
    store = Store.read(path)
    try:
        identity = store.state("identity")
    finally:
        store.close()

    if identity is None:
        raise StoreError(f"store must have been begun by an engine, got {str(path)!r}")
    to_all = (
        "each release is for one reader; `run agents` with its default --schedule has some for all"
    )
    require_store_kind(path, identity["settings"], OF_AGENTS, with_pairs=to_all)
    return saved_deployment_settings(identity["settings"])


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
    store = Store.read(path)
    try:
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
        # A copy to read: it releases nothing, so its noise is never asked for.
        agents = Agents(
            settings, KeyedNoise(secrets.token_bytes(32), deployment="copy", purpose="none")
        )
        agents.add_agents(store.agents())
        SavedAgents().restore(store, agents)
    finally:
        store.close()

    return OwnState(
        names=agents.names, own=agents.own(), event_time=state["event_time"], commit=commit
    )

"""Forgets an agent: all that is private of it leaves the store, and what it has spent stays."""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from typing import Any

import numpy as np

from meanstream.streaming.agents.copied_agents import (
    PENDING,
    replace_chunk_rows,
)
from meanstream.streaming.agents.move_agents import departed_agents, settle_move
from meanstream.streaming.agents.saved_agents import agents_at_rest
from meanstream.streaming.engine.engine_loop import HISTORY
from meanstream.streaming.engine.forgotten import add_forgotten_agent
from meanstream.streaming.store.database import StoreError
from meanstream.streaming.store.deployment_store import saved_deployment_settings
from meanstream.streaming.store.state_store import Store
from meanstream.streaming.store.store_identity import OF_AGENTS

ROWS_READ = "frame rows"
"""Kind of the chunks that know the rows of a frame again that were read, with their agents."""


@dataclass(frozen=True, slots=True)
class ForgottenAgent:
    """What forgetting an agent did.

    Attributes
    ----------
    agent : str
        Its name.
    releases : int
        Releases that it has made: they stay public, and in the ledger as its spent budget.
    samples_waiting : int
        Samples that waited for event time, and are gone.
    name_kept : bool
        Whether the store still holds the name, because releases have it.
    """

    agent: str
    releases: int
    samples_waiting: int
    name_kept: bool


def forget_agent(store: Store, name: str) -> ForgottenAgent:
    """Erase all that is private of an agent from a store at rest; its further samples are rejected.

    Notes
    -----
    **Privacy.** Sums, counters, own tests and histograms, samples that wait, and the half-widths
    that a page has shown are overwritten in the file; a backup that is made later does not hold
    them. Its releases were public before and stay so, with its name; its spent budget stays in the
    ledger. An agent that has released nothing leaves no name. Estimates that were written are in
    their sinks, and older backups hold what they held.
    """
    settle_move(store)
    saved, number, releases = require_stored_name(store, OF_AGENTS, "agent", name)
    if departed_agents(store)[number]:
        raise StoreError(
            f"agent must live in this store, got {name!r}, which was moved to another: forget it there"
        )

    with store.transaction():
        agents, kept = agents_at_rest(store, saved_deployment_settings(saved))
        agents.forget(np.array([number]))
        kept.save_whole(store, agents)
        waiting = drop_agent_samples(store, number)

        if not releases:
            drop_name(store, number)

        add_forgotten_agent(store, number)

    store.erase_deleted()
    return ForgottenAgent(name, releases, waiting, name_kept=releases > 0)


def require_stored_name(
    store: Store, kind: str, who: str, name: str
) -> tuple[dict[str, Any], int, int]:
    """Settings of a store of one kind, the number of a name in it, and how often that was charged.

    Raises
    ------
    StoreError
        If the store is of another kind, or does not have the name.
    """
    saved = store.begun_settings(kind)
    names = store.agents()
    if name not in names:
        raise StoreError(f"{who} must be one that the store has samples of, got {name!r}")

    number = names.index(name)
    spent = store.ledger.spent()

    return saved, number, int(spent[number]) if number < len(spent) else 0


def drop_name(store: Store, number: int) -> None:
    """Put another name in place of one that no release has."""
    store.rename_agent(number, f"forgotten-{secrets.token_hex(8)}")


def drop_shown_widths(store: Store) -> None:
    """Drop the half-widths that a page has shown of all."""
    if (history := store.state(HISTORY)) is not None:
        history.pop("newest", None)
        store.put_state(HISTORY, history)


def drop_agent_samples(store: Store, number: int) -> int:
    """Drop the samples of an agent that wait, and what a page has shown of all.

    Say how many waited.
    """
    waiting = _drop_rows(store, PENDING, number)
    _drop_rows(store, ROWS_READ, number)

    drop_shown_widths(store)
    return waiting


def _drop_rows(store: Store, kind: str, number: int) -> int:
    """Drop what chunks have of the samples of an agent; say how many there were."""
    dropped = 0
    for chunk, columns in list(store.chunks(kind)):
        kept = columns["agent"] != number
        dropped += int(np.count_nonzero(~kept))
        replace_chunk_rows(store, kind, chunk, columns, kept)

    return dropped

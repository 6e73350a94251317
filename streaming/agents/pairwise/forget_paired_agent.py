"""Forgets an agent that queries others.

Its samples and what it received leave the store; what it has spent stays.
"""

from __future__ import annotations

from meanstream.streaming.agents.forget_agent import (
    ForgottenAgent,
    drop_agent_samples,
    drop_name,
    require_stored_name,
)
from meanstream.streaming.agents.pairwise.pairs_at_rest import pairs_at_rest
from meanstream.streaming.engine.forgotten import add_forgotten_agent
from meanstream.streaming.store.kind import OF_PAIRS
from meanstream.streaming.store.state_store import Store


def forget_paired_agent(store: Store, name: str) -> ForgottenAgent:
    """Erase all that is private of an agent from a pairwise store at rest.

    Its further samples are rejected.

    Raises
    ------
    StoreError
        If the store is of another kind or does not have the agent, or someone reads the store
        meanwhile.

    Notes
    -----
    **Privacy.** Its sums, its samples that wait, what it makes of what it received, and the noise
    of its pairs are overwritten in the file. Its readers keep what they received, in their
    estimates too, and the ledger keeps every release to it and of it. An agent without any release
    leaves no name.
    """
    saved, number, releases = require_stored_name(store, OF_PAIRS, "agent", name)
    with store.transaction():
        stream = pairs_at_rest(store, saved)
        stream.forget(number)
        for kind, chunk, columns in stream.changes():
            store.put_chunk(kind, chunk, columns)

        waiting = drop_agent_samples(store, number)

        # The ledger names it as a reader, too.
        kept = releases > 0 or stream.has_received(number)
        if not kept:
            drop_name(store, number)

        add_forgotten_agent(store, number)

    store.erase_deleted()
    return ForgottenAgent(name, releases, waiting, name_kept=kept)

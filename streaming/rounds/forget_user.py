"""Forgets a user of rounds.

Sums of windows that are open or wait for a stage leave the store; spent budget stays.
"""

from __future__ import annotations

from meanstream.streaming.agents.forget_agent import (
    ForgottenAgent,
    drop_name,
    drop_shown_widths,
    require_stored_name,
)
from meanstream.streaming.rounds.rounds_engine import OPEN_WINDOWS
from meanstream.streaming.rounds.sides.user_side import WAITING_ROUNDS
from meanstream.streaming.store.kind import OF_USERS
from meanstream.streaming.store.state_store import Store


def forget_user(store: Store, name: str) -> ForgottenAgent:
    """Erase all that is private of a user of rounds from a store at rest.

    Raises
    ------
    StoreError
        If the store is of another kind or does not have the user, or someone reads the store
        meanwhile.

    Notes
    -----
    **Privacy.** Sums of the user's windows are overwritten in the file; a window that closes later is answered without
    the user. Reports were protected by epsilon when they left, and stay. The spent budget stays with the name; a user
    who has spent nothing leaves no name. Samples that come later count again, within what is left of the budget.
    """
    _, number, rounds = require_stored_name(store, OF_USERS, "user", name)
    with store.transaction():
        dropped = sum(_drop_sums(store, kind, number) for kind in (OPEN_WINDOWS, WAITING_ROUNDS))
        drop_shown_widths(store)
        if not rounds:
            drop_name(store, number)

    store.erase_deleted()
    return ForgottenAgent(name, rounds, dropped, name_kept=rounds > 0)


def _drop_sums(store: Store, kind: str, number: int) -> int:
    """Drop a user's rows of all windows; return how many samples they were."""
    samples = 0
    for chunk, columns in list(store.chunks(kind)):
        kept = columns["user"] != number
        if kept.all():
            continue
        samples += int(columns["count"][~kept].sum())

        if kind == OPEN_WINDOWS and not kept.any():  # a window of this user alone is none
            store.drop_chunks(kind, [chunk])
            continue

        rows = {
            name: column if name == "window" else column[kept] for name, column in columns.items()
        }
        store.put_chunk(kind, chunk, rows)

    return samples

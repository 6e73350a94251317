"""Every step around ledger, snapshot and delivery at which the process may die, enumerated once."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum


class CrashPoint(StrEnum):
    """Steps of one turn of the engine, in order; the engine calls its hook at each.

    A hook that raises stands for a process that dies there: whatever was not yet committed or written is gone.
    """

    BATCH_READ = "batch_read"
    AGENTS_UPDATED = "agents_updated"
    POSITION_SAVED = "position_saved"  # inside the transaction, as the next three
    SNAPSHOT_SAVED = "snapshot_saved"
    LEDGER_CHARGED = "ledger_charged"
    OUTBOX_FILLED = "outbox_filled"
    COMMITTED = "committed"
    RELEASES_WRITTEN = "releases_written"
    NOTICES_WRITTEN = "notices_written"
    DEAD_LETTERS_WRITTEN = "dead_letters_written"
    ESTIMATES_WRITTEN = "estimates_written"
    FLUSHED = "flushed"
    DELIVERY_MARKED = "delivery_marked"


CrashHook = Callable[[CrashPoint], None]


def no_crash(point: CrashPoint) -> None:
    """Go on."""

"""Every step around ledger, snapshot and delivery at which the process may die, enumerated once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum


class CrashPoint(StrEnum):
    """Steps of one turn of the engine, in order."""

    READ_BATCH = "read_batch"
    UPDATE_AGENTS = "update_agents"
    COMMIT = "commit"  # the whole transaction; the next four are inside it
    SAVE_POSITION = "save_position"
    SAVE_SNAPSHOT = "save_snapshot"
    CHARGE_LEDGER = "charge_ledger"
    FILL_OUTBOX = "fill_outbox"
    WRITE_RELEASES = "write_releases"
    WRITE_NOTICES = "write_notices"
    WRITE_DEAD_LETTERS = "write_dead_letters"
    WRITE_ESTIMATES = "write_estimates"
    FLUSH_SINKS = "flush_sinks"  # the next three are inside it, for sinks on Kafka
    PRODUCE = "produce"
    SEND_MARKER = "send_marker"
    COMMIT_TRANSACTION = "commit_transaction"
    MARK_DELIVERY = "mark_delivery"


class Moment(StrEnum):
    """On which side of a step."""

    BEFORE = "before"
    AFTER = "after"


CrashHook = Callable[[CrashPoint, Moment], None]
"""Called on both sides of each step. One that raises stands for a process that dies there: what was
not yet committed or written is gone."""


def no_crash(point: CrashPoint, moment: Moment) -> None:
    """Go on."""


@contextmanager
def crash_step(point: CrashPoint, hook: CrashHook) -> Iterator[None]:
    """Call a hook before and after a step."""
    hook(point, Moment.BEFORE)
    yield
    hook(point, Moment.AFTER)

"""Rounds that wait for their release in the state of a key.

A turn reads those that are near, not all of them.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from typing import Any, ClassVar

from apache_beam.utils.timestamp import Timestamp

from meanstream.pipelines.beam.element_types.columns_coder import ColumnsCoder
from meanstream.pipelines.beam.keyed_state.beam_state import StateOwner
from meanstream.pipelines.beam.keyed_state.keyed_steps import Cells, KeyedStep
from meanstream.pipelines.beam.rounds.rounds_elements import UserBatch, encoded_window
from meanstream.pipelines.beam.rounds.rounds_windows import (
    MILLI,
    window_release_time,
    window_timestamp,
)
from meanstream.streaming.rounds.rounds_settings import RoundsSettings
from meanstream.streaming.rounds.window_widths import Window

MOST_NEAR = 32
NEAR_BYTES = 1 << 18
"""Batches and bytes that are read at every release; of large batches it is the next one."""

_LENGTH = struct.Struct("<I")


class RoundTurns(KeyedStep):
    """Users of a key wait for the release of their rounds; those that are due have one turn."""

    VALUES: ClassVar[tuple[str, ...]] = ("near", "far")
    BAGS: ClassVar[tuple[str, ...]] = ("waiting",)
    TIMER = "release"

    def __init__(self, settings: RoundsSettings, owner: StateOwner) -> None:
        super().__init__(owner)
        self._settings = settings

    def take(self, element: UserBatch, cells: Cells) -> None:
        """Keep users until the release of their round."""
        self._queue(cells).wait(element, cells.timer)

    def fire(self, cells: Cells) -> Iterator[Any] | None:
        """Let all rounds that are due have one turn."""
        due = self._queue(cells).due(cells.time)
        return self.turn(due, cells) if due else None

    def turn(self, due: list[UserBatch], cells: Cells) -> Iterator[Any]:
        """Let these rounds go, the earliest first."""
        raise NotImplementedError

    def _queue(self, cells: Cells) -> RoundQueue:
        return RoundQueue(self._settings, cells.waiting, cells.near, cells.far)


class RoundQueue:
    """Batches of users until the release of their rounds, the earliest first.

    A key's state, and plain bytes.

    Every window has a timer. If each of them read all batches that wait, a thousand windows would
    cost a million batches. So what has arrived is sorted once into the next few batches and those
    far off.

    Parameters
    ----------
    settings : RoundsSettings
        When rounds are released.
    arrived, near, far : state
        The cells of `RoundTurns`.
    """

    def __init__(self, settings: RoundsSettings, arrived: Any, near: Any, far: Any) -> None:
        self._settings = settings
        self._arrived = arrived
        self._near = near
        self._far = far

    def wait(self, batch: UserBatch, timer: Any) -> None:
        """Keep a batch until the release of its round, at which a timer of that round fires."""
        self._arrived.add(ColumnsCoder(UserBatch).encode(batch))
        timer.set(
            window_timestamp(self._settings, batch.window), dynamic_timer_tag=str(batch.window.end)
        )

    def due(self, time: Timestamp) -> list[UserBatch]:
        """Take out the batches whose rounds are due, in the order of time.

        Rounds wait until event time has come to their release, so that an earlier round is always
        before a later one.
        """
        limit = time.micros // MILLI
        arrived = list(self._arrived.read())
        near = list(_apart(self._near.read()))
        if (
            not arrived and near and self._release(near[-1]) >= limit
        ):  # those far off come after all that are near
            due = self._count_due(near, limit)
            self._near.write(_joined(near[due:]))
            return _decoded(near[:due])

        waiting = sorted([*near, *_apart(self._far.read()), *arrived], key=_time_order)
        due = self._count_due(waiting, limit)
        beyond = due + self._count_near(waiting[due:])
        self._arrived.clear()
        self._near.write(_joined(waiting[due:beyond]))
        self._far.write(_joined(waiting[beyond:]))

        return _decoded(waiting[:due])

    def _release(self, encoded: bytes) -> int:
        """Give the millisecond by which Beam finds a batch's round."""
        return (window_release_time(self._settings, encoded_window(encoded)) - MILLI) // MILLI

    def _count_due(self, waiting: list[bytes], limit: int) -> int:
        return next(
            (n for n, one in enumerate(waiting) if self._release(one) > limit), len(waiting)
        )

    def _count_near(self, waiting: list[bytes]) -> int:
        """Count batches that are near, those of a round together."""
        size = 0
        for n, one in enumerate(waiting):
            full = n >= MOST_NEAR or size >= NEAR_BYTES
            if full and self._release(one) > self._release(waiting[n - 1]):
                return n
            size += len(one)

        return len(waiting)


def _time_order(encoded: bytes) -> Window:
    start, end = encoded_window(encoded)
    return Window(end, start)


def _decoded(waiting: Iterable[bytes]) -> list[UserBatch]:
    coder = ColumnsCoder(UserBatch)
    return [coder.decode(one) for one in waiting]


def _joined(waiting: Iterable[bytes]) -> bytes:
    return b"".join(part for one in waiting for part in (_LENGTH.pack(len(one)), one))


def _apart(joined: bytes | None) -> Iterator[bytes]:
    """Read what `_joined` gave.

    Examples
    --------
    >>> list(_apart(_joined([b"one", b"", b"three"]))), list(_apart(None))
    ([b'one', b'', b'three'], [])
    """
    at = 0
    while at < len(joined or b""):
        (length,) = _LENGTH.unpack_from(joined or b"", at)
        at += _LENGTH.size + length
        yield (joined or b"")[at - length : at]

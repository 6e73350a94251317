"""The sums of the windows that have not ended yet, saved in pieces that are written once."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from meanstream.operators.records import Ints
from meanstream.streaming.rounds.summarize_users import (
    UserSums,
    join_summaries,
    summarize_numbered_windows,
)
from meanstream.streaming.rounds.user_places import UserSlots
from meanstream.streaming.rounds.window_widths import Window, Windows
from meanstream.streaming.store.state_snapshot import Columns

_NOBODY: Ints = np.zeros(0, np.int64)
ALIKE = 8
"""So many pieces of a window that are of about the same size are joined into one."""


@dataclass(frozen=True, slots=True)
class _WindowPiece:
    """Private: what a batch brought to a window.

    Of a session, to the part of it that is in the batch.
    """

    window: Window
    sums: UserSums

    def columns(self) -> Columns:
        """Give plain columns."""
        return {**self.sums.columns(), "window": np.array(self.window, np.int64)}


class OpenWindows:
    """Collects users' sums per window; gives a window out once, when it has ended, one at a time.

    The state is small: one entry per user and window, not per sample; raw samples are not kept. It
    is saved in pieces that are written once, and a piece leaves with its window. Where users have
    places, a window drops those who can get none before they are more than it may hold.
    """

    def __init__(self, windows: Windows, places: UserSlots | None = None) -> None:
        self._windows = windows
        self._places = places
        self._pieces: dict[int, _WindowPiece] = {}
        self._next = 0
        self._new: set[int] = set()
        self._dropped: list[int] = []
        self._groups: (
            list[tuple[Window, list[int]]] | None
        ) = []  # None where pieces have changed since

    def __len__(self) -> int:
        return len(self._grouped())

    def add(self, parts: Mapping[Window, UserSums]) -> None:
        """Take what a batch brought, from `sum_entries`."""
        for window, sums in parts.items():
            self._put(_WindowPiece(window, sums))

        self._compact()

    def first_ended(self, reached: int) -> tuple[Window, UserSums] | None:
        """Take out the first window, in the order of time, that ends at a time or before it.

        None if there is none.
        """
        first_window = self._first_ended(reached)
        if first_window is None:
            return None
        window, numbers = first_window
        sums = join_summaries([self._pieces[n].sums for n in numbers])
        self._drop(numbers)

        return window, sums

    def first_users(self, reached: int) -> Ints:
        """List who has sent something in the window that `first_ended` would give."""
        first_window = self._first_ended(reached)

        if first_window:
            return np.unique(np.concatenate([self._pieces[n].sums.user for n in first_window[1]]))
        return _NOBODY

    def has_ended(self, reached: int) -> bool:
        """Tell whether a window ends at a time or before it."""
        return any(window.end <= reached for window, _ in self._grouped())

    def last_end(self) -> int | None:
        """Tell when the last open window ends, microseconds."""
        return max((piece.window.end for piece in self._pieces.values()), default=None)

    def changes(self) -> tuple[dict[int, Columns], list[int]]:
        """Give what to save and what to remove since the last call."""
        new = {number: self._pieces[number].columns() for number in sorted(self._new)}
        dropped, self._new, self._dropped = self._dropped, set(), []
        return new, dropped

    def restore(self, number: int, columns: Columns) -> None:
        """Put a saved piece back."""
        start, end = columns.pop("window").tolist()
        self._pieces[number] = _WindowPiece(Window(start, end), UserSums(**columns))
        self._next = max(self._next, number + 1)
        self._groups = None

    def _first_ended(self, reached: int) -> tuple[Window, list[int]] | None:
        ended = [group for group in self._grouped() if group[0].end <= reached]

        if ended:
            return min(ended, key=lambda group: (group[0].end, group[0].start))
        return None

    def _put(self, piece: _WindowPiece) -> None:
        self._pieces[self._next] = piece
        self._new.add(self._next)
        self._next += 1
        self._groups = None

    def _drop(self, numbers: list[int]) -> None:
        self._groups = None
        for number in numbers:
            del self._pieces[number]
            if number in self._new:
                self._new.remove(number)
            else:
                self._dropped.append(number)

    def _grouped(self) -> list[tuple[Window, list[int]]]:
        """List windows with the numbers of their pieces; sessions that overlap are one."""
        if self._groups is None:
            self._groups = self._group() if self._pieces else []

        return self._groups

    def _group(self) -> list[tuple[Window, list[int]]]:
        keys = np.array(list(self._pieces), np.int64)
        ends: Ints = np.array([piece.window for piece in self._pieces.values()], np.int64)
        group, windows = summarize_numbered_windows(self._windows, ends[:, 0], ends[:, 1])
        order = np.argsort(group, kind="stable")
        parts = np.split(keys[order], np.flatnonzero(np.diff(group[order])) + 1)

        return [(window, numbers.tolist()) for window, numbers in zip(windows, parts, strict=True)]

    def _compact(self) -> None:
        """Join pieces of about the same size, so that a sum is written again about once per power of `ALIKE`."""
        for window, numbers in self._grouped():
            entries = sum(len(self._pieces[number].sums) for number in numbers)
            if self._places is not None and entries >= self._places.hold:
                whole = self._places.considered(
                    window, join_summaries([self._pieces[n].sums for n in numbers])
                )
                self._drop(numbers)
                self._put(_WindowPiece(window, whole))
            elif len(numbers) >= ALIKE:
                self._join_alike(window, numbers)

    def _join_alike(self, window: Window, numbers: list[int]) -> None:
        while True:
            levels: dict[int, list[int]] = {}
            for number in numbers:
                levels.setdefault(int(math.log(len(self._pieces[number].sums), ALIKE)), []).append(
                    number
                )

            alike = next((some for some in levels.values() if len(some) >= ALIKE), None)
            if alike is None:
                return
            whole = join_summaries([self._pieces[number].sums for number in alike])
            self._drop(alike)
            numbers = [*(number for number in numbers if number not in alike), self._next]
            self._put(_WindowPiece(window, whole))

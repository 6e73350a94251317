"""Samples that wait until event time has passed them."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Self

import numpy as np

from meanstream.operators.records import Floats, Ints, Words
from meanstream.streaming.events.event_columns import column_partitions, column_positions
from meanstream.streaming.store.state_snapshot import Columns

MAX_PIECES = 256
"""Beyond that many, pieces are merged into one."""


@dataclass(slots=True)
class Piece:
    """Private: samples of one batch in the order of event time; those before `start` have left."""

    agent: Ints
    value: Floats
    time: Floats
    key: Words
    position: Ints
    person: Words | None = None
    start: int = 0

    def sorted_by_time(self) -> Piece:
        """Sort, keeping the order of arrival among equal times."""
        if np.all(self.time[1:] >= self.time[:-1]):
            return self
        order = np.argsort(self.time, kind="stable")
        return Piece.of({name: column[order] for name, column in self.columns(0).items()})

    @classmethod
    def of(cls, columns: Columns) -> Self:
        """Make a piece of saved columns."""
        c = columns
        return cls(c["agent"], c["value"], c["time"], c["key"], c["position"], c.get("person"))

    def columns(self, since: int) -> Columns:
        """Give what is left from an entry on."""
        names = (
            "agent",
            "value",
            "time",
            "key",
            "position",
            *(() if self.person is None else ("person",)),
        )

        return {name: getattr(self, name)[since:] for name in names}


@dataclass(frozen=True, slots=True)
class Due:
    """Private: samples whose time has come, in their order."""

    agent: Ints
    value: Floats
    time: Floats
    position: Ints
    person: Words | None


class EventBuffer:
    """Holds samples until the watermark passes them, and gives them out in the order of event time.

    Order among equal times: by the hash of the id, then by position. **Privacy.** Never by value:
    the place of a sample in the sums must not depend on its value, or replacing one value would
    change more than one increment.

    The state is saved in pieces that are written once: a piece of the store minus what is before
    the watermark.
    """

    def __init__(self) -> None:
        self._pieces: dict[int, Piece] = {}
        self._next = 0
        self._new: list[int] = []
        self._dropped: list[int] = []

    def __len__(self) -> int:
        return sum(len(piece.time) - piece.start for piece in self._pieces.values())

    def add(self, piece: Piece) -> None:
        """Take the samples of a batch."""
        if len(piece.time):
            self._pieces[self._next] = piece
            self._new.append(self._next)
            self._next += 1

    def drain(self, watermark: float) -> Due:
        """Take out everything before the watermark, in order."""
        parts = []
        for number, piece in list(self._pieces.items()):
            # Pieces are in the order of time: what the watermark has passed stands at their
            # beginning.
            stop = int(np.searchsorted(piece.time, watermark, "left"))
            if stop > piece.start:
                parts.append(
                    Piece.of(
                        {k: v[: stop - piece.start] for k, v in piece.columns(piece.start).items()}
                    )
                )
                piece.start = stop

            # An empty piece leaves the store as well, unless it was never saved.
            if stop == len(piece.time):
                del self._pieces[number]
                if number in self._new:
                    self._new.remove(number)
                else:
                    self._dropped.append(number)

        if len(self._pieces) > MAX_PIECES:
            self._merge()

        return self._in_order(parts)

    def has_before(self, time: float) -> bool:
        """Say whether an older sample waits."""
        return any(bool(piece.time[piece.start] < time) for piece in self._pieces.values())

    def waiting(self) -> tuple[Ints, Floats]:
        """Give the agents and the event times of all that waits."""
        pieces = self._pieces.values()
        agent = [piece.agent[piece.start :] for piece in pieces]
        return _joined([np.zeros(0, np.int64), *agent]), _joined(
            [piece.time[piece.start :] for piece in pieces]
        )

    def changes(self) -> tuple[dict[int, Columns], list[int]]:
        """Give what to save and what to remove since the last call."""
        new = {
            number: self._pieces[number].columns(self._pieces[number].start) for number in self._new
        }

        # Both lists begin anew once they are handed on.
        dropped, self._new, self._dropped = self._dropped, [], []

        return new, dropped

    def restore(self, number: int, columns: Columns, watermark: float) -> None:
        """Put a saved piece back; what is before the watermark had left."""
        piece = Piece.of(columns)
        piece.start = int(np.searchsorted(piece.time, watermark, "left"))
        self._pieces[number] = piece
        self._next = max(self._next, number + 1)

    def _merge(self) -> None:
        """Make one piece of many, so that a drain does not visit thousands."""
        whole = _join([Piece.of(piece.columns(piece.start)) for piece in self._pieces.values()])
        self._dropped += [number for number in self._pieces if number not in self._new]
        self._new = []
        self._pieces = {}
        self.add(whole.sorted_by_time())

    def _in_order(self, parts: list[Piece]) -> Due:
        """Join what was drained.

        Sort only where the parts overlap or have ties that are not in order.
        """
        # One partition without ids comes in order already: nothing needs to be sorted.
        if _follow_one_another(parts):
            agent, value, time, position = (
                _joined([getattr(part, name) for part in parts])
                for name in ("agent", "value", "time", "position")
            )
            persons = [part.person for part in parts if part.person is not None]

            return Due(agent, value, time, position, _joined(persons) if persons else None)

        # Ids decide among samples of one time where there are any; else the position in the source
        # does.
        whole = _join(parts)
        word = None if whole.key.any() else _time_and_position(whole)
        order = _order(whole) if word is None else np.argsort(word)
        person = None if whole.person is None else whole.person[order]

        return Due(
            whole.agent[order], whole.value[order], whole.time[order], whole.position[order], person
        )


def _time_and_position(whole: Piece) -> Words | None:
    """Give numbers that are in the order of time and then position.

    None where these do not fit into one.

    The bits of floats are in the order of the floats, but for a minus.
    """
    if whole.time.min() < 0:
        return None

    # Floats that are not negative sort as their bits do.
    parts = (
        (whole.time + 0.0).view(np.int64),
        column_partitions(whole.position),
        column_positions(whole.position),
    )

    # Time, partition and position are packed into one word, so that one sort suffices.
    word = np.zeros(len(whole.time), np.uint64)
    left = 64

    for part in parts:
        part -= part.min()  # noqa: PLW2901 - each is its own array
        left -= int(part.max()).bit_length()
        if left < 0:
            return None

        word |= part.astype(np.uint64) << np.uint64(min(left, 63))

    return word


def _order(whole: Piece) -> Ints:
    """Bring samples into the order of time, key and position."""
    order = np.argsort(whole.time)
    time = whole.time[order]
    same = time[1:] == time[:-1]
    if same.any():  # only these need the other keys
        tied = np.r_[False, same] | np.r_[same, False]
        order[tied] = _ties_in_order(order[tied], whole)

    return order


def _ties_in_order(some: Ints, whole: Piece) -> Ints:
    """Bring samples that stand in the order of time into that of time, key and position.

    One sort, by the number of the time above the leading bits of what decides among its samples;
    where even these are the same, as hardly ever, by all three.
    """
    time = whole.time[some]
    key = whole.key[some]

    # The number of the time stands above the leading bits of what decides among its samples.
    number = np.cumsum(np.concatenate([[False], time[1:] != time[:-1]])).astype(np.uint64)
    bits = np.uint64(int(number[-1]).bit_length())

    if key.any():
        among = key >> bits
    else:
        among = np.empty(len(some), np.uint64)
        among[np.argsort(whole.position[some])] = np.arange(len(some), dtype=np.uint64)

    # Where the bits do not suffice, all three keys sort.
    if not bits or len(some) >> (64 - int(bits)):
        return some[np.lexsort((whole.position[some], key, time))]
    word = (number << (np.uint64(64) - bits)) | among
    order = np.argsort(word)
    word = word[order]

    # Leading bits of two keys may be equal: then they decide nothing.
    if (word[1:] == word[:-1]).any():
        return some[np.lexsort((whole.position[some], key, time))]
    return np.asarray(some[order])


def _follow_one_another(parts: list[Piece]) -> bool:
    """Say whether pieces, each in the order of time, are in the order of samples as they stand."""
    keyed = any(part.key.any() for part in parts)

    # Between pieces: time does not fall, nor does the position within a time.
    for before, now in pairwise(parts):
        step = now.time[0] - before.time[-1]
        if step < 0 or (step == 0 and (keyed or now.position[0] < before.position[-1])):
            return False

    # Within a piece: the same for samples of one time.
    for part in parts:
        falling = part.position[1:] < part.position[:-1]
        if keyed or falling.any():
            tie = part.time[1:] == part.time[:-1]
            if np.any(tie & falling) or (keyed and tie.any()):
                return False

    return True


def _joined(columns: list[np.ndarray]) -> np.ndarray:
    if len(columns) == 1:
        return columns[0]

    if columns:
        return np.concatenate(columns)
    return np.zeros(0)


def _join(parts: list[Piece]) -> Piece:
    if len(parts) == 1:
        return parts[0]

    if not parts:
        none = np.zeros(0, np.int64)
        nothing = np.zeros(0)
        return Piece(none, nothing, nothing, np.zeros(0, np.uint64), none)

    columns = [part.columns(0) for part in parts]
    return Piece.of({name: np.concatenate([c[name] for c in columns]) for name in columns[0]})

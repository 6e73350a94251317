"""Many records of one Avro schema read side by side.

A cursor in each, moved field by field by arrays.

A record's cursor never leaves it, so that what becomes of a record does not depend on those next to
it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from meanstream.operators.records import Bools, Ints
from meanstream.streaming.sources.formats.avro_schema import AvroType
from meanstream.streaming.sources.formats.avro_skip import (
    MAX_DEPTH,
    MAX_STEPS,
    AvroSkipper,
    avro_item_width,
)

PAD = 16
"""Zeros behind the records, and one more: there the cursors of those that are broken stay, behind
every end."""
FEW = 32
"""So many records are read one by one: for fewer, moving arrays of cursors costs more."""

Wanted = dict[str, Any]
"""Field to the part of a sample that it is, or to what is wanted of the fields in it."""

Bytes = npt.NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class AvroPiece:
    """What some records hold where a part of a sample is.

    Attributes
    ----------
    kind : AvroType
        Its type.
    rows : int array
        Which records.
    data : array
        Their numbers; of texts where each begins.
    size : int array or None
        Bytes of each text.
    """

    kind: AvroType
    rows: Ints
    data: npt.NDArray[Any]
    size: Ints | None = None


class AvroCursor:
    """Reads records that stand in one array of bytes.

    Parameters
    ----------
    data : uint8 array
        Records, and `PAD` zeros behind them.
    wanted : dict
        Which fields are samples' parts.
    """

    def __init__(self, data: Bytes, wanted: Wanted) -> None:
        self._data = data
        self._dead = len(data) - PAD
        self._wanted = wanted
        self._left: Ints = np.zeros(0, np.int64)  # steps of each record
        self.found: dict[str, list[AvroPiece]] = defaultdict(list)

    def read(self, kind: AvroType, start: Ints, end: Ints) -> Bools:
        """Read records; say which were whole. The parts are in `found` then."""
        # Each record may take so many steps: a schema could make it walk for ever.
        self._left = np.full(len(start), MAX_STEPS)
        after = self._any(kind, start, end, np.arange(len(start)), wanted=self._wanted, depth=0)
        return np.asarray(after == end)

    def _any(
        self, kind: AvroType, at: Ints, end: Ints, rows: Ints, *, wanted: Any, depth: int
    ) -> Ints:
        """Move cursors over one value of a type."""
        # Nothing wanted and nothing to step over.
        if not wanted and kind.empty:
            return at
        if not wanted and len(at) <= FEW:
            return self._one_by_one(lambda one, place: one.value(kind, place, depth), at, end, rows)

        # A schema may nest without end.
        if depth > MAX_DEPTH:
            return np.full(len(at), self._dead)

        return self._value(kind, at, end, rows, wanted=wanted, depth=depth)

    def _value(
        self, kind: AvroType, at: Ints, end: Ints, rows: Ints, *, wanted: Any, depth: int
    ) -> Ints:
        if kind.kind == "record":
            return self._fields(kind, at, end, rows, wanted=wanted, depth=depth)
        if kind.kind == "union":
            return self._union(kind, at, end, rows, wanted=wanted, depth=depth)

        # Arrays and maps hold no part of a sample; they are stepped over.
        if kind.kind in ("array", "map"):
            self._note(wanted, kind, rows, at)
            return self._items(kind, at, end, rows, depth)

        return self._plain(kind, at, end, rows, wanted)

    def _fields(
        self, kind: AvroType, at: Ints, end: Ints, rows: Ints, *, wanted: Any, depth: int
    ) -> Ints:
        """Move cursors over a record.

        Not if there is none left: a hostile schema may have endlessly many fields.
        """
        self._note(wanted if isinstance(wanted, str) else None, kind, rows, at)
        self._left[rows] -= len(kind.parts)
        at = self._kept(at, self._left[rows] >= 0)

        # Cursors go over one field after the other, for all records at once.
        for name, part in zip(kind.names, kind.parts, strict=True):
            if (at == self._dead).all():
                break
            inner = wanted.get(name) if isinstance(wanted, dict) else None
            at = self._any(part, at, end, rows, wanted=inner, depth=depth + 1)

        return at

    def _note(
        self,
        wanted: Any,
        kind: AvroType,
        rows: Ints,
        data: npt.NDArray[Any],
        size: Ints | None = None,
    ) -> None:
        """Keep what is wanted.

        What is wanted within something that has no fields is of a wrong type.
        """
        # A null has nothing to keep.
        if wanted is None or (kind.kind == "null"):
            return

        for part in _parts_in(wanted):
            shown = kind if isinstance(wanted, str) else AvroType("array")
            self.found[part].append(AvroPiece(shown, rows, data, size))

    def _plain(self, kind: AvroType, at: Ints, end: Ints, rows: Ints, wanted: Any) -> Ints:
        name = kind.kind
        size = None
        found: npt.NDArray[Any]
        if name in ("int", "long", "enum"):
            found, at = self._varint(at, end)
            if name == "enum":
                at = self._kept(at, (found >= 0) & (found < len(kind.names)))
        elif name in ("float", "double"):
            width = 4 if name == "float" else 8
            found = (
                self._fixed(at, width, "<f4" if width == 4 else "<f8") if wanted is not None else at
            )
            at = self._within(at + width, end)
        elif name == "boolean":
            found = self._data[at]
            at = self._kept(self._within(at + 1, end), found <= 1)
        elif name == "fixed":
            found = at
            size = np.full(len(at), kind.size)
            at = self._within(at + kind.size, end)
        elif name in ("bytes", "string"):
            size, at = self._varint(at, end)
            at = self._kept(at, (size >= 0) & (size <= end - at))
            found, size = at, np.where(at == self._dead, 0, size)
            at = at + size
        else:
            return at

        self._note(wanted, kind, rows, found, size)
        return at

    def _union(
        self, kind: AvroType, at: Ints, end: Ints, rows: Ints, *, wanted: Any, depth: int
    ) -> Ints:
        branch, at = self._varint(at, end)
        at = self._kept(at, (branch >= 0) & (branch < len(kind.parts)))
        alive = at != self._dead
        for number in np.unique(branch[alive]).tolist():
            here = np.flatnonzero(alive & (branch == number))
            inner = kind.parts[number]
            at[here] = self._any(
                inner, at[here], end[here], rows[here], wanted=wanted, depth=depth + 1
            )

        return at

    def _items(self, kind: AvroType, at: Ints, end: Ints, rows: Ints, depth: int) -> Ints:
        """Pass blocks of items, until a block of none."""
        at, open_ = at.copy(), np.arange(len(at))
        nothing = kind.kind == "array" and kind.parts[0].empty
        while len(open_) > FEW:
            limit = end[open_]
            count, after = self._varint(at[open_], limit)
            size = np.zeros(len(open_), np.int64)
            sized = np.flatnonzero(count < 0)
            size[sized], after[sized] = self._varint(after[sized], limit[sized])

            good = (count > -(2**62)) & (size >= 0) & (size <= limit - after)
            count = np.where(good, np.abs(count), 0)
            each = (size == 0) & (not nothing)
            self._left[rows[open_]] -= 1 + np.where(
                each & (avro_item_width(kind) == 0), np.minimum(count, MAX_STEPS), 0
            )
            after = self._kept(
                after, good & (self._left[rows[open_]] >= 0) & (~each | (count <= limit - after))
            )
            alive = after != self._dead
            after = np.where(alive, after + size, after)

            if each.any():
                after = self._loop(
                    kind,
                    after,
                    limit,
                    rows[open_],
                    count=np.where(alive & each, count, 0),
                    depth=depth,
                )

            at[open_] = after
            open_ = open_[(count != 0) & (after != self._dead)]

        at[open_] = self._one_by_one(
            lambda one, place: one.items(kind, place, depth), at[open_], end[open_], rows[open_]
        )
        return at

    def _one_by_one(
        self, move: Callable[[AvroSkipper, int], int], at: Ints, end: Ints, rows: Ints
    ) -> Ints:
        """Move the cursor of each of a few records by itself."""
        found = at.copy()
        for i, (place, limit, row) in enumerate(
            zip(at.tolist(), end.tolist(), rows.tolist(), strict=True)
        ):
            if place != self._dead:
                one = AvroSkipper(self._data.data, limit, int(self._left[row]))
                after = move(one, place)
                found[i] = self._dead if after < 0 else after
                self._left[row] = one.left

        return found

    def _loop(
        self, kind: AvroType, at: Ints, end: Ints, rows: Ints, *, count: Ints, depth: int
    ) -> Ints:
        """Pass that many items, one after the other."""
        items = kind.parts[0]
        width = avro_item_width(kind)
        if width:
            return np.where(count * width <= end - at, at + count * width, self._dead)

        open_ = np.flatnonzero(count)
        done = 0
        while len(open_) > FEW:
            here = at[open_]
            limit = end[open_]
            whose = rows[open_]
            if kind.kind == "map":
                here = self._plain(_KEY, here, limit, whose, None)

            at[open_] = self._any(items, here, limit, whose, wanted=None, depth=depth + 1)
            done += 1
            open_ = open_[(count[open_] > done) & (at[open_] != self._dead)]

        left = iter((count[open_] - done).tolist())  # none of these records is broken
        at[open_] = self._one_by_one(
            lambda one, place: one.several(kind, place, next(left), depth),
            at[open_],
            end[open_],
            rows[open_],
        )

        return at

    def _varint(self, at: Ints, end: Ints) -> tuple[Ints, Ints]:
        """Read whole numbers of at most 64 bits."""
        byte = self._data[at]
        number = (byte & 0x7F).astype(np.uint64)
        at = at + 1
        more = np.flatnonzero(byte >= 0x80)
        shift = 7

        while len(more) and shift < 70:
            byte = self._data[at[more]]
            if shift == 63:
                over = byte > 1
                at[more[over]] = self._dead + 1
                byte = np.where(over, 0, byte).astype(np.uint8)

            number[more] |= (byte & 0x7F).astype(np.uint64) << np.uint64(shift)
            at[more] = np.minimum(at[more] + 1, self._dead + 1)
            more = more[byte >= 0x80]
            shift += 7

        signed = (number >> np.uint64(1)).astype(np.int64) ^ -(
            (number & np.uint64(1)).astype(np.int64)
        )
        return signed, self._within(at, end)

    def _fixed(self, at: Ints, width: int, kind: str) -> npt.NDArray[Any]:
        """Gather numbers of a fixed width."""
        return np.asarray(self._data[at[:, None] + np.arange(width)].view(kind).ravel())

    def _within(self, at: Ints, end: Ints) -> Ints:
        return np.where(at > end, self._dead, at)

    def _kept(self, at: Ints, good: Bools) -> Ints:
        return np.where(good, at, self._dead)


_KEY = AvroType("string")


def _parts_in(wanted: Any) -> list[str]:
    """List the parts that are wanted somewhere within."""
    if isinstance(wanted, str):
        return [wanted]
    return [part for inner in wanted.values() for part in _parts_in(inner)]

"""One Avro value passed byte by byte.

What a cursor of many records does where there are few, at a step for each item.

An array of a hundred thousand items costs as many steps whether one record has it or a thousand do:
by arrays each step takes tens of microseconds, here about one. What becomes of a record is the
same.
"""

from __future__ import annotations

from meanstream.streaming.sources.formats.avro_schema import AvroType

MAX_STEPS = 1 << 17
"""Items of arrays and maps, and fields, that are read one after the other in a record, at most."""
MAX_DEPTH = 64
"""Types within each other in one record."""
_BROKEN = -1
_FIXED = {"float": 4, "double": 8, "null": 0}


def avro_item_width(kind: AvroType) -> int:
    """Give the bytes of each item of an array, where they are the same; else 0."""
    items = kind.parts[0]

    if kind.kind == "array":
        return {"float": 4, "double": 8, "fixed": items.size}.get(items.kind, 0)
    return 0


class AvroSkipper:
    """Passes values of one record.

    Attributes
    ----------
    left : int
        Steps that the record may still take.
    """

    def __init__(self, data: memoryview, end: int, left: int) -> None:
        self._data = data
        self._end = end
        self.left = left

    def value(self, kind: AvroType, at: int, depth: int) -> int:  # noqa: PLR0911
        """Give where a value ends that begins here; -1 if it is broken."""
        if kind.empty or at < 0:
            return at
        if depth > MAX_DEPTH:
            return _BROKEN

        name = kind.kind
        if name == "union":
            branch, at = self._varint(at)

            if 0 <= branch < len(kind.parts):
                return self.value(kind.parts[branch], at, depth + 1)
            return _BROKEN

        if name == "record":
            return self._fields(kind, at, depth)
        if name in ("array", "map"):
            return self.items(kind, at, depth)

        return self._plain(kind, at)

    def items(self, kind: AvroType, at: int, depth: int) -> int:
        """Pass blocks of items, until a block of none."""
        nothing = kind.kind == "array" and kind.parts[0].empty
        width = avro_item_width(kind)
        count = 1
        while count and at >= 0:
            count, at = self._varint(at)
            size = 0

            if count < 0:
                size, at = self._varint(at)

            if at < 0 or count <= -(2**62) or not 0 <= size <= self._end - at:
                return _BROKEN
            count = abs(count)
            each = not size and not nothing
            self.left -= 1 + (min(count, MAX_STEPS) if each and not width else 0)

            if self.left < 0 or (each and count > self._end - at):
                return _BROKEN
            at = self.several(kind, at, count, depth) if each else at + size

        return at

    def several(self, kind: AvroType, at: int, count: int, depth: int) -> int:
        """Pass that many items."""
        items = kind.parts[0]
        width = avro_item_width(kind)
        if width:
            return self._within(at + count * width)

        keys = kind.kind == "map"
        while count and at >= 0:
            at = self.value(items, self._text(at) if keys else at, depth + 1)
            count -= 1

        return at

    def _fields(self, kind: AvroType, at: int, depth: int) -> int:
        self.left -= len(kind.parts)
        if self.left < 0:
            return _BROKEN

        for part in kind.parts:
            at = self.value(part, at, depth + 1)
            if at < 0:
                break

        return at

    def _plain(self, kind: AvroType, at: int) -> int:
        name = kind.kind
        if name in ("int", "long", "enum"):
            found, at = self._varint(at)

            if name == "enum" and not 0 <= found < len(kind.names):
                return _BROKEN
            return at

        if name in ("bytes", "string"):
            return self._text(at)

        if name == "boolean":
            if at < self._end and self._data[at] <= 1:
                return at + 1
            return _BROKEN

        return self._within(at + (kind.size if name == "fixed" else _FIXED[name]))

    def _text(self, at: int) -> int:
        size, at = self._varint(at)

        if at >= 0 and 0 <= size <= self._end - at:
            return at + size
        return _BROKEN

    def _varint(self, at: int) -> tuple[int, int]:
        """Read a whole number of at most 64 bits; 0 and -1 where there is none."""
        number = shift = 0
        data = self._data
        end = self._end
        while 0 <= at < end:
            byte = data[at]
            at += 1
            number |= (byte & 0x7F) << shift
            if byte < 0x80:
                if shift == 63 and byte > 1:
                    return (0, _BROKEN)
                return ((number >> 1) ^ -(number & 1), at)

            shift += 7
            if shift > 63:
                break

        return 0, _BROKEN

    def _within(self, at: int) -> int:
        if at <= self._end:
            return at
        return _BROKEN

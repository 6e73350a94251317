"""State of which a window changes little.

All of it in one cell, and in a bag what has changed since.

A runner reads and writes a cell whole. Of many agents few send something in a window, so a window
adds what it has changed to a bag, and once the bag holds an eighth of the whole, the whole is
written again. A small cell says which state it is: a worker that still has it in memory reads
nothing else.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Callable, Iterable
from typing import Any

from meanstream.pipelines.beam.element_types.events import DamagedBytesError
from meanstream.streaming.store.state_snapshot import CHECKSUM_BYTES

VERSION = 1
PART = 8
"""The bag holds less than this part of the whole; so much more than what changes is written in the
end."""

_HEAD = struct.Struct(f"<BqqQ{CHECKSUM_BYTES}s")
"""Version, bytes of the whole and of the changes, number of the changes, digest."""
_NUMBER = struct.Struct(">Q")  # bytes that sort as the numbers


class StateJournal:
    """The whole of a key's state, its changes, and the cell that says which they are.

    Parameters
    ----------
    whole, head : cell
        Of bytes; the whole ends with its own checksum.
    changes : bag state
        Of bytes, in any order.

    Attributes
    ----------
    mark : bytes
        Equal marks are equal states; empty where there is none.

    Examples
    --------
    >>> class Cell:
    ...     def __init__(self): self.values = []
    ...     def read(self): return self.values
    ...     def add(self, value): self.values.append(value)
    ...     def clear(self): self.values.clear()
    >>> class One(Cell):
    ...     def read(self): return self.values[0] if self.values else None
    ...     def write(self, value): self.values = [value]
    >>> cells = One(), Cell(), One()
    >>> StateJournal(*cells).save(None, lambda: b"a hundred agents" * 10)
    >>> StateJournal(*cells).save(b"one of them", lambda: b"not asked for")
    >>> StateJournal(*cells).read() == (b"a hundred agents" * 10, [b"one of them"])
    True
    """

    def __init__(self, whole: Any, changes: Any, head: Any) -> None:
        self._whole = whole
        self._changes = changes
        self._head = head
        self.mark: bytes = head.read() or b""
        self._size = 0
        self._added = 0
        self._number = 0
        self._digest = b""

        if self.mark:
            if len(self.mark) != _HEAD.size or self.mark[0] != VERSION:
                raise DamagedBytesError(
                    f"head of a state must be of version {VERSION}, got another"
                )

            _, self._size, self._added, self._number, self._digest = _HEAD.unpack(self.mark)

    def read(self) -> tuple[bytes, list[bytes]]:
        """Give the whole, and the changes in their order."""
        whole = self._whole.read() or b""
        changes = sorted(self._changes.read()) if self.mark else []

        if not whole and not self.mark:
            return b"", []
        if _digest(whole, changes) != self._digest:
            raise DamagedBytesError(
                "state must be the whole and the changes that its head names, got others"
            )

        return whole, [change[_NUMBER.size :] for change in changes]

    def save(self, change: bytes | None, whole: Callable[[], bytes]) -> None:
        """Add a change, or write the whole where that is due; without a change it always is."""
        if change is None or not self.mark or PART * (self._added + len(change)) > self._size:
            encoded = whole()
            self._whole.write(encoded)

            if self._number:
                self._changes.clear()

            self._size = len(encoded)
            self._added = 0
            self._number = 0
            self._digest = _digest(encoded, ())
        else:
            numbered = _NUMBER.pack(self._number) + change
            self._changes.add(numbered)
            self._added += len(change)
            self._number += 1
            self._digest = _chained(self._digest, numbered)

        self.mark = _HEAD.pack(VERSION, self._size, self._added, self._number, self._digest)
        self._head.write(self.mark)


def _digest(whole: bytes, changes: Iterable[bytes]) -> bytes:
    digest = whole[-CHECKSUM_BYTES:]
    for change in changes:
        digest = _chained(digest, change)

    return digest


def _chained(digest: bytes, more: bytes) -> bytes:
    return hashlib.blake2b(more, key=digest, digest_size=CHECKSUM_BYTES).digest()

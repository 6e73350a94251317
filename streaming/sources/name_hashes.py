"""Names found by hash, a batch at a time.

The same work for a batch however many names there are.
"""

from __future__ import annotations

import secrets

import numpy as np
import pyarrow as pa
from pyarrow import compute as pc

from meanstream.operators.records import Bools, Ints, Words

try:
    from meanstream.streaming.sources import compiled_records
except ImportError:  # installed without a compiler
    COMPILED = False
else:
    COMPILED = True

LONGEST = 64
"""Bytes of a name that is found by its hash; longer ones are not found here."""

ROOM = 4
"""Slots of the table for each name, at least: then some 3 % of the names have no slot, and are not
found here."""

_FIRST = 1 << 12
_ODD = (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB)
_KEPT = np.array([(1 << 8 * n) - 1 for n in range(9)], np.uint64)
"""Masks of the first bytes of a word."""


class CompiledNameTable:
    """Codes of names, as `NameHashTable` gives them, by a table in C.

    A random number in its hashes lets nobody choose names that share a slot; who does all the same
    makes names that are not found here.
    """

    def __init__(self) -> None:
        self._names = compiled_records.Names(secrets.randbits(64))

    def __len__(self) -> int:
        return len(self._names)

    def find(self, texts: pa.Array) -> Ints:
        """Give codes of names, in their order; -1 where one is not found."""
        if texts.null_count:
            texts = texts.fill_null(b"")

        _, ends, data = texts.buffers()
        wanted = memoryview(ends)[4 * texts.offset : 4 * (texts.offset + len(texts) + 1)]
        codes = self._names.find(wanted, b"" if data is None else data)
        return np.frombuffer(codes, np.int64).copy()

    def add(self, names: list[bytes]) -> None:
        """Give the next codes to names that have none."""
        self._names.add(names)


class NameHashTable:
    """Codes of names, by their hash, in arrays.

    A name that is found is compared with the whole name: hashes that agree, by accident or because
    someone has made them agree, cost time and nothing else.

    Examples
    --------
    >>> table = NameHashTable()
    >>> table.add([b"ann", b"bob"])
    >>> table.find(pa.array([b"bob", b"", None, b"carol", b"ann"])).tolist()
    [1, -1, -1, -1, 0]
    """

    def __init__(self) -> None:
        self._names: list[pa.Array] = []
        self._hashes: Words = np.zeros(0, np.uint64)
        self._slots = np.full(_FIRST, -1, np.int32)

    def __len__(self) -> int:
        return len(self._hashes)

    def find(self, texts: pa.Array) -> Ints:
        """Give codes of names, in their order; -1 where one is not found."""
        codes = np.full(len(texts), -1, np.int64)
        if not len(self):
            return codes
        hashes, short = _hashes(texts)

        for place in _slots_of(hashes, len(self._slots)):
            found = self._slots[place]
            good = short & (codes < 0) & (found >= 0) & (self._hashes[found] == hashes)
            codes[good] = found[good]

        there = np.flatnonzero(codes >= 0)
        same = pc.equal(self._whole().take(pa.array(codes[there])), texts.take(pa.array(there)))
        codes[there[~np.asarray(same.fill_null(False), np.bool_)]] = -1
        return codes

    def add(self, names: list[bytes]) -> None:
        """Give the next codes to names that have none."""
        fresh = pa.array(names, pa.binary())
        self._names.append(fresh)
        before = len(self)
        self._hashes = np.concatenate([self._hashes, _hashes(fresh)[0]])

        if ROOM * len(self) > len(self._slots):
            self._slots = np.full(1 << (2 * ROOM * len(self) - 1).bit_length(), -1, np.int32)
            before = 0

        codes = np.arange(before, len(self), dtype=np.int32)
        for which in range(2):  # who finds its first slot taken may have a second
            place = _slots_of(self._hashes[codes], len(self._slots))[which]
            free = self._slots[place] < 0
            self._slots[place[free]] = codes[free]
            codes = codes[self._slots[place] != codes]

    def _whole(self) -> pa.Array:
        if len(self._names) > 1:
            self._names = [pa.concat_arrays(self._names)]

        return self._names[0]


def _slots_of(hashes: Words, slots: int) -> tuple[Ints, Ints]:
    """Give the two slots of each hash; there is a power of two of them."""
    last = np.uint64(slots - 1)
    return (hashes & last).astype(np.int64), (hashes >> np.uint64(32) & last).astype(np.int64)


def _hashes(texts: pa.Array) -> tuple[Words, Bools]:
    """Hash texts, eight bytes at a time; say which are short enough to be hashed whole."""
    texts = texts.cast(pa.binary())
    _, ends, data = texts.buffers()
    offsets = np.frombuffer(ends, np.int32)[texts.offset : texts.offset + len(texts) + 1].astype(
        np.int64
    )
    begin = offsets[:-1]
    length = np.diff(offsets)
    short = length <= LONGEST
    first = int(offsets[0])
    last = int(offsets[-1])
    padded = np.zeros(last - first + LONGEST + 8, np.uint8)

    if last > first:
        padded[: last - first] = np.frombuffer(data, np.uint8)[first:last]

    # A word of eight bytes begins at every byte.
    words = np.ndarray(len(padded) - 7, "<u8", padded, strides=(1,))
    hashed = length.astype(np.uint64) * np.uint64(_ODD[0])
    for at in range(0, int(length[short].max(initial=0)), 8):
        kept = _KEPT[np.clip(length - at, 0, 8)]
        hashed = (hashed ^ (words[begin - first + at * short] & kept)) * np.uint64(_ODD[1])
        hashed ^= hashed >> np.uint64(29)

    hashed *= np.uint64(_ODD[2])
    return hashed ^ hashed >> np.uint64(32), short

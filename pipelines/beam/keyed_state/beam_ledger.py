"""What each owner of a shard has paid for, as bytes of its state."""

from __future__ import annotations

import struct

import numpy as np

from meanstream.operators.records import Bools, Ints, Words
from meanstream.pipelines.beam.element_types.events import DamagedBytesError

LEDGER_VERSION = 1

_HEAD = struct.Struct("<Bq")


class SpendLedger:
    """Rounds that each user of a shard has paid for.

    Parameters
    ----------
    encoded : bytes
        As `to_bytes` gives it; empty at first.

    Examples
    --------
    >>> ledger = SpendLedger(b"")
    >>> users = np.array([[1, 2], [3, 4]], np.uint64)
    >>> ledger.spent(users).tolist(), ledger.charge(users[:1]), SpendLedger(ledger.to_bytes()).spent(users).tolist()
    ([0, 0], None, [1, 0])
    """

    def __init__(self, encoded: bytes) -> None:
        self._words: Words = np.zeros((0, 2), np.uint64)
        self._rounds: Ints = np.zeros(0, np.int64)

        if encoded:
            version, n = _HEAD.unpack_from(encoded)
            if version != LEDGER_VERSION:
                raise DamagedBytesError(
                    f"ledger of a shard must be of version {LEDGER_VERSION}, got {version}"
                )

            self._words = (
                np.frombuffer(encoded, "<u8", 2 * n, _HEAD.size).reshape(n, 2).astype(np.uint64)
            )
            self._rounds = np.frombuffer(encoded, "<i8", n, _HEAD.size + 16 * n).astype(np.int64)

    def to_bytes(self) -> bytes:
        """Give what makes the same ledger again."""
        head = _HEAD.pack(LEDGER_VERSION, len(self._rounds))
        return b"".join(
            [head, self._words.astype("<u8").tobytes(), self._rounds.astype("<i8").tobytes()]
        )

    def __len__(self) -> int:
        return len(self._rounds)

    def spent(self, words: Words) -> Ints:
        """Tell how many rounds each user has paid for."""
        place, known = self._find(words)
        spent = np.zeros(len(words), np.int64)
        spent[known] = self._rounds[place[known]]
        return spent

    def charge(self, words: Words) -> None:
        """Charge one round to each of these different users."""
        place, known = self._find(words)
        self._rounds[place[known]] += 1

        if not known.all():
            self._words = np.concatenate([self._words, words[~known]])
            self._rounds = np.concatenate([self._rounds, np.ones(int((~known).sum()), np.int64)])
            order = np.lexsort((self._words[:, 1], self._words[:, 0]))
            self._words, self._rounds = self._words[order], self._rounds[order]

    def charge_at_least(self, words: Words, rounds: Ints) -> None:
        """Charge users, of whom one may occur many times, at least so much in all."""
        who, place = np.unique(words, axis=0, return_inverse=True)
        most = np.zeros(len(who), np.int64)
        np.maximum.at(most, place.ravel(), rounds)

        while (less := self.spent(who) < most).any():
            self.charge(who[less])

    def _find(self, words: Words) -> tuple[Ints, Bools]:
        keys = _bytes_of(self._words)
        wanted = _bytes_of(words)
        place = np.searchsorted(keys, wanted)
        known = place < len(keys)
        known[known] = keys[place[known]] == wanted[known]

        return place.astype(np.int64), known


def _bytes_of(words: Words) -> np.ndarray:
    """Sort and compare both halves as one: big-endian bytes keep the order of the numbers."""
    if len(words):
        return np.ascontiguousarray(words.astype(">u8")).view("S16")[:, 0]
    return np.zeros(0, "S16")

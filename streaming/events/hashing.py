"""Sample ids hashed in bulk, keyed, to 64 bits."""

from __future__ import annotations

import hashlib
from functools import lru_cache

import numpy as np

from meanstream.operators.records import Ints, Words

MAX_ID_BYTES = 256

PERSONS = b" of persons"
"""Key of the hash of persons: no secret, so that anyone who reads a person's samples, and how,
counts them as one's."""


@lru_cache(maxsize=4)
def _table(key: bytes) -> Words:
    """Random words for every (position, byte), drawn from the key."""
    stream = hashlib.shake_256(b"meanstream sample ids" + key).digest(MAX_ID_BYTES * 256 * 8)
    return np.frombuffer(stream, "<u8").reshape(MAX_ID_BYTES, 256)


def hash_ids(data: np.ndarray, offsets: Ints, key: bytes = b"") -> Words:
    """Hash byte strings that lie one after the other.

    Simple tabulation hashing, a table look-up per byte.

    Two different ids collide with probability 2**-64 over the key, which anyone who writes the ids
    does not know.

    Examples
    --------
    >>> ids = np.frombuffer(b"aabab", np.uint8)
    >>> a, ab, again = hash_ids(ids, np.array([0, 1, 3, 5])).tolist()
    >>> a != ab, ab == again
    (True, True)
    """
    if len(offsets) < 2:
        return np.zeros(0, np.uint64)
    length, data = np.diff(offsets), data[offsets[0] : offsets[-1]]
    table = _table(key)

    if np.all(length == length[0]):  # as most are: then a position at a time is three times as fast
        words = np.zeros(len(length), np.uint64)
        for position, column in zip(table, data.reshape(len(length), -1).T, strict=False):
            words ^= position[column]

        return words

    start = offsets[:-1] - offsets[0]
    place = np.arange(len(data)) - np.repeat(start, length)
    return np.bitwise_xor.reduceat(table[place, data], start)

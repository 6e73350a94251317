"""Public numbers that hashes of users decide.

Which coordinate a user reports about, and random signs.
"""

from __future__ import annotations

import hashlib

import numpy as np
import numpy.typing as npt

from meanstream.operators.noise.random_bits import mix_hash
from meanstream.operators.records import Ints, Words

SEED_BITS = 62
"""A seed in a report is not negative, and below 2**62."""


def hash_users(user: Words, key: bytes) -> Words:
    """Scramble the hashes of users with a public key.

    Parameters
    ----------
    user : uint64 array (n, 2)
        From `owner_words`.
    key : bytes
        Public: what the numbers are for. Another key gives other numbers, independent as far as
        statistics go.

    Returns
    -------
    uint64 array (n,)

    Notes
    -----
    **Privacy.** The numbers depend on who a user is and on nothing that it knows.
    """
    word = np.uint64(int.from_bytes(hashlib.blake2b(key, digest_size=8).digest(), "little"))
    return mix_hash(user[:, 0] ^ mix_hash(user[:, 1] ^ word))


def hash_below(hashed: Words, limit: int) -> Ints:
    """Turn hashes into integers from 0 to `limit` - 1, evenly but for 2**-32.

    Examples
    --------
    >>> hash_below(np.array([0, 2**63, 2**64 - 1], np.uint64), 10)
    array([0, 5, 9])
    """
    return ((hashed >> np.uint64(32)) * np.uint64(limit) >> np.uint64(32)).astype(np.int64)


def hash_seeds(hashed: Words) -> Ints:
    """Turn hashes into seeds that fit into a report."""
    return (hashed >> np.uint64(64 - SEED_BITS)).astype(np.int64)


def hash_signs(seed: Ints, count: int) -> npt.NDArray[np.int8]:
    """Make random signs from each seed: the same on every machine, for anyone who reads the report.

    Parameters
    ----------
    seed : int64 array (n,)
    count : int
        How many signs.

    Returns
    -------
    int8 array (n, count)
        -1 or 1.

    Examples
    --------
    >>> hash_signs(np.array([1, 2]), 8)
    array([[ 1, -1, -1, -1, -1,  1, -1,  1],
           [ 1, -1,  1,  1,  1,  1,  1, -1]], dtype=int8)
    """
    blocks = np.arange(1, -(-count // 64) + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    words = mix_hash(mix_hash(seed.astype(np.uint64)[:, np.newaxis] + np.uint64(1)) + blocks)
    raw = (
        np.ascontiguousarray(words, dtype="<u8").view(np.uint8).reshape(len(seed), 8 * len(blocks))
    )
    bits = np.unpackbits(raw, axis=1, bitorder="little")[:, :count]

    return np.asarray(1 - 2 * bits.astype(np.int8), dtype=np.int8)

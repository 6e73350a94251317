"""Pairs of rows by what they hold, under a key: for rows whose order says nothing that is public.

A frame may come sorted by its values. Then pairs of neighboring rows would all move with one value.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import betainc

from meanstream.operators.noise.keyed import NoiseSource
from meanstream.operators.records import AnyInts, Floats, Ints, Words

ROWS_OF_BUCKET = 4
"""Rows of an agent for each of its buckets: one bucket in eleven has no pair, then."""
KEYS = 1 << 16
MOST_KEYS = 1 << 20
"""More tell nothing that noise leaves to be seen, and take time."""

_LAST = np.uint64(KEYS - 1)
_HALF = np.uint64(0xFFFFFFFF)


@dataclass(frozen=True, slots=True)
class ContentPairs:
    """Private but for `number`: pairs of rows of agents.

    Attributes
    ----------
    agent, difference : int array (p,)
        Whose each is, and how far apart the two rows are, in grid units.
    number : float array (agents,)
        Public: how many pairs an agent with that many rows is expected to have.
    """

    agent: Ints
    difference: Ints
    number: Floats


def content_pairs(
    agent: AnyInts, point: Ints, span: int, owner: Words, noise: NoiseSource
) -> ContentPairs:
    """Pair the rows of each agent by keyed hashes of what they hold.

    Parameters
    ----------
    agent, point : int array (n,)
        Whose each row is, and its value in grid units; in any order, which changes nothing.
    span : int
        Width of the bounds in grid units.
    owner : uint64 array (agents, 2)
        Hash of each agent's name.
    noise : NoiseSource
        Its key decides which rows are a pair.

    Notes
    -----
    The key of a row is its value and its number among the rows of its agent with that value. Hashes
    put an agent's n keys into `max(1, n // 4)` buckets; the two least hashes of each bucket that
    has two are a pair. Of more than a million keys those are used whose hashes are small.

    **Privacy.** A replaced row takes one key away and adds another, so at most two buckets have another pair: four
    counts change by one, by 4 (l1) and at most `sqrt(8)` (l2). How many buckets have a pair follows from the values, so
    the number that is expected, a function of the numbers of rows, is told in its place.

    Examples
    --------
    >>> from meanstream.operators.noise.keyed import KeyedNoise, keyed_owner_words
    >>> noise = KeyedNoise(bytes.fromhex("9b1f6c04d2a85e73bb40c9f1e6a7250d"), deployment="doc", purpose="p")
    >>> owner = keyed_owner_words(["a", "b"])
    >>> pairs = content_pairs(np.array([0, 0, 1]), np.array([7, 3, 1]), 8, owner, noise)
    >>> pairs.difference.tolist(), pairs.number.tolist()
    ([4], [1.0, 0.0])
    """
    rows = np.bincount(agent, minlength=len(owner))
    share = _share_of_keys(len(agent))
    buckets = _buckets(rows, share)
    agent, point, hashes = _kept_keys(agent, point, span, owner, noise, share)

    spread = (hashes >> np.uint64(16)) & _HALF
    bucket = (spread * buckets[agent].astype(np.uint64) >> np.uint64(32)).astype(np.int64)
    bucket += (np.cumsum(buckets) - buckets)[agent]
    order = np.lexsort(((hashes >> np.uint64(48) << np.uint64(16)) | (hashes & _LAST), bucket))

    ordered = bucket[order]
    begins = np.ones(len(order), np.bool_)
    begins[1:] = ordered[1:] != ordered[:-1]
    first = np.flatnonzero(begins[:-1] & ~begins[1:])
    one = order[first]
    other = order[first + 1]

    return ContentPairs(agent[one], np.abs(point[one] - point[other]), expected_pairs(rows, share))


def expected_pairs(rows: Ints, share: int = KEYS) -> Floats:
    """Public: the expected number of pairs of agents with so many rows.

    Of their keys, `share` of 65,536 are used.

    Examples
    --------
    >>> expected_pairs(np.array([0, 1, 2, 7, 8, 4000])).round(2).tolist()
    [0.0, 0.0, 1.0, 1.0, 1.93, 908.53]
    """
    sizes, which = np.unique(rows, return_inverse=True)
    buckets = _buckets(sizes, share)
    # That a bucket has two keys or more, as a binomial law says it.
    full = betainc(2.0, np.maximum(sizes - 1.0, 1.0), share / (KEYS * buckets))
    pairs = buckets * np.where(sizes > 1, full, 0.0)

    return np.asarray(pairs[which], np.float64)


def _share_of_keys(rows: int) -> int:
    """Public: how many of 65,536 keys are used, by their hashes: about a million of them are enough."""
    return min(MOST_KEYS * KEYS // max(rows, 1), KEYS)


def _buckets(rows: Ints, share: int) -> Ints:
    return np.maximum(rows * share // (KEYS * ROWS_OF_BUCKET), 1)


def _kept_keys(  # noqa: PLR0917
    agent: AnyInts, point: Ints, span: int, owner: Words, noise: NoiseSource, share: int
) -> tuple[Ints, Ints, Words]:
    """Hash the keys of all rows, in an order that they alone decide; give those that are used."""
    agent, point = _sorted_by_content(agent, point, span)
    new = np.ones(len(point), np.bool_)
    new[1:] = (agent[1:] != agent[:-1]) | (point[1:] != point[:-1])
    place = np.arange(len(point))
    key = np.maximum.accumulate(np.where(new, place, 0))
    np.subtract(place, key, out=key)  # number among rows of that value
    key *= span + 1
    key += point

    words = noise.version_of(owner[:, 0].view(np.int64), owner[:, 1].view(np.int64))
    hashes = noise.version_of(words.view(np.int64)[agent], key)
    if share == KEYS:
        return agent, point, hashes

    kept = np.flatnonzero((hashes & _LAST) < np.uint64(share))
    return agent[kept], point[kept], hashes[kept]


def _sorted_by_content(agent: AnyInts, point: Ints, span: int) -> tuple[Ints, Ints]:
    """Sort rows by agent and value: as one number for each, where there is room for it."""
    number = agent.astype(np.int64)
    if (int(number.max(initial=0)) + 1) * (span + 1) >= 2**62:
        order = np.lexsort((point, number))
        return number[order], point[order]

    both = number * (span + 1) + point
    both.sort()
    sorted_agent = both // (span + 1)
    both -= sorted_agent * (span + 1)

    return sorted_agent, both

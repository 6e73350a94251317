"""Keys of records without ids.

A record that is read twice has the same key both times, so it counts once.

A runner may read records again: after a restore, in a replay, or with a second reader next to a
restored one. A mark of the highest offset that was counted cannot refuse them. Beam promises no
order between steps, so records below the mark may not have been counted yet, and would be lost.
Anyone who counts holds all samples of a window until it ends: there a record that comes twice is
seen. After that the window is closed, and a record that comes again is late.
"""

from __future__ import annotations

import hashlib
from dataclasses import replace

import numpy as np

from meanstream.operators.records import Ints, Words
from meanstream.streaming.events.event_columns import SampleColumns


def record_keys(log: str, position: Ints) -> Words:
    """Give the key of each record of a topic: a number of the topic, plus the record's place in it.

    Keys stand in the order of places, so that samples of one time keep the order that they have
    without keys. Two topics share a key only where two numbers of 63 bits, which are hashes, lie as
    close as places do.

    Examples
    --------
    >>> keys = record_keys("7EXhRbMqQ2y0", np.array([0, 1, 5]))
    >>> np.diff(keys).tolist(), bool((keys > 0).all())
    ([1, 4], True)
    """
    number = int.from_bytes(hashlib.blake2b(log.encode(), digest_size=8).digest()) >> 1 | 1
    return np.asarray(position.astype(np.uint64) + np.uint64(number))


def with_record_keys(log: str, samples: SampleColumns) -> SampleColumns:
    """Give samples without ids keys by their places."""
    if samples.key is not None:
        return samples
    return replace(samples, key=record_keys(log, samples.position))

"""Which rows of a frame a store has read: a frame may come with more rows, in any order, and each counts once."""

from __future__ import annotations

import numpy as np

from meanstream.frames.frame_columns import FrameSamples
from meanstream.operators.noise.fixed_point import FixedPoint
from meanstream.operators.noise.keyed import KeyedNoise, NoiseIds, keyed_owner_words
from meanstream.operators.records import Ints, Words
from meanstream.streaming.agents.forget_agent import ROWS_READ
from meanstream.streaming.store.state_store import Store


def row_digests(noise: KeyedNoise, grid: FixedPoint, samples: FrameSamples) -> Words:
    """Private: reduce each row to 64 bits of its group, value on the grid, time and person.

    Notes
    -----
    **Privacy.** The digests are keyed with the secret of the store: whoever has the store's file alone cannot test a
    guess of a value. Two rows of different content share one with a probability of 2**-64.
    """
    keyed = noise.derived(ROWS_READ, {})
    owner = keyed_owner_words(samples.names).reshape(-1, 2)[samples.group]
    point = np.ascontiguousarray(grid.encode(samples.value), np.int64)
    parts = [point.view(np.uint64)]
    if samples.timed:
        parts.append((samples.time + 0.0).view(np.uint64))
    if samples.person is not None:
        parts.append(samples.person)
    digest = np.zeros(len(point), np.uint64)
    for index, part in enumerate(parts):
        digest = keyed.bits(NoiseIds(owner, np.full(len(point), index, np.int64), digest ^ part))[:, 0]
    return digest


def new_rows(store: Store, digests: Words) -> Ints:
    """Give the places of the rows that a store has not read, in the order of the frame.

    Of rows that are equal in all that counts, as many are read as the store has read.

    Raises
    ------
    ValueError
        If a row that the store has read is not among them.
    """
    notes = [columns["digest"] for _, columns in store.chunks(ROWS_READ)]
    read = np.sort(np.concatenate([np.zeros(0, np.uint64), *notes]))
    order = np.argsort(digests, kind="stable")
    ordered = digests[order]
    rank = np.arange(len(ordered)) - np.searchsorted(ordered, ordered)
    known = np.searchsorted(read, ordered, side="right") - np.searchsorted(read, ordered)
    missing = len(read) - int(np.count_nonzero(rank < known))
    if missing:
        raise ValueError(
            f"frame must hold every row that its store has read, got {missing:,} of {len(read):,} changed or missing: "
            "pass all rows so far, as they were; corrected data need another store, and both budgets add up"
        )
    return np.sort(order[rank >= known])

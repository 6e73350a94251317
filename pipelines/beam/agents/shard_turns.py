"""How a shard takes in many windows at once.

In as few steps, and with as few batches of releases, as can be.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from meanstream.operators.agents.agents import ReleaseBatch
from meanstream.operators.agents.sorting import order_by_agent
from meanstream.operators.records import AnyInts, Bools, Floats, Ints, ReleaseColumns
from meanstream.pipelines.beam.agents.agents_elements import AgentSamples
from meanstream.pipelines.beam.element_types.beam_samples import repeated_samples

TOGETHER = 1 << 16
"""Releases of a batch, as soon as there are several batches: an element of a pipeline stays of
moderate size."""


def steps_by_window(part: Ints) -> Iterator[Ints]:
    """Give the samples of each window, the earliest first; samples are in the order of windows."""
    yield from (
        np.split(np.arange(len(part)), np.flatnonzero(np.diff(part)) + 1) if len(part) else ()
    )


def steps_by_agent(agent: AnyInts, part: Ints, many: int) -> Iterator[Ints]:
    """Give the samples of each agent's first window, then of each one's second, and so on.

    Agents know nothing of each other here, so that a step need not be one window. Samples are in
    the order of windows.

    Examples
    --------
    >>> agent, part = np.array([0, 1, 0, 1, 0]), np.array([3, 4, 5, 5, 5])
    >>> [step.tolist() for step in steps_by_agent(agent, part, 2)]
    [[0, 1], [2, 4, 3]]
    """
    if not len(part):
        return
    order = order_by_agent(agent, many)
    begins = np.diff(agent[order].astype(np.int64), prepend=-1) != 0
    window = np.cumsum(begins | (np.diff(part[order], prepend=0) != 0))
    first = np.maximum.accumulate(np.where(begins, window, 0))
    step = window - first
    yield from np.split(order[np.argsort(step, kind="stable")], np.cumsum(np.bincount(step))[:-1])


def releases_together(batches: Sequence[ReleaseBatch]) -> Iterator[ReleaseBatch]:
    """Put batches together, up to a size, each in the order of time, agent and number.

    A batch costs as much as many.

    Of what they took the place of they say nothing.
    """
    some: list[ReleaseBatch] = []
    for batch in batches:
        if not len(batch.releases):
            continue
        some.append(batch)

        if sum(len(one.releases) for one in some) >= TOGETHER:
            yield _joined(some)
            some = []

    if some:
        yield _joined(some)


def _joined(batches: list[ReleaseBatch]) -> ReleaseBatch:
    if len(batches) == 1:
        return batches[0]
    releases = ReleaseColumns.joined([batch.releases for batch in batches])
    time = np.concatenate([batch.time for batch in batches])
    order = np.lexsort((releases.index, releases.agent, time))
    drift, since = (
        np.concatenate([getattr(batch, name) for batch in batches]) for name in ("drift", "since")
    )

    return ReleaseBatch(
        releases=releases.take(order),
        version=np.concatenate([batch.version for batch in batches])[order],
        time=time[order],
        exhausted=np.concatenate([batch.exhausted for batch in batches]),
        drift=drift[order] if len(drift) else drift,
        since=since[order] if len(since) else since,
    )


def names_together(samples: Sequence[AgentSamples]) -> tuple[list[str], list[Ints]]:
    """Give the distinct names of batches as they occur, and the numbers of each batch's names."""
    if not samples:
        return [], []
    distinct: list[pa.Array] = []
    place: list[int] = []

    # Batches of one sender repeat their names.
    for part in samples:  # where everyone sends in turn, batches have the same names
        if not distinct or not part.names.equals(distinct[-1]):
            distinct.append(part.names)

        place.append(len(distinct) - 1)

    coded = pa.concat_arrays(distinct).dictionary_encode()
    numbers = np.split(
        np.asarray(coded.indices), np.cumsum([len(names) for names in distinct])[:-1]
    )

    return coded.dictionary.to_pylist(), [numbers[at] for at in place]


def samples_order(
    samples: Sequence[AgentSamples], agent: AnyInts, time: Floats, late: Bools, part: Ints
) -> tuple[Ints | None, int]:
    """Give the samples that count, by event time, id and position, and how many are repeats.

    No order: all of them count, as they stand.
    """
    keyed = any(len(part.key) for part in samples)

    # Samples that are in order already need no sort.
    if not keyed and not late.any() and np.all(time[1:] > time[:-1]):
        return None, 0
    position = np.concatenate([part.position for part in samples])

    # Without ids the position decides among samples of one time.
    if not keyed:
        tied = (time[1:] == time[:-1]) & (position[1:] >= position[:-1])
        if not late.any() and np.all(tied | (time[1:] > time[:-1])):
            return None, 0
        order = np.lexsort((position, time))

        return order[~late[order]], 0

    key = np.concatenate(
        [part.key if len(part.key) else np.zeros(len(part), np.uint64) for part in samples]
    )
    if not late.any() and np.all(time[1:] >= time[:-1]) and np.all(key[1:] > key[:-1]):
        return None, 0

    order = np.lexsort((position, key, time))
    order = order[~late[order]]

    # An id of two windows is two samples.
    owner = agent.astype(np.int64)
    if len(part) and part[order].min(initial=0) != part[order].max(initial=0):
        owner = np.unique(np.stack([owner, part]), axis=1, return_inverse=True)[1].ravel()

    again = repeated_samples(owner[order], key[order])
    return order[~again], int(np.count_nonzero(again))

"""How a shard takes in many windows at once.

In as few steps, and with as few batches of releases, as can be.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from meanstream.operators.agents.agents import ReleaseBatch
from meanstream.operators.agents.sorting import order_by_agent
from meanstream.operators.records import AnyInts, Ints, ReleaseColumns

TOGETHER = 1 << 16
"""Releases of a batch, as soon as there are several batches: an element of a pipeline stays of
moderate size."""


def steps_by_window(part: Ints) -> Iterator[Ints]:
    """Give the samples of each window, the earliest first; samples are in the order of windows."""
    yield from (
        np.split(np.arange(len(part)), np.flatnonzero(np.diff(part)) + 1) if len(part) else ()
    )


def steps_by_agent(agent: AnyInts, part: Ints, many: int) -> Iterator[Ints]:
    """Give the samples of each of `many` agents' first window, then of each one's second, and so on.

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

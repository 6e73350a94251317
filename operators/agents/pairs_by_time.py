"""Pairs of an agent's samples that follow each other in event time: what the spread vote counts.

The order within one event time is an input like the values: a file may come sorted by them. So a
sample is in a pair only where its event time is that of no other sample of its agent.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from meanstream.operators.agents.state_columns import PRIVATE, PUBLIC, Column, Columns
from meanstream.operators.records import Floats, Ints

TIMED_PAIR_COLUMNS = (
    Column("vote_first", np.int64, privacy=PRIVATE, of="votes"),
    Column("vote_waits", np.uint8, privacy=PUBLIC, of="votes"),
    Column("vote_time", np.float64, start=-np.inf, privacy=PUBLIC, of="votes"),
)
"""The sample that waits for its partner, whether there is one, and the time of the last sample."""


class TimedPairs(NamedTuple):
    """Private: pairs of the agents of a batch, in the order of their agents.

    Attributes
    ----------
    number : int array (m,)
        How many pairs each agent of the batch completes.
    starts : int array (m,)
        Where the samples of each agent begin.
    difference : int array (p,)
        Absolute difference of the two samples, in grid units.
    complete : int array (p,)
        With which of the samples of the batch, in the order of their agents, each is complete.
    """

    number: Ints
    starts: Ints
    difference: Ints
    complete: Ints


def timed_pairs(  # noqa: PLR0917
    rows: Columns, who: Ints, point: Ints, time: Floats, starts: Ints, added: Ints
) -> TimedPairs:
    """Pair the samples of a batch; the sample without a partner is put into the state.

    Parameters
    ----------
    rows : dict
        The agents' state.
    who, starts, added : int array, shape (m,)
        Agents of the batch, where the samples of each begin, and how many there are.
    point, time : array, shape (n,)
        The samples, in grid units, and their event times, by agent in the order of time. Samples of
        one agent and event time are in one batch.

    Examples
    --------
    >>> from meanstream.operators.agents.state_columns import empty_columns
    >>> rows = empty_columns(TIMED_PAIR_COLUMNS, 1)
    >>> zero, five = np.zeros(1, np.int64), np.array([5])
    >>> time = np.array([0.0, 1.0, 1.0, 2.0, 3.0])
    >>> timed_pairs(rows, zero, np.array([3, 9, 8, 7, 1]), time, zero, five).difference.tolist()
    [4]
    >>> rows["vote_first"].tolist(), rows["vote_waits"].tolist()
    ([1], [1])
    """
    fits = _alone_at_their_time(rows, who, time, starts, added)
    place = np.flatnonzero(fits)
    fit = np.add.reduceat(fits, starts, dtype=np.int64)
    begin = np.cumsum(fit) - fit
    alone = point[place]

    waits = rows["vote_waits"][who].astype(np.int64)
    first = rows["vote_first"][who]
    number = (waits + fit) // 2
    ends = np.cumsum(number)
    second = 2 * np.arange(int(ends[-1])) + np.repeat(
        begin + 1 - waits - 2 * (ends - number), number
    )
    difference = alone[second] - alone[second - 1]
    waited = np.flatnonzero((waits == 1) & (number > 0))
    difference[(ends - number)[waited]] = alone[begin[waited]] - first[waited]

    left = (waits + fit) % 2
    newest = np.flatnonzero((left == 1) & (fit > 0))
    rows["vote_first"][who[newest]] = alone[(begin + fit - 1)[newest]]
    rows["vote_first"][who[left == 0]] = 0
    rows["vote_waits"][who] = left

    return TimedPairs(number, starts, np.abs(difference, out=difference), place[second])


def _alone_at_their_time(
    rows: Columns, who: Ints, time: Floats, starts: Ints, added: Ints
) -> np.ndarray:
    """Tell which samples share their event time with no other sample of their agent."""
    ends = starts + added - 1
    tied = np.zeros(len(time) + 1, np.bool_)  # with the one before
    np.equal(time[1:], time[:-1], out=tied[1:-1])
    tied[starts] = time[starts] == rows["vote_time"][who]
    rows["vote_time"][who] = time[ends]

    after = tied[1:].copy()  # with the one after
    after[ends] = False

    return ~(tied[:-1] | after)

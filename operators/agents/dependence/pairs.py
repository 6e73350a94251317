"""Pairs of an agent's consecutive samples.

What the spread vote counts, and what shows how samples depend.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from meanstream.operators.agents.state_columns import PRIVATE, Column, Columns
from meanstream.operators.records import Ints

PAIR_COLUMNS = (Column("pair_first", np.int64, privacy=PRIVATE, of="dependence"),)
"""The sample that waits for its partner."""


class OwnPairs(NamedTuple):
    """Private: samples 2i-1 and 2i of the agents of a batch.

    Attributes
    ----------
    waits : int array (m,)
        1 where the first sample of a pair came before the batch, else 0.
    number : int array (m,)
        How many pairs each agent of the batch completes.
    difference : int array (p,)
        Absolute difference of the two samples, in grid units, in the order of their agents.
    """

    waits: Ints
    number: Ints
    difference: Ints


def own_pairs(rows: Columns, who: Ints, point: Ints, starts: Ints, added: Ints) -> OwnPairs:
    """Pair the samples of a batch; the samples without a partner are put into the state.

    Parameters
    ----------
    rows : dict
        The agents' state; `count` is that before the batch.
    who, starts, added : int array, shape (m,)
        Agents of the batch, where the samples of each begin, and how many there are.
    point : int array, shape (n,)
        The samples, in grid units.

    Examples
    --------
    >>> rows = {"count": np.array([1]), "pair_first": np.array([7])}
    >>> zero = np.zeros(1, np.int64)
    >>> own_pairs(rows, zero, np.array([3, 9, 9]), zero, np.array([3])).difference.tolist()
    [4, 0]
    """
    before = rows["count"][who]
    waits = before % 2
    number = (waits + added) // 2
    ends = np.cumsum(number)
    second = 2 * np.arange(int(ends[-1])) + np.repeat(
        starts + 1 - waits - 2 * (ends - number), number
    )

    step = np.empty_like(point)
    step[0] = 0
    np.subtract(point[1:], point[:-1], out=step[1:])
    difference = step[second]
    waited = np.flatnonzero((waits == 1) & (number > 0))
    difference[(ends - number)[waited]] = point[starts[waited]] - rows["pair_first"][who[waited]]
    rows["pair_first"][who] = np.where((before + added) % 2 == 1, point[starts + added - 1], 0)

    return OwnPairs(waits, number, np.abs(difference, out=difference))

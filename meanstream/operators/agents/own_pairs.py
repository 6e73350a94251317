"""Pairs of an agent's consecutive samples: what the spread vote counts, and what shows how samples depend."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from meanstream.operators.records import Ints

Columns = dict[str, np.ndarray]


class OwnPairs(NamedTuple):
    """Private: samples 2i-1 and 2i of the agents of a batch.

    Attributes
    ----------
    second : int array (p,)
        Where the second sample of each pair stands in the batch, which is in the order of its agents.
    number : int array (m,)
        How many pairs each agent of the batch completes.
    difference : int array (p,)
        Absolute difference of the two samples, in grid units.
    """

    second: Ints
    number: Ints
    difference: Ints


def own_pairs_columns(n: int) -> Columns:
    """State of `n` agents that have seen nothing: the sample that waits for its partner."""
    return {"pair_first": np.zeros(n, np.int64)}


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
    first = before % 2  # 1 where the batch's first sample of an agent has a partner that waits
    number = (first + added) // 2
    place = starts + 1 - first  # of the second of each agent's first pair
    ends = np.cumsum(number)
    second = 2 * np.arange(int(number.sum())) + np.repeat(place - 2 * (ends - number), number)
    partner = point[second - 1]
    waited = np.flatnonzero((first == 1) & (number > 0))
    partner[(ends - number)[waited]] = rows["pair_first"][who[waited]]
    rows["pair_first"][who] = np.where((before + added) % 2 == 1, point[starts + added - 1], 0)
    np.subtract(point[second], partner, out=partner)
    return OwnPairs(second, number, np.abs(partner, out=partner))

"""How many agents a deployment takes.

Anyone who makes names up fills what is free, and displaces no one.
"""

from __future__ import annotations

import numpy as np

from meanstream.operators.records import Bools, Floats, Words
from meanstream.operators.validation import require

TOO_MANY = "too_many_agents"
"""The reason for which a sample of an agent that was not taken is rejected."""


def admission_columns(first: Floats, words: Words, room: int) -> Bools:
    """Say which newcomers are taken: the first ones, whatever the order in which they are given.

    Parameters
    ----------
    first : float array (n,)
        When each was heard first: event time or position.
    words : uint64 array (n, 2)
        Hash of each name, which decides among those of one time.
    room : int
        How many can be taken.

    Notes
    -----
    **Privacy.** Who is taken depends on names and times, which are public, and never on a value.

    Examples
    --------
    >>> words = np.array([[1, 1], [2, 1], [3, 1]], np.uint64)
    >>> admission_columns(np.array([7.0, 5.0, 7.0]), words, 2).tolist()
    [True, True, False]
    """
    require(room >= 0, "room", "be at least 0", room)
    taken = np.zeros(len(first), np.bool_)
    taken[np.lexsort((words[:, 1], words[:, 0], first))[:room]] = True
    return taken


def admission_names(hashes: Words, room: int) -> Bools:
    """Say which newcomers are taken where even the time at which they were heard is protected.

    By their names alone.

    Parameters
    ----------
    hashes : uint64 array (n,)
        Keyed hash of each name: anyone who lacks the key cannot make up names that come first.
    room : int
        How many can be taken; less than 0 is none.

    Notes
    -----
    **Privacy.** Who is taken depends on nothing that a user sends.

    Examples
    --------
    >>> admission_names(np.array([3, 1, 2], np.uint64), 2).tolist()
    [False, True, True]
    """
    taken = np.zeros(len(hashes), np.bool_)
    taken[np.argsort(hashes, kind="stable")[: max(room, 0)]] = True
    return taken

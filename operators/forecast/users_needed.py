"""How many users a predicted error needs."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from functools import cache

MOST_USERS = 10**9
LAST = 99 + 90 * 7
"""Position of that number among those of two significant digits."""


def users_needed(stderr: Callable[[int], float], target: float) -> int | None:
    """Find how many users make a predicted standard error small enough, to two digits.

    None if 10**9 do not.

    Parameters
    ----------
    stderr : callable
        Predicted standard error for a number of users, or a `ValueError` for too few of them; it
        falls with the number, but for small bumps where another design takes over: what fewer
        users reach counts as reached by more.
    target : float
        To be reached.

    Notes
    -----
    By halving, on the numbers of two significant digits, each of which is predicted once.

    Examples
    --------
    >>> users_needed(lambda n: 2 / n**0.5, 0.02)
    10000
    >>> users_needed(lambda n: 200 / n**1.5, 0.02)
    470
    """

    @cache
    def is_enough(position: int) -> bool:
        try:
            return stderr(_number(position)) <= target
        except ValueError:
            return False

    positions = range(LAST + 1)
    enough = bisect_left(positions, True, key=is_enough)
    if enough > LAST:
        return None

    # Below a bump fewer may do, too.
    for fewer in (enough - 4, enough - 16):
        if fewer >= 0 and is_enough(fewer):
            enough = bisect_left(positions, True, hi=fewer, key=is_enough)

    return _number(enough)


def _number(position: int) -> int:
    """Count up the whole numbers of two significant digits.

    1, 2, ..., 99, 100, 110, ..., 990, 1000, ...
    """
    if position < 99:
        return position + 1
    power, rest = divmod(position - 99, 90)
    return int((10 + rest) * 10 ** (power + 1))


def number_or(none: str, number: int | None) -> str:
    """Write a number, or what stands for none."""
    if number is None:
        return none
    return f"{number:,}"

"""How many users a predicted error needs."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache

MOST_USERS = 10**9


def users_needed(stderr: Callable[[int], float], target: float, start: int) -> int | None:
    """Find how many users make a predicted standard error small enough, to two digits.

    None if 10**9 do not.

    Parameters
    ----------
    stderr : callable
        Predicted standard error for a number of users; it falls with the number, but for small
        bumps where another design takes over: what fewer users reach counts as reached by more.
    target : float
        To be reached.
    start : int
        Where to begin: a number of users near the answer saves predictions, and changes nothing
        else.

    Notes
    -----
    On the numbers of two significant digits: halving between one that is not enough and one that is, or cutting where
    a power of the number through both errors would reach the target, by turns. Each is predicted once, and only few.

    Examples
    --------
    >>> users_needed(lambda n: 2 / n**0.5, 0.02, 50)
    10000
    >>> users_needed(lambda n: 200 / n**1.5, 0.02, 50)
    470
    """
    cached = cache(lambda position: max(stderr(_number(position)), 1e-300))
    enough = _first_enough(cached, target, _position(min(max(start, 1), MOST_USERS)))
    if enough is None:
        return None

    # Below a bump fewer may do, too.
    for fewer in (enough - 4, enough - 16):
        if fewer >= 0 and cached(fewer) <= target:
            enough = _first_enough(cached, target, fewer) or 0

    return _number(enough)


def _first_enough(stderr: Callable[[int], float], target: float, start: int) -> int | None:
    """Find a position whose error is small enough, and not that of the position before."""
    too_few = -1
    enough = LAST + 1
    position = start
    turn = 0

    while True:
        if stderr(position) <= target:
            enough = position
        else:
            too_few = position

        if enough == too_few + 1:
            if enough <= LAST:
                return enough
            return None

        guess = _guess(stderr, target, too_few, enough)
        turn += 1

        if turn % 3 == 0:
            guess = (max(too_few, 0) + min(enough, LAST)) // 2

        position = min(max(guess, too_few + 1), enough - 1)


def _guess(stderr: Callable[[int], float], target: float, too_few: int, enough: int) -> int:
    """Cut a line through the errors of both, on logarithmic scales.

    One alone is taken to fall as the root.
    """
    slope = -0.5
    known = too_few if enough > LAST else enough
    error = stderr(known)
    if too_few >= 0 and enough <= LAST and math.isfinite(stderr(too_few)):
        run = math.log(_number(enough) / _number(too_few))
        slope = math.log(error / stderr(too_few)) / run

    if not math.isfinite(error):
        return (max(too_few, 0) + min(enough, LAST)) // 2
    steps = math.log(target / error) / slope
    return _position(min(_number(known) * math.exp(min(steps, 50.0)), MOST_USERS))


def _number(position: int) -> int:
    """Count up the whole numbers of two significant digits.

    1, 2, ..., 99, 100, 110, ..., 990, 1000, ...
    """
    if position < 99:
        return position + 1
    power, rest = divmod(position - 99, 90)
    return int((10 + rest) * 10 ** (power + 1))


def _position(n: float) -> int:
    """Invert `_number`; the next one up for numbers between."""
    if n <= 99:
        return max(math.ceil(n), 1) - 1
    power = math.floor(math.log10(n)) - 1
    return 99 + 90 * (power - 1) + math.ceil(n / 10.0**power - 1e-9) - 10


LAST = _position(MOST_USERS)

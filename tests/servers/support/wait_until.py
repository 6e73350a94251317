"""Waiting for what others do: one kind of failure says that something took too long, on this
machine, this time."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

Found = TypeVar("Found")


class NotInTimeError(AssertionError):
    """Something was waited for and did not come.

    A machine that does too much at once can be the reason: the gate tries such a test once more.
    """


def wait_until(
    condition: Callable[[], Found],
    seconds: float = 60.0,
    *,
    why: Callable[[], str] = str,
    every: float = 0.05,
) -> Found:
    """Wait for something to be true, and give it.

    Raises
    ------
    NotInTimeError
        If it is not after so many seconds, with what `why` says then.
    """
    end = time.monotonic() + seconds
    while not (found := condition()):
        if time.monotonic() > end:
            raise NotInTimeError(f"not in {seconds:g} s; {why()}")
        time.sleep(every)
    return found

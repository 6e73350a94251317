"""The clock is injected, so that a test decides what time it is.

Where it jumps it is not believed at once.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import NamedTuple, Protocol

SLACK_SECONDS = 5.0
"""A clock that is set by no more than that is corrected, as any clock is."""
CONFIRM_SECONDS = 600.0
"""A clock that was set farther is believed after that time."""

_log = logging.getLogger("meanstream.clock")


class Clock(Protocol):
    """Wall-clock time, and waiting."""

    def now(self) -> float:
        """Seconds since the epoch."""

    def sleep(self, seconds: float) -> None:
        """Wait."""


class SystemClock:
    """The machine's clock."""

    def now(self) -> float:
        """Seconds since the epoch."""
        return time.time()

    def sleep(self, seconds: float) -> None:
        """Wait."""
        time.sleep(seconds)


def steady_seconds() -> float:
    """Seconds of a clock that no one sets; of Linux it goes on while the machine sleeps."""
    if hasattr(time, "CLOCK_BOOTTIME"):
        return time.clock_gettime(time.CLOCK_BOOTTIME)
    return time.monotonic()


class TimeBounds(NamedTuple):
    """The earliest and the latest time that it may be, in seconds since the epoch."""

    earliest: float
    latest: float


class CheckedClock:
    """Compares a clock that may be set with one that no one sets.

    A machine's clock that runs a day ahead for a minute would close the windows of a day, and each
    sample of them would be late. One that is set back would reject good samples as too far ahead.
    So windows close by the earlier of both clocks, and samples are plausible by the later one.
    That ends when the clock is right again, or has stayed as it is for `CONFIRM_SECONDS`.

    **Privacy.** Nothing but clocks decides.

    Parameters
    ----------
    clock : Clock
        The clock that may be set.
    steady : callable, optional
        Seconds of a clock that only goes on. None: the first one is believed.

    Examples
    --------
    >>> class Wrong:
    ...     times = iter([100.0, 101.0, 5000.0, 103.0])
    ...     def now(self): return next(self.times)
    >>> passed = iter([0.0, 1.0, 2.0, 3.0])
    >>> checked = CheckedClock(Wrong(), steady=lambda: next(passed))
    >>> [tuple(checked.bounds()) for _ in range(4)]
    [(100.0, 100.0), (101.0, 101.0), (102.0, 5000.0), (103.0, 103.0)]
    """

    def __init__(self, clock: Clock, steady: Callable[[], float] | None = None) -> None:
        self._clock = clock
        self._steady = steady
        self._believed: float | None = None  # what the steady clock is behind the other one
        self._doubted: float | None = None  # the same, of a time that is not believed yet
        self._since = 0.0

    def bounds(self) -> TimeBounds:
        """Look at both clocks."""
        now = self._clock.now()
        if self._steady is None:
            return TimeBounds(now, now)

        passed = self._steady()
        ahead = now - passed
        if self._believed is None or abs(ahead - self._believed) <= SLACK_SECONDS:
            self._believed = ahead
            self._doubted = None
            return TimeBounds(now, now)

        # Set once more, it is doubted anew.
        if self._doubted is None or abs(ahead - self._doubted) > SLACK_SECONDS:
            self._doubted = ahead
            self._since = passed
            _log.warning(
                "the machine's clock was set by %.0f s, which is believed after %.0f s",
                ahead - self._believed,
                CONFIRM_SECONDS,
            )

        if passed - self._since >= CONFIRM_SECONDS:
            self._believed = ahead
            self._doubted = None
            return TimeBounds(now, now)

        expected = self._believed + passed
        return TimeBounds(min(now, expected), max(now, expected))

"""The same line of a log at most once a second.

An outage repeats itself, and a disk fills with it.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

EVERY_SECONDS = 1.0
MOST_LINES = 1000
"""Number of different lines that are remembered."""


class OncePerSecond(logging.Filter):
    """Lets a line through once a second.

    The next one that comes through says how many were left out.

    Lines that differ in a number only are the same.

    Examples
    --------
    >>> now = iter([0.0, 0.5, 0.9, 1.0])
    >>> quiet = OncePerSecond(clock=lambda: next(now))
    >>> def line(): return logging.LogRecord("log", logging.WARNING, "", 0, "%s is away", ("broker",), None)
    >>> [quiet.filter(record) and record.getMessage() for record in (line(), line(), line(), line())]
    ['broker is away', False, False, 'broker is away (2 more of these lines were left out)']
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._clock = clock
        self._said: dict[tuple[object, ...], tuple[float, int]] = {}
        self._lock = threading.Lock()

    def filter(self, record: logging.LogRecord) -> bool:
        """Say whether a line goes through."""
        words = record.args if isinstance(record.args, tuple) else (record.args,)
        line = (
            record.levelno,
            record.msg,
            *(str(word) for word in words if not isinstance(word, int | float)),
        )
        now = self._clock()

        with self._lock:
            since, left_out = self._said.pop(line, (now - EVERY_SECONDS, 0))
            if now - since < EVERY_SECONDS:
                self._said[line] = since, left_out + 1
                return False

            self._said[line] = now, 0  # the newest is the last
            if len(self._said) > MOST_LINES:
                self._said.pop(next(iter(self._said)))

        if left_out:
            record.msg = f"{record.msg} ({left_out} more of these lines were left out)"

        return True

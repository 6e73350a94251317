"""Made-up ids of schemas: they must not stop reading, and each of them takes an answer."""

from __future__ import annotations

import logging

MAX_MISSES = 100
"""So many ids without a schema are requested in a while."""

_log = logging.getLogger("meanstream.kafka")


class SchemaMisses:
    """Counts ids without a schema that were requested of late, and how long the answers took.

    Parameters
    ----------
    while_seconds : float
        So long a while is.
    most_seconds : float
        So long all answers of a while may take, up to the one that is under way.

    Examples
    --------
    >>> misses = SchemaMisses(30.0, 5.0)
    >>> for _ in range(4):
    ...     misses.note(1.0)
    >>> misses.too_many(7.0), misses.note(1.0), misses.too_many(8.0), misses.too_many(37.0)
    (False, None, True, False)
    """

    def __init__(self, while_seconds: float, most_seconds: float) -> None:
        self._while = while_seconds
        self._most = most_seconds
        self._until = 0.0
        self._count = 0
        self._seconds = 0.0
        self._told = False

    def too_many(self, now: float) -> bool:
        """Tell whether no further id is requested.

        Says so once in a while, which ends by itself.
        """
        if self._until and now >= self._until:
            self._until = 0.0
            self._count = 0
            self._seconds = 0.0
            self._told = False

        self._until = self._until or now + self._while
        if self._count < MAX_MISSES and self._seconds < self._most:
            return False

        if not self._told:
            _log.warning(
                "the registry has no schema of the last %d new ids: for %.0f s further new ids are not looked up, "
                "and their records are rejected (unknown_schema)",
                self._count,
                self._until - now,
            )

        self._told = True
        return True

    def note(self, seconds: float) -> None:
        """Count an id without a schema, and how long the answer took."""
        self._count, self._seconds = self._count + 1, self._seconds + seconds

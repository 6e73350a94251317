"""How long a source has been silent."""

from __future__ import annotations

STEP_SECONDS = 1.0
"""Between two looks no more than this counts. A process that stood still has not looked, and
records may have come."""


class Silence:
    """Adds up the seconds in which the engine looked at a source that had nothing.

    Parameters
    ----------
    after : float or None
        A shorter silence is none. None: there never is one.

    Examples
    --------
    >>> silence = Silence(after=2.0)
    >>> [silence.look(now, quiet=True) for now in (10.0, 10.9, 11.8, 12.7, 99.0)]
    [0.0, 0.0, 0.0, 2.0, 3.0]
    >>> silence.look(99.5, quiet=False), silence.look(100.0, quiet=True)
    (0.0, 0.0)
    """

    def __init__(self, after: float | None) -> None:
        self._after = after
        self._seconds = 0.0
        self._looked: float | None = None

    def look(self, now: float, *, quiet: bool) -> float:
        """Give the silence so far in whole seconds; 0 while it is not long enough."""
        step = 0.0 if self._looked is None else min(max(now - self._looked, 0.0), STEP_SECONDS)
        self._looked = now
        self._seconds = self._seconds + step if quiet else 0.0

        if self._after is not None and self._seconds >= self._after:
            return float(int(self._seconds))
        return 0.0

"""How many came per second in the last minute."""

from __future__ import annotations

from collections import deque

WINDOW_SECONDS = 60.0
LEAST_SECONDS = 0.5
"""Between two points that are kept: at most some 120 of them."""


class RecentRate:
    """Keeps the points of a count in the last minute.

    Parameters
    ----------
    now : float
        Time at which the count was 0, in seconds of a clock.

    A clock that is set back begins a new minute.

    Examples
    --------
    >>> rate = RecentRate(0.0)
    >>> for second in range(1, 101):
    ...     rate.note(float(second), 50 * second)
    >>> rate.per_second(100.0), rate.per_second(130.0), rate.per_second(1000.0)
    (50.0, 25.0, 0.0)
    """

    def __init__(self, now: float) -> None:
        self._points = deque([(now, 0)])
        self._count = 0

    def note(self, now: float, count: int) -> None:
        """Take the newest count."""
        points = self._points
        self._count = count

        if now < points[-1][0]:  # the clock was set back: what was counted before has no time in it
            points.clear()

        if len(points) > 1 and now - points[-2][0] < LEAST_SECONDS:
            points.pop()

        points.append((now, count))
        while len(points) > 1 and points[1][0] <= now - WINDOW_SECONDS:
            points.popleft()

    def per_second(self, now: float) -> float:
        """Tell how many came per second since a minute ago, or since the begin; from any thread."""
        points = tuple(self._points) or ((now, self._count),)  # as it begins again
        since = now - WINDOW_SECONDS
        before = [point for point in points if point[0] <= since]
        begin, count = (since, before[-1][1]) if before else points[0]

        return max(self._count - count, 0) / max(now - begin, LEAST_SECONDS)

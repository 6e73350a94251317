"""A process that dies at one step of its work, as an exception that nothing catches."""

from __future__ import annotations

from meanstream.streaming.crash import CrashPoint, Moment


class Died(Exception):  # noqa: N818 - a death is no error
    """The process is gone."""


class DieAt:
    """Raise at the n-th visit of one side of a crash point."""

    def __init__(self, point: CrashPoint, moment: Moment, visit: int) -> None:
        self.at, self.left = (point, moment), visit

    def __call__(self, point: CrashPoint, moment: Moment) -> None:
        if (point, moment) == self.at:
            self.left -= 1
            if self.left == 0:
                raise Died

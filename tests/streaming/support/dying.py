"""A process that dies at one step of its work, as an exception that nothing catches."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from meanstream.streaming.crash import CrashHook, CrashPoint, Moment


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


def lives_of(run: Callable[[CrashHook], Any], points: Sequence[CrashPoint], seed: int) -> int:
    """Run again and again, dead at random, until a life gets through; say which one it was, of
    sixty at most."""
    rng, lives, dead = np.random.default_rng(seed), 0, True
    while dead and lives < 60:
        lives, point = lives + 1, points[rng.integers(len(points))]
        try:
            run(DieAt(point, rng.choice(list(Moment)), int(rng.integers(1, 4))))
            dead = False
        except Died:
            continue
    return lives


def visited(run: Callable[[CrashHook], Any]) -> set[tuple[CrashPoint, Moment]]:
    """Give the sides of the crash points that a run comes by."""
    seen = set()
    run(lambda point, moment: seen.add((point, moment)))
    return seen

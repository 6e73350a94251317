"""How good the demo's answers are.

Squared error on the held-back flights, relative to learning alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from meanstream.lab.demo.flights import Truth

if TYPE_CHECKING:
    from meanstream.operators.records import Floats, Ints

MIN_COUNT = 20
"""Aircraft with fewer flights in either half are left out of the score."""

MIN_AIRCRAFT = 100
"""A ratio over fewer aircraft says nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answers:
    """What each aircraft of the truth knew at one time.

    Its newest estimate; NaN and 0 where it had none.
    """

    count: Ints
    value: Floats
    lower: Floats
    upper: Floats
    local: Floats
    local_lower: Floats
    local_upper: Floats
    gain: Floats


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """Mean squared error relative to learning alone, its standard error, and how many aircraft it is over."""

    ratio: float
    stderr: float
    aircraft: int
    mse: float
    mse_alone: float
    coverage: float


def score_demo(
    truth: Truth, *, count: Ints, value: Floats, local: Floats, lower: Floats, upper: Floats
) -> Score | None:
    """Score estimates in the order of `truth.agent`; NaN where an aircraft has none.

    The truth is itself a mean of finitely many flights: its sampling variance is taken off both
    squared errors. An interval covers if the held-back mean lies in it after both are widened by
    that variance. None if there are too few aircraft to tell.
    """
    import numpy as np

    used = (truth.count >= MIN_COUNT) & (count >= MIN_COUNT) & np.isfinite(value)
    if used.sum() < MIN_AIRCRAFT:
        return None
    noise = truth.variance_of_mean[used]
    mine = (value[used] - truth.mean[used]) ** 2 - noise
    alone = (local[used] - truth.mean[used]) ** 2 - noise
    ratio = float(mine.sum() / alone.sum())
    # Delta method for a ratio of means over independent aircraft.
    stderr = float(np.std(mine - ratio * alone, ddof=1) / np.sqrt(used.sum()) / alone.mean())
    center = (lower[used] + upper[used]) / 2
    half = (upper[used] - lower[used]) / 2
    widened = np.sqrt(half**2 + 1.96**2 * noise)
    coverage = float(np.mean(np.abs(truth.mean[used] - center) <= widened))

    return Score(
        ratio=ratio,
        stderr=stderr,
        aircraft=int(used.sum()),
        mse=float(mine.mean()),
        mse_alone=float(alone.mean()),
        coverage=coverage,
    )

"""Public predictions of users' means in one window, and the slope by which they are used.

Users report what a forecast leaves of their mean, `x - slope * (p - mean of p)`. The mean of `p` is
taken over all users who take part, so that the mean over users stays what it was. The slope is
`cov(x, p) / var(p)`, as in PPI++ (Angelopoulos, Duchi, Zrnic 2023), from earlier windows' reports.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import asdict, dataclass, replace
from typing import Any, Self

import numpy as np

from meanstream.operators.records import Floats, Ints, Words
from meanstream.operators.rounds.base import exact_round_dot
from meanstream.operators.rounds.round_records import Public, Tally

STEPS = 2**20
"""Steps of a prediction's deviation in one half-width of the bounds."""

MEMORY = 1.0 - 1.0 / 48.0
"""Part of earlier windows' sums that stays."""

SURE = 3.0
"""Standard errors from 0 from which on the slope is used: that of a useless forecast hardly is."""

DRAWN = 1.0
"""Squared standard errors by which a slope is drawn to 0, as by James and Stein (1961)."""

OTHER = 2.0
"""Standard errors from the slope in use at which another one takes its place."""


@dataclass(frozen=True, slots=True, eq=False)
class WindowPredictions:
    """Public: what a forecast says of the users who take part in a window.

    Attributes
    ----------
    key : uint64 array (n,)
        First half of each user's hash, ascending. Two users who share one (with a probability of
        1e-7 among a million) share a prediction.
    deviation : int64 array (n,)
        Prediction less the mean of all, on [-1, 1], in `STEPS`.
    mean : float
        Mean of the predictions, on [-1, 1].
    predicted : int
        How many of the users have a prediction; the others have the mean of those.

    Examples
    --------
    >>> users = np.array([[7, 1], [3, 2], [5, 0]], np.uint64)
    >>> predictions = WindowPredictions.of(users, np.array([0.5, 0.25, np.nan]))
    >>> predictions.mean, predictions.deviation_of(users) / STEPS
    (0.375, array([ 0.125, -0.125,  0.   ]))
    """

    key: Words
    deviation: Ints
    mean: float
    predicted: int

    @classmethod
    def of(cls, users: Words, prediction: Floats) -> Self:
        """Center predictions on [-1, 1]; NaN is a user without one."""
        known = np.isfinite(prediction)
        n_known = int(np.count_nonzero(known))

        # In whole steps, so that the order of the users changes no bit.
        steps = np.rint(STEPS * np.clip(np.where(known, prediction, 0.0), -1.0, 1.0))
        total = int(steps.astype(np.int64).sum())
        mean = round(total / n_known) if n_known else 0
        order = np.argsort(users[:, 0], kind="stable")
        deviation = np.where(known, steps.astype(np.int64) - mean, 0)

        return cls(users[order, 0], deviation[order], mean / STEPS, n_known)

    def deviation_of(self, users: Words) -> Ints:
        """Give the deviations of some of the users, in `STEPS`."""
        return self.deviation[np.searchsorted(self.key, users[:, 0])]

    @property
    def variance(self) -> float:
        """Mean square of the deviations, on [-1, 1]."""
        n = max(len(self.deviation), 1)
        return exact_round_dot(self.deviation, self.deviation) / n / STEPS**2

    @property
    def farthest(self) -> float:
        """Largest deviation, on [-1, 1]."""
        return int(np.abs(self.deviation).max(initial=0)) / STEPS

    @property
    def digest(self) -> str:
        """SHA-256 of all of it, for the key of noise."""
        return hashlib.sha256(self.key.tobytes() + self.deviation.tobytes()).hexdigest()


@dataclass(frozen=True, slots=True)
class Slope:
    """Public: how much of a forecast is used, and what reports have said of that.

    Attributes
    ----------
    slope : float
        In use; 0 until reports show that it pays.
    products, squares, noise : float
        Sums over windows, with a memory: of reports times deviations, of squared deviations, and
        the variance of the first.
    mean : float, optional
        Mean of the last window's predictions.
    """

    slope: float = 0.0
    products: float = 0.0
    squares: float = 0.0
    noise: float = 0.0
    mean: float | None = None

    @classmethod
    def of(cls, plain: Public | None) -> Self:
        """Read what `plain` gave."""
        return cls(**(plain or {}))

    def plain(self) -> dict[str, Any]:
        """Plain data."""
        return asdict(self)

    def after(self, found: Public, mean: float) -> Slope:
        """Add what a window's reports on the bounds say, as `slope_sums` gave it."""
        return replace(
            self,
            products=MEMORY * self.products + found["products"],
            squares=MEMORY * self.squares + found["squares"],
            noise=MEMORY**2 * self.noise + found["noise"],
            mean=mean,
        )

    @property
    def found(self) -> tuple[float, float]:
        """The slope that reports show, and its standard error; infinite where they show none."""
        if not self.squares:
            return 0.0, math.inf
        return self.products / self.squares, math.sqrt(self.noise) / self.squares

    def better(self) -> float:
        """Give the slope to use from here on: what reports show, drawn to 0 by its error.

        Examples
        --------
        >>> [Slope(products=found, squares=5.0, noise=1.0).better() for found in (5.0, 2.0)]
        [0.96, 0.0]
        """
        slope, error = self.found
        away = abs(slope - self.slope)
        if self.slope and away <= OTHER * error:
            return self.slope

        # A slope that has just shown is more often too large than too small.
        if abs(slope) > SURE * error:
            return slope * (1.0 - DRAWN * (error / slope) ** 2)
        return 0.0 if away > SURE * error else self.slope

    def explained(self, wanted: float, variance: float) -> float:
        """Variance of users' means that another slope takes off, of these deviations."""
        slope = self.found[0]
        return ((slope - self.slope) ** 2 - (slope - wanted) ** 2) * variance


def slope_tally(reports: Ints, deviation: Ints) -> tuple[int, int, int]:
    """Public: what reports on the bounds add to the sums of their tally, exactly."""
    if not len(reports):
        return 0, 0, 0
    return (
        exact_round_dot(reports, deviation),
        int(deviation.sum()),
        exact_round_dot(deviation, deviation),
    )


def slope_sums(tally: Tally, step: float) -> dict[str, float]:
    """Public: what reports of a window say of the slope.

    Noise of reports has mean 0 and nothing to do with predictions, so that products are unbiased.

    Parameters
    ----------
    tally : Tally
        Sums of the reports, of their squares, and those of `slope_tally`.
    step : float
        What one unit of a report is, on [-1, 1].

    Examples
    --------
    >>> slope_sums(Tally(3, (6, 14, 4 * STEPS, 0, 2 * STEPS**2)), 1.0)
    {'products': 4.0, 'squares': 2.0, 'noise': 2.0}
    """
    n = tally.n
    if n < 2:
        return {"products": 0.0, "squares": 0.0, "noise": 0.0}

    # Numerators are exact: nothing cancels.
    total, squares, products, deviations, square_deviations = tally.sums
    squared = (n * square_deviations - deviations**2) / n / STEPS**2
    variance = step**2 * (n * squares - total**2) / (n * (n - 1))
    product = step * (n * products - total * deviations) / n / STEPS
    return {"products": product, "squares": squared, "noise": variance * squared}

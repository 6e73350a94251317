"""Weights and windows of the central estimators, by size.

What a user of each size contributes to the weighted mean.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from meanstream.lab.papers.cummings.grid import (
    GRID,
    SIZES,
    Bands,
    grid_band_sizes,
    grid_means,
    grid_size_bins,
    window_size_bound,
)
from meanstream.operators.records import Floats, Ints
from meanstream.operators.rounds.central_rounds import Rows
from meanstream.operators.rounds.round_records import Public, Summaries, Tally

THRESHOLDS = 64
"""Truncations tried, from equal weights to none."""


@dataclass(frozen=True, slots=True, eq=False)
class Weighting:
    """Public: per bin of `SIZES`, how a user's mean enters the weighted sum.

    Attributes
    ----------
    center : float
        On [0, 1]; offsets are from here.
    variance : float array (bins,)
        Predicted variance of a user's mean.
    weight : float array (bins,)
        At most 1; 0 for sizes that no one has, where sizes are public.
    low, high : float array (bins,)
        Window that a user's offset is clipped to.
    """

    center: float
    variance: Floats
    weight: Floats
    low: Floats
    high: Floats

    @property
    def unit(self) -> float:
        """Largest contribution of one user to the weighted sum of offsets; `GRID` steps."""
        return float((self.weight * self.radius).max())

    @property
    def radius(self) -> Floats:
        """Largest distance from the center, per bin."""
        return np.asarray(np.maximum(self.high, -self.low))

    def steps(self, bins: Ints, offset: Floats) -> Ints:
        """Weighted offsets as integers.

        Monotone in the offset, so that the window's ends bound them exactly.
        """
        return np.rint(self.weight[bins] * offset * (GRID / self.unit)).astype(np.int64)

    def weight_steps(self) -> Ints:
        """Weights as integers, at least 1."""
        return np.maximum(np.rint(GRID * self.weight), 1).astype(np.int64)

    def ends(self) -> tuple[Ints, Ints]:
        """Least and largest `steps` of a user of each size."""
        bins = np.arange(len(SIZES))
        return self.steps(bins, self.low), self.steps(bins, self.high)

    @property
    def sensitivity_of_any_size(self) -> int:
        """By how much replacing a user, size and all, changes the sum of `steps`."""
        low, high = self.ends()
        return int(high.max() - low.min())

    @property
    def sensitivity_of_same_size(self) -> int:
        """By how much replacing a user by one of the same size changes the sum of `steps`."""
        low, high = self.ends()
        return int((high - low).max())

    def encode(self, summaries: Summaries) -> Rows:
        """Private rows: bin of the size, `steps` of the clipped mean, and the square of it, `GRID` for the largest."""
        bins = grid_size_bins(summaries.count)
        offset = np.clip(grid_means(summaries) - self.center, self.low[bins], self.high[bins])
        share = self.weight[bins] * offset / self.unit
        return np.stack(
            [bins, self.steps(bins, offset), np.rint(GRID * share**2).astype(np.int64)], axis=1
        )


def cummings_weights_tally(rows: Rows) -> Tally:
    """Add up the rows of a `Weighting`.

    Sum of steps, sum of squares, and number of users of each size.
    """
    counts = np.bincount(rows[:, 0], minlength=len(SIZES)).tolist()
    return Tally(len(rows), (int(rows[:, 1].sum()), int(rows[:, 2].sum()), *counts))


def split_cummings_weights_tally(tally: Tally) -> tuple[int, int, Ints]:
    """Take apart what `cummings_weights_tally` added up."""
    sums: Sequence[int] = tally.sums or [0] * (len(SIZES) + 2)
    return sums[0], sums[1], np.array(sums[2:], np.int64)


def cummings_weights_of_private_sizes(public: Public, users: int) -> Weighting:
    """Weigh by inverse variances of sizes up to the noisy cap, Algorithms 3 and 4.

    Parameters
    ----------
    public : dict
        With `mean`, `deviation` and `cap`.
    users : int
        Number of users (public); windows hold all of theirs with probability 0.9.

    Notes
    -----
    Line 7 of Algorithm 4 prints `(p - p_i)**2` where `p (1 - p)` is meant: a weight that depends on the user's own mean
    has no bound and biases the answer (erratum C7).
    """
    variance, low, high = _windows(public, np.minimum(SIZES, public["cap"]), users)
    return Weighting(public["mean"]["value"], variance, variance.min() / variance, low, high)


def cummings_weights_of_public_sizes(
    public: Public, users: int, epsilon: float, bands: Bands
) -> Weighting:
    """Truncate inverse variances in the best way for the users at hand, Algorithm 2.

    Parameters
    ----------
    public : dict
        With `sizes`, `mean` and `deviation`.
    users : int
        Number of users.
    epsilon : float
        Privacy of the weighted sum, which decides how much weight one user may have.
    bands : tuple of (float, float)
        Ranks of the users at hand.

    Notes
    -----
    `w = min(1 / s**2, T / s)`, and T minimises `(sum w**2 s**2 + 2 max(w (b - a))**2 / epsilon**2) / (sum w)**2`; the
    paper writes the variance of Laplace noise without the 2 (erratum C2).
    """
    variance, low, high = _windows(public, SIZES, users)
    present = grid_band_sizes(public, bands)
    held = np.flatnonzero(present)
    if not held.size:
        return Weighting(public["mean"]["value"], variance, variance.min() / variance, low, high)

    s = np.sqrt(variance[held])
    width = (high - low)[held]
    number = present[held]
    thresholds = np.geomspace(1.0 / s.max(), 1.0 / s.min(), THRESHOLDS)
    weights = np.minimum(1.0 / s**2, thresholds[:, None] / s)
    noise = 2.0 * ((weights * width).max(axis=1) / epsilon) ** 2
    risk = ((weights * s) ** 2 @ number + noise) / (weights @ number) ** 2
    best = weights[int(np.argmin(risk))]
    weight = np.zeros(len(SIZES))
    weight[held] = best / best.max()

    return Weighting(public["mean"]["value"], variance, weight, low, high)


def _windows(public: Public, sizes: Ints, users: int) -> tuple[Floats, Floats, Floats]:
    """Variances of means of these sizes, and windows of means of their full sizes, around the initial mean."""
    center = public["mean"]["value"]
    ber = center * (1.0 - center)
    # Lemma 2.1: users differ by at most p (1 - p), so that more samples never make a mean less
    # precise.
    between = min(public["deviation"]["weights"] ** 2, ber)
    variance = ber / sizes + (1.0 - 1.0 / sizes) * between
    error = public["mean"]["error"]
    nearer_half = min(0.5, min(center, 1.0 - center) + error)
    radius = error + window_size_bound(SIZES, users, nearer_half, public["deviation"]["windows"])

    return variance, np.maximum(-radius, -center), np.minimum(radius, 1.0 - center)

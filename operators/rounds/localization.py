"""Bins on [-1, 1]: what users vote for, and the interval that is made of the bin with the most votes."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from meanstream.operators.records import Bools, Floats, Ints
from meanstream.operators.rounds.round_records import Public
from meanstream.operators.rounds.votes.base import MAX_BINS
from meanstream.operators.validation import require, require_positive

FINEST = 1.0 / MAX_BINS
"""Smallest half-width of a bin. Wider ones than a paper asks for are always allowed: the windows
then are wider."""


@dataclass(frozen=True, slots=True)
class Bins:
    """Bins of one half-width that cover [-1, 1]; the last one is cut at 1.

    Parameters
    ----------
    half_width : float
        Half the width of a bin, positive; 1 or more makes one bin, [-1, 1].

    Attributes
    ----------
    count : int
        Number of bins, `ceil(1 / half_width)`.

    Notes
    -----
    **Privacy.** The bins are half-open, so that every value lies in exactly one: a vote has as many ones as it is
    calibrated for also where a mean falls on an edge, which means of data on a lattice do. Closed bins give two votes
    at an edge and twice the privacy loss.

    The last bin is cut, since the middle of an overshooting one can lie outside of [-1, 1], where
    clipped means never are: their average would be biased.

    Examples
    --------
    >>> bins = Bins(0.3)
    >>> bins.count, [round(edge, 2) for edge in bins.edges(3)]
    (4, [0.8, 1.0])
    >>> bins.which(np.array([-1.0, -0.41, -0.39, 1.0]))
    array([0, 0, 1, 3])

    References
    ----------
    Kent, Berrett, Yu: Rate optimality and phase transition for user-level local differential privacy, Algorithm 2.
    """

    half_width: float

    def __post_init__(self) -> None:
        require_positive(half_width=self.half_width)
        rule = f"give at most {MAX_BINS} bins (a larger half-width)"
        require(1.0 / self.half_width <= MAX_BINS, "half_width", rule, self.half_width)

    @property
    def count(self) -> int:
        """Number of bins; a quotient that is an integer but for rounding makes no sliver of a last bin."""
        return max(math.ceil(1.0 / self.half_width - 1e-12), 1)

    def edges(self, which: int) -> tuple[float, float]:
        """Lower and upper edge of a bin, within [-1, 1]."""
        lower = -1.0 + 2.0 * which * self.half_width
        upper = 1.0 if which == self.count - 1 else lower + 2.0 * self.half_width
        return lower, min(upper, 1.0)

    def which(self, values: Floats) -> Ints:
        """Index of each value's bin; a value on an edge belongs to the bin above, 1 to the last."""
        index = np.floor((values + 1.0) / (2.0 * self.half_width)).astype(np.int64)
        return np.clip(index, 0, self.count - 1)

    def neighborhoods(self, values: Floats) -> Bools:
        """Mark each value's bin and the two next to it, as a bool array (n, count).

        At most three ones in a row.
        """
        distance = np.arange(self.count) - self.which(values)[:, np.newaxis]
        return np.asarray(np.abs(distance) <= 1)

    def window(self, which: int, reach: float) -> ClipWindow:
        """Widen a bin by `reach` half-widths on both sides, within [-1, 1], around the middle of the bin."""
        lower, upper = self.edges(which)
        wider = reach * self.half_width
        return ClipWindow(max(lower - wider, -1.0), min(upper + wider, 1.0), 0.5 * (lower + upper))


@dataclass(frozen=True, slots=True)
class ClipWindow:
    """Public: the interval to which later users clip, within [-1, 1], and the point towards which they shrink.

    Attributes
    ----------
    lower, upper : float
        What is reported is clipped to it; the scale of the noise follows this width.
    center : float
        Middle of the bin that was found: not of the window, if that is cut at -1 or 1.

    Examples
    --------
    >>> window = Bins(0.1).window(9, reach=6)
    >>> [round(x, 2) for x in (window.lower, window.upper, window.center)]
    [0.2, 1.0, 0.9]
    >>> ClipWindow.of(window.as_public()) == window
    True
    """

    lower: float = -1.0
    upper: float = 1.0
    center: float = 0.0

    @property
    def middle(self) -> float:
        """Middle of the window."""
        return 0.5 * (self.lower + self.upper)

    @property
    def half_width(self) -> float:
        """Half the width of the window."""
        return 0.5 * (self.upper - self.lower)

    def to_unit(self, values: Floats) -> Floats:
        """Clip values to the window and map it to [-1, 1]."""
        return np.clip((values - self.middle) / self.half_width, -1.0, 1.0)

    def as_public(self) -> Public:
        """Plain data; `of` reads it."""
        return {"lower": self.lower, "upper": self.upper, "center": self.center}

    @classmethod
    def of(cls, public: Public) -> ClipWindow:
        """Read what `as_public` wrote; the whole of [-1, 1] if no stage found a window."""
        if "lower" not in public:
            return cls()
        return cls(float(public["lower"]), float(public["upper"]), float(public["center"]))

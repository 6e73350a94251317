"""What one window's public results tell the next one.

A center, a spread, what a narrow window misses.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, replace
from typing import Any, Self, cast

import numpy as np
from scipy.special import ndtr

from meanstream.operators.estimators.adaptive.adaptive_scale import (
    Scale,
    fit_scale,
    scale_halving_edges,
    scale_votes,
)
from meanstream.operators.records import Floats
from meanstream.operators.rounds.round_records import Public

EDGES: Floats = scale_halving_edges(0.4, 0.025)
"""Between the bins of users' distance from the center, on [-1, 1]."""

REACH = 1.2
"""Half-width of a narrow window, in standard deviations of users' means: what it cuts off is
measured, so that it may be as narrow as the noise asks for."""

OUTSIDE = 0.25
"""Part of users that is outside of such a window, of normal means."""

WIDER = 4.0 / 3.0
"""So many times as wide is the window of what a forecast leaves: it misses less, as less of its
noise is left to be saved."""

MISSED = 0.04
"""What such a window usually misses of the mean, in its half-widths; an exponential
tail, .05."""

NARROWER = 0.8
"""A window narrows to so many times its half-width, or less, in one step."""

WIDEST = 0.6
"""A window of this half-width or more is not worth its reports."""

SATURATED = 0.5
"""Mean report, in half-widths, from which on users have left the window."""

CONTRADICTION = 3.0
"""Standard errors between what the bounds say and what was carried, in one window or in the recent
ones together, from which on nothing is carried: 3 in 1,000 windows without a reason."""

CONTRADICTION_PREDICTED = 4.0
"""The same in one window with a forecast, whose narrow answers err far less than those on the
bounds that take their place: 6 in 100,000 windows without a reason."""

RECENT = 0.2
"""Weight of the newest window among the recent ones."""

MEMORY = 1.0 / 24.0
"""Least weight of the newest window in what is carried: what is older than some 24 windows is
forgotten."""

USUAL = 4.0
"""So many windows of usual surprises are taken for granted before more surprise counts as drift."""


@dataclass(frozen=True, slots=True)
class Habits:
    """Public: how narrow windows are chosen, and how surprises are taken.

    Attributes
    ----------
    kept : tuple of float, float
        A narrow window stays while the wanted one is that many times as wide.
    room : float
        Half-width of a window, in standard errors of its center and of `REACH`, at least.
    sure : float
        Standard error of the spread's logarithm from which on windows are narrow.
    most_votes : float
        Beyond that many votes for the spread they are forgotten by halves.
    predicted : bool
        Whether users report what a forecast leaves of their means.
    """

    kept: tuple[float, float]
    room: float
    sure: float
    most_votes: float
    predicted: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class CarriedState:
    """Public: what is carried, on [-1, 1]; plain data as `plain` gives it.

    Attributes
    ----------
    windows : int
        Since it began, or began again.
    center, center_variance : float
        The last answer, and its squared standard error.
    votes, voters : tuple of int, int
        Randomized votes for the bins of users' distance from the center, over all windows; how many
        voted.
    half_width, gain : float or None, float
        Of the narrow window, once the spread is known; the share of a move that its reports show.
    pays : bool
        Whether the spread that is known lets a narrow window pay.
    missed, missed_variance : float, float or None
        What narrow reports miss of the mean (users beyond the window times their distance), and its
        uncertainty: from the reports on the bounds of the same windows. None: not measured yet.
    recent, squares, compared : float
        Surprises: the newest ones' average, the sum of all squares, how many.
    reach : float
        Half-widths in standard deviations; half as much again whenever users left a window.
    watching : bool
        Whether windows are answered by themselves, each with a window that others watch, where
        that can pay; once users turn out to lie far apart, it is over.
    watched, outside : int, float
        So many windows were watched; sum of the standard errors by which watchers told more users
        far outside than none.
    """

    windows: int = 0
    center: float = 0.0
    center_variance: float = 4.0
    votes: tuple[int, ...] = ()
    voters: int = 0
    half_width: float | None = None
    gain: float = 1.0
    pays: bool = True
    missed: float = 0.0
    missed_variance: float | None = None
    recent: float = 0.0
    squares: float = 0.0
    compared: float = 0
    reach: float = REACH
    watching: bool = True
    watched: int = 0
    outside: float = 0.0

    @classmethod
    def of(cls, found: Public | None) -> Self:
        """Read what `plain` gave; nothing is carried into the first window."""
        if found is None:
            return cls()
        return cls(**{**found, "votes": tuple(found["votes"])})

    def plain(self) -> dict[str, Any]:
        """Plain data."""
        return asdict(self) | {"votes": list(self.votes)}

    @property
    def caution(self) -> float:
        """Factor of intervals: above 1 where windows have surprised more than their noise does."""
        return math.sqrt(max((USUAL + self.squares) / (USUAL + self.compared), 1.0))

    def restarted(self, center: float, variance: float, *, left: bool = False) -> CarriedState:
        """Forget all but where the answer is; a window that users have left was too narrow."""
        reach = min(self.reach * 1.5, 8.0) if left else self.reach
        return CarriedState(
            windows=1,
            center=center,
            center_variance=variance,
            reach=reach,
            squares=self.squares,
            compared=self.compared,
            watching=self.watching,
        )

    def moved(self, shift: float) -> CarriedState:
        """Move the center by what a forecast says of the next window."""
        if not shift:
            return self
        return replace(self, center=min(max(self.center + shift, -1.0), 1.0))

    def with_other_residuals(self, part: float | None, change: float, room: float) -> CarriedState:
        """Go on where another part of a forecast is taken off users' means from here on.

        Parameters
        ----------
        part : float, optional
            Spread that is left, relative to the one before; None if it is not known.
        change : float
            Standard deviation of what is taken off more, or less.
        room : float
            As of `Habits`.
        """
        voting = replace(self, votes=(), voters=0, recent=0.0)
        if part is None or self.half_width is None or self.missed_variance is None:
            return replace(
                voting,
                half_width=None,
                gain=1.0,
                pays=True,
                missed=0.0,
                missed_variance=None,
                watching=True,
                watched=0,
                outside=0.0,
            )

        # The window narrows with the spread; what it misses has changed, by no more than this.
        least = self.reach * room * math.sqrt(self.center_variance)
        half_width = min(max(part * self.half_width, least), self.half_width)
        missed_variance = self.missed_variance + (OUTSIDE * change) ** 2
        return replace(voting, half_width=round(half_width, 6), missed_variance=missed_variance)

    def after_watched(self, center: float, variance: float, outside: float | None) -> CarriedState:
        """Go on from a watched window, with the standard errors of those outside; None without.

        A group that stays far outside shows in some windows together; then what it moves the mean
        by is measured from here on.
        """
        watched = self.watched + 1
        total = self.outside + (outside or 0.0)
        stays = outside is not None and total <= CONTRADICTION * math.sqrt(watched)
        return replace(
            self,
            windows=self.windows + 1,
            center=min(max(center, -1.0), 1.0),
            center_variance=variance,
            watching=stays,
            watched=watched,
            outside=total,
        )

    def sure_drift(self, noise: float, *, predicted: bool = False) -> float:
        """Uncertainty of what narrow reports miss, before a window whose two kinds of reports differ by this noise.

        What surprises more than noise may well explain (one standard error of all squares, two with
        a forecast, where drift that is none costs more) is drift of what is missed, from one window
        to the next.
        """
        known = self.missed_variance or 0.0
        explained = (2.0 if predicted else 1.0) * math.sqrt(2.0 * self.compared)
        sure = USUAL + self.squares - explained
        return known + max(sure / (USUAL + self.compared) - 1.0, 0.0) * (noise + known)

    def voted(
        self, counts: tuple[int, ...], voters: int, epsilon: float, habits: Habits
    ) -> CarriedState:
        """Add votes, and choose the window once they tell the spread."""
        before = np.array(self.votes or (0,) * (len(EDGES) + 1))
        old, known = (
            (before // 2, self.voters // 2)
            if self.voters > habits.most_votes
            else (before, self.voters)
        )
        state = replace(self, votes=tuple((old + np.array(counts)).tolist()), voters=known + voters)
        scale = state.scale(epsilon)

        if scale is None or scale.log_stderr > habits.sure:
            return state
        return state.with_window(scale.value, habits)

    def with_window(self, spread: float, habits: Habits) -> CarriedState:
        """Choose the window for this spread; it stays where another one is hardly worth it.

        With a forecast it narrows step by step, and keeps what it knows.
        """
        wide = WIDER * spread if habits.predicted else spread
        wanted = self.reach * max(wide, habits.room * math.sqrt(self.center_variance))
        gain = round(2.0 * float(ndtr(wanted / spread)) - 1.0, 6)

        if habits.predicted and self.half_width is not None and self.missed_variance is not None:
            if wanted <= NARROWER * self.half_width:
                return self.narrowed(wanted, gain)

            # What is missed is known: a center that is less sure for some windows widens none.
            if self.reach * wide < habits.kept[1] * self.half_width:
                return self

        if (
            self.half_width is not None
            and habits.kept[0] < wanted / self.half_width < habits.kept[1]
        ):
            return self

        pays = wanted < WIDEST
        return replace(
            self,
            half_width=round(wanted, 6) if pays else None,
            gain=gain,
            pays=pays,
            missed=0.0,
            missed_variance=None,
            recent=0.0,
        )

    def narrowed(self, half_width: float, gain: float) -> CarriedState:
        """Narrow the window; what it misses changes by what a window usually misses.

        Votes around a center that was less well known count half.
        """
        change = MISSED * cast("float", self.half_width)
        missed_variance = cast("float", self.missed_variance) + change**2
        return replace(
            self,
            half_width=round(half_width, 6),
            gain=gain,
            missed_variance=missed_variance,
            votes=tuple(votes // 2 for votes in self.votes),
            voters=self.voters // 2,
        )

    def scale(self, epsilon: float) -> Scale | None:
        """Read the standard deviation of users' means around the center off all votes."""
        if not self.voters:
            return None
        votes = scale_votes(epsilon, len(EDGES) + 1)
        shares = votes.shares(self.votes, self.voters)

        return fit_scale(shares, EDGES, votes.share_variance(shares, self.voters))


@dataclass(frozen=True, slots=True)
class Compared:
    """Public: what a window's own reports on the bounds say of what was carried, and the answer from both.

    `contradicts` says why nothing is carried on, or is empty; `gain` is the weight of the reports
    on the bounds in the answer.
    """

    answer: float
    variance: float
    contradicts: str
    state: CarriedState
    gain: float = 1.0


def drawn_to_zero(found: float, variance: float, usual: float) -> tuple[float, float]:
    """Draw an estimate of what is usually near 0 to it, by one standard error at most.

    Returns the estimate with its mean squared error, which is twice `variance` at most, wherever
    the truth is.

    Parameters
    ----------
    found, variance : float
        The estimate, and its squared standard error.
    usual : float
        Standard deviation of the truth around 0.

    References
    ----------
    B. Efron, C. Morris, Limiting the risk of Bayes and empirical Bayes estimators, 1971.

    Examples
    --------
    >>> [round(drawn_to_zero(found, 1.0, 0.5)[0], 2) for found in (-4.0, 0.5, 1.0)]
    [-3.0, 0.1, 0.2]
    """
    stderr = math.sqrt(variance)
    kept = usual**2 / (usual**2 + variance)
    drawn = min(max(kept * found, found - stderr), found + stderr)
    surprise = (1.0 - kept) * found / stderr

    return drawn, variance * (kept + min(surprise**2, 2.0))


def carried_comparison(
    state: CarriedState,
    wide: tuple[float, float],
    narrow: tuple[float, float],
    position: float,
    *,
    predicted: bool = False,
) -> Compared:
    """Weigh reports on the bounds against narrow ones and what they are known to miss.

    Parameters
    ----------
    state : CarriedState
    wide, narrow : (float, float)
        Mean and variance of the mean that either kind of reports tells of the same window.
    position : float
        Mean narrow report, in half-widths of its window.
    predicted : bool
        Whether users report what a forecast leaves: then the answer takes what is missed as near to
        0 as one standard error allows.

    Notes
    -----
    What narrow reports miss is followed by a filter whose gain does not fall below `MEMORY`; the answer is the narrow
    mean and what it missed before, weighed against the mean on the bounds by their variances, hence unbiased whatever
    the law of the users, if what is missed is what it was in the windows before.
    """
    mean, variance = wide
    if abs(position) > SATURATED:
        return Compared(
            mean, variance, "users have left the window", state.restarted(mean, variance, left=True)
        )

    difference = mean - narrow[0]
    noise = variance + narrow[1]
    if state.missed_variance is None:
        gain = 1.0
        before = 0.0
        surprise = 0.0
    else:
        usual = noise + state.missed_variance
        before = state.sure_drift(noise, predicted=predicted)
        gain = max(before / (before + noise), MEMORY)
        surprise = (difference - state.missed) / math.sqrt(noise + before)

        # How well standard errors have held: one outlier counts as three of them at most.
        square = min((difference - state.missed) ** 2 / usual, 9.0)
        squares = (1.0 - MEMORY) * state.squares + square
        compared = (1.0 - MEMORY) * state.compared + 1
        state = replace(state, squares=squares, compared=compared)

    # One window alone, or the recent ones together, may say that what was carried is wrong.
    recent = (1.0 - RECENT) * state.recent + RECENT * surprise
    together = abs(recent) / math.sqrt(RECENT / (2.0 - RECENT))
    in_one = CONTRADICTION_PREDICTED if predicted else CONTRADICTION
    if abs(surprise) > in_one or together > CONTRADICTION:
        return Compared(
            mean, variance, "reports on the bounds say otherwise", state.restarted(mean, variance)
        )

    missed = state.missed + gain * (difference - state.missed)
    after = replace(
        state,
        missed=missed,
        missed_variance=(1.0 - gain) ** 2 * before + gain**2 * noise,
        recent=recent,
    )

    # The first windows, which hardly tell what is missed, take it as they find it.
    known = state.missed
    if predicted and 0.0 < before <= variance:
        known, before = drawn_to_zero(known, before, MISSED * (state.half_width or 0.0))

    least = narrow[1] + before
    weight = 1.0 if state.missed_variance is None else least / (least + variance)
    answer = (1.0 - weight) * (narrow[0] + known) + weight * mean

    return Compared(answer, (1.0 - weight) ** 2 * least + weight**2 * variance, "", after, weight)

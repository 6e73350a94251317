"""The stages of a window that others went before.

Reports on the bounds, votes for the spread, narrow reports.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Annotated

import msgspec
import numpy as np
from scipy.special import ndtri

from meanstream.operators.estimators.adaptive.adaptive_design import (
    EVERYTHING,
    adaptive_design_cut_window,
)
from meanstream.operators.estimators.adaptive.adaptive_scale import scale_bin, scale_votes
from meanstream.operators.estimators.adaptive.watched_windows import (
    WatchedLastStage,
    WatchedPlan,
    watched_outside,
)
from meanstream.operators.estimators.carried.carried_design import NARROW_MOMENT
from meanstream.operators.estimators.carried.carried_state import (
    EDGES,
    CarriedState,
    Compared,
    Habits,
    carried_comparison,
)
from meanstream.operators.noise.random_bits import RandomWords
from meanstream.operators.records import Bools
from meanstream.operators.rounds.base import Settings, round_mean_and_stderr, round_tally_moments
from meanstream.operators.rounds.channels.base import Mechanism
from meanstream.operators.rounds.channels.registry import best_channel
from meanstream.operators.rounds.round_records import Estimate, Public, Reports, Summaries, Tally
from meanstream.operators.rounds.round_results import (
    MOST,
    Count,
    LastRound,
    Number,
    StageFound,
    refuse_result,
    result_unchanged,
)
from meanstream.operators.rounds.unseen import unseen_margin

AWAY = 0.9
"""Part of what an interval may miss that is spent on truths farther from what was carried than the
bounds say."""

JUMP = 4.0
"""Standard errors that a window's own center must lie beyond the carried one, and half a window, to
be a jump."""

_OF_EACH_BIN = msgspec.Meta(min_length=len(EDGES) + 1, max_length=len(EDGES) + 1)


class Placed(StageFound, frozen=True, kw_only=True):
    """Public: how many reports on the bounds there are, their mean, and whether it has jumped."""

    n: Count
    mean: Number
    variance: Annotated[float, msgspec.Meta(ge=1e-12, le=MOST)]
    jump: Annotated[int, msgspec.Meta(ge=0, le=1)]


class Voted(Placed, frozen=True, kw_only=True):
    """Public: the same, with the votes for each bin of the spread, and how many voted."""

    votes: Annotated[list[Count], _OF_EACH_BIN]
    voters: Count


class ReportsOnBounds:
    """Users report their mean on all of [-1, 1]: these reports can contradict what is carried.

    Notes
    -----
    **Privacy.** Local, pure epsilon, of everything the user knows: one number through a channel that is private for any
    two values. What is carried is public.
    """

    name = "on the bounds"

    def __init__(self, settings: Settings, state: CarriedState, moment: float) -> None:
        self.epsilon = settings.epsilon
        self._settings = settings
        self._state = state
        self._channel = best_channel(settings.epsilon, moment)

    def channel(self, public: Public) -> Mechanism:  # noqa: ARG002 - always the same
        """Public: what randomizes these reports."""
        return self._channel

    def window(self, public: Public) -> tuple[float, float]:  # noqa: ARG002 - always the same
        """Public: center and half-width of where reports lie."""
        return EVERYTHING

    def encode(self, summaries: Summaries, public: Public, words: RandomWords) -> Reports:
        """Private to public: one integer per user."""
        center, half_width = window = self.window(public)

        # What a forecast leaves may lie beyond the bounds, so on the bounds it takes nothing off.
        value = summaries.mean if window == EVERYTHING else summaries.residual
        return self.channel(public).randomize((value - center) / half_width, words)[:, None]

    def valid(self, reports: Reports, public: Public) -> Bools:
        """Public: tell which integers can be reports."""
        return self.channel(public).valid(reports[:, 0])

    def tally(self, reports: Reports, public: Public) -> Tally:  # noqa: ARG002 - sums do not depend on it
        """Public: sum of the reports and of their squares."""
        return round_tally_moments(reports[:, 0])

    def moments(self, tally: Tally, public: Public) -> tuple[float, float]:
        """Public: mean of the reports in half-widths of their window, and the variance of that mean."""
        channel = self.channel(public)
        if tally.n < 2:
            return 0.0, 4.0 * sum(channel.moments)
        mean, stderr = (channel.step * x for x in round_mean_and_stderr(tally))
        least = float(channel.variance(np.linspace(0.0, 1.0, 129)).min()) / tally.n

        return mean, max(stderr**2, least)

    def decode(self, tally: Tally, public: Public) -> Public | Estimate:  # noqa: ARG002 - the first stage
        """Public: where this window's own reports place the mean."""
        mean, variance = self.moments(tally, {})
        state = self._state
        far = JUMP * math.sqrt(variance + state.center_variance) + 0.5 * (state.half_width or 0.0)
        jump = int(abs(mean - state.center) > far)
        return Placed(n=tally.n, mean=mean, variance=variance, jump=jump).plain()

    def check(self, found: Public, public: Public) -> None:  # noqa: ARG002 - the first stage
        """Public: refuse what such reports cannot give."""
        Placed.of(found)


class VotesForSpread:
    """Users vote for the bin of their distance from the carried center.

    Notes
    -----
    **Privacy.** Local, pure epsilon: bins are half-open, disjoint and public, so that a user votes for exactly one.
    """

    name = "spread"

    def __init__(
        self, settings: Settings, state: CarriedState, habits: Habits, *, last: bool
    ) -> None:
        self.epsilon = settings.epsilon
        self._settings = settings
        self._state = state
        self._habits = habits
        self._last = last
        self._votes = scale_votes(settings.epsilon, len(EDGES) + 1)

    def encode(self, summaries: Summaries, public: Public, words: RandomWords) -> Reports:
        """Private to public: one randomized vote per user."""
        center = self._state.center if self._state.windows else Placed.of(public).mean
        return self._votes.randomize(scale_bin(np.abs(summaries.residual - center), EDGES), words)

    def valid(self, reports: Reports, public: Public) -> Bools:  # noqa: ARG002 - always the same
        """Public: tell which rows a user can have sent."""
        return self._votes.valid(reports)

    def tally(self, reports: Reports, public: Public) -> Tally:  # noqa: ARG002 - always the same
        """Public: votes for each bin."""
        if len(reports):
            return Tally(len(reports), self._votes.counts(reports))
        return Tally()

    def decode(self, tally: Tally, public: Public) -> Public | Estimate:
        """Public: the votes so far; or the answer, where no one reports in a narrow window."""
        counts = [int(count) for count in tally.sums] or [0] * (len(EDGES) + 1)
        found = Voted(**public, votes=counts, voters=tally.n)

        if self._last:
            return _carried_wide_answer(self._settings, self._state, self._habits, found)
        return found.plain()

    def check(self, found: Public, public: Public) -> None:
        """Public: refuse what votes cannot give."""
        if self._last:
            refuse_result("stage", f"be one before the last: {self.name} answers", "a result")

        voted = Voted.of(found)
        if max(voted.votes) > voted.voters:
            refuse_result("votes", "be at most the voters", "more")

        for name, value in public.items():
            result_unchanged(found[name], value, name)


class NarrowReports(LastRound, ReportsOnBounds):
    """Users report in the carried window, and the window is answered.

    After a jump, on the bounds as the others.
    """

    name = "narrow"

    def __init__(
        self,
        settings: Settings,
        state: CarriedState,
        habits: Habits,
        moment: float,
        *,
        assumes: bool,
    ) -> None:
        super().__init__(settings, state, moment)
        self._habits = habits
        self._assumes = assumes
        self._narrow = best_channel(settings.epsilon, NARROW_MOMENT)

    def channel(self, public: Public) -> Mechanism:
        """Public: what randomizes these reports."""
        if Voted.of(public).jump:
            return self._channel
        return self._narrow

    def window(self, public: Public) -> tuple[float, float]:
        """Public: the carried window, cut to the bounds."""
        half_width = self._state.half_width
        if Voted.of(public).jump or half_width is None:
            return EVERYTHING
        return adaptive_design_cut_window(self._state.center, half_width)

    def decode(self, tally: Tally, public: Public) -> Estimate:
        """Public: the mean over users, and the state that the next window is given."""
        known = Voted.of(public)
        position, noise = self.moments(tally, public)
        predicted = self._habits.predicted
        if known.jump:
            more = (tally.n, position, noise)
            toward = None if self._assumes else self._state.center
            return _carried_wide_answer(
                self._settings, self._state, self._habits, known, more, toward=toward
            )

        state = self._state
        settings = self._settings
        middle, half = self.window(public)
        unit = half / state.gain
        offset = (middle - state.center) / half
        narrow = (state.center + unit * (position + offset), unit**2 * noise)
        wide = known.mean, known.variance
        left = position + offset if half == state.half_width else 0.0
        found = carried_comparison(state, wide, narrow, left, predicted=predicted)

        if found.contradicts:
            toward = None if self._assumes else narrow[0] + state.missed
            return _carried_wide_answer(
                settings,
                state,
                self._habits,
                known,
                contradicts=found.contradicts,
                after=found.state,
                toward=toward,
            )

        after = replace(
            _with_votes(settings, found.state, self._habits, known),
            windows=state.windows + 1, center=min(max(found.answer, -1.0), 1.0), center_variance=found.variance,
        )  # fmt: skip
        stderr = math.sqrt(found.variance) * found.state.caution

        return settings.answer(
            found.answer,
            stderr,
            interval=None if self._assumes else self._holding(found, known),
            n_users=known.n + known.voters + tally.n,
            stages=(public, {"stage": self.name, "n": tally.n, "mean": narrow[0], "missed": found.state.missed},
                    {"stage": "carried", "state": after.plain()}),
        )  # fmt: skip

    def _holding(self, found: Compared, known: Voted) -> tuple[float, float]:
        """Give the interval that holds whatever appeared beyond the window.

        Where reports on the bounds leave the mean.

        It always has the answer in it, and around that as much as the answer owes to these same
        reports (what they err together is not made good by the other ones), and half of the
        answer's own interval at least.
        """
        mean = known.mean
        if known.n < 2:
            return -1.0, 1.0

        bounds = _margin_of_bounds(self._settings, known.n, mean, known.variance, AWAY)
        z = float(ndtri(0.5 * (1.0 + self._settings.level)))
        owed = found.gain * math.sqrt(known.variance)
        shared = z * max(owed, 0.5 * math.sqrt(found.variance) * found.state.caution)

        return min(found.answer - shared, mean - bounds), max(found.answer + shared, mean + bounds)


class WatchedAndCarried(WatchedLastStage):
    """The last reports of a window that others watch, and what the next window is given."""

    def __init__(self, plan: WatchedPlan, state: CarriedState, room: float) -> None:
        super().__init__(plan, 3, "last", room)
        self._state = state

    def decode(self, tally: Tally, public: Public) -> Estimate:
        """Public: the mean over users, and what is carried."""
        estimate = super().decode(tally, public)
        outside = watched_outside(self.epsilon, public["watch"]) if "watch" in public else None
        after = self._state.after_watched(
            float(estimate.unclipped), float(estimate.stderr) ** 2, outside
        )
        return replace(
            estimate, stages=(*estimate.stages, {"stage": "carried", "state": after.plain()})
        )


def _carried_wide_answer(
    settings: Settings,
    state: CarriedState,
    habits: Habits,
    known: Voted,
    more: tuple[int, float, float] | None = None,
    *,
    contradicts: str = "",
    after: CarriedState | None = None,
    toward: float | None = None,
) -> Estimate:
    """Public: answer from reports on the bounds alone.

    `more` are those of users who report there after a jump.

    `toward` is the answer that they contradict: where it is given the interval holds however it
    came to that.
    """
    n = known.n
    mean = known.mean
    variance = known.variance
    counted = n + known.voters + (more[0] if more else 0)

    if more is not None:
        contradicts = "the center has jumped"
        weight = variance / (variance + more[2])
        n, mean, variance = n + more[0], mean + weight * (more[1] - mean), (1.0 - weight) * variance
        after = state.restarted(mean, variance)

    if n < 2:
        after = state

    if after is None:
        voted = _with_votes(settings, state, habits, known)
        after = replace(
            voted,
            windows=state.windows + 1,
            center=min(max(mean, -1.0), 1.0),
            center_variance=variance,
        )

    stages = (
        known.plain(),
        {"stage": "carried", "contradicts": contradicts, "state": after.plain()},
    )
    stderr = math.sqrt(variance)
    if n < 2:
        return settings.no_answer(n_users=counted, unclipped=mean, stderr=stderr, stages=stages)

    if toward is not None:
        # Who is told to contradict has strayed from what was carried, rather than towards it.
        away, near = (
            _margin_of_bounds(settings, n, mean, variance, part) for part in (AWAY, 1.0 - AWAY)
        )
        ends = (mean - near, mean + away) if toward < mean else (mean - away, mean + near)

        return settings.answer(mean, stderr, n_users=counted, stages=stages, interval=ends)

    margin = unseen_margin(mean, n * variance, n, far=_far(settings), level=settings.level)
    return settings.answer(mean, stderr, n_users=counted, stages=stages, margin=margin)


def _with_votes(
    settings: Settings, state: CarriedState, habits: Habits, known: Voted
) -> CarriedState:
    """Public: what is carried, with a window's votes for the spread."""
    return state.voted(tuple(known.votes), known.voters, settings.epsilon, habits)


def _margin_of_bounds(
    settings: Settings, n: int, mean: float, variance: float, part: float
) -> float:
    """Public: how far the truth lies to one side of reports on the bounds, but for a part of what intervals miss."""
    level = max(1.0 - 2.0 * part * (1.0 - settings.level), 0.5 * settings.level)
    return unseen_margin(mean, n * variance, n, far=_far(settings), level=level)


def _far(settings: Settings) -> float:
    """Variance that the channel of reports on the bounds adds at an end, at most.

    That of one bit.
    """
    return 1.0 / math.tanh(0.5 * min(settings.epsilon, 40.0)) ** 2 - 1.0

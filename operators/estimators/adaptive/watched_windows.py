"""One window by itself, without an assumption: a narrow window that other users watch.

A first group reports its means on [-1, 1], unbiased. Few users vote for how far from that center
users lie. Where a window around it pays, some users say whether they are outside of it, and only if
hardly anyone is, the others report in it. Whatever the watchers cannot exclude is in the interval.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, cast

import numpy as np
from msgspec import structs
from scipy.special import betaincinv, ndtri

from meanstream.operators.estimators.adaptive.adaptive_design import (
    CENTER_ERRORS,
    LEAST_REPORTS,
    NARROW_MOMENT,
    AdaptiveFound,
    AdaptivePlan,
    adaptive_design_cut_window,
    adaptive_design_whole_window,
    adaptive_design_window_moment,
)
from meanstream.operators.estimators.adaptive.adaptive_risk import (
    adaptive_risk_size_factor,
    adaptive_risk_vote_log_stderr,
)
from meanstream.operators.estimators.adaptive.adaptive_scale import Scale, scale_window_factor
from meanstream.operators.estimators.adaptive.adaptive_stages import (
    LastStage,
    ReportStage,
    VoteStage,
)
from meanstream.operators.estimators.one_shot import OneShot
from meanstream.operators.records import Floats
from meanstream.operators.rounds.base import Settings
from meanstream.operators.rounds.estimator_traits import EACH_USER
from meanstream.operators.rounds.round_protocol import Round
from meanstream.operators.rounds.round_records import Estimate, Public, Tally
from meanstream.operators.rounds.round_results import refuse_result
from meanstream.operators.rounds.unseen import unseen_margin
from meanstream.operators.rounds.votes.choice_votes import RandomizedResponseVotes
from meanstream.operators.rounds.votes.registry import Votes

CENTER = 0.2
"""Share of the users whose reports on [-1, 1] place the center. They count in every answer."""

MOST_VOTERS = 0.015
"""Largest share that votes for the scale. Where windows do not pay, only these votes are lost."""

WATCHERS = 0.25
"""Share that says how far it is outside of the window: intervals are then about as long as those of
one report of each user."""

WIDER = 2.0
"""Width of the window that is taken where users are just outside of the first."""

WANTED_LOG_STDERR = 0.12
LEAST_LOG_STDERR = 0.2
"""Standard error of the scale's logarithm that suffices, and the largest at which votes are worth
their users."""

BIAS_SHARE = 1.0
"""Clip bias of exponential tails, in standard errors: a window for the least squared error."""

WORTH = 0.75
"""Predicted squared error in the window, relative to that without one, from which on it pays."""

DOUBT = 1.5
"""Standard errors that the scale is taken to be larger by, before watchers are asked."""

USUAL_SPREAD = 0.5
"""Standard deviation of usual samples; 1 is the largest."""

ALIKE = 0.05
"""Standard deviation of the means of users who are alike, where their sizes are not known."""

FLAG = 2.25
"""Standard errors of the watchers' share from which on the window is given up."""

WATCHED = "none: others watch the narrow window, and users who may lie outside are in the interval"

AWAY = 0.9
"""Part of what an interval may miss that is spent on users outside of the window."""


@dataclass(frozen=True)
class WatchedPlan(AdaptivePlan):
    """Public: what the stages of a watched window know beforehand."""

    def window(self, scale: Scale, center_stderr: float, stage: int) -> float:  # noqa: ARG002 - one
        """Half-width of the window, from the scale, by predicted squared error."""
        noise = self.noise(self.settings.users * self.shares[3], NARROW_MOMENT)
        factor = max(scale_window_factor(noise, 0.0, BIAS_SHARE), self.size_factor)

        return max(factor * scale.value, CENTER_ERRORS * center_stderr)

    def pays(self, center: float, half_width: float, scale: Scale) -> bool:
        """Tell whether the window is worth it, if the scale is larger than it seems."""
        doubt = math.exp(DOUBT * scale.log_stderr)
        spread = doubt * scale.value
        half = adaptive_design_cut_window(center, doubt * half_width)[1]

        wide = self._noise_on(1.0, min(center**2 + spread**2, 1.0)) + spread**2
        narrow = self._noise_on(half, NARROW_MOMENT) + spread**2
        return narrow / self.shares[3] <= WORTH * wide

    def predicted_mse(self, scale: Scale) -> float:
        """Predict the squared error at this scale, where hardly anyone is outside."""
        half_width = self.window(scale, self.center_stderr, 1)
        narrow = self._noise_on(half_width, NARROW_MOMENT) + scale.value**2
        users = self.settings.users
        return 1.0 / (self.center_stderr**-2 + self.shares[3] * users / narrow)

    @property
    def center_stderr(self) -> float:
        """Predicted standard error of the center."""
        return self.noise(self.shares[0] * self.settings.users, self.start_moment)

    def _noise_on(self, half_width: float, square: float) -> float:
        """Variance that the channel adds to a mean of this mean square, in half-widths."""
        c0, c1 = self.channel(square).moments
        return half_width**2 * (c0 + (c1 - 1.0) * square)


class WatchedWindow:
    """A window that is answered by itself and without an assumption, in four stages.

    Parameters
    ----------
    settings : Settings
        Of the estimator that takes it.
    one_shot : OneShot
        What is done instead where it cannot pay.

    Notes
    -----
    **Privacy.** Local, pure epsilon, of everything a user contributes to the window, its number of
    samples included. Each user sends one message in one stage; the stages are disjoint.

    Examples
    --------
    >>> asked = {"epsilon": 1.0, "users": 20_000, "sizes": None, "mode": "tuned", "level": 0.95}
    >>> window = WatchedWindow(Settings(method="plan", **asked), OneShot(**asked))
    >>> window.worth, window.shares
    (True, (0.2, 0.015, 0.25, 0.535))
    """

    name = "watched"

    def __init__(self, settings: Settings, one_shot: OneShot) -> None:
        voters, told = _voters(settings)
        shares = (CENTER, voters, WATCHERS, round(1.0 - CENTER - voters - WATCHERS, 4))
        plan = WatchedPlan(settings, shares, start_moment=one_shot.second_moment)

        if told and settings.sizes is not None:
            noise = plan.noise(shares[3] * settings.users, NARROW_MOMENT)
            plan = replace(plan, size_factor=adaptive_risk_size_factor(settings.sizes, noise))

        self.plan = plan
        self.shares = shares
        self._one_shot = one_shot
        half_width = plan.window(self._alike, plan.center_stderr, 1)
        self.worth = told and plan.pays(0.0, half_width, self._alike)
        self.rounds: tuple[Round, ...] = (
            ReportStage(plan, 0, "center"),
            VoteStage(plan, 1, "scale", first=True),
            WatchStage(plan, 2, "watch", first=False),
            WatchedLastStage(plan, 3, "last"),
        )

    @property
    def _alike(self) -> Scale:
        """What the votes tell of users who are alike, but for the sampling of usual values."""
        settings = self.plan.settings
        sampling = USUAL_SPREAD * math.sqrt(settings.averaging)
        return Scale(sampling if settings.sizes else ALIKE, WANTED_LOG_STDERR)

    def predicted_mse(self, spread: float) -> float | None:
        """Predict the squared error if users' means have this spread; None if it does not pay."""
        scale = Scale(spread, WANTED_LOG_STDERR)
        half_width = self.plan.window(scale, self.plan.center_stderr, 1)
        if self.worth and self.plan.pays(0.0, half_width, scale):
            return self.plan.predicted_mse(scale)
        return None

    def describe(self) -> dict[str, Any]:
        """Public, plain data: the stages, and predicted standard errors on [-1, 1]."""
        one_shot_stderr = self._one_shot.describe()["predicted_stderr"]
        return self.plan.settings.describe() | {
            "estimand": EACH_USER,
            "adapts": True,
            "assumption": WATCHED,
            "shares": list(self.shares),
            "stages": [stage.name for stage in self.rounds],
            "predicted_stderr": one_shot_stderr / math.sqrt(1.0 - self.shares[1]),
            "predicted_stderr_holds": "where users lie far apart; it is smaller where they do not",
            "predicted_stderr_if_alike": math.sqrt(self.plan.predicted_mse(self._alike)),
            "one_shot_stderr": one_shot_stderr,
        }


def _voters(settings: Settings) -> tuple[float, bool]:
    """Share of the users who vote for the scale, and whether that tells enough."""
    error = adaptive_risk_vote_log_stderr(settings.epsilon, MOST_VOTERS * settings.users)
    share = round(MOST_VOTERS * min((error / WANTED_LOG_STDERR) ** 2, 1.0), 4)
    return share, error <= LEAST_LOG_STDERR


class WatchStage(VoteStage):
    """Users say whether they are in the window, in one of twice its width, or outside of both.

    Without a window they report.

    Notes
    -----
    **Privacy.** Local, pure epsilon, of everything the user knows: the three bins are half-open,
    disjoint and public, so that a user votes for exactly one. One message per user.
    """

    def _edges(self, known: AdaptiveFound) -> Floats:
        half_width = _window(known)[1]
        return np.array([half_width, WIDER * half_width])

    def _votes(self, known: AdaptiveFound) -> Votes:  # noqa: ARG002 - always the same
        return cast("Votes", _watchers_votes(self.epsilon))

    def decode(self, tally: Tally, public: Public) -> Public | Estimate:
        """Public: the narrowest window that hardly anyone is outside of; none if too many are."""
        known = AdaptiveFound.known(public)
        if not self.is_vote(known):
            return self._report.decode(tally, public)

        counts = [int(count) for count in tally.sums] or [0, 0, 0]
        narrow, wider, given_up = (found.plain() for found in self._results(known, counts))
        if not tally.n or watched_outside(self.epsilon, counts) > FLAG:
            return given_up

        votes = _watchers_votes(self.epsilon)
        inside = votes.shares(counts, tally.n)[0]
        if 1.0 - inside > FLAG * math.sqrt(float(votes.share_variance(1.0, tally.n))):
            return wider
        return narrow

    def check(self, found: Public, public: Public) -> None:
        """Public: refuse what does not follow upon three counts."""
        known = AdaptiveFound.known(public)
        if not self.is_vote(known):
            super().check(found, public)
            return

        now = AdaptiveFound.of(found)
        if now.watch is None or now not in self._results(known, now.watch):
            refuse_result("window", "follow from the watchers' votes", "another result")

    def _results(self, known: AdaptiveFound, counts: list[int]) -> tuple[AdaptiveFound, ...]:
        """Public: what may follow upon these counts: the window, the wider one, or none."""
        center, half_width = _window(known)
        n_users = known.n_users + sum(counts)
        narrow = structs.replace(known, n_users=n_users, watch=counts, wider=0)
        wider = structs.replace(
            narrow,
            wider=1,
            window=[center, WIDER * half_width],
            moment=adaptive_design_window_moment(center, WIDER * half_width),
        )
        return narrow, wider, structs.replace(narrow, **adaptive_design_whole_window(1.0))


class WatchedLastStage(LastStage):
    """The last reports, and an interval that holds whatever the watchers cannot exclude.

    Parameters
    ----------
    room : float
        How far what a forecast leaves of a user's mean may lie beyond the bounds.
    """

    def __init__(self, plan: WatchedPlan, stage: int, name: str, room: float = 0.0) -> None:
        super().__init__(plan, stage, name)
        self._room = room

    def decode(self, tally: Tally, public: Public) -> Estimate:
        """Public: the mean over users; users outside of the window are in the interval."""
        found = self.result(tally, AdaptiveFound.known(public))
        settings = self._plan.settings
        scales = ({"stage": "scale", **scale.plain()} for scale in found.scales)
        parts = (part.plain() for part in found.parts)
        stages = [*parts, *scales, {"stage": "watch", "votes": found.watch or []}]
        n = int(sum(part.n for part in found.parts))

        mean = found.center
        stderr = found.center_stderr
        if n < LEAST_REPORTS or mean is None or stderr is None:
            return settings.no_answer(n_users=found.n_users, stages=stages)

        ends = (
            self._ends_on_bounds(mean, stderr, n)
            if found.mode == "wide"
            else self._ends(mean, stderr, found)
        )
        return settings.answer(mean, stderr, n_users=found.n_users, stages=stages, interval=ends)

    def _ends_on_bounds(self, mean: float, stderr: float, n: int) -> tuple[float, float]:
        """Public: where the mean can be if all reports lie on the bounds."""
        settings = self._plan.settings
        far = 1.0 / math.tanh(0.5 * min(settings.epsilon, 40.0)) ** 2 - 1.0
        margin = unseen_margin(mean, n * stderr**2, n, far=far, level=settings.level)
        return mean - margin, mean + margin

    def _ends(self, mean: float, stderr: float, found: AdaptiveFound) -> tuple[float, float]:
        """Public: where the mean can be, with those outside of the window as far out as can be.

        A truth on one side is missed if the reports err, or if more users are there than the votes
        let think, where `AWAY` of what an interval may miss is spent on either side.
        """
        level = self._plan.settings.level
        missed = AWAY * (1.0 - level)
        shares, more = _watched_shares(self.epsilon, found.watch or [0, 0, 0], missed)
        center, half_width = _window(found)
        usual = float(ndtri(0.5 * (1.0 + level))) * stderr
        err = float(ndtri(1.0 - missed)) * stderr

        # In the wider window no one of the middle bin is outside.
        beyond = 0.0 if found.wider else half_width

        def reach(distance: float) -> float:
            far = np.array([min(beyond, distance), distance])
            return max(usual, float(far @ shares) + math.hypot(err, *(far * more)))

        low = max(center - half_width, -1.0)
        high = min(center + half_width, 1.0)

        # Where the bounds cut the window, they may cut what a forecast leaves of users in it.
        cut_low = min(self._room, low - (center - half_width))
        cut_high = min(self._room, center + half_width - high)
        return (
            mean - reach(low + 1.0 + self._room) - cut_low,
            mean + reach(1.0 - high + self._room) + cut_high,
        )


def _window(known: AdaptiveFound) -> Sequence[float]:
    """Public: center and half-width of a window that is watched."""
    if known.window is None:
        refuse_result("window", "be there", "none")
    return known.window


def watched_outside(epsilon: float, counts: Sequence[int]) -> float:
    """Standard errors by which watchers tell more users outside of the wider window than none.

    Examples
    --------
    >>> round(watched_outside(1.0, [2884, 1094, 1045]), 1)
    -0.7
    """
    votes = _watchers_votes(epsilon)
    n = max(sum(counts), 1)
    return float(votes.shares(counts, n)[2]) / math.sqrt(float(votes.share_variance(0.0, n)))


def _watched_shares(epsilon: float, counts: list[int], missed: float) -> tuple[Floats, Floats]:
    """Shares of the users in the two outer bins, and how much larger they may be, exactly."""
    votes = _watchers_votes(epsilon)
    n = sum(counts)
    named = np.array(counts[1:], dtype=np.float64)
    most = betaincinv(named + 1.0, np.maximum(n - named, 1.0), 1.0 - missed)
    shares = votes.shares(counts, n)[1:]

    return shares, (most - votes.unlikely) / (votes.likely - votes.unlikely) - shares


@lru_cache(maxsize=64)
def _watchers_votes(epsilon: float) -> RandomizedResponseVotes:
    return RandomizedResponseVotes(epsilon, 3, zero_row=False)

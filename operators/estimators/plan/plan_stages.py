"""The stages of the tuned plan.

A vote for a bin, and reports of means within a window around a public center.
"""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Annotated, Any

import msgspec
import numpy as np
from msgspec.structs import replace

from meanstream.operators.estimators.plan.plan_design import StageDesign
from meanstream.operators.noise.random_bits import RandomWords
from meanstream.operators.records import Bools, Floats, Ints
from meanstream.operators.rounds.base import Settings, round_mean_and_stderr, round_tally_moments
from meanstream.operators.rounds.channels.base import Mechanism
from meanstream.operators.rounds.channels.registry import make_channel
from meanstream.operators.rounds.localization import Bins
from meanstream.operators.rounds.round_records import Estimate, Public, Reports, Summaries, Tally
from meanstream.operators.rounds.round_results import (
    Error,
    Number,
    StageFound,
    Told,
    refuse_result,
    result_added,
    result_near,
    result_row,
    result_unchanged,
)
from meanstream.operators.rounds.votes.registry import make_votes

Group = tuple[Annotated[int, msgspec.Meta(ge=2, le=2**53)], Number, Error]
"""Number, mean and standard error of some reports on [-1, 1]."""


class PlanFound(StageFound, frozen=True, kw_only=True):
    """Public: what the stages of a plan have found so far.

    Attributes
    ----------
    center, unclipped, stderr : float
        The mean within [-1, 1], before it was cut to it, and its standard error.
    found : list of dict
        What each stage tells.
    restart : list of Group
        After a vote that went wrong: all reports on [-1, 1] since.
    design : list of StageDesign
        The stages that follow, where the sizes are learned first.
    """

    center: Number | None = None
    unclipped: Number | None = None
    stderr: Error | None = None
    found: Told = msgspec.field(default_factory=list)
    restart: list[Group] | None = None
    design: list[StageDesign] | None = None


class PairVoteStage:
    """Users vote for the bin of their mean.

    The two bins side by side with the most votes make the first center.

    Parameters
    ----------
    settings : Settings
        Of the estimator.
    design : StageDesign
        Of kind "vote".

    Notes
    -----
    **Privacy.** Local, pure epsilon, of everything a user knows, its number of samples included: one row of bits, of
    the same length for everyone. Bins are half-open, so a user votes for one bin or, with fewer than `least` samples,
    for none; two rows differ in at most two bits, each randomized at epsilon / 2.

    Scoring pairs instead of letting users vote for the neighbors of their bin keeps the votes
    one-hot: a mean on the edge of two bins splits its votes, but not those of their pair.
    """

    name = "vote"

    def __init__(self, settings: Settings, design: StageDesign) -> None:
        self.epsilon = settings.epsilon
        self._settings = settings
        self.design = design
        self.bins = Bins(design.half_width)
        self.votes = make_votes("sue", settings.epsilon, self.bins.count)

    def encode(self, summaries: Summaries, public: Public, words: RandomWords) -> Reports:  # noqa: ARG002 - the first stage
        """Private to public: a randomized row of bits per user."""
        return self.votes.randomize(self.ballot(summaries), words)

    def ballot(self, summaries: Summaries) -> Ints:
        """Private: the bin of each user's mean, -1 for users with too few samples to know it."""
        return np.where(summaries.count >= self.design.least, self.bins.which(summaries.mean), -1)

    def valid(self, reports: Reports, public: Public) -> Bools:  # noqa: ARG002 - the first stage
        """Public: tell which rows can be reports."""
        return self.votes.valid(reports)

    def tally(self, reports: Reports, public: Public) -> Tally:  # noqa: ARG002 - the first stage
        """Public: votes for each bin."""
        if len(reports):
            return Tally(len(reports), self.votes.counts(reports))
        return Tally()

    def decode(self, tally: Tally, public: Public) -> Public | Estimate:
        """Public: the middle of the best pair; the middle of [-1, 1] if no one voted."""
        known = PlanFound.of(public)

        # Without votes the next stage looks everywhere.
        if not tally.n:
            told = [*known.found, {"stage": self.name, "reports": 0}]
            return replace(known, center=0.0, stderr=1.0, found=told).plain()

        # The best pair of neighboring bins: their common edge is the center.
        counts = [a + b for a, b in pairwise(tally.sums)]
        best = int(np.argmax(counts))
        center = self.bins.edges(best)[1]
        found = {"stage": self.name, "reports": tally.n, "center": center, "bins": self.bins.count}
        found["votes"] = counts[best]  # randomized zeros vote too

        told = [*known.found, found]
        return replace(known, center=center, stderr=self.design.error, found=told).plain()

    def check(self, found: Public, public: Public) -> None:
        """Public: refuse what is no edge between two bins."""
        now = PlanFound.of(found)
        before = PlanFound.of(public)
        if now.center is None or now.stderr is None:
            refuse_result("center", "come with its error", "one without the other")

        # Only edges between bins can be elected.
        edges = [(self.bins.edges(which)[1],) for which in range(self.bins.count)]
        result_row([now.center], ["center"], [*edges, (0.0,)])

        result_unchanged(now.unclipped, None, "unclipped")
        result_unchanged(now.restart, None, "restart")
        result_unchanged(now.design, before.design, "design")
        result_added(now.found, before.found, "found")


class WindowStage:
    """Users report how far their mean lies from a public center.

    Shrunk by their size, clipped to a window.

    Parameters
    ----------
    settings : Settings
        Of the estimator.
    design : StageDesign
        Of kind "full" or "clip".
    restart : StageDesign
        Of kind "full": what is queried instead, after a vote that went wrong.
    name : str
        Of the stage.
    last : bool
        Whether this stage answers.

    Notes
    -----
    **Privacy.** Local, pure epsilon, of everything a user knows, its number of samples included: one integer. What is
    randomized lies in [-1, 1] whatever the data; center and window come from public results of users asked before.

    With g the clipped distance in windows, the estimate is
    `center + window * mean(reports) / (A kappa)`: A is the mean shrinkage, kappa lies halfway
    between no clipping and the steepest. Its squared standard error is that of the reports and
    `((1 - kappa) / kappa)**2` times that of the center, or the predicted clip bias if this is
    larger.
    """

    def __init__(
        self,
        settings: Settings,
        design: StageDesign,
        *,
        restart: StageDesign,
        name: str,
        last: bool,
    ) -> None:
        self.epsilon = settings.epsilon
        self.name = name
        self.design = design
        self._settings = settings
        self._last = last
        self._channel = _channel(settings.epsilon, design)
        self._restart_channel = _channel(settings.epsilon, restart)

    def channel(self, public: Public) -> Mechanism:
        """Public: what randomizes the reports."""
        if PlanFound.of(public).restart is not None:
            return self._restart_channel
        return self._channel

    def encode(self, summaries: Summaries, public: Public, words: RandomWords) -> Reports:
        """Private to public: one randomized integer per user."""
        reports = self.channel(public).randomize(self.distance(summaries, public), words)
        return np.asarray(reports, dtype=np.int64).reshape(-1, 1)

    def distance(self, summaries: Summaries, public: Public) -> Floats:
        """Private: what is randomized, in [-1, 1]."""
        # On the whole range a report is the mean itself.
        known = PlanFound.of(public)
        if self.design.kind == "full" or known.restart is not None:
            return summaries.mean

        # Means of few samples vary more: they are drawn in, so that windows clip them less.
        shrink = np.sqrt(np.minimum(summaries.count, self.design.cap) / self.design.cap)
        offset = shrink * (summaries.mean - (known.center or 0.0))

        return np.asarray(np.clip(offset / self.design.window, -1.0, 1.0))

    def valid(self, reports: Reports, public: Public) -> Bools:
        """Public: tell which integers can be reports."""
        return self.channel(public).valid(reports[:, 0])

    def tally(self, reports: Reports, public: Public) -> Tally:  # noqa: ARG002 - sums are sums
        """Public: sum, and sum of squares."""
        return round_tally_moments(reports[:, 0])

    def decode(self, tally: Tally, public: Public) -> Public | Estimate:
        """Public: the next center, or the answer."""
        known = PlanFound.of(public)
        if known.restart is None:
            result = self._moved(tally, known)
        else:
            result = self._after_restart(tally, known, known.restart)

        if self._last:
            return self._answer(result)
        return result.plain()

    def _moved(self, tally: Tally, known: PlanFound) -> PlanFound:
        """Move the center by the mean report."""
        center = known.center or 0.0
        before = 1.0 if known.stderr is None else known.stderr
        found: dict[str, Any] = {"stage": self.name, "reports": tally.n}

        # One report has no spread: it moves nothing.
        if tally.n < 2:
            return _result(known, found, center, before)

        mean, stderr = (self._channel.step * x for x in round_mean_and_stderr(tally))

        # A report in the window's units, undone for the clipping and the drawing in.
        design = self.design
        unit = design.window / (design.shrunk * design.gain)
        left = max((1.0 - design.gain) / design.gain * before, design.bias)
        moved = center + unit * mean
        found |= {"window": design.window, "channel": self.design.channel, "mean": mean}
        result = _result(known, found, moved, math.hypot(unit * stderr, left))

        # A mean report far from the center says that the window is wrong.
        if design.threshold and abs(mean) > design.threshold:
            return replace(result, restart=[])

        return result

    def _after_restart(self, tally: Tally, known: PlanFound, restart: list[Group]) -> PlanFound:
        """Average all reports on [-1, 1] so far, each counted once."""
        # After a restart all reports on the whole range are one average.
        found: dict[str, Any] = {"stage": self.name, "reports": tally.n, "restart": True}
        groups = [*restart]
        if tally.n >= 2:
            mean, stderr = (self._restart_channel.step * x for x in round_mean_and_stderr(tally))
            groups.append((tally.n, mean, stderr))

        n = sum(group[0] for group in groups)
        if not n:
            return _result(known, found, 0.0, 1.0)
        mean = sum(group[0] * group[1] for group in groups) / n
        stderr = math.sqrt(sum((group[0] * group[2]) ** 2 for group in groups)) / n

        return replace(_result(known, found, mean, stderr), restart=groups)

    def check(self, found: Public, public: Public) -> None:
        """Public: refuse a center outside of [-1, 1], and all else that is no center with its error."""
        if self._last:
            refuse_result("stage", f"be one before the last: {self.name} answers", "a result")

        # What a stage says must be what its reports can give.
        now = PlanFound.of(found)
        before = PlanFound.of(public)
        if now.center is None or now.unclipped is None or now.stderr is None:
            refuse_result("center", "come with its error", "one without the other")

        result_near(now.center, "center", min(max(now.unclipped, -1.0), 1.0))
        result_unchanged(now.design, before.design, "design")
        result_added(now.found, before.found, "found")

        # A restart stays one.
        if before.restart is not None and now.restart is None:
            refuse_result("restart", "stay known", "nothing")
        result_added(now.restart or [], before.restart or [], "restart")

    def _answer(self, result: PlanFound) -> Estimate:
        assert result.unclipped is not None  # noqa: S101 - every stage finds one
        assert result.stderr is not None  # noqa: S101
        told = result.found
        n_users = sum(stage["reports"] for stage in told)

        # A single report is no answer.
        if told[-1]["reports"] < 2:
            return self._settings.no_answer(
                n_users=n_users, unclipped=result.unclipped, stages=told
            )

        return self._settings.answer(result.unclipped, result.stderr, n_users=n_users, stages=told)


def _result(known: PlanFound, found: dict[str, Any], center: float, stderr: float) -> PlanFound:
    """Give what is known after a stage: its center within [-1, 1], and what was found so far."""
    inside = min(max(center, -1.0), 1.0)
    found |= {"center": inside, "stderr": stderr}
    told = [*known.found, found]
    return replace(known, center=inside, unclipped=center, stderr=stderr, found=told)


def _channel(epsilon: float, design: StageDesign) -> Mechanism:
    return make_channel(design.channel, epsilon, second_moment=design.second_moment)

"""The stages of the tuned plan.

A vote for a bin, and reports of means within a window around a public center.
"""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import numpy as np

from meanstream.operators.estimators.plan.plan_design import StageDesign
from meanstream.operators.noise.random_bits import RandomWords
from meanstream.operators.records import Bools, Floats, Ints
from meanstream.operators.rounds.base import Settings, round_mean_and_stderr, round_tally_moments
from meanstream.operators.rounds.channels.base import Mechanism
from meanstream.operators.rounds.channels.registry import make_channel
from meanstream.operators.rounds.localization import Bins
from meanstream.operators.rounds.round_records import Estimate, Public, Reports, Summaries, Tally
from meanstream.operators.rounds.round_results import (
    MOST,
    refuse_result,
    result_added_entries,
    result_fields,
    result_list,
    result_near,
    result_number,
    result_row,
    result_whole_number,
)
from meanstream.operators.rounds.votes.registry import make_votes


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
        before = public.get("found", [])

        # Without votes the next stage looks everywhere.
        if not tally.n:
            return {
                "center": 0.0,
                "stderr": 1.0,
                "found": [*before, {"stage": self.name, "reports": 0}],
            }

        # The best pair of neighboring bins: their common edge is the center.
        counts = [a + b for a, b in pairwise(tally.sums)]
        best = int(np.argmax(counts))
        center = self.bins.edges(best)[1]
        found = {"stage": self.name, "reports": tally.n, "center": center, "bins": self.bins.count}
        found["votes"] = counts[best]  # randomized zeros vote too

        return {"center": center, "stderr": self.design.error, "found": [*before, found]}

    def check(self, found: Public, public: Public) -> None:
        """Public: refuse what is no edge between two bins."""
        result_fields(found, {"center", "stderr", "found"})

        # Only edges between bins can be elected.
        edges = [(self.bins.edges(which)[1],) for which in range(self.bins.count)]
        result_row([found["center"]], ["center"], [*edges, (0.0,)])
        result_number(found["stderr"], "stderr", 0.0, MOST)
        result_added_entries(found, public, "found")


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
        if "restart" in public:
            return self._restart_channel
        return self._channel

    def encode(self, summaries: Summaries, public: Public, words: RandomWords) -> Reports:
        """Private to public: one randomized integer per user."""
        reports = self.channel(public).randomize(self.distance(summaries, public), words)
        return np.asarray(reports, dtype=np.int64).reshape(-1, 1)

    def distance(self, summaries: Summaries, public: Public) -> Floats:
        """Private: what is randomized, in [-1, 1]."""
        # On the whole range a report is the mean itself.
        if self.design.kind == "full" or "restart" in public:
            return summaries.mean

        # Means of few samples vary more: they are drawn in, so that windows clip them less.
        shrink = np.sqrt(np.minimum(summaries.count, self.design.cap) / self.design.cap)
        offset = shrink * (summaries.mean - float(public["center"]))

        return np.asarray(np.clip(offset / self.design.window, -1.0, 1.0))

    def valid(self, reports: Reports, public: Public) -> Bools:
        """Public: tell which integers can be reports."""
        return self.channel(public).valid(reports[:, 0])

    def tally(self, reports: Reports, public: Public) -> Tally:  # noqa: ARG002 - sums are sums
        """Public: sum, and sum of squares."""
        return round_tally_moments(reports[:, 0])

    def decode(self, tally: Tally, public: Public) -> Public | Estimate:
        """Public: the next center, or the answer."""
        result = (
            self._after_restart(tally, public)
            if "restart" in public
            else self._moved(tally, public)
        )

        if self._last:
            return self._answer(result)
        return result

    def _moved(self, tally: Tally, public: Public) -> Public:
        """Move the center by the mean report."""
        center = float(public.get("center", 0.0))
        before = float(public.get("stderr", 1.0))
        found: dict[str, Any] = {"stage": self.name, "reports": tally.n}

        # One report has no spread: it moves nothing.
        if tally.n < 2:
            return _result(public, found, center, before)

        mean, stderr = (self._channel.step * x for x in round_mean_and_stderr(tally))

        # A report in the window's units, undone for the clipping and the drawing in.
        design = self.design
        unit = design.window / (design.shrunk * design.gain)
        left = max((1.0 - design.gain) / design.gain * before, design.bias)
        moved = center + unit * mean
        found |= {"window": design.window, "channel": self.design.channel, "mean": mean}
        result = _result(public, found, moved, math.hypot(unit * stderr, left))

        # A mean report far from the center says that the window is wrong.
        if design.threshold and abs(mean) > design.threshold:
            result["restart"] = []

        return result

    def _after_restart(self, tally: Tally, public: Public) -> Public:
        """Average all reports on [-1, 1] so far, each counted once."""
        # After a restart all reports on the whole range are one average.
        found: dict[str, Any] = {"stage": self.name, "reports": tally.n, "restart": True}
        groups = [list(group) for group in public["restart"]]
        if tally.n >= 2:
            mean, stderr = (self._restart_channel.step * x for x in round_mean_and_stderr(tally))
            groups.append([tally.n, mean, stderr])

        n = sum(group[0] for group in groups)
        if not n:
            return _result(public, found, 0.0, 1.0) | {"restart": []}
        mean = sum(group[0] * group[1] for group in groups) / n
        stderr = math.sqrt(sum((group[0] * group[2]) ** 2 for group in groups)) / n

        return _result(public, found, mean, stderr) | {"restart": groups}

    def check(self, found: Public, public: Public) -> None:
        """Public: refuse a center outside of [-1, 1], and all else that is no center with its error."""
        if self._last:
            refuse_result("stage", f"be one before the last: {self.name} answers", "a result")

        # What a stage says must be what its reports can give.
        again = {"restart"} if "restart" in public else set()
        result_fields(found, {"center", "unclipped", "stderr", "found"} | again, {"restart"})
        result_near(
            found["center"],
            "center",
            min(max(result_number(found["unclipped"], "unclipped", -MOST, MOST), -1.0), 1.0),
        )
        result_number(found["stderr"], "stderr", 0.0, MOST)
        result_added_entries(found, public, "found")

        for group in result_added_entries(found, public, "restart"):
            count, mean, stderr = result_list(group, "restart", 3, 3)
            result_whole_number(count, "restart", 2)
            result_number(mean, "restart", -MOST, MOST)
            result_number(stderr, "restart", 0.0, MOST)

    def _answer(self, result: Public) -> Estimate:
        n_users = sum(stage["reports"] for stage in result["found"])
        unclipped = float(result["unclipped"])
        stderr = float(result["stderr"])

        # A single report is no answer.
        if result["found"][-1]["reports"] < 2:
            return self._settings.no_answer(
                n_users=n_users, unclipped=unclipped, stages=result["found"]
            )

        return self._settings.answer(unclipped, stderr, n_users=n_users, stages=result["found"])


def _result(public: Public, found: dict[str, Any], center: float, stderr: float) -> Public:
    """Public data of a stage: its center within [-1, 1], and what was found so far."""
    inside = min(max(center, -1.0), 1.0)
    found |= {"center": inside, "stderr": stderr}
    return {
        "center": inside,
        "unclipped": center,
        "stderr": stderr,
        "found": [*public.get("found", []), found],
    }


def _channel(epsilon: float, design: StageDesign) -> Mechanism:
    return make_channel(design.channel, epsilon, second_moment=design.second_moment)

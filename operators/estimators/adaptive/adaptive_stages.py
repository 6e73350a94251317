"""The stages of the honest default: reports in a window, and votes for how widely users differ.

What is public between stages is plain data: the `parts` found so far (one per stage that asked for
reports), the window of the next reports, and the `mode`, in which "wide" means that everyone left
reports on all of [-1, 1].
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from meanstream.operators.estimators.adaptive.adaptive_design import (
    EVERYTHING,
    LEAST_REPORTS,
    SATURATED,
    TOP_EDGE,
    AdaptivePlan,
    adaptive_design_cut_window,
    adaptive_design_next_window,
    adaptive_design_whole_window,
)
from meanstream.operators.estimators.adaptive.adaptive_scale import (
    Scale,
    fit_scale,
    scale_bin,
    scale_tail_bias,
    scale_vote_edges,
    scale_votes,
)
from meanstream.operators.noise.random_bits import RandomWords
from meanstream.operators.records import Bools, Floats
from meanstream.operators.rounds.base import round_mean_and_stderr, round_tally_moments
from meanstream.operators.rounds.channels.base import Mechanism
from meanstream.operators.rounds.round_records import Estimate, Public, Reports, Summaries, Tally
from meanstream.operators.rounds.round_results import (
    LEAST_WIDTH,
    MOST,
    refuse_result,
    result_added_entries,
    result_fields,
    result_list,
    result_near,
    result_number,
    result_one_of,
    result_whole_number,
)
from meanstream.operators.rounds.votes.registry import Votes

PART = ("stage", "n", "center", "half_width", "position", "mean", "stderr")
"""What is known of the reports of one stage."""

LEAST_STDERR = 1e-12


class ReportStage:
    """Users report their mean within the window, through a channel.

    Parameters
    ----------
    plan : AdaptivePlan
    stage : int
        Number of this stage in the plan.
    name : str

    Notes
    -----
    **Privacy.** Local, pure epsilon, of everything the user knows: the mean is cut to a public window, and the channel
    is private for any two values in it. One message per user; the number of samples enters through the mean only.
    """

    def __init__(self, plan: AdaptivePlan, stage: int, name: str) -> None:
        self.name = name
        self.epsilon = plan.settings.epsilon
        self._plan = plan
        self._stage = stage

    def encode(self, summaries: Summaries, public: Public, words: RandomWords) -> Reports:
        """Private to public: one integer per user."""
        center, half_width = adaptive_design_cut_window(*public.get("window", EVERYTHING))
        return self.channel(public).randomize((summaries.mean - center) / half_width, words)[
            :, None
        ]

    def valid(self, reports: Reports, public: Public) -> Bools:
        """Public: tell which reports the channel can have made."""
        return self.channel(public).valid(reports[:, 0])

    def tally(self, reports: Reports, public: Public) -> Tally:  # noqa: ARG002 - sums do not depend on it
        """Public: sum of the reports and of their squares."""
        return round_tally_moments(reports[:, 0])

    def decode(self, tally: Tally, public: Public) -> Public | Estimate:
        """Public: a better center, for the bins of a vote or for the window of the next reports."""
        return self.result(tally, public)

    def result(self, tally: Tally, public: Public) -> Public:
        """Public: everything that is known after these reports."""
        if not tally.n:
            return {**public, "n_users": public.get("n_users", 0)}
        part = self.part(tally, public)
        found = {**public, "n_users": public.get("n_users", 0) + tally.n}

        if public.get("mode", "wide") != "wide":
            # Of the window before it is cut to the bounds: an end at a bound cuts no one off.
            center, half_width = public["window"]
            if abs(part["mean"] - center) > SATURATED * half_width:
                return {**found, **adaptive_design_whole_window(1.0)}

        found["parts"] = [*public.get("parts", []), part]
        found["center"], found["center_stderr"] = _combine(found["parts"])

        if found.get("mode", "wide") != "wide":
            found["window"] = [found["center"], public["window"][1]]

        return found

    def check(self, found: Public, public: Public) -> None:
        """Public: refuse what cannot follow upon reports; see `_check_known`."""
        _check_known(found, public, votes=False)

    def part(self, tally: Tally, public: Public) -> dict[str, Any]:
        """Public: mean of the reports, with the standard error that they show."""
        center, half_width = adaptive_design_cut_window(*public.get("window", EVERYTHING))
        step = self.channel(public).step
        position = step * tally.sums[0] / tally.n
        stderr = self._plan.noise(tally.n, self.moment(public))

        if tally.n >= LEAST_REPORTS:
            stderr = max(step * round_mean_and_stderr(tally)[1], 0.1 * stderr)

        return {
            "stage": self.name,
            "n": tally.n,
            "center": center,
            "half_width": half_width,
            "position": position,
            "mean": center + half_width * position,
            "stderr": half_width * stderr,
        }

    def moment(self, public: Public) -> float:
        """Public: expected mean square of what is reported, in half-widths of the window."""
        return float(public.get("moment", self._plan.start_moment))

    def channel(self, public: Public) -> Mechanism:
        """Public: the channel of these reports."""
        return self._plan.channel(self.moment(public))


class VoteStage:
    """Users vote for the bin of their deviation from the center.

    Or report, where a vote would not pay.

    Parameters
    ----------
    plan : AdaptivePlan
    stage : int
        Number of this stage in the plan.
    name : str
    first : bool
        Whether nothing is known of the scale yet; the second vote is held only where a window is
        used.

    Notes
    -----
    **Privacy.** Local, pure epsilon, of everything the user knows: the bins are half-open, disjoint and public, so a
    user votes for exactly one of them, and any two votes are randomised to within exp(epsilon). One message per user.
    """

    def __init__(self, plan: AdaptivePlan, stage: int, name: str, *, first: bool) -> None:
        self.name = name
        self.epsilon = plan.settings.epsilon
        self._plan = plan
        self._stage = stage
        self._first = first
        self._report = ReportStage(plan, stage, name)

    def encode(self, summaries: Summaries, public: Public, words: RandomWords) -> Reports:
        """Private to public: one randomised vote, or report, per user."""
        if not self.is_vote(public):
            return self._report.encode(summaries, public, words)
        deviation = np.abs(summaries.mean - public.get("center", 0.0))
        return self._votes(public).randomize(scale_bin(deviation, self._edges(public)), words)

    def valid(self, reports: Reports, public: Public) -> Bools:
        """Public: tell which rows a user can have sent."""
        if self.is_vote(public):
            return self._votes(public).valid(reports)
        return self._report.valid(reports, public)

    def tally(self, reports: Reports, public: Public) -> Tally:
        """Public: votes for each bin, or sums of the reports."""
        if not self.is_vote(public):
            return self._report.tally(reports, public)
        return Tally(len(reports), self._votes(public).counts(reports))

    def decode(self, tally: Tally, public: Public) -> Public | Estimate:
        """Public: the scale, and the window it asks for."""
        if not self.is_vote(public):
            return self._report.decode(tally, public)
        found = {**public, "n_users": public.get("n_users", 0) + tally.n}
        if not tally.n or "center" not in public:
            if self._first:
                return {**found, **adaptive_design_whole_window(1.0)}
            return found

        scale = self._fit(tally, public)
        found["scales"] = [
            *public.get("scales", []),
            {"value": scale.value, "log_stderr": scale.log_stderr},
        ]

        return {**found, **adaptive_design_next_window(self._plan, scale, public, self._stage)}

    def check(self, found: Public, public: Public) -> None:
        """Public: refuse what cannot follow upon this vote, or upon the reports in its place.

        See `_check_known`.
        """
        _check_known(found, public, votes=self.is_vote(public))

    def is_vote(self, public: Public) -> bool:
        """Public: tell whether this stage votes."""
        return self._first or public.get("mode") == "narrow"

    def _fit(self, tally: Tally, public: Public) -> Scale:
        votes = self._votes(public)
        shares = votes.shares(tally.sums, tally.n)
        return fit_scale(shares, self._edges(public), votes.share_variance(shares, tally.n))

    def _edges(self, public: Public) -> Floats:
        stderr = public.get("center_stderr", TOP_EDGE)
        return scale_vote_edges(TOP_EDGE if self._first else public["window"][1] / 2.0, stderr)

    def _votes(self, public: Public) -> Votes:
        return scale_votes(self.epsilon, len(self._edges(public)) + 1)


class LastStage(ReportStage):
    """The last reports, and the answer from all of them."""

    def check(self, found: Public, public: Public) -> None:  # noqa: ARG002 - whatever it is
        """Public: refuse any result; this stage makes the estimate."""
        refuse_result("stage", f"be one before the last: {self.name} answers", "a result")

    def decode(self, tally: Tally, public: Public) -> Estimate:
        """Public: the mean over users, from the reports of all stages, weighted by their precision."""
        found = self.result(tally, public)
        settings = self._plan.settings
        parts = found.get("parts", [])
        scales = found.get("scales", [])
        stages = [*parts, *({"stage": "scale", **scale} for scale in scales)]

        if not parts:
            return settings.no_answer(n_users=found["n_users"], stages=stages)
        mean = found["center"]
        stderr = found["center_stderr"]

        if found.get("mode", "wide") != "wide":
            stderr = math.hypot(stderr, scale_tail_bias(found["window"][1], scales[-1]["value"]))

        if sum(part["n"] for part in parts) < LEAST_REPORTS:
            return settings.no_answer(
                unclipped=mean, stderr=stderr, n_users=found["n_users"], stages=stages
            )

        return settings.answer(mean, stderr, n_users=found["n_users"], stages=stages)


def _check_known(found: Public, public: Public, *, votes: bool) -> None:
    """Public: refuse what is not known after a stage of reports, or of votes.

    A window is one step of the grid wide at least, where it is cut to [-1, 1], too; it never
    becomes wider but to all of [-1, 1], from where nothing leads back.
    """
    result_fields(
        found,
        {"n_users", *public},
        {"parts", "center", "center_stderr", "scales", "mode", "window", "moment"},
    )
    result_whole_number(found["n_users"], "n_users", int(public.get("n_users", 0)))

    for part in result_added_entries(found, public, "parts", by=int(not votes)):
        for name, value in result_fields(part, PART).items():
            if name != "stage":
                result_number(value, name, -MOST, MOST)

    for scale in result_added_entries(found, public, "scales", by=int(votes)):
        for name, value in result_fields(scale, {"value", "log_stderr"}).items():
            result_number(value, name, 0.0, MOST)

    if "parts" in found or "center" in found:
        result_number(found.get("center"), "center", -MOST, MOST)
        result_number(found.get("center_stderr"), "center_stderr", LEAST_STDERR, MOST)

    if "mode" in found or "window" in found or votes:
        _check_window(found, public)


def _check_window(found: Public, public: Public) -> None:
    result_number(found.get("moment"), "moment", 0.01, 1.0)
    center, half_width = result_list(found.get("window"), "window", 2, 2)
    if result_one_of(found.get("mode"), "mode", ("wide", "narrow")) == "wide":
        result_near(center, "window", EVERYTHING[0])
        result_near(half_width, "window", EVERYTHING[1])
        return

    if public.get("mode") == "wide":
        refuse_result("mode", "stay 'wide'", "narrow")

    widest = public["window"][1] if "window" in public else 2.0
    result_number(center, "window", -MOST, MOST)
    result_number(half_width, "window", LEAST_WIDTH, widest * (1.0 + 1e-9))
    result_number(
        2.0 * adaptive_design_cut_window(center, half_width)[1], "window", LEAST_WIDTH, 2.0
    )


def _combine(parts: list[dict[str, Any]]) -> tuple[float, float]:
    """Public: mean of parts weighted by precision, with its standard error."""
    weight = np.array([part["stderr"] ** -2 for part in parts])
    return float(np.sum(weight * [part["mean"] for part in parts]) / weight.sum()), float(
        weight.sum() ** -0.5
    )

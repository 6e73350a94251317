"""The stages of the honest default: reports in a window, and votes for how widely users differ.

What is public between stages is an `AdaptiveFound`.
"""

from __future__ import annotations

import math

import numpy as np
from msgspec.structs import replace

from meanstream.operators.estimators.adaptive.adaptive_design import (
    EVERYTHING,
    LEAST_REPORTS,
    SATURATED,
    TOP_EDGE,
    AdaptiveFound,
    AdaptivePlan,
    ReportsFound,
    ScaleFound,
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
    refuse_result,
    result_added,
    result_near,
    result_number,
    result_unchanged,
)
from meanstream.operators.rounds.votes.registry import Votes


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
        known = AdaptiveFound.known(public)
        center, half_width = place = known.place

        # What a forecast leaves may lie beyond the bounds, so on the bounds it takes nothing off.
        value = summaries.mean if place == EVERYTHING else summaries.residual
        position = (value - center) / half_width
        return self.channel(known).randomize(position, words)[:, None]

    def valid(self, reports: Reports, public: Public) -> Bools:
        """Public: tell which reports the channel can have made."""
        return self.channel(AdaptiveFound.known(public)).valid(reports[:, 0])

    def tally(self, reports: Reports, public: Public) -> Tally:  # noqa: ARG002 - sums do not depend on it
        """Public: sum of the reports and of their squares."""
        return round_tally_moments(reports[:, 0])

    def decode(self, tally: Tally, public: Public) -> Public | Estimate:
        """Public: a better center, for the bins of a vote or for the window of the next reports."""
        return self.result(tally, AdaptiveFound.known(public)).plain()

    def result(self, tally: Tally, known: AdaptiveFound) -> AdaptiveFound:
        """Public: everything that is known after these reports."""
        if not tally.n:
            return known
        part = self.part(tally, known)
        n_users = known.n_users + tally.n
        narrow = known.window if known.mode == "narrow" else None

        if narrow is not None:
            # Of the window before it is cut to the bounds: an end at a bound cuts no one off.
            center, half_width = narrow
            if abs(part.mean - center) > SATURATED * half_width:
                return replace(known, n_users=n_users, **adaptive_design_whole_window(1.0))

        parts = [*known.parts, part]
        center, stderr = _combine(parts)
        found = replace(known, n_users=n_users, parts=parts, center=center, center_stderr=stderr)
        return found if narrow is None else replace(found, window=[center, narrow[1]])

    def check(self, found: Public, public: Public) -> None:
        """Public: refuse what cannot follow upon reports; see `_check_known`."""
        _check_known(found, public, votes=False)

    def part(self, tally: Tally, known: AdaptiveFound) -> ReportsFound:
        """Public: mean of the reports, with the standard error that they show."""
        center, half_width = known.place
        step = self.channel(known).step
        position = step * tally.sums[0] / tally.n
        stderr = self._plan.noise(tally.n, self.moment(known))

        if tally.n >= LEAST_REPORTS:
            stderr = max(step * round_mean_and_stderr(tally)[1], 0.1 * stderr)

        return ReportsFound(
            stage=self.name,
            n=tally.n,
            center=center,
            half_width=half_width,
            position=position,
            mean=center + half_width * position,
            stderr=half_width * stderr,
        )

    def moment(self, known: AdaptiveFound) -> float:
        """Public: expected mean square of what is reported, in half-widths of the window."""
        return self._plan.start_moment if known.moment is None else known.moment

    def channel(self, known: AdaptiveFound) -> Mechanism:
        """Public: the channel of these reports."""
        return self._plan.channel(self.moment(known))


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
        known = AdaptiveFound.known(public)
        if not self.is_vote(known):
            return self._report.encode(summaries, public, words)
        deviation = np.abs(summaries.residual - (known.center or 0.0))
        return self._votes(known).randomize(scale_bin(deviation, self._edges(known)), words)

    def valid(self, reports: Reports, public: Public) -> Bools:
        """Public: tell which rows a user can have sent."""
        known = AdaptiveFound.known(public)
        if self.is_vote(known):
            return self._votes(known).valid(reports)
        return self._report.valid(reports, public)

    def tally(self, reports: Reports, public: Public) -> Tally:
        """Public: votes for each bin, or sums of the reports."""
        known = AdaptiveFound.known(public)
        if not self.is_vote(known):
            return self._report.tally(reports, public)
        return Tally(len(reports), self._votes(known).counts(reports))

    def decode(self, tally: Tally, public: Public) -> Public | Estimate:
        """Public: the scale, and the window it asks for."""
        known = AdaptiveFound.known(public)
        if not self.is_vote(known):
            return self._report.decode(tally, public)

        found = replace(known, n_users=known.n_users + tally.n)
        if not tally.n or known.center is None:
            if self._first:
                found = replace(found, **adaptive_design_whole_window(1.0))
            return found.plain()

        scale = self._fit(tally, known)
        voted = ScaleFound(value=scale.value, log_stderr=scale.log_stderr)
        window = adaptive_design_next_window(self._plan, scale, known, self._stage)
        return replace(found, scales=[*known.scales, voted], **window).plain()

    def check(self, found: Public, public: Public) -> None:
        """Public: refuse what cannot follow upon this vote, or upon the reports in its place.

        See `_check_known`.
        """
        _check_known(found, public, votes=self.is_vote(AdaptiveFound.known(public)))

    def is_vote(self, known: AdaptiveFound) -> bool:
        """Public: tell whether this stage votes."""
        return self._first or known.mode == "narrow"

    def _fit(self, tally: Tally, known: AdaptiveFound) -> Scale:
        votes = self._votes(known)
        shares = votes.shares(tally.sums, tally.n)
        return fit_scale(shares, self._edges(known), votes.share_variance(shares, tally.n))

    def _edges(self, known: AdaptiveFound) -> Floats:
        stderr = TOP_EDGE if known.center_stderr is None else known.center_stderr
        top = TOP_EDGE if self._first or known.window is None else known.window[1] / 2.0
        return scale_vote_edges(top, stderr)

    def _votes(self, known: AdaptiveFound) -> Votes:
        return scale_votes(self.epsilon, len(self._edges(known)) + 1)


class LastStage(ReportStage):
    """The last reports, and the answer from all of them."""

    def check(self, found: Public, public: Public) -> None:  # noqa: ARG002 - whatever it is
        """Public: refuse any result; this stage makes the estimate."""
        refuse_result("stage", f"be one before the last: {self.name} answers", "a result")

    def decode(self, tally: Tally, public: Public) -> Estimate:
        """Public: the mean over users, from the reports of all stages, weighted by their precision."""
        found = self.result(tally, AdaptiveFound.known(public))
        settings = self._plan.settings
        scales = [{"stage": "scale", **scale.plain()} for scale in found.scales]
        stages = [*(part.plain() for part in found.parts), *scales]
        n_users = found.n_users

        mean = found.center
        stderr = found.center_stderr
        if not found.parts or mean is None or stderr is None:
            return settings.no_answer(n_users=n_users, stages=stages)

        if found.mode == "narrow" and found.window is not None:
            stderr = math.hypot(stderr, scale_tail_bias(found.window[1], found.scales[-1].value))

        if sum(part.n for part in found.parts) < LEAST_REPORTS:
            return settings.no_answer(unclipped=mean, stderr=stderr, n_users=n_users, stages=stages)

        return settings.answer(mean, stderr, n_users=n_users, stages=stages)


def _check_known(found: Public, public: Public, *, votes: bool) -> None:
    """Public: refuse what is not known after a stage of reports, or of votes.

    A window is one step of the grid wide at least, where it is cut to [-1, 1], too; it never
    becomes wider but to all of [-1, 1], from where nothing leads back.
    """
    now = AdaptiveFound.of(found)
    before = AdaptiveFound.known(public)

    # What is known stays known.
    for name in public:
        if name not in found:
            refuse_result(name, "stay known", "nothing")

    if now.n_users < before.n_users:
        refuse_result("n_users", f"be at least {before.n_users}", "fewer")

    result_unchanged(now.watch, before.watch, "watch")
    result_unchanged(now.wider, before.wider, "wider")
    result_added(now.parts, before.parts, "parts", by=int(not votes))
    result_added(now.scales, before.scales, "scales", by=int(votes))

    if (now.center is None) != (now.center_stderr is None) or (now.parts and now.center is None):
        refuse_result("center", "come with its error, and with parts", "one without the other")

    if now.mode is not None or now.window is not None or votes:
        _check_window(now, before)


def _check_window(now: AdaptiveFound, before: AdaptiveFound) -> None:
    if now.mode is None or now.window is None or now.moment is None:
        refuse_result("window", "come with its mode and moment", "one without the others")

    center, half_width = now.window
    if now.mode == "wide":
        result_near(center, "window", EVERYTHING[0])
        result_near(half_width, "window", EVERYTHING[1])
        return

    if before.mode == "wide":
        refuse_result("mode", "stay 'wide'", "narrow")

    widest = 2.0 if before.window is None else before.window[1]
    result_number(half_width, "window", LEAST_WIDTH, widest * (1.0 + 1e-9))
    result_number(2.0 * now.place[1], "window", LEAST_WIDTH, 2.0)


def _combine(parts: list[ReportsFound]) -> tuple[float, float]:
    """Public: mean of parts weighted by precision, with its standard error."""
    weight = np.array([part.stderr**-2 for part in parts])
    return float(np.sum(weight * [part.mean for part in parts]) / weight.sum()), float(
        weight.sum() ** -0.5
    )

"""The tuned plan where the law of users' numbers of samples is not known.

Some users are requested it first.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from msgspec.structs import replace

from meanstream.operators.estimators.plan.plan_design import StageDesign
from meanstream.operators.estimators.plan.plan_search import search_plan_with_shares
from meanstream.operators.estimators.plan.plan_stages import PairVoteStage, PlanFound, WindowStage
from meanstream.operators.noise.random_bits import RandomWords
from meanstream.operators.records import Bools, Floats, Ints
from meanstream.operators.rounds.base import Settings, round_mean_and_stderr, round_tally_moments
from meanstream.operators.rounds.channels.base import Mechanism
from meanstream.operators.rounds.channels.registry import CHANNELS, make_channel
from meanstream.operators.rounds.round_protocol import Round
from meanstream.operators.rounds.round_records import Estimate, Public, Reports, Summaries, Tally
from meanstream.operators.rounds.round_results import (
    refuse_result,
    result_added,
    result_unchanged,
)
from meanstream.operators.rounds.user_sizes import SizeDistribution
from meanstream.operators.rounds.votes.registry import make_votes
from meanstream.operators.validation import require

LEAST_USERS_EPSILON_SQUARED = 1e4
"""Users times epsilon squared from which on the law can be learned well enough to be worth its
users."""

SHARES = (0.10, 0.06, 0.13, 0.13, 0.17, 0.41)
"""Of the votes on sizes, of the mean shrinkage, and of the four stages of the plan that follows."""

CLASSES = 21
"""Sizes are distinguished by powers of two, up to 2**20."""

_CLEAR = 3.3
"""A class counts if its share exceeds the noise of an empty one by that many standard
deviations."""
_PER_CLASS = 5


def unknown_sizes_rounds(
    settings: Settings, between_users: float
) -> tuple[tuple[Round, ...], tuple[float, ...]]:
    """Make the stages of a plan that learns the law of sizes first, and their shares of the users.

    Parameters
    ----------
    settings : Settings
        Of the estimator.
    between_users : float
        Declared bound on the standard deviation of users' own means, on [-1, 1].

    Raises
    ------
    ValueError
        If there are too few users for this epsilon.
    """
    strength = settings.users * settings.epsilon**2
    rule = (
        f"be given where users * epsilon**2 is below {LEAST_USERS_EPSILON_SQUARED:g} (it is {strength:.3g}): "
        "learning it would cost more than it brings, or go wrong"
    )
    require(strength >= LEAST_USERS_EPSILON_SQUARED, "sizes", rule, "unknown")

    # All stages are laid down before: users are split by shares that nothing learned changes.
    following = [
        PlannedRound(settings, number, last=number == len(SHARES) - 3)
        for number in range(len(SHARES) - 2)
    ]

    return (SizeVoteRound(settings, between_users), GainRound(settings), *following), SHARES


class SizeVoteRound:
    """Users vote for the power of two below their number of samples.

    The design of the other stages follows from it.

    Parameters
    ----------
    settings : Settings
        Of the estimator.
    between_users : float
        Declared bound on the standard deviation of users' own means, on [-1, 1].

    Notes
    -----
    **Privacy.** Local, pure epsilon, of a user's number of samples: one randomized row of bits, one-hot for everyone.
    """

    name = "sizes"

    def __init__(self, settings: Settings, between_users: float) -> None:
        self.epsilon = settings.epsilon
        self._settings = settings
        self._between_users = between_users
        self.votes = make_votes("sue", settings.epsilon, CLASSES)

    def encode(self, summaries: Summaries, public: Public, words: RandomWords) -> Reports:  # noqa: ARG002 - the first
        """Private to public: a randomized row of bits per user."""
        return self.votes.randomize(unknown_size_class(summaries.count), words)

    def valid(self, reports: Reports, public: Public) -> Bools:  # noqa: ARG002 - the first stage
        """Public: tell which rows can be reports."""
        return self.votes.valid(reports)

    def tally(self, reports: Reports, public: Public) -> Tally:  # noqa: ARG002 - the first stage
        """Public: votes for each power of two."""
        if len(reports):
            return Tally(len(reports), self.votes.counts(reports))
        return Tally()

    def decode(self, tally: Tally, public: Public) -> Public | Estimate:  # noqa: ARG002 - the first stage
        """Public: the design of the other stages.

        Reports on [-1, 1] from everyone if windows do not pay.
        """
        found: dict[str, Any] = {"stage": self.name, "reports": tally.n}

        # Nobody voted: whoever comes next answers on the whole range.
        if not tally.n:
            return PlanFound(restart=[], found=[found]).plain()
        noise = math.sqrt(float(self.votes.share_variance(0.0, tally.n)))
        sizes = learned_unknown_sizes(self.votes.shares(tally.sums, tally.n), noise)
        found["sizes"] = sizes.describe()

        # The design is found for the users that are left, under the law that was learned.
        shares = np.array(SHARES[2:]) / sum(SHARES[2:])
        users = round(self._settings.users * sum(SHARES[2:]))
        design = search_plan_with_shares(self.epsilon, users, sizes, self._between_users, shares)

        # No better design than one stage: everyone answers at once.
        if len(design.stages) == 1:
            return PlanFound(restart=[], found=[found]).plain()
        found["kind"] = design.kind
        return PlanFound(design=list(design.stages), found=[found]).plain()

    def check(self, found: Public, public: Public) -> None:
        """Public: refuse a design that has other stages, or numbers that no stage can have."""
        now = PlanFound.of(found)
        if now.design is None:
            result_unchanged(now, PlanFound(restart=[], found=now.found), "it")
        else:
            result_unchanged(now, PlanFound(design=now.design, found=now.found), "it")
            _check_design(now.design, self._settings)

        result_added(now.found, PlanFound.of(public).found, "found")


def unknown_size_class(count: Ints) -> Ints:
    """Private: floor(log2) of each number of samples, exactly, up to the last class."""
    return np.asarray(np.minimum(np.frexp(count)[1] - 1, CLASSES - 1), dtype=np.int64)


def learned_unknown_sizes(shares: Floats, noise: float) -> SizeDistribution:
    """Make a law of sizes of noisy shares of the powers of two.

    Parameters
    ----------
    shares : float array (CLASSES,)
        Unbiased estimates, some negative.
    noise : float
        Standard deviation of the share of a class that is empty.

    Notes
    -----
    Classes that do not stand out are dropped; what is then missing, if it is more than noise, is taken for users with
    one sample, who count least. Within a class, sizes are taken to be spread evenly.

    Examples
    --------
    >>> shares = np.zeros(CLASSES)
    >>> shares[[3, 10, 12]] = 0.29, 0.69, 0.004
    >>> learned_unknown_sizes(shares, 0.01).support
    array([   8,   10,   12,   13,   15, 1126, 1331, 1536, 1740, 1945])
    """
    # Shares that drown in noise count as none; what is missing is put at one sample.
    kept = np.where(shares > _CLEAR * noise, shares, 0.0)
    missing = 1.0 - float(kept.sum())
    if missing > _CLEAR * noise:
        kept[0] += missing

    if not kept.any():
        kept[0] = 1.0

    # Sizes within a class are taken as evenly spread.
    law: dict[int, float] = {}
    for number in np.flatnonzero(kept).tolist():
        spread = (np.arange(_PER_CLASS) + 0.5) / _PER_CLASS
        sizes = (
            np.unique(np.floor(2.0**number * (1.0 + spread)).astype(np.int64))
            if number
            else np.array([1])
        )

        for size in sizes.tolist():
            law[size] = law.get(size, 0.0) + float(kept[number]) / len(sizes)

    support = np.array(sorted(law))
    probability = np.array([law[size] for size in support.tolist()])
    return SizeDistribution(support, probability / probability.sum())


class GainRound:
    """Users report how much they are shrunk in the last stage.

    Its mean, without the rounding to powers of two.

    Parameters
    ----------
    settings : Settings
        Of the estimator.

    Notes
    -----
    **Privacy.** Local, pure epsilon, of a user's number of samples: one bit. An error of the mean shrinkage moves the
    answer by that much of the last step only.
    """

    name = "shrinkage"

    def __init__(self, settings: Settings) -> None:
        self.epsilon = settings.epsilon
        self._settings = settings
        self._channel = make_channel("one_bit", settings.epsilon)
        self._full = WindowStage(settings, _full(), restart=_full(), name=self.name, last=False)

    def channel(self, public: Public) -> Mechanism:
        """Public: what randomizes the reports."""
        if PlanFound.of(public).restart is not None:
            return self._full.channel(public)
        return self._channel

    def encode(self, summaries: Summaries, public: Public, words: RandomWords) -> Reports:
        """Private to public: one randomized integer per user."""
        value = (
            self._full.distance(summaries, public)
            if PlanFound.of(public).restart is not None
            else self.shrinkage(summaries, public)
        )

        return np.asarray(self.channel(public).randomize(value, words), dtype=np.int64).reshape(
            -1, 1
        )

    def shrinkage(self, summaries: Summaries, public: Public) -> Floats:
        """Private: `2 a - 1` of each user, in [-1, 1]."""
        cap = _design(PlanFound.of(public))[-1].cap
        return np.asarray(2.0 * np.sqrt(np.minimum(summaries.count, cap) / cap) - 1.0)

    def valid(self, reports: Reports, public: Public) -> Bools:
        """Public: tell which integers can be reports."""
        return self.channel(public).valid(reports[:, 0])

    def tally(self, reports: Reports, public: Public) -> Tally:  # noqa: ARG002 - sums are sums
        """Public: sum, and sum of squares."""
        return round_tally_moments(reports[:, 0])

    def decode(self, tally: Tally, public: Public) -> Public | Estimate:
        """Public: the design with the shrinkage that was found."""
        known = PlanFound.of(public)
        if known.restart is not None:
            return self._full.decode(tally, public)
        found: dict[str, Any] = {"stage": self.name, "reports": tally.n}
        design = _design(known)

        if tally.n >= 2:
            mean, stderr = (self._channel.step * x for x in round_mean_and_stderr(tally))
            learned = design[-1].shrunk
            measured = 0.5 * (1.0 + mean)
            error = 0.5 * stderr
            found |= {"shrunk": measured, "stderr": error}

            # Far off, the report is noise: the learned law is then the better guess.
            ratio = measured / learned if abs(measured - learned) < 0.3 * learned else 1.0
            design = [
                replace(stage, shrunk=min(stage.shrunk * ratio, 1.0))
                if stage.kind == "clip"
                else stage
                for stage in design
            ]

        return PlanFound(design=design, found=[*known.found, found]).plain()

    def check(self, found: Public, public: Public) -> None:
        """Public: refuse another design than that before, but for the shrinkage."""
        known = PlanFound.of(public)
        if known.restart is not None:
            self._full.check(found, public)
            return

        now = PlanFound.of(found)
        after = _design(now)
        result_unchanged(now, PlanFound(design=after, found=now.found), "it")
        _check_design(after, self._settings)

        # The shrinkage alone is another one.
        as_before = [
            replace(stage, shrunk=one.shrunk)
            for stage, one in zip(_design(known), after, strict=True)
        ]
        result_unchanged(after, as_before, "design")
        result_added(now.found, known.found, "found")


class PlannedRound:
    """One of the stages that were designed after the sizes were learned.

    Parameters
    ----------
    settings : Settings
        Of the estimator.
    number : int
        Which stage of the design.
    last : bool
        Whether it answers.

    Notes
    -----
    **Privacy.** That of `PairVoteStage` or `WindowStage`, whichever the public design names.
    """

    def __init__(self, settings: Settings, number: int, *, last: bool) -> None:
        self.epsilon = settings.epsilon
        self.name = f"stage {number + 1}"
        self._settings = settings
        self._number = number
        self._last = last

    def chosen(self, public: Public) -> PairVoteStage | WindowStage:
        """Public: the stage that the design names."""
        known = PlanFound.of(public)
        design = known.design[self._number] if known.design else _full()
        if design.kind == "vote" and known.restart is None:
            return PairVoteStage(self._settings, design)

        return WindowStage(self._settings, design, restart=_full(), name=self.name, last=self._last)

    def encode(self, summaries: Summaries, public: Public, words: RandomWords) -> Reports:
        """Private to public: one report per user."""
        return self.chosen(public).encode(summaries, public, words)

    def valid(self, reports: Reports, public: Public) -> Bools:
        """Public: tell which reports a user can have sent."""
        return self.chosen(public).valid(reports, public)

    def tally(self, reports: Reports, public: Public) -> Tally:
        """Public: add up reports."""
        return self.chosen(public).tally(reports, public)

    def decode(self, tally: Tally, public: Public) -> Public | Estimate:
        """Public: what the next stage needs, or the answer."""
        return self.chosen(public).decode(tally, public)

    def check(self, found: Public, public: Public) -> None:
        """Public: refuse what the stage of the design cannot have found, and another design."""
        self.chosen(public).check(found, public)


def _design(found: PlanFound) -> list[StageDesign]:
    """Public: give the design of the stages that follow."""
    if found.design is None:
        refuse_result("design", "be there", "nothing")
    return found.design


def _check_design(design: list[StageDesign], settings: Settings) -> None:
    """Public: refuse a design that cannot be made."""
    kinds = [stage.kind for stage in design]
    usual = len(kinds) == len(SHARES) - 2 and kinds[0] in ("vote", "full")

    if not usual or any(kind != "clip" for kind in kinds[1:]):
        refuse_result(
            "design",
            "begin with a vote or a report on [-1, 1], and continue with windows",
            "other kinds",
        )

    for stage in design:
        channels = ("",) if stage.kind == "vote" else tuple(CHANNELS)
        if stage.channel not in channels:
            refuse_result("channel", f"be one of {', '.join(channels)}", stage.channel)

        if stage.kind == "vote":
            PairVoteStage(settings, stage)
        else:
            WindowStage(settings, stage, restart=_full(), name="stage", last=False)


def _full() -> StageDesign:
    """Make a stage of reports on [-1, 1]; how large means are is not known beforehand."""
    return StageDesign(kind="full", share=1.0, channel="hybrid", second_moment=0.5)

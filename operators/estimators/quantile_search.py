"""Quantiles of a population in stages: few users vote for bins, then thresholds close in."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Annotated, Any

import msgspec
import numpy as np

from meanstream.operators.estimators.quantile_estimator import QuantileEstimator
from meanstream.operators.estimators.quantile_knots import (
    CountedVotes,
    certain_ends,
    crossed_at,
    knots_with,
    least_squares,
    smooth_distribution,
)
from meanstream.operators.estimators.quantile_levels import BRANCHES, tree_depth, tree_error
from meanstream.operators.estimators.quantile_tree import LevelRound
from meanstream.operators.noise.random_bits import UNIT_53, RandomWords, random_bits_53
from meanstream.operators.records import Bools, Floats
from meanstream.operators.rounds.round_protocol import Round
from meanstream.operators.rounds.round_records import Estimate, Public, Reports, Summaries, Tally
from meanstream.operators.rounds.round_results import (
    Count,
    StageFound,
    refuse_result,
    result_added,
    result_unchanged,
)
from meanstream.operators.rounds.votes.registry import make_votes

PILOT = 0.1
"""Share of the users that votes for bins."""

SEARCHES = (0.18, 0.27, 0.45)
"""Shares of the users that answer each set of thresholds, each set closer to the quantile."""

SIDES = 3
"""Thresholds of one quantile in one stage: below it, at it, above it."""

GRID = 2**20
"""Steps of the bounds on which thresholds lie: those of the values."""

ERRORS_APART = 2.0
"""Standard errors from the quantile to the thresholds on both sides of it."""


class Searched(StageFound, frozen=True, kw_only=True):
    """Public: counts of levels, answers at thresholds so far, and the next thresholds.

    An answer is a threshold in steps of the grid, its number of reports, and how many say below.
    """

    levels: list[Annotated[list[Count], msgspec.Meta(min_length=1)]]
    answered: list[Annotated[list[Count], msgspec.Meta(min_length=3, max_length=3)]]
    thresholds: list[Count]


class PilotRound(LevelRound):
    """One resolution of the pilot: every user of this stage votes for the bin of its own mean.

    Notes
    -----
    **Privacy.** As `LevelRound`: one private vote of each of its users.
    """

    def __init__(self, search: QuantileSearch, level: int) -> None:
        super().__init__(search, level)
        self._search = search

    def check(self, found: Public, public: Public) -> None:
        """Public: refuse what cannot be counts of this level's reports, or thresholds."""
        if not self._last:
            super().check(found, public)
            return

        searched = Searched.of(found)
        self.check_levels(searched.levels, public)
        result_unchanged(searched.answered, [], "answered")
        self._search.check_thresholds(searched.thresholds)


class ThresholdRound:
    """One set of thresholds: every user says whether its own mean is below one of them.

    Notes
    -----
    **Privacy.** Random bits choose the threshold, whatever the user holds. The answer is one bit by
    randomized response at the settings' epsilon, wherever thresholds lie. Everyone answers.
    """

    def __init__(self, search: QuantileSearch, number: int) -> None:
        self.name = f"thresholds {number}"
        self.epsilon = search.epsilon
        self._search = search
        self._bit = search.bit
        self._asked = SIDES * len(search.quantiles)
        self._last = number == len(SEARCHES)

    def encode(self, summaries: Summaries, public: Public, words: RandomWords) -> Reports:
        """Private to public: the number of a threshold, and the side that the user names."""
        thresholds = _places(Searched.of(public).thresholds)

        # The choice knows nothing of the user: its bits are of another draw than the answer's.
        chosen = random_bits_53(words(1), 0) * self._asked // UNIT_53
        above = (summaries.mean >= thresholds[chosen]).astype(np.int64)

        return 2 * chosen[:, np.newaxis] + self._bit.randomize(above, words)

    def valid(self, reports: Reports, public: Public) -> Bools:  # noqa: ARG002 - any
        """Public: tell which rows a user can have sent."""
        if reports.shape[1:] != (1,):
            return np.zeros(len(reports), np.bool_)
        return np.asarray(((reports >= 0) & (reports < 2 * self._asked)).all(axis=1))

    def tally(self, reports: Reports, public: Public) -> Tally:  # noqa: ARG002 - any
        """Public: count the reports of both sides of each threshold."""
        if len(reports):
            counts = np.bincount(reports[:, 0], minlength=2 * self._asked)
            return Tally(len(reports), tuple(counts.tolist()))
        return Tally()

    def decode(self, tally: Tally, public: Public) -> Public | Estimate:
        """Public: the next thresholds; after the last stage the quantiles."""
        before = Searched.of(public)
        sides = list(tally.sums) or [0] * (2 * self._asked)
        added = [
            [threshold, sides[2 * i] + sides[2 * i + 1], sides[2 * i]]
            for i, threshold in enumerate(before.thresholds)
        ]
        answered = [*before.answered, *added]

        if self._last:
            return self._search.answer(before.levels, answered)
        return self._search.searched(before.levels, answered)

    def check(self, found: Public, public: Public) -> None:
        """Public: refuse what cannot be answers at the thresholds of this stage."""
        if self._last:
            refuse_result("stage", f"be one before the last: {self.name} answers", "a result")

        searched = Searched.of(found)
        before = Searched.of(public)
        result_unchanged(searched.levels, before.levels, "levels")
        added = result_added(searched.answered, before.answered, "answered", by=self._asked)
        result_unchanged([answer[0] for answer in added], before.thresholds, "thresholds asked")

        if any(below > reports for _, reports, below in added):
            refuse_result("answered", "have at most as many answers below as reports", "more")
        self._search.check_thresholds(searched.thresholds)


class QuantileSearch(QuantileEstimator):
    """Quantiles of users' own means: a tenth votes for bins, the others for sides of thresholds.

    Released to the statistician: one vote or one bit from each user. Answers each quantile with an
    interval, whatever users' numbers of samples and however users differ.

    Parameters
    ----------
    epsilon : float
        Privacy of one user's whole window of samples, its size included.
    users : int
        How many users take part (public).
    quantiles : sequence of float
        Probabilities between 0 and 1, ascending, at most 20. They share the users.
    sizes : SizeDistribution, optional
        Law of a user's number of samples (public); of no use here.
    mode : {"tuned", "paper"}
        The same in both: the paper's rates hide their constants.
    level : float
        Nominal coverage of each quantile's interval by itself.

    Notes
    -----
    The pilot is a `QuantileTree` of a tenth of the users. Three stages follow. In each, three
    thresholds stand around every quantile, about two standard errors of the distribution function
    apart. A user says of one of them, by randomized response, whether its mean is below. A public
    hash of the user's id chooses the stage.

    The value is where a smooth fit to all votes reaches the probability (`smooth_distribution`).
    The interval comes from least squares without smoothing. It ends at the closest edge or
    threshold at which the distribution function is certainly below or above the probability.

    **Privacy.** User-level, local, pure epsilon, for one report: a vote, or a bit by randomized
    response. Thresholds are a function of other users' reports. That a user took part is public.

    Raises
    ------
    ValueError
        If an option is out of range.

    References
    ----------
    A. Aamand et al., Lightweight Protocols for Distributed Private Quantile Estimation, ICML 2025.

    Examples
    --------
    >>> search = QuantileSearch(epsilon=1.0, users=50_000, quantiles=(0.5,))
    >>> [step.name for step in search.rounds]
    ['level 1', 'level 2', 'thresholds 1', 'thresholds 2', 'thresholds 3']
    >>> round(search.describe()["distribution_stderr"], 4)
    0.0051
    """

    name = "quantile_search"
    voters = PILOT

    def stages(self) -> tuple[tuple[Round, ...], tuple[float, ...]]:
        """Public: the levels of the pilot, and a stage for each set of thresholds."""
        self.bit = make_votes("krr", self.epsilon, 2, zero_row=False)

        pilot = [PilotRound(self, number) for number in range(1, self.depth + 1)]
        searches = [ThresholdRound(self, number) for number in range(1, len(SEARCHES) + 1)]

        return (*pilot, *searches), (*[PILOT / self.depth] * self.depth, *SEARCHES)

    def describe(self) -> dict[str, Any]:
        """Public: parameters chosen.

        `distribution_stderr` of the distribution function, from the bits of one quantile;
        `tree_stderr` is that of a `QuantileTree` of all users.
        """
        users = self._settings.users
        at_quantile = users * sum(SEARCHES) / len(self.quantiles)
        error = math.sqrt(float(self.bit.share_variance(0.5, at_quantile)))

        return self._settings.describe() | {
            "assumption": "none: every user votes once about its own mean",
            "quantiles": list(self.quantiles),
            "bins": BRANCHES**self.depth,
            "votes": [*(vote.name for vote in self.votes), self.bit.name],
            "shares": list(self.shares),
            "distribution_stderr": error,
            "tree_stderr": tree_error(self.epsilon, users, tree_depth(self.epsilon, users)),
            "predicted_stderr": 2.0 * error,
        }

    def voted(self, levels: list[list[int]]) -> Public:
        """Public: the pilot's counts, and the first thresholds."""
        return self.searched(levels, [])

    def searched(self, levels: list[list[int]], answered: list[list[int]]) -> Public:
        """Public: counts so far, and thresholds around each quantile for the next stage."""
        knots, rising, error = self._smooth(levels, answered)
        stage = len(answered) // (SIDES * len(self.quantiles))
        users = self._settings.users * SEARCHES[stage] / (SIDES * len(self.quantiles))
        least = math.sqrt(float(self.bit.share_variance(0.5, users)))

        thresholds = []
        for quantile in self.quantiles:
            _, right = crossed_at(rising, knots, quantile)
            apart = ERRORS_APART * max(float(error[right - 1 : right + 1].max()), least)

            # Close to 0 and 1 there is less room: at most half of the way.
            below = max(quantile - apart, 0.5 * quantile)
            above = min(quantile + apart, 0.5 * (1.0 + quantile))
            for wanted in (below, quantile, above):
                place, _ = crossed_at(rising, knots, wanted)
                step = round(0.5 * (place + 1.0) * GRID)
                thresholds.append(min(max(step, 1), GRID - 1))

        return Searched(levels=levels, answered=answered, thresholds=thresholds).plain()

    def check_thresholds(self, thresholds: list[int]) -> None:
        """Public: refuse what cannot be thresholds of a next stage."""
        wanted = SIDES * len(self.quantiles)
        inside = all(0 < threshold < GRID for threshold in thresholds)
        if len(thresholds) != wanted or not inside:
            refuse_result("thresholds", f"be {wanted} within the bounds", len(thresholds))

    def answer(self, levels: list[list[int]], answered: list[list[int]]) -> Estimate:
        """Public: the quantiles, from all counts of levels and all answers at thresholds."""
        size = SIDES * len(self.quantiles)
        reports = [level[0] for level in levels]
        reports += [
            sum(answer[1] for answer in answered[first : first + size])
            for first in range(0, len(answered), size)
        ]

        # A level without reports leaves everything open.
        if min(reports[: self.depth]) == 0:
            nothing = [(0.0, -1.0, 1.0)] * len(self.quantiles)
            return self._estimate(nothing, reports)

        knots, rising, _ = self._smooth(levels, answered)
        raw, error = least_squares(self._sources(knots, levels, answered), self._z**2)
        rows = []

        for number, quantile in enumerate(self.quantiles):
            of_quantile = [row for i, row in enumerate(answered) if i % size // SIDES == number]
            own = sorted({row[0] for row in of_quantile if row[1]})
            lower, upper = self._ends(knots, raw, error, quantile, own)

            value, _ = crossed_at(rising, knots, quantile)
            rows.append((value, min(lower, value), max(upper, value)))

        return self._estimate(rows, reports)

    def _ends(
        self, knots: Floats, raw: Floats, error: Floats, quantile: float, own: Sequence[int]
    ) -> tuple[float, float]:
        """Give the interval; edges of bins between a quantile's own thresholds are left out."""
        inner = knots[1:-1]
        kept = np.ones(len(inner), np.bool_)

        if own:
            places = _places(own)
            kept = (inner <= places[0]) | (inner >= places[-1]) | np.isin(inner, places)

        ends = np.concatenate([[-1.0], inner[kept], [1.0]])
        return certain_ends(ends, raw[kept], error[kept], quantile, self._z)

    def _smooth(
        self, levels: list[list[int]], answered: list[list[int]]
    ) -> tuple[Floats, Floats, Floats]:
        """Fit a smooth distribution to all votes: knots, its values at these, its errors."""
        steps = sorted({row[0] for row in answered if row[1]})
        knots = knots_with(self.depth, _places(steps).tolist())
        sources = self._sources(knots, levels, answered)

        if not sources:
            even = 0.5 * (knots + 1.0)
            return knots, even, np.sqrt(even * (1.0 - even))
        return (knots, *smooth_distribution(knots, sources))

    def _sources(
        self, knots: Floats, levels: list[list[int]], answered: list[list[int]]
    ) -> list[CountedVotes]:
        """Give the votes of each level and threshold that anybody answered."""
        middle = 0.5 * (knots[1:] + knots[:-1])
        sources = []
        for votes, level in zip(self.votes, levels, strict=True):
            bin_of_part = np.floor(0.5 * (middle + 1.0) * votes.bins).astype(np.int64)
            if level[0]:
                sources.append(CountedVotes(votes, level[1:], level[0], bin_of_part))

        # Answers at the same threshold are of one law.
        together: dict[int, list[int]] = {}
        for threshold, reports, below in answered:
            sums = together.setdefault(threshold, [0, 0])
            sums[0] += reports
            sums[1] += below

        for threshold, (reports, below) in sorted(together.items()):
            above = (middle > _places([threshold])[0]).astype(np.int64)
            if reports:
                sources.append(CountedVotes(self.bit, (below, reports - below), reports, above))

        return sources

    def _estimate(self, rows: list[tuple[float, float, float]], reports: list[int]) -> Estimate:
        value, lower, upper = np.array(rows).T
        stages = tuple(
            {"stage": step.name, "users": number}
            for step, number in zip(self.rounds, reports, strict=True)
        )

        # Values are in order, as probabilities are; no interval ends before its value.
        value = np.maximum.accumulate(value)
        upper = np.maximum(upper, value)

        stderr = (upper - lower) / (2.0 * self._z)
        found = np.array([value, lower, upper, stderr])

        return self._of_rows(found, sum(reports), stages)


def _places(steps: Sequence[int]) -> Floats:
    """Thresholds on [-1, 1], from steps of the grid."""
    return np.asarray(2.0 * np.array(steps, np.float64) / GRID - 1.0)

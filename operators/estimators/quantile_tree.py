"""Quantiles of a population: users vote for the bin of their mean, each at one resolution."""

from __future__ import annotations

import math
from typing import Annotated, Any, Protocol

import msgspec
import numpy as np

from meanstream.operators.estimators.category_shares import nearest_shares
from meanstream.operators.estimators.quantile_estimator import QuantileEstimator
from meanstream.operators.estimators.quantile_knots import certain_ends, crossed_at
from meanstream.operators.estimators.quantile_levels import (
    BRANCHES,
    distribution_variance,
    fitted_levels,
    tree_error,
)
from meanstream.operators.noise.random_bits import RandomWords
from meanstream.operators.records import Bools, Floats
from meanstream.operators.rounds.round_protocol import Round
from meanstream.operators.rounds.round_records import Estimate, Public, Reports, Summaries, Tally
from meanstream.operators.rounds.round_results import (
    Count,
    StageFound,
    refuse_result,
    result_added,
)
from meanstream.operators.rounds.votes.registry import Votes


class Counted(StageFound, frozen=True, kw_only=True):
    """Public: of each level so far the number of reports, and of votes for each bin."""

    levels: list[Annotated[list[Count], msgspec.Meta(min_length=1)]]


class VotingTree(Protocol):
    """What a level knows of the estimator that it belongs to."""

    epsilon: float
    depth: int
    votes: list[Votes]

    def voted(self, levels: list[list[int]]) -> Public | Estimate:
        """Public: what follows from the counts of all levels."""
        ...


class LevelRound:
    """One resolution: every user of this stage votes for the bin of its own mean.

    Notes
    -----
    **Privacy.** A report is one private vote at the settings' epsilon, whatever decides the bin, and whatever earlier
    stages found. Nobody abstains.
    """

    def __init__(self, tree: VotingTree, level: int) -> None:
        self.name = f"level {level}"
        self.epsilon = tree.epsilon
        self._tree = tree
        self._votes = tree.votes[level - 1]
        self._last = level == tree.depth

    def encode(self, summaries: Summaries, public: Public, words: RandomWords) -> Reports:  # noqa: ARG002 - any
        """Private to public: one vote per user."""
        # A user votes for the bin of its own mean, at the level that it was drawn for.
        place = np.floor(0.5 * (summaries.mean + 1.0) * self._votes.bins).astype(np.int64)
        return self._votes.randomize(np.clip(place, 0, self._votes.bins - 1), words)

    def valid(self, reports: Reports, public: Public) -> Bools:  # noqa: ARG002 - any
        """Public: tell which rows a voter can have sent."""
        if reports.shape[1:] != (self._votes.width,):
            return np.zeros(len(reports), np.bool_)
        return self._votes.valid(reports)

    def tally(self, reports: Reports, public: Public) -> Tally:  # noqa: ARG002 - any
        """Public: count how many reports name each bin."""
        if len(reports):
            return Tally(len(reports), tuple(self._votes.counts(reports)))
        return Tally()

    def decode(self, tally: Tally, public: Public) -> Public | Estimate:
        """Public: the counts so far; after the last level the quantiles."""
        counted = Counted(levels=self.counted(tally, public))

        if self._last:
            return self._tree.voted(counted.levels)
        return counted.plain()

    def counted(self, tally: Tally, public: Public) -> list[list[int]]:
        """Public: the counts of all levels so far; they go on to the last one."""
        named = [tally.n, *(tally.sums or [0] * self._votes.bins)]
        before = Counted.of(public).levels if public else []
        return [*before, named]

    def check(self, found: Public, public: Public) -> None:
        """Public: refuse what cannot be counts of this level's reports."""
        if self._last:
            refuse_result("stage", f"be one before the last: {self.name} answers", "a result")

        self.check_levels(Counted.of(found).levels, public)

    def check_levels(self, levels: list[list[int]], public: Public) -> None:
        """Public: refuse counts that cannot be the earlier ones and one level more."""
        before = Counted.of(public).levels if public else []
        added = result_added(levels, before, "levels")

        # One level more than before, of as many bins as the level has.
        if len(added) != 1 or len(added[0]) != self._votes.bins + 1:
            refuse_result("levels", "have the bins of one more level", len(added))

        if max(added[0]) > added[0][0]:
            refuse_result("levels", "have at most as many votes for a bin as reports", "more")


class QuantileTree(QuantileEstimator):
    """Quantiles of users' own means within the bounds, from one private vote of every user.

    Released to the statistician: one vote from each user. Answers each quantile with an interval,
    whatever users' numbers of samples and however users differ.

    Parameters
    ----------
    epsilon : float
        Privacy of one user's whole window of samples, its size included.
    users : int
        How many users take part (public).
    quantiles : sequence of float
        Probabilities between 0 and 1, ascending, at most 20.
    sizes : SizeDistribution, optional
        Law of a user's number of samples (public); of no use here.
    mode : {"tuned", "paper"}
        The same in both: no paper has it.
    level : float
        Nominal coverage of each quantile's interval by itself.

    Notes
    -----
    The bounds fall into 4, 16, 64... equal bins, a level each; epsilon and the number of users decide how many levels.
    A user votes for its bin on one level, which a public hash of its id chooses. Least squares over all levels gives
    the distribution function at the edges of the finest bins, with its standard error. A quantile is where the function
    reaches the probability. Its interval ends at the closest edges at which the function is certainly below or above
    the probability. Users within one bin cannot be told apart: no interval is narrower than it.

    **Privacy.** User-level, local, pure epsilon, for one report; see the votes. That a user took part is public.

    Raises
    ------
    ValueError
        If an option is out of range.

    References
    ----------
    G. Cormode, T. Kulkarni, D. Srivastava: Answering range queries under local differential privacy, VLDB 2019;
    M. Hay, V. Rastogi, G. Miklau, D. Suciu: Boosting the accuracy of differentially private histograms through
    consistency, VLDB 2010.

    Examples
    --------
    >>> tree = QuantileTree(epsilon=2.0, users=100_000, quantiles=(0.5, 0.9))
    >>> tree.describe()["bins"], round(tree.describe()["distribution_stderr"], 4)
    (64, 0.0056)
    """

    name = "quantile_tree"
    taken_for = "quantiles"

    def stages(self) -> tuple[tuple[Round, ...], tuple[float, ...]]:
        """Public: a stage for each level, of equal shares of the users."""
        rounds = tuple(LevelRound(self, number) for number in range(1, self.depth + 1))
        return rounds, (1.0 / self.depth,) * self.depth

    def describe(self) -> dict[str, Any]:
        """Public: parameters chosen.

        `distribution_stderr` of the distribution function, of evenly spread users.
        """
        error = tree_error(self.epsilon, self._settings.users, self.depth)
        return self._settings.describe() | {
            "assumption": "none: every user votes once for the bin of its own mean",
            "quantiles": list(self.quantiles),
            "bins": BRANCHES**self.depth,
            "votes": [vote.name for vote in self.votes],
            "shares": list(self.shares),
            "distribution_stderr": error,
            "predicted_stderr": 2.0
            * math.hypot(error, 1.0 / (math.sqrt(12.0) * BRANCHES**self.depth)),
        }

    def voted(self, levels: list[list[int]]) -> Estimate:
        """Public: the quantiles, from the number of reports and the counts of each level."""
        n = [level[0] for level in levels]
        stages = tuple(
            {"stage": step.name, "users": reports}
            for step, reports in zip(self.rounds, n, strict=True)
        )

        # A level without reports leaves everything open.
        if min(n) == 0:
            nothing = np.repeat([[0.0], [-1.0], [1.0], [1.0]], len(self.quantiles), axis=1)
            return self._of_rows(nothing, sum(n), stages)

        shares = [
            vote.shares(level[1:], level[0])
            for vote, level in zip(self.votes, levels, strict=True)
            # Levels see the same distribution: their counts are fitted together.
        ]
        spread = zip(self.votes, n, strict=True)
        fit = fitted_levels(
            tuple(float(vote.share_variance(1.0 / vote.bins, reports)) for vote, reports in spread)
        )
        raw = fit.weights @ np.concatenate([*shares, [1.0]])
        likely = [self._likely(share, reports) for share, reports in zip(shares, n, strict=True)]

        # The error of the fitted distribution, at what it most likely is.
        error = np.sqrt(distribution_variance(fit, self.votes, likely, n))

        return self._of_rows(self._inverted(raw, error), sum(n), stages)

    def _likely(self, share: Floats, reports: int) -> Floats:
        """Give shares for the error.

        As z**2 more users would make them who are spread evenly (Agresti and Coull).
        """
        more = self._z**2
        return (reports * nearest_shares(share) + more / len(share)) / (reports + more)

    def _inverted(self, raw: Floats, error: Floats) -> Floats:
        """Give quantiles, ends of their intervals and standard errors as rows, on [-1, 1]."""
        bins = len(raw) + 1

        # Noise makes the distribution fall here and there: halfway between two envelopes it rises.
        edges = np.linspace(-1.0, 1.0, bins + 1)
        up = np.maximum.accumulate(raw)
        down = np.minimum.accumulate(raw[::-1])[::-1]
        rising = np.clip(
            np.concatenate([[0.0], 0.5 * (up + down), [1.0]]), 0.0, 1.0
        )  # between two rising envelopes
        found = []

        for quantile in self.quantiles:
            value, _ = crossed_at(rising, edges, quantile)

            # The interval ends where the distribution is surely past the quantile.
            lower, upper = certain_ends(edges, raw, error, quantile, self._z)
            lower = min(lower, value)
            upper = max(upper, value)
            found.append((value, lower, upper, max(upper - lower, 2.0 / bins) / (2.0 * self._z)))

        return np.array(found).T

"""The curator's default where sizes are private.

A noisy weighted sum over a noisy sum of weights.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from meanstream.lab.papers.cummings.cummings_answer import (
    SHARES,
    CuratorEstimator,
    SignedAnswer,
    answer_where_alike,
    cummings_answer_sizes,
)
from meanstream.lab.papers.cummings.grid import GRID, SIZES
from meanstream.lab.papers.cummings.initial_mean import (
    MAX_GROUPS,
    GroupDeviation,
    InitialMean,
    OrderStatistics,
)
from meanstream.lab.papers.cummings.user_weights import (
    Weighting,
    cummings_weights_of_private_sizes,
    cummings_weights_tally,
    split_cummings_weights_tally,
)
from meanstream.operators.noise.random_bits import RandomWords
from meanstream.operators.rounds.central_rounds import Rows, central_noised
from meanstream.operators.rounds.round_records import Estimate, Public, Summaries, Tally
from meanstream.operators.rounds.user_sizes import SizeDistribution
from meanstream.operators.validation import require

SPREAD_SHARE = 0.08
SPREAD_PAYS = 4000.0
"""Users times epsilon from which on the spread is measured: its noise is some 35 users' variance
over its epsilon."""

LEAST_SHARE = 4.0
"""Noise scales that the noised sum of weights must exceed for the ratio to be answered."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightedRelease:
    """The last release where sizes are private: sums of weighted offsets, and how many users have each size."""

    cohort: int
    payers: str
    epsilon: float
    delta: float = 0.0
    parts: tuple[float, float, float]
    users: int
    answer: SignedAnswer

    def encode(self, summaries: Summaries, public: Public) -> Rows:
        """Size, weighted offset and its square, of each user."""
        return cummings_weights_of_private_sizes(public, self.users).encode(summaries)

    def tally(self, rows: Rows, public: Public) -> Tally:  # noqa: ARG002 - the same sums whatever was found
        """Add them up, and count users by size."""
        return cummings_weights_tally(rows)


@dataclass(frozen=True, slots=True, kw_only=True)
class _NoisyRatio(WeightedRelease):
    """The weighted mean as a ratio of two noised sums.

    Parameters
    ----------
    epsilon : float
        Privacy of all sums together.
    parts : (float, float, float)
        Epsilon of the weighted sum of offsets, of the sum of weights, and of the sum of squares; 0
        for no sum of squares: the interval then trusts the predicted variances.
    users : int
        Number of users, for the windows.

    Notes
    -----
    **Privacy.** Everything a user holds, its size included, may be replaced. A user's weighted offset lies in integers
    from the least to the largest that any size allows, its weight in `1..GRID`, its square in `0..GRID`: three sums
    with discrete Laplace noise, each drawn once. The ratio, unlike the propose-test-release of Algorithm 3, is
    post-processing (erratum C9).
    """

    name: str = "ratio"

    def release(self, tally: Tally, public: Public, words: RandomWords) -> Estimate:
        """Answer with the ratio, or with the initial mean where the noise drowns the weights."""
        weighting = cummings_weights_of_private_sizes(public, self.users)
        steps, squares, counts = split_cummings_weights_tally(tally)
        numerator, denominator, spread = self.parts
        sensitivity = weighting.sensitivity_of_any_size

        weights = weighting.weight_steps()
        range_of_weights = int(weights.max() - weights.min())
        total = central_noised(steps, sensitivity, numerator, words, 0) / GRID * weighting.unit
        weight = (
            central_noised(int(counts @ weights), max(range_of_weights, 1), denominator, words, 1)
            / GRID
        )
        facts = {"round": self.name, "users": {self.payers: tally.n}, "weight": weight}

        if tally.n == 0 or weight < LEAST_SHARE / denominator:
            return self.answer.initial(public, facts | {"fallback": "weights"})
        squared = float(weighting.variance.min()) * weight
        shift = total / weight

        if spread:
            measured = central_noised(squares, GRID, spread, words, 2) / GRID * weighting.unit**2
            # Squares are around the center; users' weights are not known, but their squares add up
            # to this at least.
            squared = ratio_spread(
                squared, measured - weight**2 / tally.n * shift**2, weighting.unit**2 / spread
            )

        sampling = math.sqrt(squared) / weight
        noise = sensitivity / GRID * weighting.unit / numerator / weight
        sampling = math.hypot(sampling, math.sqrt(2.0) * shift / denominator / weight)
        value = weighting.center + shift
        estimate = self.answer.estimate(value, sampling, noise, public, facts)

        if self.answer.mode == "tuned":
            return self.answer.better(estimate, public, facts)
        return estimate


def ratio_spread(predicted: float, measured: float, scale: float) -> float:
    """Sum of squared weighted errors for the interval.

    As measured where noise of this scale allows it.
    """
    noise = math.sqrt(2.0) * scale

    if noise < 0.25 * predicted:
        return max(measured, 0.0) + noise
    return max(predicted, measured)


class Ratio(CuratorEstimator):
    """`cummings.ratio`: the mean of users whose sizes are private too, by a trusted curator.

    Pure epsilon.

    Parameters
    ----------
    epsilon : float
        Privacy of everything that one user holds, its number of samples included. The papers'
        epsilon is that of each release: a third of this.
    users : int
        How many users take part (public).
    sizes : SizeDistribution, optional
        For `predicted_stderr` only; nothing is assumed of it.
    mode : {"tuned", "paper"}, default "tuned"
        Paper: a third of epsilon each for the cap of sizes, the weighted sum and the sum of
        weights; constants of the paper. Tuned: the cap comes from the users of the initial mean,
        and a small part of epsilon measures the spread, where there are users enough.
    level : float, default 0.95
        Nominal coverage.
    largest_size : int, default 2**20
        Public bound on sizes; larger ones count as this.

    Notes
    -----
    **Privacy.** (epsilon, 0), replacing all of one user's data. Three disjoint cohorts, drawn by a keyed hash.

    The answer is the mean over users if a user's size says nothing about its mean: larger users
    weigh more, up to the point where users' own differences dominate. Poor where a few users hold
    almost everything: the cap takes the others' view.

    References
    ----------
    Cummings, Feldman, McMillan, Talwar, Mean Estimation with User-level Privacy under Data Heterogeneity, 2022,
    Algorithms 3 and 4; the ratio instead of lines 10 to 22 is this project's.

    Examples
    --------
    >>> Ratio(epsilon=1.0, users=10_000).describe()["predicted_stderr"] < 0.02
    True
    """

    options: ClassVar[frozenset[str]] = frozenset({"sizes", "mode", "level", "largest_size"})
    name = "cummings.ratio"
    candidate = True
    protects_sizes = True

    def __init__(
        self,
        *,
        epsilon: float,
        users: int,
        sizes: SizeDistribution | None = None,
        mode: str = "tuned",
        level: float = 0.95,
        largest_size: int = 2**20,
    ) -> None:
        super().__init__(epsilon=epsilon, users=users, sizes=sizes, mode=mode, level=level)
        check_ratio_largest(largest_size)
        self.shares = SHARES
        third = epsilon / 3.0

        spread = ratio_spread_part(epsilon, users)
        parts = (
            (third, third, 0.0)
            if self.literal
            else (0.75 * epsilon, 0.25 * epsilon - spread, spread)
        )
        cohort = 2

        payers = "weighted"
        before = ratio_initial_rounds(
            epsilon, users, literal=self.literal, each=third, largest=largest_size
        )
        final = _NoisyRatio(
            cohort=cohort, payers=payers, epsilon=sum(parts), parts=parts, users=users, answer=self.answer
        )  # fmt: skip
        self.rounds = (*before, final)

    def worst_mse(self) -> float:
        """Predict the mean squared error where users differ as much as they can.

        No weight and no window helps there: noise for all of [-1, 1].
        """
        weighted = max(SHARES[2] * self.users, 1.0)
        return 1.0 / weighted + 2.0 * (2.0 / (0.75 * self.epsilon * weighted)) ** 2

    def predicted_stderr(self) -> float:
        """Predict the standard error for users alike."""
        return predict_ratio(self.rounds[-1].parts[0], self.epsilon, self.users, self.sizes)


def ratio_spread_part(epsilon: float, users: int) -> float:
    """Choose how much of epsilon measures the spread in tuned mode.

    Nothing where noise would drown it.
    """
    if users * epsilon >= SPREAD_PAYS:
        return SPREAD_SHARE * epsilon
    return 0.0


def ratio_initial_rounds(
    epsilon: float, users: int, *, literal: bool, each: float, largest: int
) -> tuple[Any, ...]:
    """Build the releases before the weighted mean where sizes are private.

    Parameters
    ----------
    epsilon : float
        What a user may pay in all.
    users : int
        Number of users.
    literal : bool
        Paper mode: every release costs `each`, and the cap is requested of the users of the
        weighted mean.
    each : float
        Epsilon of one release in paper mode.
    largest : int
        Public bound on sizes.
    """
    groups = min(MAX_GROUPS, max(1, round(SHARES[1] * users / 6)))
    if literal:
        order = OrderStatistics(
            cohort=1,
            payers="deviation",
            epsilon=each,
            largest=largest,
            literal=True,
            floor=True,
            cap=False,
        )

        return (
            InitialMean(cohort=0, payers="mean", epsilon=each, literal=True),
            order,
            GroupDeviation(cohort=1, payers="deviation", epsilon=each, groups=groups, literal=True),
            replace(order, cohort=2, payers="weighted", floor=False, cap=True),
        )

    order = OrderStatistics(
        cohort=0,
        payers="mean",
        epsilon=0.5 * epsilon,
        largest=largest,
        literal=False,
        floor=False,
        cap=True,
    )

    return (
        order,
        InitialMean(cohort=0, payers="mean", epsilon=0.5 * epsilon, literal=False),
        replace(order, cohort=1, payers="deviation", epsilon=0.25 * epsilon, floor=True, cap=False),
        GroupDeviation(
            cohort=1, payers="deviation", epsilon=0.75 * epsilon, groups=groups, literal=False
        ),
    )


def check_ratio_largest(largest: int) -> None:
    """Refuse bounds on sizes out of range."""
    require(
        2 <= largest <= int(SIZES[-1]), "largest_size", f"lie between 2 and {SIZES[-1]}", largest
    )


def predict_ratio(
    numerator: float, epsilon: float, users: int, sizes: SizeDistribution | None
) -> float:
    """Predict the standard error on [-1, 1] of the weighted mean of private sizes."""
    present = np.array(cummings_answer_sizes(sizes, SHARES[2] * users))
    held = np.flatnonzero(present)
    public = answer_where_alike(SHARES[0] * users, epsilon) | {"cap": int(SIZES[held[-1]])}
    weighting: Weighting = cummings_weights_of_private_sizes(public, users)
    weight = float(present @ weighting.weight)
    noise = weighting.sensitivity_of_any_size / GRID * weighting.unit / numerator

    return (
        2.0
        * math.hypot(math.sqrt(weighting.variance.min() * weight), math.sqrt(2.0) * noise)
        / weight
    )

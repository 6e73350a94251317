"""Cummings et al.'s mean where sizes are public (Algorithm 2), and the ideal one that knows more."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, ClassVar

from meanstream.lab.papers.cummings.cummings_answer import (
    CuratorEstimator,
    SignedAnswer,
    answer_where_alike,
    cummings_answer_sizes,
)
from meanstream.lab.papers.cummings.grid import (
    DEVIATION_SHARE,
    EVERYBODY,
    GRID,
    SMALLEST,
    cummings_grid_layout,
    grid_band_sizes,
    grid_bands,
    in_grid_bands,
)
from meanstream.lab.papers.cummings.initial_mean import (
    MAX_GROUPS,
    GroupDeviation,
    InitialMean,
    PublicSizes,
)
from meanstream.lab.papers.cummings.ratio import ratio_spread, ratio_spread_part
from meanstream.lab.papers.cummings.user_weights import (
    Weighting,
    cummings_weights_of_public_sizes,
    cummings_weights_tally,
    split_cummings_weights_tally,
)
from meanstream.operators.noise.random_bits import RandomWords
from meanstream.operators.rounds.central_rounds import Rows, central_noised
from meanstream.operators.rounds.round_records import Estimate, Public, Summaries, Tally
from meanstream.operators.rounds.user_sizes import SizeDistribution
from meanstream.operators.validation import require


@dataclass(frozen=True, slots=True, kw_only=True)
class NoisyWeightedMean:
    """The weighted mean where sizes, and with them the weights, are public: one noised sum.

    Parameters
    ----------
    epsilon : float
        Privacy of all sums together.
    parts : (float, float)
        Epsilon of the weighted sum, and of the sum of squares; 0 for no sum of squares.
    known : dict
        Initial results that are known beforehand, for the ideal estimator.

    Notes
    -----
    **Privacy.** A user's values may be replaced, not its size: the sum changes by at most the widest weighted window.
    """

    epsilon: float
    parts: tuple[float, float]
    users: int
    answer: SignedAnswer
    known: Public = field(default_factory=dict)
    cohort: int = 0
    payers: str = "weighted"
    name: str = "weighted mean"
    delta: float = 0.0

    def encode(self, summaries: Summaries, public: Public) -> Rows:
        """Size, weighted offset and its square, of each user in the bands."""
        return self._weighting(public).encode(
            summaries.take(in_grid_bands(summaries, public, grid_bands("weighted", public)))
        )

    def tally(self, rows: Rows, public: Public) -> Tally:  # noqa: ARG002 - the same sums whatever was found
        """Add them up, and count users by size."""
        return cummings_weights_tally(rows)

    def release(self, tally: Tally, public: Public, words: RandomWords) -> Estimate:
        """Answer with the noised weighted mean."""
        weighting = self._weighting(public)
        steps, squares, counts = split_cummings_weights_tally(tally)
        weight = float(counts @ weighting.weight)
        facts = {"round": self.name, "users": {self.payers: tally.n}, "weight": weight}

        if weight == 0.0:
            return self.answer.initial(public | self.known, facts | {"fallback": "nobody"})
        sensitivity = max(weighting.sensitivity_of_same_size, 1)
        shift = (
            central_noised(steps, sensitivity, self.parts[0], words, 0)
            / GRID
            * weighting.unit
            / weight
        )
        noise = sensitivity / GRID * weighting.unit / self.parts[0] / weight
        squared = float(counts @ (weighting.weight**2 * weighting.variance))

        if self.parts[1]:
            measured = (
                central_noised(squares, GRID, self.parts[1], words, 1) / GRID * weighting.unit**2
            )
            measured -= float(counts @ weighting.weight**2) * shift**2
            squared = ratio_spread(squared, measured, weighting.unit**2 / self.parts[1])

        sampling = math.sqrt(squared) / weight
        return self.answer.estimate(
            weighting.center + shift, sampling, noise, public | self.known, facts
        )

    def _weighting(self, public: Public) -> Weighting:
        return cummings_weights_of_public_sizes(
            public | self.known, self.users, self.parts[0], grid_bands("weighted", public)
        )


class KnownSizes(CuratorEstimator):
    """`cummings.known_sizes`.

    The mean of users whose numbers of samples are public, by a trusted curator.

    Parameters
    ----------
    epsilon : float
        Privacy of the values that one user holds. Its number of samples is *not* protected.
    users : int
        How many users take part.
    sizes : SizeDistribution, optional
        For `predicted_stderr` only.
    mode : {"tuned", "paper"}, default "tuned"
        Paper: one sample of each user makes the initial mean; constants of the paper. Tuned: users'
        means do, sampling is taken off the deviation, and a small part of epsilon measures the
        spread for the interval, where there are users enough.
    level : float, default 0.95
        Nominal coverage.

    Notes
    -----
    **Privacy.** (epsilon, 0) towards replacing a user's values by as many others. The tenth of the users with the
    fewest samples gives the initial mean, a twentieth with many the deviation (paper: the one with the most), the
    others the weighted mean: three disjoint cohorts that public sizes and ids decide, so that each pays once
    (Theorem 4.1).

    References
    ----------
    Cummings, Feldman, McMillan, Talwar, Mean Estimation with User-level Privacy under Data Heterogeneity, 2022,
    Algorithm 2.
    """

    options: ClassVar[frozenset[str]] = frozenset({"sizes", "mode", "level"})
    name = "cummings.known_sizes"

    def __init__(
        self,
        *,
        epsilon: float,
        users: int,
        sizes: SizeDistribution | None = None,
        mode: str = "tuned",
        level: float = 0.95,
    ) -> None:
        super().__init__(epsilon=epsilon, users=users, sizes=sizes, mode=mode, level=level)

        spread = 0.0 if self.literal else ratio_spread_part(epsilon, users)
        groups = min(MAX_GROUPS, max(1, round(DEVIATION_SHARE * users / 4)))

        self.rounds = (
            PublicSizes(literal=self.literal),
            InitialMean(cohort=0, payers="mean", epsilon=epsilon, literal=self.literal),
            GroupDeviation(
                cohort=0, payers="deviation", epsilon=epsilon, groups=groups, literal=self.literal
            ),
            NoisyWeightedMean(
                epsilon=epsilon,
                parts=(epsilon - spread, spread),
                users=users,
                answer=self.answer,
            ),
        )

    def predicted_stderr(self) -> float:
        """Predict the standard error for users alike."""
        initial = answer_where_alike(SMALLEST[0][1] * self.users, self.epsilon)
        return predict_known_sizes(
            self.rounds[-1], initial, self.users, self.sizes, literal=self.literal
        )


def predict_known_sizes(
    final: NoisyWeightedMean, initial: Public, users: int, sizes: SizeDistribution | None, *, literal: bool | None
) -> float:  # fmt: skip
    """Predict the standard error on [-1, 1] of the weighted mean of public sizes."""
    present = cummings_answer_sizes(sizes, users)
    public = initial | {"sizes": present}
    bands = (
        EVERYBODY if literal is None else cummings_grid_layout(present, literal=literal)["weighted"]
    )
    weighting = cummings_weights_of_public_sizes(public, users, final.parts[0], bands)
    counts = grid_band_sizes(public, bands)
    weight = float(counts @ weighting.weight)

    if weight == 0.0:
        return 2.0
    noise = weighting.sensitivity_of_same_size / GRID * weighting.unit / final.parts[0]
    sampling = math.sqrt(float(counts @ (weighting.weight**2 * weighting.variance)))

    return 2.0 * math.hypot(sampling, math.sqrt(2.0) * noise) / weight


class Ideal(CuratorEstimator):
    """`cummings.ideal`: a yardstick, not a method.

    The weights and windows are those of the true mean and deviation.

    Parameters
    ----------
    epsilon : float
        Privacy of the values that one user holds. Its number of samples is not protected.
    users : int
        How many users take part.
    center : float, default 0
        The population's true mean, on [-1, 1].
    between_users : float, default 0
        The true standard deviation of users' means, on [-1, 1]. Like `center` it must be known
        beforehand: taken from the users' data, neither would be covered by epsilon.
    sizes, mode, level
        As in `cummings.known_sizes`; the modes differ in the interval only.

    Notes
    -----
    **Privacy.** (epsilon, 0) towards replacing a user's values by as many others. All users take part in one release.

    References
    ----------
    Cummings, Feldman, McMillan, Talwar, Mean Estimation with User-level Privacy under Data Heterogeneity, 2022,
    Section 4.1.
    """

    options: ClassVar[frozenset[str]] = frozenset(
        {"sizes", "mode", "level", "center", "between_users"}
    )
    name = "cummings.ideal"

    @classmethod
    def simulated_options(cls, center: float, between_users: float) -> dict[str, Any]:
        """Tell the yardstick the law."""
        return {"center": center, "between_users": min(between_users, 1.0)}

    def __init__(
        self,
        *,
        epsilon: float,
        users: int,
        center: float = 0.0,
        between_users: float = 0.0,
        sizes: SizeDistribution | None = None,
        mode: str = "tuned",
        level: float = 0.95,
    ) -> None:
        super().__init__(epsilon=epsilon, users=users, sizes=sizes, mode=mode, level=level)
        require(-1.0 <= center <= 1.0, "center", "lie between -1 and 1", center)
        require(0.0 <= between_users <= 1.0, "between_users", "lie between 0 and 1", between_users)

        # A mean of exactly 0 or 1 would give every user infinite weight.
        value = min(max(0.5 * (center + 1.0), 0.5 / users), 1.0 - 0.5 / users)
        deviation = 0.5 * between_users
        self._known: Public = {
            "mean": {"value": value, "error": 0.0},
            "deviation": {"weights": deviation, "windows": deviation},
        }

        spread = 0.0 if self.literal else ratio_spread_part(epsilon, users)
        self.rounds = (
            PublicSizes(literal=None),
            NoisyWeightedMean(
                epsilon=epsilon,
                parts=(epsilon - spread, spread),
                users=users,
                answer=self.answer,
                known=self._known,
            ),
        )

    def predicted_stderr(self) -> float:
        """Predict the standard error of users as they are."""
        return predict_known_sizes(
            self.rounds[-1], self._known, self.users, self.sizes, literal=None
        )

"""The ideal estimator of Cummings et al..

What Algorithm 2 would do if it knew the law of the users' means.
"""

from __future__ import annotations

from typing import Any, ClassVar

from meanstream.lab.papers.cummings.cummings_answer import SignedAnswer, check_cummings_answer
from meanstream.lab.papers.cummings.initial_mean import PublicSizes
from meanstream.lab.papers.cummings.known_sizes import NoisyWeightedMean, predict_known_sizes
from meanstream.lab.papers.cummings.ratio import describe_ratio, ratio_spread_part
from meanstream.operators.rounds.estimator_traits import LARGER_MORE, EstimatorTraits
from meanstream.operators.rounds.round_records import Public
from meanstream.operators.rounds.user_sizes import SizeDistribution
from meanstream.operators.validation import require


class Ideal(EstimatorTraits):
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
    estimand = LARGER_MORE
    assumes = "that a user's number of samples says nothing about its mean: larger users weigh more"
    of_a_paper = False
    trust = "central"
    protects_sizes = False
    delta = 0.0
    shares: tuple[float, ...] = (1.0,)

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
        check_cummings_answer(epsilon, users, mode, level)
        require(-1.0 <= center <= 1.0, "center", "lie between -1 and 1", center)
        require(0.0 <= between_users <= 1.0, "between_users", "lie between 0 and 1", between_users)
        self.epsilon = epsilon
        self.users = users
        self.mode = mode

        self._sizes = sizes
        # A mean of exactly 0 or 1 would give every user infinite weight.
        value = min(max(0.5 * (center + 1.0), 0.5 / users), 1.0 - 0.5 / users)
        deviation = 0.5 * between_users
        self._known: Public = {
            "mean": {"value": value, "error": 0.0},
            "deviation": {"weights": deviation, "windows": deviation},
        }

        spread = 0.0 if mode == "paper" else ratio_spread_part(epsilon, users)
        self.rounds = (
            PublicSizes(literal=None),
            NoisyWeightedMean(
                epsilon=epsilon,
                parts=(epsilon - spread, spread),
                users=users,
                answer=SignedAnswer(
                    method=self.name, mode=mode, epsilon=epsilon, delta=0.0, level=level
                ),
                known=self._known,
            ),
        )

    def describe(self) -> dict[str, Any]:
        """Parameters chosen, and the error predicted for values 0 and 1."""
        predicted = predict_known_sizes(
            self.rounds[-1], self._known, self.users, self._sizes, literal=None
        )
        return describe_ratio(self.rounds, self.protects_sizes) | {"predicted_stderr": predicted}

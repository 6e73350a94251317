"""What estimators of quantiles share: options, votes for bins, and the form of answers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from scipy.special import ndtri

from meanstream.operators.estimators.quantile_levels import level_votes, tree_depth
from meanstream.operators.records import Floats
from meanstream.operators.rounds.base import COMMON_OPTIONS, Settings
from meanstream.operators.rounds.estimator_traits import BOUNDS, EstimatorTraits
from meanstream.operators.rounds.round_protocol import Round
from meanstream.operators.rounds.round_records import Estimate
from meanstream.operators.validation import require

if TYPE_CHECKING:
    from meanstream.operators.rounds.user_sizes import SizeDistribution

MOST_QUANTILES = 20


class QuantileEstimator(EstimatorTraits):
    """Estimator of quantiles of users' own means, of which a share votes for bins.

    Attributes
    ----------
    voters : float
        Share of the users that votes for bins.
    depth : int
        Number of levels of bins.
    votes : list of Votes
        Votes of each level.
    """

    name: ClassVar[str]
    answers = "quantiles"
    estimand = (
        "quantiles over users of each user's own mean: every user counts once. The predicted error "
        "is that of a median of users who are spread evenly over the bounds"
    )
    assumes = BOUNDS
    of_a_paper = False
    part = "quantile"
    features_of = "quantiles"
    trust = "local"
    options = COMMON_OPTIONS | {"quantiles"}
    voters: ClassVar[float] = 1.0

    def __init__(
        self,
        *,
        epsilon: float,
        users: int,
        quantiles: Sequence[float],
        sizes: SizeDistribution | None = None,
        mode: str = "tuned",
        level: float = 0.95,
    ) -> None:
        self._settings = Settings(
            method=self.name, epsilon=epsilon, users=users, sizes=sizes, mode=mode, level=level
        )
        self.quantiles = require_quantiles(quantiles)
        self.mode = mode
        self.epsilon = epsilon
        self._z = float(ndtri(0.5 * (1.0 + level)))

        voters = max(1, int(self.voters * users))
        self.depth = tree_depth(epsilon, voters)
        self.votes = [level_votes(epsilon, number) for number in range(1, self.depth + 1)]
        self.rounds, self.shares = self.stages()

    def stages(self) -> tuple[tuple[Round, ...], tuple[float, ...]]:
        """Public: the stages, and the share of the users of each."""
        raise NotImplementedError

    def _of_rows(self, rows: Floats, n_users: int, stages: tuple[dict[str, Any], ...]) -> Estimate:
        """Public: make an estimate of values, lower and upper ends, and standard errors."""
        value, lower, upper, stderr = rows
        settings = self._settings
        return Estimate(
            value=value,
            lower=lower,
            upper=upper,
            level=settings.level,
            stderr=stderr,
            epsilon=settings.epsilon,
            trust=settings.trust,
            n_users=n_users,
            method=settings.method,
            mode=settings.mode,
            unclipped=value,
            stages=stages,
        )


def require_quantiles(quantiles: Sequence[float]) -> tuple[float, ...]:
    """Refuse what cannot be quantiles; give them as a tuple.

    Examples
    --------
    >>> require_quantiles((0.9, 0.5))
    Traceback (most recent call last):
    ValueError: quantiles must be different and ascending, got 0.9,0.5
    """
    # Ascending, so that answers come in the order of the question.
    found = tuple(float(one) for one in quantiles)
    shown = ",".join(f"{one:g}" for one in found)
    require(1 <= len(found) <= MOST_QUANTILES, "quantiles", f"be 1 to {MOST_QUANTILES}", len(found))
    require(all(0.0 < one < 1.0 for one in found), "quantiles", "lie between 0 and 1", shown)

    if list(found) != sorted({*found}):
        raise ValueError(f"quantiles must be different and ascending, got {shown}")
    return found

"""Kent, Berrett and Yu's mean of vectors whose coordinates lie on [-1, 1]."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from meanstream.lab.papers.kent.kent_vectors import FOLD_OPTIONS, CoordinateMeans, vector_spread
from meanstream.operators.rounds.base import Settings
from meanstream.operators.rounds.estimator_traits import FamilyQuestion

if TYPE_CHECKING:
    from meanstream.operators.rounds.user_sizes import SizeDistribution


class Linf(CoordinateMeans):
    """Mean vector of users whose samples are vectors with coordinates on [-1, 1].

    Released to the statistician: from each user its place (public) and, about the one or few
    coordinates of this place, either a randomized row of bits or one integer. Answers the mean of
    each coordinate over users.

    Parameters
    ----------
    epsilon : float
        Privacy of one user's whole window of samples, all coordinates and their number included.
    users : int
        How many users take part (public), at least two for each coordinate.
    sizes : SizeDistribution
        Law of a user's number of samples (public).
    mode : {"tuned", "paper"}
        "paper": Algorithm 4 with `votes="one_hot"`, else Algorithm 12, its participation corrected.
        "tuned": pairs of one-hot votes, the best channels, as many coordinates for each user as
        predicted best.
    level : float
        Nominal coverage of each coordinate's interval.
    dimension : int
        Number of coordinates.
    participation, between_users, seed
        As in `CoordinateMeans`.
    threshold, constant, votes, half_width, variance
        As in `meanstream.lab.papers.kent.univariate.Kent`.

    Notes
    -----
    **Privacy.** User-level, local, pure epsilon (Laplace in mode "paper" as good as); see `FoldRound`.

    **Intervals are honest only if users are alike**, as those of `Kent`.

    Raises
    ------
    ValueError
        If an option is out of range.

    Examples
    --------
    >>> from meanstream.operators.rounds.user_sizes import SizeDistribution
    >>> sizes = SizeDistribution.parse("point:400")
    >>> mean = Linf(epsilon=4.0, users=4000, sizes=sizes, dimension=32, mode="paper")
    >>> mean.participation, [round(stage.epsilon, 3) for stage in mean.rounds]
    (4, [4.0, 4.0])

    References
    ----------
    A. Kent, T. Berrett, Y. Yu: Rate optimality and phase transition for user-level local differential privacy,
    Algorithms 4 and 12.
    """

    name = "kent.linf"
    options = FOLD_OPTIONS | {"dimension", "variance"}

    @classmethod
    def family_options(cls, ask: FamilyQuestion) -> dict[str, Any] | None:
        """Every vector."""
        if ask.wanted == cls.answers:
            return {"dimension": ask.dimension} | vector_spread(ask)
        return None

    @classmethod
    def why(cls, options: Mapping[str, Any], radius: float | None) -> str:  # noqa: ARG003 - of no ball
        """Say why."""
        return (
            f"each of {options['dimension']} coordinates is estimated on its own, where a rotation would not make its"
            " window narrower by enough"
        )

    def __init__(
        self,
        *,
        epsilon: float,
        users: int,
        sizes: SizeDistribution | None = None,
        mode: str = "tuned",
        level: float = 0.95,
        dimension: int,
        **options: Any,
    ) -> None:
        self.dimension = dimension
        settings = Settings(
            method=self.name, epsilon=epsilon, users=users, sizes=sizes, mode=mode, level=level
        )
        super().__init__(settings, dimension, **options)

"""Kent, Berrett and Yu's means of vectors: what they share, and the one of coordinates on [-1, 1].

Folds of users, a univariate mean of each coordinate, and one answer.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from scipy.special import ndtri

from meanstream.lab.papers.kent.folds import DRAWS, Finish, FoldRound, Folds, FoldsFound, View
from meanstream.lab.papers.kent.univariate import Kent
from meanstream.operators.estimators.plan.planned_rounds import Plan
from meanstream.operators.noise.keyed import MAX_DRAWS
from meanstream.operators.records import Floats
from meanstream.operators.rounds.base import COMMON_OPTIONS, Settings
from meanstream.operators.rounds.estimator_traits import (
    OF_COORDINATES,
    EstimatorTraits,
    FamilyQuestion,
)
from meanstream.operators.rounds.round_protocol import Round
from meanstream.operators.rounds.round_records import Estimate
from meanstream.operators.validation import require

if TYPE_CHECKING:
    from meanstream.operators.rounds.user_sizes import SizeDistribution

FOLD_OPTIONS = COMMON_OPTIONS | {
    "threshold",
    "constant",
    "votes",
    "half_width",
    "participation",
    "between_users",
    "seed",
}
MAX_COORDINATES = 4096


class CoordinateMeans(EstimatorTraits):
    """Means of coordinates on [-1, 1], each by a univariate estimator on its own fold of the users.

    Subclasses say how many coordinates there are, what is seen of the users' summaries, and what is
    made of the means.

    Parameters
    ----------
    settings : Settings
    coordinates : int
        How many coordinates; at most half the number of users, times `participation`.
    participation : int, optional
        How many coordinates each user reports about, each with `epsilon / participation`. Default:
        1 with one-hot votes in mode "paper" (Algorithm 4), else `floor(epsilon)` there (Algorithm
        12), and in mode "tuned" the number of up to `floor(epsilon)` with the least predicted
        error.
    between_users : float, optional
        Declared standard deviation of users' own means: coordinates are then estimated in the
        stages of `Plan` instead of Kent's two. 0: all users draw from one law, as the paper
        assumes.
    seed : str
        Public; another one splits the users again. Hosts may use the round's id.
    **univariate
        Options of `Kent`: `threshold`, `constant`, `votes`, `half_width`, `variance`.

    Notes
    -----
    **Privacy.** See `FoldRound`: participation times the budget of a report is epsilon. (Algorithms 12 and 13 as
    printed let a user take part in `floor(epsilon) + 1` folds with budget 1 each, more than epsilon.)
    """

    name = "kent"
    answers = "vector"
    estimand = OF_COORDINATES
    trust = "local"
    sized_by: ClassVar[str] = "dimension"
    """Option that the number of coordinates follows from."""

    rounds: tuple[Round, ...]
    shares: tuple[float, ...]

    def __init__(
        self,
        settings: Settings,
        coordinates: int,
        *,
        participation: int | None = None,
        between_users: float | None = None,
        seed: str = "",
        **univariate: Any,
    ) -> None:
        self._settings = settings
        self.mode = settings.mode
        self.epsilon = settings.epsilon
        rule = f"lie between 1 and {MAX_COORDINATES}"
        require(
            1 <= coordinates <= MAX_COORDINATES,
            self.sized_by,
            rule,
            getattr(self, self.sized_by, coordinates),
        )

        self.coordinates = coordinates
        self.seed = seed
        options = univariate if between_users is None else _plan_options(univariate, between_users)
        self.inner, self.participation = self._choose(participation, options)
        rule = f"be at least {-(-2 * coordinates // self.participation)}, two for each of {coordinates} coordinates"
        require(
            settings.users * self.participation >= 2 * coordinates, "users", rule, settings.users
        )
        self._make_rounds(self.inner.rounds, self.inner.shares)

    def _make_rounds(self, stages: Sequence[Round], shares: Sequence[float]) -> None:
        folds = Folds(self.coordinates, self.participation, self.seed)
        last = len(stages) - 1
        self.rounds = tuple(
            FoldRound(
                stage, folds, view=self._view(), finish=self.finish if number == last else None
            )
            for number, stage in enumerate(stages)
        )
        self.shares = tuple(shares)

    def _choose(
        self, participation: int | None, options: dict[str, Any]
    ) -> tuple[Kent | Plan, int]:
        """Build the univariate estimator of a coordinate.

        Public numbers decide in how many folds a user is.
        """
        most = min(max(math.floor(self.epsilon), 1), self.coordinates, MAX_DRAWS // DRAWS)
        if participation is None and not self._settings.tuned:
            participation = 1 if options.get("votes") == "one_hot" else most

        if participation is not None:
            return self._univariate(participation, options), participation
        tried = [(self._univariate(p, options), p) for p in range(1, most + 1)]
        return min(tried, key=lambda one: float(one[0].describe()["predicted_stderr"]))

    def _univariate(self, participation: int, options: dict[str, Any]) -> Kent | Plan:
        settings = self._settings
        rule = f"lie between 1 and the number of coordinates, {self.coordinates}"
        require(1 <= participation <= self.coordinates, "participation", rule, participation)
        common: dict[str, Any] = {
            "epsilon": self.epsilon / participation,
            "users": max(settings.users * participation // self.coordinates, 1),
            "sizes": settings.known_sizes,
            "mode": settings.mode,
            "level": settings.level,
        }

        if "between_users" in options:
            return Plan(**common, **options)
        votes = options.get("votes")
        if votes is None and not settings.tuned and self.epsilon <= self.coordinates:
            votes = "one_hot"  # Algorithm 12 calls the univariate procedure with budget 1 there

        return Kent(**common, **(options | {"votes": votes}))

    def _view(self) -> View | None:
        """Private: what is seen of the users' summaries; the coordinates themselves."""
        return None

    @property
    def finish(self) -> Finish:
        """Public: makes the answer of the coordinates' estimates."""
        return self._finish

    def _finish(self, found: Sequence[Estimate], known: FoldsFound, users: int) -> Estimate:  # noqa: ARG002 - no use of it
        return _stacked(self._settings, found, users)

    def describe(self) -> dict[str, Any]:
        """Public: parameters chosen.

        `predicted_stderr` is the root of the summed squared errors of all coordinates.
        """
        said = self.inner.describe()
        own_settings = self._settings.describe()
        predicted = math.sqrt(self.coordinates) * float(said["predicted_stderr"])

        return (
            {name: value for name, value in said.items() if name not in own_settings}
            | own_settings
            | {
                "coordinates": self.coordinates,
                "participation": self.participation,
                "epsilon_per_coordinate": self.epsilon / self.participation,
                "shares": list(self.shares),
                "predicted_stderr": predicted,
            }
        )


def _plan_options(univariate: dict[str, Any], between_users: float) -> dict[str, Any]:
    for name in ("constant", "votes", "half_width"):
        require(
            univariate.get(name) is None,
            name,
            "not be given with between_users (the plan's stages)",
            univariate.get(name),
        )

    return {"between_users": between_users}


def _stacked(settings: Settings, found: Sequence[Estimate], users: int) -> Estimate:
    """Public: one answer of the coordinates' answers, as they are."""
    columns = {
        name: np.array([float(getattr(estimate, name)) for estimate in found])
        for name in ("value", "lower", "upper", "stderr", "unclipped")
    }

    return vector_estimate(settings, users=users, stages=vector_stages(found), **columns)


def vector_stages(found: Sequence[Estimate]) -> list[dict[str, Any]]:
    """Public: what was found about each coordinate."""
    return [
        {"coordinate": number, "stages": list(estimate.stages)}
        for number, estimate in enumerate(found)
    ]


def vector_estimate(
    settings: Settings,
    *,
    unclipped: Floats,
    stderr: Floats,
    users: int,
    value: Floats | None = None,
    lower: Floats | None = None,
    upper: Floats | None = None,
    stages: Sequence[dict[str, Any]] = (),
) -> Estimate:
    """Make an answer of d numbers.

    Where not given, the value is cut to [-1, 1] and intervals are normal.

    A value that was moved, as to the nearest point of a ball, is always within its interval, which
    grows to hold it.

    Parameters
    ----------
    unclipped, stderr : float array (d,)
    value, lower, upper : float array (d,), optional
    """
    margin = float(ndtri(0.5 * (1.0 + settings.level))) * stderr
    empty = settings.answer(0.0, 1.0, n_users=users, stages=stages)
    value = np.clip(unclipped, -1.0, 1.0) if value is None else value
    lower = np.clip(unclipped - margin, -1.0, 1.0) if lower is None else lower
    upper = np.clip(unclipped + margin, -1.0, 1.0) if upper is None else upper

    return replace(
        empty,
        value=value,
        lower=np.minimum(lower, value),
        upper=np.maximum(upper, value),
        stderr=stderr,
        unclipped=unclipped,
    )


def vector_spread(ask: FamilyQuestion) -> dict[str, Any]:
    """Public: tell how much users differ, on [-1, 1], if it is declared."""
    if ask.between_users is None:
        return {}
    return {"between_users": ask.between_users / ask.half}


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

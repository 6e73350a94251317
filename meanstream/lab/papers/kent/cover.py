"""Kent, Berrett and Yu's general procedure.

Votes for the balls of a cover, and the bounds on what it can reach.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from meanstream.lab.papers.kent.kent_vectors import vector_estimate
from meanstream.lab.papers.kent.vote_stage import VotingStage
from meanstream.operators.noise.random_bits import RandomWords
from meanstream.operators.records import Floats, Ints
from meanstream.operators.rounds.base import COMMON_OPTIONS, Settings
from meanstream.operators.rounds.estimator_traits import OF_COORDINATES, EstimatorTraits
from meanstream.operators.rounds.round_records import Estimate, Public, Reports, Summaries, Tally
from meanstream.operators.rounds.round_results import LastRound
from meanstream.operators.rounds.votes.base import MAX_BINS
from meanstream.operators.rounds.votes.registry import make_votes
from meanstream.operators.validation import require, require_positive

if TYPE_CHECKING:
    from meanstream.operators.rounds.user_sizes import SizeDistribution

NORMS: dict[str, Callable[[Floats], Floats]] = {
    "linf": lambda x: np.abs(x).max(axis=-1),
    "l2": lambda x: np.sqrt((x**2).sum(axis=-1)),
}
_CELLS = 2**22


class CoverSelect(EstimatorTraits):
    """The center with the most votes, of any finite cover by balls.

    For users with so many samples that they know.

    Released to the statistician: from each user one randomized row of bits, its vote for the first
    ball that holds its mean. Answers the center of a ball.

    Parameters
    ----------
    epsilon, users, sizes, mode, level
        As in `meanstream.lab.papers.kent.kent_vectors.Linf`; the same in both modes.
    radius : float
        Of the balls.
    centers : float array (balls, d), optional
        Public; at most 1000. Default: the grid of cubes of this radius that covers [-1, 1]^d.
    dimension : int, default 1
        d, if the centers are not given.
    norm : {"linf", "l2"}
        Of the balls.

    Notes
    -----
    **Privacy.** Local, pure epsilon. Balls of a cover overlap: a vote goes to the **first** ball that holds the mean
    (B' in (10); line 5 of the algorithm prints B), so a row has at most one bit set, and two rows differ in at most two
    bits, each randomized at epsilon / 2. A mean outside of all balls sends the randomized zero row.

    The interval of a coordinate is the radius around the center. It holds the mean of a user that
    knows it, if the right ball won; `cover_chance_of_a_wrong_ball` bounds how often it does not,
    and the level is not otherwise stated.

    Raises
    ------
    ValueError
        If an option is out of range, or there are more than 1000 balls.

    Examples
    --------
    >>> cover = CoverSelect(epsilon=1.0, users=2000, radius=0.25, dimension=2)
    >>> len(cover.centers), cover.balls(np.array([[-0.8, -0.8], [0.9, 0.9]]))
    (16, array([ 0, 15]))

    References
    ----------
    A. Kent, T. Berrett, Y. Yu: Rate optimality and phase transition for user-level local differential privacy,
    Algorithm 1 and Theorem 1.
    """

    name = "kent.cover"
    answers = "vector"
    estimand = OF_COORDINATES
    trust = "local"
    options = COMMON_OPTIONS | {"radius", "centers", "dimension", "norm"}

    def __init__(
        self,
        *,
        epsilon: float,
        users: int,
        sizes: SizeDistribution | None = None,
        mode: str = "tuned",
        level: float = 0.95,
        radius: float,
        centers: npt.ArrayLike | None = None,
        dimension: int = 1,
        norm: str = "linf",
    ) -> None:
        self._settings = Settings(
            method=self.name, epsilon=epsilon, users=users, sizes=sizes, mode=mode, level=level
        )
        self.mode = mode
        self.epsilon = epsilon
        require_positive(radius=radius)
        require(norm in NORMS, "norm", f"be one of {', '.join(NORMS)}", norm)
        self.radius = radius
        self.norm = norm

        self.centers = (
            cube_cover(radius, dimension)
            if centers is None
            else np.asarray(centers, dtype=np.float64)
        )
        require(self.centers.ndim == 2, "centers", "have shape (balls, d)", self.centers.shape)
        rule = f"be at most {MAX_BINS} (a larger radius)"
        require(1 <= len(self.centers) <= MAX_BINS, "balls", rule, len(self.centers))
        self.rounds = (_CoverRound(self),)
        self.shares = (1.0,)

    @property
    def settings(self) -> Settings:
        """Public: what the estimator was told."""
        return self._settings

    def balls(self, means: Floats) -> Ints:
        """Private: the first ball that holds each mean (n, d); -1 for none."""
        ball = np.empty(len(means), np.int64)
        size = max(_CELLS // self.centers.size, 1)
        for start in range(0, len(means), size):
            chunk = slice(start, start + size)
            holds = NORMS[self.norm](means[chunk, np.newaxis, :] - self.centers) <= self.radius
            ball[chunk] = np.where(holds.any(axis=1), holds.argmax(axis=1), -1)

        return ball

    def describe(self) -> dict[str, Any]:
        """Public: parameters chosen, and a bound on the root of the squared error in mode `norm`'s distance."""
        wrong = cover_chance_of_a_wrong_ball(len(self.centers), self._settings.users, self.epsilon)
        widest = (
            float(NORMS[self.norm](self.centers.max(axis=0) - self.centers.min(axis=0)))
            + 2.0 * self.radius
        )

        return self._settings.describe() | {
            "balls": len(self.centers),
            "radius": self.radius,
            "chance_of_a_wrong_ball": wrong,
            "shares": [1.0],
            "predicted_stderr": math.sqrt(self.radius**2 + wrong * widest**2),
        }


class _CoverRound(LastRound, VotingStage):
    """The one stage of `CoverSelect`.

    Notes
    -----
    **Privacy.** One randomized one-hot or zero row from each user.
    """

    name = "vote"

    def __init__(self, cover: CoverSelect) -> None:
        self.epsilon = cover.epsilon
        self._cover = cover
        self.votes = make_votes("sue", cover.epsilon, len(cover.centers))

    def encode(self, summaries: Summaries, public: Public, words: RandomWords) -> Reports:  # noqa: ARG002 - the only stage
        """Private to public: one randomized row per user."""
        means = summaries.mean if summaries.total.ndim == 2 else summaries.mean[:, np.newaxis]
        return self.votes.randomize(self._cover.balls(means), words)

    def decode(self, tally: Tally, public: Public) -> Estimate:  # noqa: ARG002 - the only stage
        """Public: the center with the most votes, the first of equal ones."""
        cover = self._cover
        d = cover.centers.shape[1]
        if not tally.n:
            return vector_estimate(
                cover.settings, unclipped=np.zeros(d), stderr=np.ones(d), users=0
            )

        best = int(np.argmax(tally.sums))
        center = cover.centers[best]
        reach = np.full(d, cover.radius)

        return vector_estimate(
            cover.settings,
            unclipped=center,
            stderr=reach,
            users=tally.n,
            lower=np.clip(center - reach, -1.0, 1.0),
            upper=np.clip(center + reach, -1.0, 1.0),
            stages=[{"stage": self.name, "users": tally.n, "ball": best}],
        )


def cube_cover(radius: float, dimension: int) -> Floats:
    """Centers of cubes of half-width `radius` that cover [-1, 1]^d.

    Examples
    --------
    >>> cube_cover(0.5, 1)[:, 0], len(cube_cover(0.4, 3))
    (array([-0.5,  0.5]), 27)
    """
    count = max(math.ceil(1.0 / radius - 1e-12), 1)
    require(
        count**dimension <= MAX_BINS,
        "balls",
        f"be at most {MAX_BINS} (a larger radius)",
        count**dimension,
    )
    axis = (2.0 * np.arange(count) + 1.0) / count - 1.0

    return np.stack(np.meshgrid(*[axis] * dimension, indexing="ij"), axis=-1).reshape(-1, dimension)


def cover_chance_of_a_wrong_ball(balls: float, users: int, epsilon: float) -> float:
    """Bound how often a wrong ball wins, if all users vote for the same one.

    Theorem 1's second term, at most 1.
    """
    return min(balls * math.exp(-users * min(epsilon, epsilon**2) / 20.0), 1.0)


def cover_upper_bound(
    loss: Callable[[float], float],
    covering_number: Callable[[float], float],
    *,
    users: int,
    epsilon: float,
    diameter: float,
    radii: Iterable[float],
) -> float:
    """Upper bound of Theorem 1 on the minimax risk with any number of samples.

    The least over these radii.

    Parameters
    ----------
    loss : callable
        Phi, increasing: of a distance.
    covering_number : callable
        N(radius), of the space of parameters.
    users : int
    epsilon : float
    diameter : float
        Of the space.
    radii : iterable of float
        Any radii give a bound; more of them a better one.

    Examples
    --------
    >>> radii = np.geomspace(1e-9, 1.0, 400)
    >>> interval = lambda radius: np.ceil(1.0 / radius)
    >>> bound = cover_upper_bound(np.square, interval, users=1000, epsilon=1.0, diameter=2.0, radii=radii)
    >>> f"{bound:.1e}"
    '1.6e-14'
    """
    decay = math.exp(-users * min(epsilon, epsilon**2) / 20.0)
    return min(
        float(loss(radius) + loss(diameter) * covering_number(radius) * decay) for radius in radii
    )


def cover_lower_bound(
    loss: Callable[[float], float],
    covering_number: Callable[[float], float],
    *,
    users: int,
    epsilon: float,
    radii: Sequence[float] | Floats,
) -> float:
    """Lower bound of Theorem 1 and Corollary 2 on the minimax risk, for any number of samples.

    0 if it says nothing.

    Examples
    --------
    >>> interval = lambda radius: np.ceil(1.0 / radius)
    >>> f"{cover_lower_bound(np.square, interval, users=1, epsilon=0.1, radii=[0.01]):.2e}"
    '3.96e-05'
    """
    information = 12.0 * users * min(epsilon, epsilon**2) + math.log(2.0)
    best = 0.0
    for radius in radii:
        number = float(covering_number(2.0 * radius))
        if number > 1.0:
            best = max(best, 0.5 * float(loss(radius)) * (1.0 - information / math.log(number)))

    return best

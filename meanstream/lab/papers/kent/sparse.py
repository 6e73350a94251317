"""Kent, Berrett and Yu's means of sparse vectors: by a threshold, and by votes for coordinates."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import ndtr

from meanstream.lab.papers.kent.folds import FoldsFound
from meanstream.lab.papers.kent.hash_vote_stage import HashVoteRound
from meanstream.lab.papers.kent.kent_vectors import (
    FOLD_OPTIONS,
    CoordinateMeans,
    vector_estimate,
    vector_spread,
    vector_stages,
)
from meanstream.lab.papers.kent.univariate import kent_univariate_threshold_size
from meanstream.operators.estimators.sparse_size import require_sparsity
from meanstream.operators.records import Bools, Floats
from meanstream.operators.rounds.base import Settings
from meanstream.operators.rounds.binomial import binomial_probability
from meanstream.operators.rounds.channels.base import Mechanism
from meanstream.operators.rounds.channels.registry import best_channel, make_channel
from meanstream.operators.rounds.estimator_traits import FamilyQuestion
from meanstream.operators.rounds.round_records import Estimate, Public, Summaries
from meanstream.operators.validation import require_positive

if TYPE_CHECKING:
    from meanstream.operators.rounds.user_sizes import SizeDistribution


class SparseMeans(CoordinateMeans):
    """Means of vectors of which few coordinates differ from 0."""

    dimension: int
    sparsity: int

    @classmethod
    def parts(cls, ask: FamilyQuestion) -> int:
        """Count the coordinates that may differ from the middle."""
        return ask.sparsity or super().parts(ask)

    @classmethod
    def family_assumes(
        cls, ask: FamilyQuestion, options: Mapping[str, Any], described: Mapping[str, Any]
    ) -> str:
        """As of the others, and the middle of the rest."""
        rest = f"; all but {ask.sparsity} coordinates are in the middle"
        return super().family_assumes(ask, options, described) + rest

    def describe(self) -> dict[str, Any]:
        """Public: parameters chosen."""
        return super().describe() | {"dimension": self.dimension, "sparsity": self.sparsity}


class SparseThreshold(SparseMeans):
    """Mean of sparse vectors with coordinates on [-1, 1].

    All are estimated, the small ones are answered as 0.

    Released to the statistician: what `Linf` releases. Answers the mean of each coordinate over
    users.

    Parameters
    ----------
    epsilon, users, sizes, mode, level, dimension, participation, between_users, seed
        As in `Linf`.
    sparsity : int
        At most that many coordinates are kept, the largest ones.
    keep : float, optional
        Coordinates closer to 0 than this become 0. Default in mode "paper":
        `3 width sqrt(d log(users T epsilon**2) / (users epsilon**2))` with the half-width of the
        bins (42); in mode "tuned", `sqrt(2 log(d))` standard errors.
    threshold, constant, votes, half_width, variance
        As in `meanstream.lab.papers.kent.univariate.Kent`.

    Notes
    -----
    **Privacy.** That of `Linf`; the threshold is post-processing. Intervals of coordinates that became 0 are those
    before, extended to 0.

    References
    ----------
    A. Kent, T. Berrett, Y. Yu: Rate optimality and phase transition for user-level local differential privacy,
    Algorithm 7.

    Examples
    --------
    >>> from meanstream.operators.rounds.user_sizes import SizeDistribution
    >>> sizes = SizeDistribution.parse("point:100")
    >>> mean = SparseThreshold(epsilon=4.0, users=5000, sizes=sizes, dimension=20, sparsity=4)
    >>> mean.coordinates, mean.keep
    (20, None)
    """

    name = "kent.sparse_threshold"
    options = FOLD_OPTIONS | {"dimension", "sparsity", "keep", "variance"}

    @classmethod
    def family_options(cls, ask: FamilyQuestion) -> dict[str, Any] | None:
        """Sparse vectors."""
        if ask.wanted != cls.answers or ask.sparsity is None:
            return None
        return {"dimension": ask.dimension, "sparsity": ask.sparsity} | vector_spread(ask)

    @classmethod
    def why(cls, options: Mapping[str, Any], radius: float | None) -> str:  # noqa: ARG003 - of no ball
        """Say why."""
        return (
            f"users are enough to estimate all {options['dimension']} coordinates and keep the {options['sparsity']}"
            " largest: none is lost in a vote"
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
        sparsity: int,
        keep: float | None = None,
        threshold: str | int = "min",
        **options: Any,
    ) -> None:
        settings = Settings(
            method=self.name, epsilon=epsilon, users=users, sizes=sizes, mode=mode, level=level
        )
        require_sparsity(sparsity, dimension)
        self.dimension = dimension
        self.sparsity = sparsity
        super().__init__(settings, dimension, threshold=threshold, **options)
        self.keep = keep

        if keep is None and not settings.tuned:
            log = max(
                math.log(
                    users
                    * kent_univariate_threshold_size(threshold, settings.known_sizes)
                    * epsilon**2
                ),
                1.0,
            )
            self.keep = (
                3.0
                * self.inner.describe()["half_width"]
                * math.sqrt(dimension * log / users)
                / epsilon
            )

    def _finish(self, found: Sequence[Estimate], known: FoldsFound, users: int) -> Estimate:
        plain = super()._finish(found, known, users)
        size = np.abs(plain.unclipped)
        keep = (
            self.keep
            if self.keep is not None
            else math.sqrt(2.0 * math.log(self.dimension)) * plain.stderr
        )
        kept = np.zeros(self.dimension, np.bool_)
        kept[np.argsort(-size, kind="stable")[: self.sparsity]] = True
        kept &= size > keep

        return vector_estimate(
            self._settings,
            unclipped=np.where(kept, plain.unclipped, 0.0),
            stderr=plain.stderr,
            users=users,
            value=np.where(kept, plain.value, 0.0),
            lower=np.where(kept, plain.lower, np.minimum(plain.lower, 0.0)),
            upper=np.where(kept, plain.upper, np.maximum(plain.upper, 0.0)),
            stages=plain.stages,
        )

    def describe(self) -> dict[str, Any]:
        """Public: parameters chosen.

        `predicted_stderr` is that without the threshold, for `sparsity` coordinates.
        """
        said = super().describe()
        predicted = float(said["predicted_stderr"]) * math.sqrt(self.sparsity / self.dimension)
        return said | {
            "keep": self.keep,
            "predicted_stderr": predicted,
        }


HALF = 0.5
"""A coordinate that half of the voters mark is selected (40)."""
ETA = 30.0
ETAS = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0)
"""The clip of the hashed votes is the root of this times the sparsity: for the proof, and what mode
"tuned" tries."""


class SparseSelect(SparseMeans):
    """Mean of sparse vectors with coordinates on [-1, 1].

    Half of the users vote for the coordinates that are not 0.

    Released to the statistician: from half of the users one number in which the coordinates that
    they mark are hashed; from the others what `Linf` releases about the coordinates found. Answers
    the mean of each coordinate over users, 0 for those that were not selected.

    Parameters
    ----------
    epsilon, users, sizes, mode, level, dimension, seed
        As in `Linf`.
    sparsity : int
        Number s of coordinates that may differ from 0; rather too many than too few.
    cut : float, optional
        A user marks the coordinates where its mean is at least this far from 0. Default in mode
        "paper": `sqrt(2 log(d users T epsilon**2) / T)` (37), in mode "tuned" `sqrt(2 log(d) / T)`:
        one wrong mark per user.
    clip_constant : float, optional
        The sum of a user's marks is clipped at the root of this times the sparsity: 30 in mode
        "paper", else what tells marks best from the noise (about 1, as in Section A.2).
    threshold, constant, votes, half_width, variance
        As in `meanstream.lab.papers.kent.univariate.Kent`, for the coordinates found.

    Notes
    -----
    **Privacy.** User-level, local, epsilon. A user takes part in one stage; see `HashVoteRound` and `FoldRound`. Its
    marks are private: the coordinates found are a result of other users.

    Selected are coordinates that half of the voters mark; in mode "tuned", with scores of at least
    half of what s marks of every user give, which the clip makes smaller than 1. Of more than s
    coordinates found, those with the largest scores are kept, not those with the smallest numbers.

    Intervals of coordinates that were not found are `[-cut, cut]`: users would have marked larger
    means. This holds with no stated level.

    Raises
    ------
    ValueError
        If an option is out of range.

    References
    ----------
    A. Kent, T. Berrett, Y. Yu: Rate optimality and phase transition for user-level local differential privacy,
    Algorithm 6.

    Examples
    --------
    >>> from meanstream.operators.rounds.user_sizes import SizeDistribution
    >>> sizes = SizeDistribution.parse("point:100")
    >>> mean = SparseSelect(epsilon=4.0, users=500, sizes=sizes, dimension=100, sparsity=4)
    >>> round(mean.cut, 3), round(mean.clip, 3), mean.shares[0]
    (0.303, 4.0, 0.5)
    """

    name = "kent.sparse_select"
    sized_by = "sparsity"
    options = (FOLD_OPTIONS - {"participation", "between_users"}) | {
        "dimension",
        "sparsity",
        "cut",
        "clip_constant",
        "variance",
    }

    @classmethod
    def family_options(cls, ask: FamilyQuestion) -> dict[str, Any] | None:
        """Sparse vectors of users who are alike."""
        if ask.wanted != cls.answers or ask.sparsity is None or ask.between_users:
            return None
        return {"dimension": ask.dimension, "sparsity": ask.sparsity}

    @classmethod
    def family_assumes(
        cls, ask: FamilyQuestion, options: Mapping[str, Any], described: Mapping[str, Any]
    ) -> str:
        """As of the others, and which coordinates are found."""
        farthest = ask.half * float(described.get("cut", 0.0))
        return (
            f"{super().family_assumes(ask, options, described)}, these {farthest:.3g} or more away"
        )

    @classmethod
    def why(cls, options: Mapping[str, Any], radius: float | None) -> str:  # noqa: ARG003 - of no ball
        """Say why."""
        return (
            f"half of the users vote for the {options['sparsity']} of {options['dimension']} coordinates that matter,"
            " and the others report on these alone"
        )

    @classmethod
    def caution(cls, others: Collection[str]) -> str:
        """Coordinates that the other one of sparse vectors would keep are lost."""
        if SparseThreshold.name not in others:
            return ""
        return f". Coordinates closer to the middle are lost: if they matter, take {SparseThreshold.name}"

    def missed_mse(self, users: int) -> float:
        """Chance that votes miss a coordinate that every user marks, times what is then missing."""
        vote: Any = self.rounds[0]
        score = self.gain * sparse_mark_score(self.sparsity, self.clip)
        c0, c1 = vote.channel.moments
        second = min(self.sparsity / self.clip**2, 1.0)
        noise = self.clip * math.sqrt((c0 + c1 * second) / max(HALF * users, 1.0))

        return float(ndtr((self.least_score - score) / noise)) * self.sparsity / 3.0

    def __init__(
        self,
        *,
        epsilon: float,
        users: int,
        sizes: SizeDistribution | None = None,
        mode: str = "tuned",
        level: float = 0.95,
        dimension: int,
        sparsity: int,
        cut: float | None = None,
        clip_constant: float | None = None,
        seed: str = "",
        threshold: str | int = "min",
        **options: Any,
    ) -> None:
        settings = Settings(
            method=self.name, epsilon=epsilon, users=users, sizes=sizes, mode=mode, level=level
        )
        require_sparsity(sparsity, dimension)
        self.dimension = dimension
        self.sparsity = sparsity
        self.threshold = kent_univariate_threshold_size(threshold, settings.known_sizes)
        self.cut = self._cut(settings) if cut is None else cut

        if clip_constant is None:
            clip_constant = (
                max(ETAS, key=lambda eta: self._clarity(settings, eta)) if settings.tuned else ETA
            )

        require_positive(clip_constant=clip_constant, cut=self.cut)
        self.clip = math.sqrt(clip_constant * sparsity)
        self.gain = settings.known_sizes.tail(self.threshold)
        self.least_score = (
            HALF * self.gain * (sparse_mark_score(sparsity, self.clip) if settings.tuned else 1.0)
        )

        # Half of the users measure: the inner procedure is told of these.
        half = Settings(
            method=self.name,
            epsilon=epsilon,
            users=max(users // 2, 1),
            sizes=sizes,
            mode=mode,
            level=level,
        )
        super().__init__(half, sparsity, seed=seed, participation=1, threshold=threshold, **options)

        self._settings = settings
        vote = HashVoteRound(
            self.marks,
            coordinates=dimension,
            clip=self.clip,
            channel=self._channel(settings, self.clip),
            select=self.select,
            most=sparsity,
            seed=seed,
        )
        self.rounds = (vote, *self.rounds)
        self.shares = (0.5, *(0.5 * share for share in self.shares))

    def _cut(self, settings: Settings) -> float:
        log = math.log(self.dimension)
        if not settings.tuned:
            log += math.log(settings.users * self.threshold * settings.epsilon**2)

        return math.sqrt(2.0 * max(log, 1.0) / self.threshold)

    def _channel(self, settings: Settings, clip: float) -> Mechanism:
        if settings.tuned:
            return best_channel(settings.epsilon, min(self.sparsity / clip**2, 1.0))
        return make_channel("laplace", settings.epsilon)

    def _clarity(self, settings: Settings, constant: float) -> float:
        """Score of a mark in standard deviations of one report."""
        clip = math.sqrt(constant * self.sparsity)
        c0, c1 = self._channel(settings, clip).moments
        return sparse_mark_score(self.sparsity, clip) / (
            clip * math.sqrt(c0 + c1 * min(self.sparsity / clip**2, 1.0))
        )

    def marks(self, summaries: Summaries) -> Bools:
        """Private: coordinates where each user's mean is far from 0.

        None for users with too few samples.
        """
        return (np.abs(summaries.mean) >= self.cut) & (summaries.count >= self.threshold)[
            :, np.newaxis
        ]

    def select(self, scores: Floats, stderr: Floats, users: int) -> Public:  # noqa: ARG002 - the rule is (40)
        """Public: coordinates with the largest scores, at most `sparsity`.

        One is measured even if none is found.
        """
        best = np.argsort(-scores, kind="stable")[: self.sparsity]
        selected = np.sort(best[scores[best] >= self.least_score]).tolist() if users else []
        return {"selected": selected, "voters": users, "coordinates": selected or [int(best[0])]}

    def _finish(self, found: Sequence[Estimate], known: FoldsFound, users: int) -> Estimate:
        # Nothing is known of the others, unless users voted.
        reach = self.cut if known.voters else 1.0
        columns = {name: np.zeros(self.dimension) for name in ("value", "unclipped")}
        columns |= {
            "stderr": np.full(self.dimension, reach),
            "lower": np.full(self.dimension, -reach),
        }
        columns["upper"] = -columns["lower"]

        if known.selected:
            for name, column in columns.items():
                column[known.selected] = [float(getattr(estimate, name)) for estimate in found]

        for name in ("lower", "upper"):
            columns[name] = np.clip(columns[name], -1.0, 1.0)

        stages = [*known.stages, *vector_stages(found)]
        return vector_estimate(self._settings, users=users, stages=stages, **columns)

    def describe(self) -> dict[str, Any]:
        """Public: parameters chosen.

        `predicted_stderr` is the root of the summed squared errors if all are found.
        """
        return super().describe() | {
            "cut": self.cut,
            "clip": self.clip,
        }


def sparse_mark_score(marks: int, clip: float) -> float:
    """Compute the expected score of a coordinate that everyone marks along with others, that many in all.

    Examples
    --------
    >>> [round(sparse_mark_score(4, clip), 3) for clip in (1.0, 2.0, 4.0)]
    [0.375, 0.75, 1.0]
    """
    # Its own sign times the clipped sum of all signs.
    others = np.arange(marks)
    total = 1.0 + 2.0 * others - (marks - 1.0)
    return float(np.clip(total, -clip, clip) @ binomial_probability(others, marks - 1, 0.5))

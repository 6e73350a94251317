"""Kent, Berrett and Yu's mean of sparse vectors by a threshold."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from meanstream.lab.papers.kent.folds import FoldsFound
from meanstream.lab.papers.kent.kent_vectors import (
    FOLD_OPTIONS,
    CoordinateMeans,
    vector_estimate,
    vector_spread,
)
from meanstream.lab.papers.kent.univariate import kent_univariate_threshold_size
from meanstream.operators.estimators.sparse_size import require_sparsity
from meanstream.operators.rounds.base import Settings
from meanstream.operators.rounds.estimator_traits import FamilyQuestion
from meanstream.operators.rounds.round_records import Estimate

if TYPE_CHECKING:
    from meanstream.operators.rounds.user_sizes import SizeDistribution


class SparseThreshold(CoordinateMeans):
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
            "dimension": self.dimension,
            "sparsity": self.sparsity,
            "keep": self.keep,
            "predicted_stderr": predicted,
        }

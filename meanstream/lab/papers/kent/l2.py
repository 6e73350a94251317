"""Kent, Berrett and Yu's mean of vectors in a Euclidean ball, by a random rotation."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from scipy.special import ndtri

from meanstream.lab.papers.kent.folds import FoldsFound, View
from meanstream.lab.papers.kent.kent_vectors import (
    FOLD_OPTIONS,
    CoordinateMeans,
    vector_estimate,
    vector_stages,
)
from meanstream.lab.papers.kent.univariate import CONSTANTS, kent_univariate_threshold_size
from meanstream.operators.records import Floats
from meanstream.operators.rounds.base import Settings
from meanstream.operators.rounds.estimator_traits import FamilyQuestion
from meanstream.operators.rounds.round_records import Estimate, Summaries
from meanstream.operators.validation import require, require_positive

if TYPE_CHECKING:
    from meanstream.operators.rounds.user_sizes import SizeDistribution

MAX_DIMENSION = 2**20


def walsh_hadamard(rows: npt.ArrayLike) -> Floats:
    """Multiply each row by the Hadamard matrix (not normalized).

    `log2 d` passes of additions over all rows at once.

    Parameters
    ----------
    rows : float array (..., d)
        d a power of two.

    Returns
    -------
    float array (..., d)
        Twice the transform is d times the identity.

    Raises
    ------
    ValueError
        If d is not a power of two.

    Examples
    --------
    >>> walsh_hadamard([[1.0, 0.0, 0.0, 0.0], [1.0, 2.0, 3.0, 4.0]])
    array([[ 1.,  1.,  1.,  1.],
           [10., -2., -4.,  0.]])
    """
    # In this order the reshaped array is a view, through which `found` is changed in place.
    transformed = np.array(rows, dtype=np.float64, order="C")
    d = transformed.shape[-1]
    require(d >= 1 and d & (d - 1) == 0, "dimension", "be a power of two", d)
    half = 1

    while half < d:
        # Pairs of blocks of this length: (a, b) becomes (a + b, a - b).
        pairs = transformed.reshape(*transformed.shape[:-1], d // (2 * half), 2, half)
        upper = pairs[..., 0, :] - pairs[..., 1, :]
        pairs[..., 0, :] += pairs[..., 1, :]
        pairs[..., 1, :] = upper
        half *= 2

    return transformed


class RandomRotation:
    """An orthogonal map that spreads every vector evenly over its coordinates: `H W / sqrt(D)`.

    Parameters
    ----------
    dimension : int
        Number d of coordinates of the vectors; they are padded with zeros to D, the next power of
        two.
    seed : bytes
        Public and the same for all users of a round, such as the round's id; it decides the signs
        W.

    Attributes
    ----------
    padded : int
        The power of two D, number of coordinates of the rotated vectors.

    Notes
    -----
    A vector of Euclidean norm at most 1 has rotated coordinates in [-1, 1], whatever the signs: each is the inner
    product with a vector of norm 1. Most are of the order of 1 / sqrt(D).

    **Privacy.** None by itself, and none is lost: the signs are public and independent of all data.

    References
    ----------
    Kent, Berrett, Yu, Rate Optimality and Phase Transition for User-Level Local Differential Privacy, (33).

    Examples
    --------
    >>> rotation = RandomRotation(3, b"2013-01-07")
    >>> rotated = rotation.forward([[0.6, 0.0, 0.8]])
    >>> rotated.round(2), (rotation.backward(rotated) + 0.0).round(2)
    (array([[ 0.1,  0.1, -0.7, -0.7]]), array([[0.6, 0. , 0.8]]))
    """

    __slots__ = ("_factor", "dimension", "padded")

    def __init__(self, dimension: int, seed: bytes) -> None:
        require(
            1 <= dimension <= MAX_DIMENSION,
            "dimension",
            f"lie between 1 and {MAX_DIMENSION}",
            dimension,
        )
        self.dimension = dimension
        self.padded = 1 << (dimension - 1).bit_length()
        self._factor = walsh_hadamard_signs(dimension, seed) / math.sqrt(self.padded)

    def forward(self, vectors: npt.ArrayLike) -> Floats:
        """Rotate vectors (..., d) to (..., D).

        Raises
        ------
        ValueError
            If the vectors do not have d coordinates.
        """
        raw = np.asarray(vectors, dtype=np.float64)
        require(
            raw.shape[-1:] == (self.dimension,),
            "vectors",
            f"have {self.dimension} coordinates",
            raw.shape,
        )
        padding = [(0, 0)] * (raw.ndim - 1) + [(0, self.padded - self.dimension)]

        return walsh_hadamard(np.pad(raw * self._factor, padding))

    def backward(self, rotated: npt.ArrayLike) -> Floats:
        """Turn rotated vectors (..., D) back to (..., d).

        The inverse of `forward`, which never increases the norm.

        Raises
        ------
        ValueError
            If the vectors do not have D coordinates.
        """
        raw = np.asarray(rotated, dtype=np.float64)
        require(
            raw.shape[-1:] == (self.padded,),
            "rotated",
            f"have {self.padded} coordinates",
            raw.shape,
        )

        return walsh_hadamard(raw)[..., : self.dimension] * self._factor


def walsh_hadamard_signs(n: int, seed: bytes) -> Floats:
    """Make n public random signs, 1.0 or -1.0, from a seed.

    The bits of a hash, the same on every machine.

    Examples
    --------
    >>> walsh_hadamard_signs(8, b"2013-01-07")
    array([-1., -1.,  1., -1.,  1.,  1.,  1.,  1.])
    """
    stream = hashlib.shake_256(b"meanstream signs" + seed).digest(-(-n // 8))
    return 1.0 - 2.0 * np.unpackbits(np.frombuffer(stream, np.uint8))[:n].astype(np.float64)


class L2(CoordinateMeans):
    """Mean vector of users whose samples lie in a Euclidean ball.

    Released to the statistician: as by `Linf`, about coordinates of the vectors rotated by public
    random signs and a Walsh-Hadamard transform. Rotated coordinates are of the order of 1 / sqrt(d)
    and so are their windows, which are narrower the more coordinates there are. Answers the mean of
    each coordinate over users.

    Parameters
    ----------
    epsilon, users, sizes, mode, level, dimension, participation, seed
        As in `Linf`; vectors are padded to a power of two D, and it is D that counts for the number
        of users.
    radius : float, default 1
        Radius of the ball on the scale where each coordinate is on [-1, 1]: `sqrt(dimension)` holds
        all of the cube. Samples outside are cut back to the ball (`features`).
    constant : float, optional
        C of the half-width: in mode "paper" `C log(users T epsilon**2) / sqrt(D T)` (34), in mode
        "tuned" `C sqrt(log(users T epsilon**2 / D) / (D T))` (default: `sqrt(2)`, and chosen by
        predicted error).
    threshold, votes, half_width
        As in `Kent`; the half-width is that in the rotated and scaled coordinates.

    Notes
    -----
    **Privacy.** User-level, local, epsilon; see `FoldRound`. Whatever a user holds is clipped coordinate by coordinate,
    so privacy does not rely on the radius.

    Algorithm 13 prints a half-width without the 1 / D, which loses the gain of the rotation; (34)
    is used at every epsilon. **Intervals are honest only if users are alike.**

    Raises
    ------
    ValueError
        If an option is out of range.

    Examples
    --------
    >>> from meanstream.operators.rounds.user_sizes import SizeDistribution
    >>> sizes = SizeDistribution.parse("point:400")
    >>> mean = L2(epsilon=4.0, users=4000, sizes=sizes, dimension=30)
    >>> mean.rotation.padded, mean.features(np.array([[1.0] * 30])).round(3)[0, :2]
    (32, array([0.183, 0.183]))

    References
    ----------
    A. Kent, T. Berrett, Y. Yu: Rate optimality and phase transition for user-level local differential privacy,
    Algorithms 5 and 13, (33) and (34).
    """

    name = "kent.l2"
    features_of = "rotated coordinates"
    options = (FOLD_OPTIONS - {"between_users"}) | {"dimension", "radius"}

    @classmethod
    def family_options(cls, ask: FamilyQuestion) -> dict[str, Any] | None:
        """Vectors of users who are alike.

        In a ball, which is that of the cube where none is said.
        """
        if ask.wanted != cls.answers or ask.dimension is None or ask.between_users:
            return None
        radius = min((ask.radius or math.inf) / ask.half, math.sqrt(ask.dimension))
        return {"dimension": ask.dimension, "radius": radius}

    @classmethod
    def family_assumes(
        cls, ask: FamilyQuestion, options: Mapping[str, Any], described: Mapping[str, Any]
    ) -> str:
        """As of the others, and the ball."""
        ball = "" if ask.radius is None else "; vectors in the ball"
        return super().family_assumes(ask, options, described) + ball

    @classmethod
    def why(cls, options: Mapping[str, Any], radius: float | None) -> str:
        """Say why."""
        dimension = options["dimension"]
        if radius is None:
            return f"rotated, each of {dimension} coordinates varies little and windows are narrow"
        return (
            f"vectors lie in a ball of radius {radius:g}: rotated, all {dimension} coordinates are small and"
            " windows narrow"
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
        radius: float = 1.0,
        constant: float | None = None,
        half_width: float | None = None,
        threshold: str | int = "min",
        seed: str = "",
        **options: Any,
    ) -> None:
        settings = Settings(
            method=self.name, epsilon=epsilon, users=users, sizes=sizes, mode=mode, level=level
        )
        require_positive(radius=radius)

        require(
            radius <= math.sqrt(dimension),
            "radius",
            f"be at most sqrt(dimension) = {dimension**0.5:.4g}",
            radius,
        )
        self.dimension = dimension
        self.radius = radius
        self.rotation = RandomRotation(dimension, b"rotation " + seed.encode())
        size = kent_univariate_threshold_size(threshold, settings.known_sizes)

        if half_width is None and not settings.tuned:
            half_width = self._half_width(settings, size, constant)

        # Rotated samples have squares that add up to at most 1.
        options |= {
            "half_width": half_width,
            "constant": constant,
            "variance": 1.0 / self.rotation.padded,
            "threshold": threshold,
        }
        super().__init__(settings, self.rotation.padded, seed=seed, **options)

    def cut_back(self) -> str:
        """Say that vectors outside the ball are cut back to it."""
        return (
            f", vectors outside a ball of radius {self.radius:g} half widths cut back to it"
            f" (--option radius={self.radius:g})"
        )

    def _half_width(self, settings: Settings, size: int, constant: float | None) -> float:
        """Equation 34."""
        constant = CONSTANTS["one_hot"] if constant is None else constant
        require_positive(constant=constant)
        log = max(math.log(settings.users * size * settings.epsilon**2), 1.0)
        return constant * log / math.sqrt(self.rotation.padded * size)

    def features(self, values: Floats) -> Floats:
        """Private: samples (m, d) on [-1, 1], cut back to the ball."""
        norm = np.sqrt((values**2).sum(axis=-1, keepdims=True))
        return np.asarray(values * np.minimum(1.0, self.radius / np.maximum(norm, self.radius)))

    def _view(self) -> View:
        return self.rotated

    def rotated(self, summaries: Summaries) -> Summaries:
        """Private: the users' means, scaled to the unit ball and rotated, as sums on a fine grid."""
        turned = self.rotation.forward(summaries.mean / self.radius)
        span = 2**30
        steps = np.rint((np.clip(turned, -1.0, 1.0) + 1.0) * (0.5 * span)).astype(np.int64)
        # Only the mean is looked at: it stands for one sample, and the true number decides who
        # votes.
        return _OfMeans(
            user=summaries.user, count=summaries.count, total=steps, first=steps, span=span
        )

    def _finish(self, found: Sequence[Estimate], known: FoldsFound, users: int) -> Estimate:  # noqa: ARG002 - no use of it
        raw = (
            self.rotation.backward(np.array([float(estimate.unclipped) for estimate in found]))
            * self.radius
        )
        # Every rotated coordinate has the same weight in every original one.
        stderr = np.full(
            self.dimension,
            self.radius
            * math.sqrt(float(np.mean([float(estimate.stderr) ** 2 for estimate in found]))),
        )
        margin = float(ndtri(0.5 * (1.0 + self._settings.level))) * stderr
        norm = float(np.sqrt((raw**2).sum()))
        value = raw * min(1.0, self.radius / max(norm, self.radius))
        farthest = min(self.radius, 1.0)

        return vector_estimate(
            self._settings,
            unclipped=raw,
            stderr=stderr,
            users=users,
            value=np.clip(value, -1.0, 1.0),
            lower=np.clip(raw - margin, -farthest, farthest),
            upper=np.clip(raw + margin, -farthest, farthest),
            stages=vector_stages(found),
        )

    def describe(self) -> dict[str, Any]:
        """Public: parameters chosen.

        `predicted_stderr` is the root of the summed squared errors of all coordinates.
        """
        said = super().describe()
        return said | {
            "dimension": self.dimension,
            "radius": self.radius,
            "predicted_stderr": self.radius * float(said["predicted_stderr"]),
        }


class _OfMeans(Summaries):
    """Summaries whose totals are means."""

    __slots__ = ()

    @property
    def mean(self) -> Floats:
        """Each user's mean, on [-1, 1]."""
        return np.asarray(2.0 * self.total / self.span - 1.0, dtype=np.float64)

    def take(self, which: Any) -> Summaries:
        """Select users."""
        return replace(
            self,
            user=self.user[which],
            count=self.count[which],
            total=self.total[which],
            first=self.first[which],
        )

"""Kent, Berrett and Yu's density on a trigonometric basis: what is released of it, and how to evaluate it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import numpy.typing as npt
from scipy.special import ndtri

from meanstream.lab.papers.kent.folds import FoldsFound
from meanstream.lab.papers.kent.kent_vectors import (
    FOLD_OPTIONS,
    CoordinateMeans,
    vector_estimate,
    vector_spread,
)
from meanstream.lab.papers.kent.univariate import kent_univariate_threshold_size
from meanstream.operators.records import Floats
from meanstream.operators.rounds.base import Settings
from meanstream.operators.rounds.estimator_traits import FamilyQuestion
from meanstream.operators.rounds.round_records import Estimate
from meanstream.operators.validation import require, require_positive

if TYPE_CHECKING:
    from meanstream.operators.rounds.user_sizes import SizeDistribution

SQRT_2 = math.sqrt(2.0)


def trigonometric_density_function(u: npt.ArrayLike, terms: int) -> Floats:
    """Evaluate the functions 1, sqrt(2) cos(2 pi u), sqrt(2) sin(2 pi u), sqrt(2) cos(4 pi u), ... (18).

    Parameters
    ----------
    u : float array (m,)
        On [0, 1].
    terms : int
        How many functions, at least 1.

    Returns
    -------
    float array (m, terms)

    Examples
    --------
    >>> trigonometric_density_function([0.0, 0.25], 3).round(3) + 0.0
    array([[1.   , 1.414, 0.   ],
           [1.   , 0.   , 1.414]])
    """
    u = np.asarray(u, dtype=np.float64)
    values = np.ones((*u.shape, terms))
    turn = np.exp(2j * np.pi * u)
    power = np.ones_like(turn)

    for term in range(1, terms, 2):
        power = power * turn
        values[..., term] = SQRT_2 * power.real

        if term + 1 < terms:
            values[..., term + 1] = SQRT_2 * power.imag

    return values


@dataclass(frozen=True, slots=True, kw_only=True)
class DensityFunction:
    """Public: a density on [lower, upper], with its standard errors.

    Parameters
    ----------
    lower, upper : float
        The declared bounds of a value.
    coefficients : tuple of float
        Of the functions of `trigonometric` from the second one on; that of the first is 1, so that
        the integral is 1.
    stderr : tuple of float
        Standard error of each.
    level : float
        Nominal coverage of the band.

    Notes
    -----
    The function can be negative where the density is close to 0: it is unbiased but for the functions left out. The
    band is of the sum of the functions that were estimated; at each point it has the nominal coverage.

    Examples
    --------
    >>> density = DensityFunction(lower=0.0, upper=24.0, coefficients=(0.5, 0.1), stderr=(0.02, 0.02), level=0.95)
    >>> density.evaluate([0.0, 12.0]).round(4), density == DensityFunction.of(density.as_dict())
    (array([0.0711, 0.0122]), True)
    >>> lower, upper = density.band([0.0])
    >>> lower.round(4), upper.round(4)
    (array([0.0688]), array([0.0734]))
    """

    lower: float
    upper: float
    coefficients: tuple[float, ...]
    stderr: tuple[float, ...]
    level: float

    def __post_init__(self) -> None:
        require(self.lower < self.upper, "lower", f"be below upper ({self.upper!r})", self.lower)
        n = len(self.coefficients)
        require(
            len(self.stderr) == n,
            "stderr",
            f"have {n} entries, as coefficients has",
            len(self.stderr),
        )

    def evaluate(self, x: npt.ArrayLike) -> Floats:
        """Evaluate the density at points in the value's unit; 0 outside of the bounds."""
        u, inside = self._unit(x)
        basis = trigonometric_density_function(u, len(self.coefficients) + 1)
        return np.asarray(
            inside * (basis @ np.array([1.0, *self.coefficients])) / (self.upper - self.lower)
        )

    def band(self, x: npt.ArrayLike) -> tuple[Floats, Floats]:
        """Evaluate the ends of the interval at each point.

        A density is not negative, so neither are they.
        """
        u, inside = self._unit(x)
        basis = trigonometric_density_function(u, len(self.coefficients) + 1)[..., 1:]
        stderr = np.sqrt((basis * np.array(self.stderr)) ** 2 @ np.ones(len(self.stderr)))
        margin = float(ndtri(0.5 * (1.0 + self.level))) * stderr / (self.upper - self.lower)
        middle = self.evaluate(x)

        return np.maximum(inside * (middle - margin), 0.0), np.maximum(
            inside * (middle + margin), 0.0
        )

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON; `of` reads it."""
        return {
            "kind": "density",
            "basis": "trigonometric",
            "lower": self.lower,
            "upper": self.upper,
            "coefficients": list(self.coefficients),
            "stderr": list(self.stderr),
            "level": self.level,
        }

    @classmethod
    def of(cls, plain: Mapping[str, Any]) -> Self:
        """Read what `as_dict` wrote."""
        rule = "be that of a density on the trigonometric basis"
        kind = plain.get("kind"), plain.get("basis")
        require(kind == ("density", "trigonometric"), "function", rule, kind)
        return cls(
            lower=float(plain["lower"]),
            upper=float(plain["upper"]),
            coefficients=tuple(map(float, plain["coefficients"])),
            stderr=tuple(map(float, plain["stderr"])),
            level=float(plain["level"]),
        )

    def _unit(self, x: npt.ArrayLike) -> tuple[Floats, Any]:
        u = (np.asarray(x, dtype=np.float64) - self.lower) / (self.upper - self.lower)
        return np.clip(u, 0.0, 1.0), (u >= 0.0) & (u <= 1.0)


MAX_TERMS = 1024
MAX_SMOOTHNESS = 64
"""The left-out part is the radius by a power of the terms: beyond this it is no number, and nothing
is left out."""


class Density(CoordinateMeans):
    """Density of the samples on the declared bounds, as a sum of trigonometric functions.

    Released to the statistician: what `Linf` releases, about the coefficients of the functions
    instead of coordinates. Answers the coefficients, with intervals, and the density as a function
    (`Estimate.function`): its integral is 1 and it has a band. It is the average of the users' own
    densities: every user counts once.

    Parameters
    ----------
    epsilon, users, sizes, mode, level, participation, between_users, seed
        As in `Linf`.
    smoothness : int, default 2
        How often the density can be differentiated (beta); decides the number of functions.
    radius : float, default 1
        Radius r of the ball of densities `sum j**(2 beta) theta_j**2 <= r**2`; `describe` tells the
        squared error that leaving functions out makes at most.
    terms : int, optional
        Number M of functions, the constant one included, instead of the one that the smoothness
        decides (45).
    constant_beta : float, default 1
        C_beta of (45), which the paper leaves open.
    threshold, constant, votes, half_width, variance
        As in `Kent`; the coefficients are divided by sqrt(2), so that they are on [-1, 1]. A
        function's values have mean square 1 / 2 or less for a flat density, and at most 1 (the
        default) for any.

    Notes
    -----
    **Privacy.** User-level, local, epsilon: that of `Linf` for any features of the samples; see `FoldRound`.

    The coefficient of the constant function is 1 for every density: no one is queried about it. A
    density is periodic here: one that differs at the two bounds has coefficients that fall off
    slowly.

    Raises
    ------
    ValueError
        If an option is out of range, or there are less than two users for each function.

    Examples
    --------
    >>> from meanstream.operators.rounds.user_sizes import SizeDistribution
    >>> sizes = SizeDistribution.parse("point:100")
    >>> density = Density(epsilon=4.0, users=4000, sizes=sizes, smoothness=2)
    >>> density.terms, density.features(np.array([[-1.0], [0.0]]))[:, :2].round(3) + 0.0
    (13, array([[ 1.,  0.],
           [-1.,  0.]]))

    References
    ----------
    A. Kent, T. Berrett, Y. Yu: Rate optimality and phase transition for user-level local differential privacy,
    Algorithm 8.
    """

    name = "kent.density"
    answers = "density"
    features_of = "functions"
    estimand = (
        "density of samples, the average of each user's own: every user counts once; as coefficients of functions."
        " The predicted error is relative to a flat density, without that of the functions left out"
    )
    options = FOLD_OPTIONS | {"smoothness", "radius", "terms", "constant_beta", "variance"}

    @classmethod
    def family_options(cls, ask: FamilyQuestion) -> dict[str, Any] | None:
        """Every density."""
        if ask.wanted != cls.answers:
            return None
        return vector_spread(ask) | {"smoothness": 2 if ask.smoothness is None else ask.smoothness}

    @classmethod
    def family_assumes(
        cls, ask: FamilyQuestion, options: Mapping[str, Any], described: Mapping[str, Any]
    ) -> str:
        """As of the others, and smoothness."""
        smooth = f"; {options.get('smoothness')} derivatives, the same at both bounds"
        return super().family_assumes(ask, options, described) + smooth

    def __init__(
        self,
        *,
        epsilon: float,
        users: int,
        sizes: SizeDistribution | None = None,
        mode: str = "tuned",
        level: float = 0.95,
        smoothness: int = 2,
        radius: float = 1.0,
        terms: int | None = None,
        constant_beta: float = 1.0,
        threshold: str | int = "min",
        **options: Any,
    ) -> None:
        settings = Settings(
            method=self.name, epsilon=epsilon, users=users, sizes=sizes, mode=mode, level=level
        )
        require(
            smoothness >= 1 and smoothness == int(smoothness),
            "smoothness",
            "be an integer, at least 1",
            smoothness,
        )

        require(
            smoothness <= MAX_SMOOTHNESS, "smoothness", f"be at most {MAX_SMOOTHNESS}", smoothness
        )
        require_positive(radius=radius, constant_beta=constant_beta)
        self.smoothness = smoothness
        self.radius = radius
        size = kent_univariate_threshold_size(threshold, settings.known_sizes)

        if terms is None:
            terms = density_terms(users * epsilon**2, size, smoothness, constant_beta)
            terms = min(terms, MAX_TERMS, max(users // 2, 2))

        require(2 <= terms <= MAX_TERMS, "terms", f"lie between 2 and {MAX_TERMS}", terms)
        self.terms = terms
        super().__init__(settings, terms - 1, threshold=threshold, **options)

    def features(self, values: Floats) -> Floats:
        """Private: the functions of each sample, divided by sqrt(2).

        (m, 1) on [-1, 1] to (m, terms - 1).
        """
        u = 0.5 * (np.clip(values[:, 0], -1.0, 1.0) + 1.0)
        return np.asarray(
            np.clip(trigonometric_density_function(u, self.terms)[:, 1:] / SQRT_2, -1.0, 1.0)
        )

    def _finish(self, found: Sequence[Estimate], known: FoldsFound, users: int) -> Estimate:
        plain = super()._finish(found, known, users)
        function = DensityFunction(
            lower=-1.0,
            upper=1.0,
            coefficients=tuple((SQRT_2 * plain.value).tolist()),
            stderr=tuple((SQRT_2 * plain.stderr).tolist()),
            level=self._settings.level,
        )

        scaled = {
            name: SQRT_2 * getattr(plain, name)
            for name in ("value", "lower", "upper", "unclipped", "stderr")
        }
        estimate = vector_estimate(self._settings, users=users, stages=plain.stages, **scaled)

        return replace(estimate, function=function.as_dict())

    def describe(self) -> dict[str, Any]:
        """Public: parameters chosen.

        `predicted_stderr` is the root of the integrated error, `left_out` apart.
        """
        said = super().describe()
        return said | {
            "smoothness": self.smoothness,
            "radius": self.radius,
            "terms": self.terms,
            "left_out": (self.radius / (self.terms + 1) ** self.smoothness) ** 2,
            "predicted_stderr": SQRT_2 * float(said["predicted_stderr"]),
        }


def density_terms(signal: float, size: int, smoothness: int, constant_beta: float = 1.0) -> int:
    """Compute the number M of functions (45), at least 2.

    Parameters
    ----------
    signal : float
        `users * epsilon**2`.
    size : int
        Number T of samples of each user.
    smoothness : int
    constant_beta : float

    Examples
    --------
    >>> [density_terms(64_000.0, size, 2) for size in (1, 100, 10**9)]
    [6, 13, 199]
    """
    log = max(math.log(signal), 1.0) * constant_beta
    log_size = (2 * smoothness + 1) * math.log(signal) - (2 * smoothness + 2) * math.log(log)
    exponent = (math.log(signal) + min(math.log(size), log_size)) / (2 * smoothness + 2)
    return max(math.floor(math.exp(min(exponent, 50.0))), 2)

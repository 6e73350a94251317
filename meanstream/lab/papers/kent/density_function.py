"""A density as a sum of trigonometric functions: what is released of it, and how to evaluate it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from scipy.special import ndtri

from meanstream.operators.records import Floats
from meanstream.operators.validation import require

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
    found = np.ones((*u.shape, terms))
    turn = np.exp(2j * np.pi * u)
    power = np.ones_like(turn)

    for place in range(1, terms, 2):
        power = power * turn
        found[..., place] = SQRT_2 * power.real

        if place + 1 < terms:
            found[..., place + 1] = SQRT_2 * power.imag

    return found


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
        found = plain.get("kind"), plain.get("basis")
        require(found == ("density", "trigonometric"), "function", rule, found)
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

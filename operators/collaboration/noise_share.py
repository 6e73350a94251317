"""How much of what is not known of a fitted population is privacy noise, and how much of an answer is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Self

import numpy as np

from meanstream.operators.records import Floats

_SPREADS = 40
_LEAST = 1e-18


@dataclass(frozen=True, slots=True)
class NoiseShare:
    """Public: what privacy noise does to a center and a spread that are fitted to releases, by the spread.

    Attributes
    ----------
    spread : float array, shape (n,)
        Tabled spreads of the means, ascending.
    center : float array, shape (n,)
        Part of the center's variance that is privacy noise, in [0, 1].
    squared_spread : float array, shape (n,)
        Variance of the squared spread that is privacy noise.

    Notes
    -----
    With `W_b = V_b + spread^2` for releases of variance `V_b`, the center weighs each by `1 / W_b`: its noise has the
    variance `sum noise_b / W_b^2` over the squared sum of the weights. Squares around it have the variance `2 W_b^2`,
    without noise `2 (W_b - noise_b)^2`; the squared spread weighs them by `1 / W_b^2`, and varies by at most itself.

    Examples
    --------
    >>> share = NoiseShare.of(np.ones(2), noise=np.array([3.0, 3.0]), total=np.array([4.0, 4.0]), width=100.0)
    >>> share.of_center(np.array([0.0, 2.0])).round(2).tolist()
    [0.75, 0.38]
    """

    spread: Floats
    center: Floats
    squared_spread: Floats

    @classmethod
    def of(cls, number: Floats, *, noise: Floats, total: Floats, width: float) -> Self:
        """Tabulate it for releases in groups.

        How many, variance of the noise, and variance in all.
        """
        if not len(number):
            return cls(np.zeros(1), np.zeros(1), np.zeros(1))
        spread = np.append(0.0, np.geomspace(1e-5, 1.0, _SPREADS))  # in widths, as all below
        variance = np.maximum(total / width**2, _LEAST) + spread[:, None] ** 2
        noisy = np.minimum(noise / width**2 / variance, 1.0)
        precision = number / variance
        center = (precision * noisy).sum(axis=1) / precision.sum(axis=1)
        squares = 2 * (precision / variance * (1 - (1 - noisy) ** 2)).sum(axis=1)
        squares /= (precision / variance).sum(axis=1) ** 2

        return cls(
            width * spread,
            np.asarray(center),
            (width**4 * np.minimum(squares, spread**4)),
        )

    def of_center(self, spread: Floats) -> Floats:
        """Interpolate the part of the center's variance."""
        return np.interp(spread, self.spread, self.center)

    def of_squared_spread(self, spread: Floats) -> Floats:
        """Interpolate the variance of the squared spread."""
        return np.interp(spread, self.spread, self.squared_spread)


class FittedNoise(NamedTuple):
    """Variance of the privacy noise in a fitted center and in the squared spread, and the latter.

    Each one or by agent.
    """

    center: Floats | float
    squared_spread: Floats | float
    around: Floats | float = 0.0

    def half_width(self, half_width: Floats, posterior: Floats, own: Floats) -> Floats:
        """Half-width of the part of each answer's interval that is privacy noise, to first order.

        Parameters
        ----------
        half_width, posterior, own : float array, shape (n,)
            Half-width of the interval, variance of the answer, and that of the agent's own mean.

        Notes
        -----
        An answer that keeps the share `1 - b` of the own mean takes `b` of the center, with its noise. The noise in the
        spread moves `b = own / (own + spread^2)`, on average over agents by `b^3 / own` times its
        variance. Where some models have classes, an answer may take more of a center than that.

        Examples
        --------
        >>> one = np.ones(1)
        >>> FittedNoise(0.04, 0.0).half_width(2.0 * one, 0.25 * one, one).round(3).tolist()
        [0.6]
        """
        taken = 1.0 - np.clip(posterior / own, 0.0, 1.0)
        moved = np.minimum(taken, own / (own + self.around))
        noise = taken**2 * self.center + moved**3 * self.squared_spread / own
        return half_width * np.sqrt(np.clip(noise / posterior, 0.0, 1.0))


NO_NOISE = FittedNoise(0.0, 0.0)

"""The page that the default begins with: one normal prior, and all that releases leave open about it.

Everything here reads releases only, so it is post-processing: it spends nothing and its results are
public.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple, Self

import numpy as np

from meanstream.operators.collaboration.release_law import release_law
from meanstream.operators.records import Bools, Floats, Ints

SLOPE = 1.0
"""Prior standard deviation of the trend per decade of the count, in spreads."""
UNTOLD = 0.025
GOES_ON = 0.5
"""Share of the information, on either side, beyond whose counts the trend may not go on; and the
probability that it does."""
FLAT_POWER = 3.0
"""Power of the spread that is flat before: with 1, values are 1 % better on average, and up to 10 %
worse than alone where noise hides a wide spread."""
LEAST_SPREAD = 0.002
MOST_SPREAD = 0.4
"""Spreads that are tried, in widths of the bounds; less where releases are more precise than
that."""
SPREADS = 24
FINER = 16
"""Points of the grid, and of a finer one where few of these have any weight."""
STEEPER = (0.2, 0.4)
"""By how many decades the spread may fall with each decade of the count, if it does."""
STRONG = 20.0
"""Odds of that against the same spread for all, from which on it is believed."""
ROOM = 3
"""Points of the grid to either side of the likely ones, among which such spreads are looked for."""
NEGLIGIBLE = 1e-4
_STEPS = 30
_CONVERGED = 1e-6
_LEAST_STEP = 1e-3


@dataclass(frozen=True, slots=True)
class ReleaseCells:
    """Public: releases, one by one or counted in cells; shape (n,).

    Mean, number of samples (infinite where noise is all), variance of the noise, Laplace draws in
    it, variance of what the cell rounds by, and how many releases the entry stands for.
    """

    mean: Floats
    count: Floats
    noise_variance: Floats
    terms: Ints
    rounding: Floats
    weight: Floats

    def take(self, which: Bools) -> ReleaseCells:
        """Select entries."""
        return ReleaseCells(
            self.mean[which],
            self.count[which],
            self.noise_variance[which],
            self.terms[which],
            self.rounding[which],
            self.weight[which],
        )

    def followed_by(self, *others: ReleaseCells) -> ReleaseCells:
        """Append the entries of others."""
        cells = (self, *others)
        return ReleaseCells(
            np.concatenate([each.mean for each in cells]),
            np.concatenate([each.count for each in cells]),
            np.concatenate([each.noise_variance for each in cells]),
            np.concatenate([each.terms for each in cells]),
            np.concatenate([each.rounding for each in cells]),
            np.concatenate([each.weight for each in cells]),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class NormalPrior:
    """Public: means given n are `N(c + d l, (tau 10^(-falls l))^2)`, l = log10 n less its middle.

    One entry for each spread tau.

    Attributes
    ----------
    spread : float array, shape (k,)
    probability : float array, shape (k,)
        Posterior probability of each spread.
    coefficient, covariance : float array, shape (k, 2), (k, 2, 2)
        Posterior of c and d.
    falls : float
        Decades by which the spread falls with each decade of the count; `spread` is that where l is
        0.
    middle : float
        Mean of log10 n, by what each release says.
    ends : (float, float)
        Between these log10 n, less the middle, releases tell of the trend.
    lower, upper : float
        Declared bounds.
    """

    spread: Floats
    probability: Floats
    coefficient: Floats
    covariance: Floats
    falls: float
    middle: float
    ends: tuple[float, float]
    lower: float
    upper: float

    def center(self, count: Floats, *, goes_on: bool = True) -> tuple[Floats, Floats]:
        """Give the center of the means at each count, and its variance, shape (k, len(count)).

        Beyond the counts that releases tell of, the trend goes on, or the center stays and may go
        anywhere as fast as a trend may before: what large counts show says little of agents of
        three samples.
        """
        # Beyond the ends the center stays, and may go as fast as a trend may.
        log_count = np.log10(count) - self.middle
        away = log_count if goes_on else np.clip(log_count, *self.ends)
        center = self.coefficient[:, :1] + self.coefficient[:, 1:] * away
        variance = (
            self.covariance[:, 0, 0][:, None]
            + 2 * self.covariance[:, 0, 1][:, None] * away
            + self.covariance[:, 1, 1][:, None] * away**2
            + np.multiply.outer((SLOPE * self.spread) ** 2, (log_count - away) ** 2)
        )

        return np.clip(center, self.lower, self.upper), variance

    def components(self, count: Floats) -> tuple[Floats, Floats, Floats]:
        """Give weights, centers and variances of normal components at each count, shape (2 k, len(count)).

        The trend goes on as likely as not. Between the counts that releases tell of both are the
        same; the second half has no weight there.
        """
        # Within the ends both halves are the same, and the first has all the weight.
        log_count = np.log10(count) - self.middle
        inside = (log_count >= self.ends[0]) & (log_count <= self.ends[1])
        parts = [self.center(count, goes_on=goes_on) for goes_on in (True, False)]
        share = np.stack([np.where(inside, 1.0, GOES_ON), np.where(inside, 0.0, 1 - GOES_ON)])

        weight = (share[:, None] * self.probability[:, None]).reshape(-1, len(count))
        center = np.concatenate([center for center, _ in parts])
        around = np.tile(np.multiply.outer(self.spread, self.falling(count)) ** 2, (2, 1))
        return weight, center, around + np.concatenate([variance for _, variance in parts])

    def falling(self, count: Floats) -> Floats:
        """Give the spread at each count, in spreads where l is 0; it stays beyond the ends."""
        away = np.clip(np.log10(count) - self.middle, *self.ends)
        return 10 ** (-self.falls * away)

    @property
    def center_variance(self) -> float:
        """Variance of the center where most releases are, over all spreads."""
        # Spreads of different size have different centers, too.
        center = self.coefficient[:, 0]
        apart = center - self.probability @ center
        return float(self.probability @ (self.covariance[:, 0, 0] + np.square(apart)))

    @property
    def without_trend(self) -> float:
        """Posterior probability that means do not go with counts, of one half before (Savage, Dickey)."""
        # Density of d = 0 after over before: the odds that there is no trend.
        before = (SLOPE * self.spread) ** 2
        after = self.covariance[:, 1, 1]
        log_odds = 0.5 * np.log(before / after) - 0.5 * self.coefficient[:, 1] ** 2 / after
        return float(self.probability @ (1 / (1 + np.exp(-np.clip(log_odds, -500, 500)))))

    @classmethod
    def fit(
        cls, cells: ReleaseCells, sample_variance: float, *, lower: float, upper: float
    ) -> Self:
        """Fit it to releases.

        Parameters
        ----------
        cells : ReleaseCells
            At least one release with a positive variance.
        sample_variance : float
            Of one sample.
        lower, upper : float
            Declared bounds of a sample.

        Notes
        -----
        A release of n samples is `N(c + d l, tau^2 + v / n)` plus noise of its own law
        (`release_law`); that it lies in a cell of width h is nearly the density of it with a normal
        error of variance `h^2 / 12`. Before, c is normal about the middle of the bounds with half
        their width, d is normal about 0 with one spread per decade, and the cube of tau is flat,
        so that where noise hides the spread no one is shrunk by much. For each tau on a grid, c and
        d are found by Newton's method; their posterior is normal by Laplace's approximation, as is
        the evidence.
        """
        # In widths of the bounds, so that one grid fits all.
        width = upper - lower
        scaled = _Scaled.of(cells, sample_variance, lower, width)
        precise = 0.3 * float(np.sqrt(scaled.variance + scaled.noise_variance).min())
        low = min(LEAST_SPREAD, max(precise, 1e-9))
        spreads = np.concatenate([[low / 4], np.geomspace(low, MOST_SPREAD, SPREADS)])
        fits = scaled.fits(spreads)

        # One spread for all, unless releases say plainly that it goes with counts.
        likely = _likely(fits)
        near = spreads[max(likely[0] - ROOM, 0) : likely[-1] + ROOM + 1]
        best = _log_total(fits, spreads) + np.log(STRONG)

        for falls in STEEPER:
            steeper = replace(scaled, falls=falls)
            of_steeper = steeper.fits(near)
            total = _log_total(of_steeper, near)
            if total > best:
                best, scaled, fits, spreads = total, steeper, of_steeper, near

        # A posterior that is narrow on the grid is fitted once more, on a finer one.
        likely = _likely(fits)
        if likely[0] > 0 and likely[-1] - likely[0] < SPREADS / 3:
            last = len(spreads) - 1
            ends = spreads[max(likely[0] - 1, 0)], spreads[min(likely[-1] + 1, last)]
            spreads = np.geomspace(*ends, FINER)
            fits = scaled.fits(spreads)

        # Flat in a power of tau, on a grid that is even in its logarithm.
        evidence = _log_weight(fits, spreads)
        probability = np.exp(evidence - evidence.max())
        probability /= probability.sum()
        average = float(probability @ spreads)
        kept = probability > NEGLIGIBLE * probability.max()

        # Back to the value's unit.
        coefficient = width * fits.coefficient[kept]
        coefficient[:, 0] += lower

        return cls(
            spread=width * spreads[kept],
            probability=probability[kept] / probability[kept].sum(),
            coefficient=coefficient,
            covariance=width**2 * fits.covariance[kept],
            falls=scaled.falls,
            middle=scaled.middle,
            ends=scaled.ends(average),
            lower=lower,
            upper=upper,
        )


class _Fits(NamedTuple):
    """By spread: logarithm of the evidence, and the posterior of the coefficients."""

    evidence: Floats
    coefficient: Floats
    covariance: Floats


def _likely(fits: _Fits) -> Ints:
    """Places of the spreads that have any weight."""
    return np.flatnonzero(fits.evidence > fits.evidence.max() + np.log(NEGLIGIBLE))


def _log_weight(fits: _Fits, spreads: Floats) -> Floats:
    """Logarithm of evidence times prior, by spread."""
    return fits.evidence + FLAT_POWER * np.log(spreads)


def _log_total(fits: _Fits, spreads: Floats) -> float:
    """Logarithm of the evidence of all spreads together."""
    return float(np.logaddexp.reduce(_log_weight(fits, spreads)))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Scaled:
    """Releases in widths from the lower bound.

    `away` is log10 of their counts less the middle, `variance` that of their samples, and of the
    cells.
    """

    mean: Floats
    away: Floats
    variance: Floats
    noise_variance: Floats
    terms: Ints
    weight: Floats
    middle: float
    falls: float = 0.0

    @classmethod
    def of(cls, cells: ReleaseCells, sample_variance: float, lower: float, width: float) -> Self:
        variance = (sample_variance / cells.count + cells.rounding) / width**2
        noise = cells.noise_variance / width**2
        counted = np.where(np.isfinite(cells.count), cells.count, 1.0)
        logs = np.log10(counted)

        # What a release says of a center, for a spread of a twentieth of the width.
        says = cells.weight / (variance + noise + 0.0025)
        middle = float((says * logs).sum() / says.sum())

        return cls(
            mean=(cells.mean - lower) / width,
            away=logs - middle,
            variance=variance,
            noise_variance=noise,
            terms=cells.terms,
            weight=cells.weight,
            middle=middle,
        )

    def ends(self, spread: float) -> tuple[float, float]:
        """Give the counts between which nearly all that releases tell of centers lies."""
        order = np.argsort(self.away, kind="stable")
        says = self.weight / (self.variance + self.noise_variance + spread**2)
        below = np.cumsum(says[order]) / says.sum()
        last = len(order) - 1
        low, high = np.minimum(np.searchsorted(below, [UNTOLD, 1 - UNTOLD]), last)

        return float(self.away[order[low]]), float(self.away[order[high]])

    def fits(self, spreads: Floats) -> _Fits:
        """Fit center and trend for each spread, the widest first: each begins where the last one ended."""
        evidence = np.empty(len(spreads))
        coefficient = np.empty((len(spreads), 2))
        covariance = np.empty((len(spreads), 2, 2))
        start = np.array([0.5, 0.0])

        for k in range(len(spreads) - 1, -1, -1):
            start, at_top, information = self._newton(float(spreads[k]), start)
            determinant = information[0] * information[2] - information[1] ** 2
            inverse = np.array(
                [[information[2], -information[1]], [-information[1], information[0]]]
            )
            before = self._precision(float(spreads[k]))
            evidence[k] = at_top + 0.5 * float(np.log(before).sum() - np.log(determinant))
            coefficient[k] = start
            covariance[k] = inverse / determinant

        return _Fits(evidence, coefficient, covariance)

    @staticmethod
    def _precision(spread: float) -> Floats:
        return np.array([4.0, 1 / (SLOPE * spread) ** 2])

    def _newton(self, spread: float, start: Floats) -> tuple[Floats, float, Floats]:
        """Find the likeliest coefficients; give them, their log posterior, and the information there."""
        value, gradient, information = self._at(start, spread)
        for _ in range(_STEPS):
            determinant = information[0] * information[2] - information[1] ** 2
            step = (
                np.array(
                    [
                        information[2] * gradient[0] - information[1] * gradient[1],
                        information[0] * gradient[1] - information[1] * gradient[0],
                    ]
                )
                / determinant
            )

            if float((gradient * step).sum()) < _CONVERGED:
                break

            size = 1.0
            following = self._at(start + step, spread)
            while following[0] < value and size > _LEAST_STEP:
                size /= 2
                following = self._at(start + size * step, spread)

            start = start + size * step
            value, gradient, information = following

        return start, value, information

    def _at(self, coefficient: Floats, spread: float) -> tuple[float, Floats, Floats]:
        """Log posterior of the coefficients, its gradient, and its information: three entries of a symmetric matrix."""
        before = self._precision(spread)
        apart = coefficient - np.array([0.5, 0.0])
        law = release_law(
            self.mean - coefficient[0] - coefficient[1] * self.away,
            self.variance + (spread * 10 ** (-self.falls * self.away)) ** 2,
            self.noise_variance,
            self.terms,
        )

        value = float((self.weight * law.log_density).sum() - 0.5 * (before * apart**2).sum())
        pull = -self.weight * law.score
        gradient = np.array([pull.sum(), (pull * self.away).sum()]) - before * apart

        bent = self.weight * np.maximum(law.curvature, 0.0)
        information = np.array([bent.sum(), (bent * self.away).sum(), (bent * self.away**2).sum()])
        information[0] += before[0]
        information[2] += before[1]

        return value, gradient, information

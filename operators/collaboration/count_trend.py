"""How the agents' means go with their public counts.

A trend, and a spread that may go with the count too.

Everything here reads releases only, so it is post-processing: it spends nothing and its results are
public.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Self

import numpy as np

from meanstream.operators.collaboration.noise_share import NoiseShare
from meanstream.operators.collaboration.variance.variance_posterior import VariancePosterior
from meanstream.operators.records import Floats, Ints

LEVEL = 0.5
"""Prior standard deviation of the trend's level, in widths of the bounds."""
BENDING = ((0.5, 0.2, 0.0), (1.0, 0.4, 0.3), (3.0, 1.5, 1.0))
"""Prior standard deviations of the trend per decade of the count and per its square, and of a
random walk per decade around that line, in units of the spread: a trend of one spread per decade is
large, whatever the bounds are,"""
BENDING_SHARE = (0.8, 0.15, 0.05)
"""and the prior probability of each."""
SPREAD_SLOPES = (-0.5, -0.25, 0.0, 0.25, 0.5)
"""Powers of the count that the spread may be proportional to,"""
SPREAD_SLOPE_SHARE = (0.05, 0.15, 0.6, 0.15, 0.05)
"""and the prior probability of each."""
KNOT = 0.5
REACH = 3.0
"""The random walk is linear between knots that many decades apart, and ends that many decades from
the middle."""
UNTOLD = 0.025
"""Between the counts that leave this share of the information out on either side the trend bends;
beyond, it is a line: what large counts show of a bend says nothing of agents of three samples."""
NEGLIGIBLE = 1e-4
"""Models less likely than this, relative to the best, are left out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CountGroups:
    """Public: releases of like count and noise, summed up; shape (n_groups,).

    Attributes
    ----------
    number : float array
        Releases in the group.
    mean, squares : float array
        Mean of the released means, and their sum of squared deviations from it.
    count : float array
        Samples in each release.
    noise_variance : float array
        Variance of the privacy noise.
    """

    number: Floats
    mean: Floats
    squares: Floats
    count: Floats
    noise_variance: Floats

    @property
    def total(self) -> float:
        """Number of releases."""
        return float(self.number.sum())

    def with_variance(self, sample_variance: float) -> CountGroups:
        """Leave out releases that vary by nothing.

        They say that they know the mean, and no noise does.
        """
        some = sample_variance / self.count + self.noise_variance > 0
        return CountGroups(
            **{field.name: getattr(self, field.name)[some] for field in fields(self)}
        )

    def noise_share(self, sample_variance: float, width: float) -> NoiseShare:
        """Give the part of a center's variance that is privacy noise."""
        total = sample_variance / self.count + self.noise_variance
        return NoiseShare.of(self.number, noise=self.noise_variance, total=total, width=width)


@dataclass(frozen=True, slots=True, kw_only=True)
class CountTrend:
    """Public: means given the count, `N(f(n), tau(n)^2)`, averaged over everything that the releases leave open.

    Attributes
    ----------
    weight : float array, shape (n_models,)
        Posterior probability of each model.
    coefficient, covariance : float array, shape (n_models, d), (n_models, d, d)
        Posterior of the coefficients of `f`, in widths from the middle of the bounds.
    spread, spread_slope : float array, shape (n_models,)
        `tau(n) = spread * 10 ** (spread_slope * (log10 n - middle - pivot))`, at most half the
        width; between `bends` only.
    middle : float
        Mean of log10 n over the releases.
    pivot : float
        Mean of log10 n, from the middle, over what the releases show of the spread.
    bends : tuple of float
        Between which log10 n, from the middle, the trend bends; beyond it is a line.
    lower, upper : float
        Declared bounds of a sample.
    """

    weight: Floats
    coefficient: Floats
    covariance: Floats
    spread: Floats
    spread_slope: Floats
    middle: float
    pivot: float
    bends: tuple[float, float]
    lower: float
    upper: float

    def predict(self, count: Floats) -> tuple[Floats, Floats, Floats]:
        """Give each model's center of an agent's mean, its variance, and the spread, shape (n_models, n).

        The variance is that of the spread and of what is not known of the trend; far from all
        releases it is wide.
        """
        width = self.upper - self.lower
        x = np.log10(count) - self.middle
        basis = _basis(x, self.bends)
        center = np.clip(
            (self.lower + self.upper) / 2 + width * (self.coefficient @ basis.T),
            self.lower,
            self.upper,
        )
        unknown = np.einsum("nd,mde,ne->mn", basis, self.covariance, basis, optimize=True)
        away = np.clip(x, *self.bends) - self.pivot
        spread = _spread_at(self.spread, self.spread_slope, away, most=width / 2)

        return center, spread**2 + width**2 * unknown, spread

    def described(self, count: Floats) -> Floats:
        """Give the mean of the means, its standard deviation, and their spread, averaged over models, shape (3, n)."""
        center, variance, spread = self.predict(count)
        mean = self.weight @ center
        unknown = self.weight @ (variance - spread**2 + (center - mean) ** 2)
        return np.stack([mean, np.sqrt(np.maximum(unknown, 0.0)), self.weight @ spread])


@dataclass(frozen=True, slots=True, kw_only=True)
class TrendFit:
    """All models of one population: their log evidences, and those of the same without any trend.

    Attributes
    ----------
    trend : CountTrend
    log_evidence : float
        Of all models together.
    log_flat : float
        Of those whose center and spread are the same for all counts.
    """

    trend: CountTrend
    log_evidence: float
    log_flat: float

    @classmethod
    def of(
        cls,
        groups: CountGroups,
        pool: VariancePosterior,
        spreads: Floats,
        log_prior: Floats,
        *,
        spread: float,
        lower: float,
        upper: float,
    ) -> Self:
        """Integrate over the coefficients in closed form, and over spreads and the variance of a sample on a grid.

        Parameters
        ----------
        groups : CountGroups
        pool : VariancePosterior
            What is known of the variance of one sample: few points.
        spreads, log_prior : float array, shape (n_spreads,)
            Positive spreads, and the logarithm of the prior probability of each: where the releases
            show a spread. Elsewhere a spread that goes with the count would be likelier before,
            because it may be greater there.
        spread : float
            Squared spread of all means, about.
        lower, upper : float
            Declared bounds of a sample.
        """
        width = upper - lower
        x = np.log10(groups.count)
        middle = float(np.average(x, weights=groups.number))
        x = x - middle
        grid = [
            a.ravel() for a in np.meshgrid(pool.variance, spreads, SPREAD_SLOPES, indexing="ij")
        ]
        prior = np.add.outer(
            np.add.outer(np.log(pool.weight), log_prior), np.log(SPREAD_SLOPE_SHARE)
        ).ravel()

        around = pool.weight @ pool.variance / groups.count + groups.noise_variance
        bends = _informed(x, groups.number / around)
        pivot = float(
            np.average(np.clip(x, *bends), weights=groups.number / (around + spread) ** 2)
        )
        tau = _spread_at(grid[1], grid[2], np.clip(x, *bends) - pivot, most=width / 2)
        variance = (grid[0][:, None] / groups.count + groups.noise_variance + tau**2) / width**2

        normal = _Normal.of(
            groups, variance, _basis(x, bends), middle=(lower + upper) / 2, width=width
        )
        models = [normal.posterior(*_prior_stddev(bend, grid[1] / width)) for bend in BENDING]
        # The evidence is a density per release, in the value's unit: the same as that of other
        # models.
        log_evidence = np.stack(
            [m[0] + prior + np.log(p) for m, p in zip(models, BENDING_SHARE, strict=True)]
        )

        still = grid[2] == 0.0
        flat = (normal.posterior(*_prior_stddev(None, grid[1] / width))[0] + prior)[still]
        flat -= np.log(SPREAD_SLOPE_SHARE[SPREAD_SLOPES.index(0.0)])

        top = log_evidence.max()
        weight = np.exp(log_evidence - top)
        used = weight > NEGLIGIBLE

        of_bend, of_grid = np.nonzero(used)
        trend = CountTrend(
            weight=weight[used] / weight[used].sum(),
            coefficient=np.stack([m[1] for m in models])[of_bend, of_grid],
            covariance=np.stack([m[2] for m in models])[of_bend, of_grid],
            spread=grid[1][of_grid],
            spread_slope=grid[2][of_grid],
            middle=middle,
            pivot=pivot,
            bends=bends,
            lower=lower,
            upper=upper,
        )

        return cls(
            trend=trend,
            log_evidence=float(top + np.log(weight.sum())),
            log_flat=float(flat.max() + np.log(np.exp(flat - flat.max()).sum())),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Normal:
    """Normal equations of the weighted regression of every model of a grid, in widths.

    Leading axis models.
    """

    squares: Floats
    moment: Floats
    information: Floats

    @classmethod
    def of(
        cls, groups: CountGroups, variance: Floats, basis: Floats, *, middle: float, width: float
    ) -> Self:
        mean = (groups.mean - middle) / width
        precision = 1 / variance
        squares = groups.squares / width**2 + groups.number * mean**2
        log_norm = np.log(2 * np.pi * variance) @ groups.number
        d = basis.shape[1]
        outer = (basis[:, :, None] * basis[:, None, :]).reshape(len(mean), d * d) * groups.number[
            :, None
        ]

        return cls(
            squares=-0.5 * (log_norm + precision @ squares) - np.log(width) * groups.number.sum(),
            moment=precision @ (basis * (groups.number * mean)[:, None]),
            information=(precision @ outer).reshape(-1, d, d),
        )

    def posterior(self, use: Ints, stddev: Floats) -> tuple[Floats, Floats, Floats]:
        """Log evidence, mean and covariance of the coefficients.

        Of those in `use`, shape (d,), the others are 0.

        `stddev` are those of their prior, shape (n_models, d). The coefficients are solved for in
        units of it: where it is nearly 0, so are they.
        """
        every = np.arange(len(self.moment))
        moment = self.moment[:, use] * stddev
        precision = self.information[np.ix_(every, use, use)] * (
            stddev[:, :, None] * stddev[:, None, :]
        )

        precision += np.eye(len(use))
        covariance = np.linalg.inv(precision)
        mean = np.einsum("mde,me->md", covariance, moment)
        log_evidence = self.squares + 0.5 * (
            (mean * moment).sum(axis=1) + np.linalg.slogdet(covariance)[1]
        )
        d = self.moment.shape[1]
        full_mean = np.zeros((len(mean), d))
        full = np.zeros((len(mean), d, d))
        full_mean[:, use] = mean * stddev
        full[np.ix_(every, use, use)] = covariance * (stddev[:, :, None] * stddev[:, None, :])

        return log_evidence, full_mean, full


def _spread_at(spread: Floats, slope: Floats, away: Floats, *, most: float) -> Floats:
    """Spread of each model so many decades of the count away from the pivot, shape (n_models, n)."""
    return np.asarray(np.minimum(spread[:, None] * 10 ** (slope[:, None] * away), most))


def _prior_stddev(bend: tuple[float, float, float] | None, spread: Floats) -> tuple[Ints, Floats]:
    """Give which coefficients are not 0, and their prior standard deviations for each spread, in widths.

    They are level, slope, curvature and the steps of a random walk; without a bend the level alone.
    """
    steps = round(2 * REACH / KNOT)
    relative = (
        np.zeros(0) if bend is None else np.array([*bend[:2], *[bend[2] * np.sqrt(KNOT)] * steps])
    )
    some = np.flatnonzero(relative)
    level = np.full((len(spread), 1), LEVEL)

    return np.append(0, 1 + some), np.concatenate([level, spread[:, None] * relative[some]], axis=1)


def _informed(x: Floats, information: Floats) -> tuple[float, float]:
    """Give the ends of the range of counts that nearly all of the information is of."""
    order = np.argsort(x, kind="stable")
    below = np.cumsum(information[order])
    first, last = np.searchsorted(below, below[-1] * np.array([UNTOLD, 1 - UNTOLD]))
    return float(x[order[first]]), float(x[order[min(int(last), len(x) - 1)]])


def _basis(x: Floats, bends: tuple[float, float]) -> Floats:
    """Level, slope, curvature, and a random walk that leaves the middle in both directions, shape (n, d)."""
    bent = np.clip(x, *bends) ** 2
    knots = np.arange(0.0, REACH - 1e-9, KNOT)
    right = np.clip((x[:, None] - knots) / KNOT, 0, 1)
    left = np.clip((-x[:, None] - knots) / KNOT, 0, 1)

    return np.concatenate([np.stack([np.ones_like(x), x, bent], axis=1), right, left], axis=1)

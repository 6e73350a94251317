"""How the agents' means go with their public counts: a trend, and a spread that may go with the count too.

Everything here reads releases only, so it is post-processing: it spends nothing and its results are public.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Self

import numpy as np

from meanstream.operators.collaboration.noise_share import NoiseShare
from meanstream.operators.collaboration.variance.posterior import VariancePosterior
from meanstream.operators.records import Floats

SLOPE, CURVATURE = 0.1, 0.05
"""Prior standard deviations of the trend per decade of the count and per its square, in units of the bounds' width."""
WANDERING = (0.0, 0.01, 0.04)
"""How far the centers may stray from that line: standard deviation of a random walk per decade, in widths."""
SPREAD_SLOPES = (-0.5, -0.25, 0.0, 0.25, 0.5)
"""Powers of the count that the spread may be proportional to."""
KNOT, REACH = 0.5, 3.0
"""The random walk is linear between knots so many decades apart, and ends so many decades from the middle."""
UNTOLD = 0.025
"""Between the counts that leave this share of the information out on either side the trend bends; beyond, it is a line:
what large counts show of a bend says nothing of agents of three samples."""
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
        """Leave out releases that vary by nothing: they say that they know the mean, and no noise does."""
        some = sample_variance / self.count + self.noise_variance > 0
        return CountGroups(**{field.name: getattr(self, field.name)[some] for field in fields(self)})

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
        `tau(n) = spread * 10 ** (spread_slope * (log10 n - middle))`, at most half the width.
    middle : float
        Mean of log10 n over the releases.
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
    bends: tuple[float, float]
    lower: float
    upper: float

    def given(self, count: Floats) -> tuple[Floats, Floats, Floats]:
        """Give each model's center of an agent's mean, its variance, and the spread, shape (n_models, n).

        The variance is that of the spread and of what is not known of the trend; far from all releases it is wide.
        """
        width = self.upper - self.lower
        x = np.log10(count) - self.middle
        basis = _basis(x, self.bends)
        center = np.clip((self.lower + self.upper) / 2 + width * (self.coefficient @ basis.T), self.lower, self.upper)
        unknown = np.einsum("nd,mde,ne->mn", basis, self.covariance, basis, optimize=True)
        spread = np.minimum(self.spread[:, None] * 10 ** (self.spread_slope[:, None] * x), width / 2)
        return center, spread**2 + width**2 * unknown, spread

    def described(self, count: Floats) -> Floats:
        """Give the mean of the means, its standard deviation, and their spread, averaged over models, shape (3, n)."""
        center, variance, spread = self.given(count)
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
            Positive spreads, and the logarithm of the prior probability of each.
        lower, upper : float
            Declared bounds of a sample.
        """
        width = upper - lower
        x = np.log10(groups.count)
        middle = float(np.average(x, weights=groups.number))
        x = x - middle
        grid = [a.ravel() for a in np.meshgrid(pool.variance, spreads, SPREAD_SLOPES, indexing="ij")]
        prior = np.add.outer(np.log(pool.weight), log_prior).repeat(len(SPREAD_SLOPES)) - np.log(len(SPREAD_SLOPES))
        tau = np.minimum(grid[1][:, None] * 10 ** (grid[2][:, None] * x), width / 2)
        variance = (grid[0][:, None] / groups.count + groups.noise_variance + tau**2) / width**2
        bends = _informed(x, groups.number / (pool.weight @ pool.variance / groups.count + groups.noise_variance))
        normal = _Normal.of(groups, variance, _basis(x, bends), middle=(lower + upper) / 2, width=width)
        models = [normal.given(_prior_precision(wander)) for wander in WANDERING]
        # The evidence is a density per release, in the value's unit: the same as that of other models.
        log_evidence = np.stack([m[0] + prior - np.log(len(WANDERING)) for m in models])
        flat = normal.given(_prior_precision(0.0)[:1, :1])[0] + prior + np.log(len(SPREAD_SLOPES))
        top = log_evidence.max()
        weight = np.exp(log_evidence - top)
        used = weight > NEGLIGIBLE
        of_wander, of_grid = np.nonzero(used)
        trend = CountTrend(
            weight=weight[used] / weight[used].sum(),
            coefficient=np.stack([m[1] for m in models])[of_wander, of_grid],
            covariance=np.stack([m[2] for m in models])[of_wander, of_grid],
            spread=grid[1][of_grid],
            spread_slope=grid[2][of_grid],
            middle=middle,
            bends=bends,
            lower=lower,
            upper=upper,
        )
        still = flat[grid[2] == 0.0]
        return cls(
            trend=trend,
            log_evidence=float(top + np.log(weight.sum())),
            log_flat=float(still.max() + np.log(np.exp(still - still.max()).sum())),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Normal:
    """Normal equations of the weighted regression of every model of a grid, in widths; leading axis models."""

    squares: Floats
    moment: Floats
    information: Floats

    @classmethod
    def of(cls, groups: CountGroups, variance: Floats, basis: Floats, *, middle: float, width: float) -> Self:
        mean, precision = (groups.mean - middle) / width, 1 / variance
        squares = groups.squares / width**2 + groups.number * mean**2
        log_norm = np.log(2 * np.pi * variance) @ groups.number
        d = basis.shape[1]
        outer = (basis[:, :, None] * basis[:, None, :]).reshape(len(mean), d * d) * groups.number[:, None]
        return cls(
            squares=-0.5 * (log_norm + precision @ squares) - np.log(width) * groups.number.sum(),
            moment=precision @ (basis * (groups.number * mean)[:, None]),
            information=(precision @ outer).reshape(-1, d, d),
        )

    def given(self, prior: Floats) -> tuple[Floats, Floats, Floats]:
        """Log evidence, mean and covariance of the first coefficients, the prior precision given (0: left out)."""
        use = np.flatnonzero(np.isfinite(np.diag(prior)))
        every, moment = np.arange(len(self.moment)), self.moment[:, use]
        precision = self.information[np.ix_(every, use, use)] + prior[np.ix_(use, use)]
        covariance = np.linalg.inv(precision)
        mean = np.einsum("mde,me->md", covariance, moment)
        log_volume = np.linalg.slogdet(covariance)[1] + np.log(np.diag(prior)[use]).sum()
        log_evidence = self.squares + 0.5 * ((mean * moment).sum(axis=1) + log_volume)
        d = self.moment.shape[1]
        full_mean, full = np.zeros((len(mean), d)), np.zeros((len(mean), d, d))
        full_mean[:, use] = mean
        full[np.ix_(every, use, use)] = covariance
        return log_evidence, full_mean, full


def _prior_precision(wander: float) -> Floats:
    """Prior precision of level, slope, curvature and the steps of a random walk; infinite: a step is 0."""
    steps = round(2 * REACH / KNOT)
    stddev = np.array([0.5, SLOPE, CURVATURE] + [wander * np.sqrt(KNOT)] * steps)
    with np.errstate(divide="ignore"):
        return np.diag(1 / stddev**2)


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

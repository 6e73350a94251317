"""James and Stein's shrinkage to one common mean, learned from noisy releases: a baseline."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from meanstream.operators.collaboration.alone import FittedAlone, half_width_alone
from meanstream.operators.collaboration.joint_means import JointMeans
from meanstream.operators.collaboration.noise_share import NO_NOISE, FittedNoise, NoiseShare
from meanstream.operators.collaboration.prior.mixture_prior import FitOfBins, releases_fit_for_bins
from meanstream.operators.collaboration.prior.release_bins import ReleaseBins
from meanstream.operators.collaboration.variance.variance_posterior import (
    VariancePosterior,
    variance_posterior_typical,
)
from meanstream.operators.records import AgentEstimates, Floats, OwnMeans, ReleaseColumns

_STEPS = 60


@dataclass(frozen=True, slots=True)
class FittedJamesStein:
    """Public: one normal prior for everyone's mean, taken for known.

    Examples
    --------
    >>> own = OwnMeans(agent=np.array([0]), count=np.array([4]), mean=np.array([2.0]), variance=np.array([1.0]))
    >>> FittedJamesStein(center=0.0, variance=1.0, n_agents=9).estimate(own).value.tolist()
    [1.0]
    """

    center: float
    variance: float
    n_agents: int
    noise: FittedNoise = NO_NOISE
    center_variance: float = 0.0

    def estimate(self, own: OwnMeans, *, level: float = 0.95) -> AgentEstimates:
        """Private: each agent's mean, shrunk by what its own mean varies relative to all, for that agent only."""
        variance = np.where(np.isfinite(own.variance), own.variance, 1e300)
        keep = self.variance / np.maximum(self.variance + variance, 1e-300)
        value = self.center + keep * (own.mean - self.center)
        # Where the spread is taken for 0, what is left is that of the center, which this baseline
        # takes for known.
        posterior = np.maximum(keep * variance, 1e-12 * variance)
        half_width = half_width_alone(posterior, level)
        ones = np.ones(len(own))

        return AgentEstimates(
            value=value,
            lower=value - half_width,
            upper=value + half_width,
            level=level,
            effective_class_size=variance / posterior,
            class_size=np.full(len(own), float(self.n_agents)),
            component=np.zeros(len(own), dtype=np.int64),
            membership=ones,
            noise_half_width=self.noise.half_width(half_width, posterior, variance),
        )

    def joint(self, own: OwnMeans) -> JointMeans:
        """Give the joint posterior of these agents, whose answers share the error of the center.

        Examples
        --------
        >>> own = OwnMeans(agent=np.array([0]), count=np.array([4]), mean=np.array([2.0]), variance=np.array([1.0]))
        >>> FittedJamesStein(0.0, 1.0, 9, center_variance=0.2).joint(own).weight.tolist()
        [0.5]
        """
        variance = np.where(np.isfinite(own.variance), own.variance, 1e300)
        keep = self.variance / np.maximum(self.variance + variance, 1e-300)
        return JointMeans(
            value=self.center + keep * (own.mean - self.center),
            stddev=np.sqrt(keep * variance),
            weight=1.0 - keep,
            center_variance=self.center_variance,
        )

    def describe(self) -> dict[str, Any]:
        """Public: the prior as plain data."""
        spread = float(np.sqrt(self.variance))
        component = {"weight": 1.0, "center": self.center, "spread": spread, "center_stddev": 0.0}
        return {
            "method": JamesStein.name, "n_agents": self.n_agents, "n_components": 1, "spread": spread,
            "components": [component],
        }  # fmt: skip


@dataclass(frozen=True, slots=True)
class JamesStein(FitOfBins):
    """Shrink each agent's mean to the releases' common center by a spread that makes their squares what they are.

    Released: nothing new. It takes center and spread for known, has one component for all, and
    knows of no count: what the learned prior adds is the difference to this.

    Parameters
    ----------
    lower, upper : float
        Declared bounds of a sample, in the value's unit.

    Notes
    -----
    **Privacy.** Post-processing of the releases: it spends nothing. An answer mixes in the agent's own raw mean.

    The spread solves `sum (T_b - center)^2 / (V_b + spread^2) = M - 1`; it is 0 where the noise
    explains all.

    Examples
    --------
    >>> one = np.ones(3, dtype=np.int64)
    >>> releases = ReleaseColumns(agent=np.arange(3), index=one, count=one, total=one,
    ...                           mean=np.array([1.0, 2.0, 3.0]), noise_variance=np.full(3, 0.5))
    >>> fitted = JamesStein(0.0, 4.0).fit(releases, np.full(3, 0.5))
    >>> round(fitted.center, 6), round(fitted.variance, 6)
    (2.0, 0.5)

    References
    ----------
    Kim, Park, Jung (2026), arXiv 2606.21107: empirical Bayes of one Gaussian release. Paule, Mandel (1982) for the
    spread under unequal variances.
    """

    name: ClassVar[str] = "james_stein"

    def fit(self, releases: ReleaseColumns, variance: Floats) -> FittedJamesStein | FittedAlone:
        """Fit center and spread to the newest release of every agent, with their total variances."""
        usable = releases_fit_for_bins(releases, variance)
        used = releases.take(usable)
        total = variance[usable]
        ones = np.ones(int(usable.sum()))
        noise = NoiseShare.of(
            ones, noise=used.noise_variance, total=total, width=self.upper - self.lower
        )

        return self._fit(used.mean, total, ones, noise)

    def fit_summary(
        self, summary: ReleaseBins, sample_variance: VariancePosterior | float
    ) -> FittedJamesStein | FittedAlone:
        """Fit to all agents' bins, given the variance of one sample that they have in common."""
        typical = variance_posterior_typical(sample_variance)
        points = summary.points(typical)
        noise = summary.noise_share(typical)

        return self._fit(points.mean, points.variance, points.weight, noise)

    def _fit(
        self, mean: Floats, variance: Floats, number: Floats, noise: NoiseShare
    ) -> FittedJamesStein | FittedAlone:
        total = float(number.sum())
        if total < 2:
            return FittedAlone(self.name)
        low = 0.0
        high = ((self.upper - self.lower) / 2) ** 2

        for _ in range(_STEPS):
            middle = (low + high) / 2
            excess = _squares(mean, variance + middle, number)[1] - (total - 1)
            low, high = (middle, high) if excess > 0 else (low, middle)

        spread = 0.0 if high < 1e-12 * (self.upper - self.lower) ** 2 else high
        fitted_spread = np.sqrt([spread])
        information = float((number / (variance + spread)).sum())
        fitted = FittedNoise(
            float(noise.of_center(fitted_spread)[0]) / information,
            float(noise.of_squared_spread(fitted_spread)[0]),
        )

        return FittedJamesStein(
            center=_squares(mean, variance + spread, number)[0],
            variance=spread,
            n_agents=round(total),
            noise=fitted,
            center_variance=1.0 / information,
        )


def _squares(mean: Floats, variance: Floats, number: Floats) -> tuple[float, float]:
    """Give the weighted center, and the sum of squares around it in units of the variances."""
    weight = number / variance
    center = float(weight @ mean / weight.sum())
    return center, float(weight @ (mean - center) ** 2)

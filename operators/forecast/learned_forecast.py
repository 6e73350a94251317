"""What a prior learned from releases of given variances will err and state, by the agent's own variance."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.special import gammaincinv, ndtri

from meanstream.operators.collaboration.count_trend import CountGroups
from meanstream.operators.collaboration.local_spread import FACTORS, local_spread_doubt
from meanstream.operators.collaboration.mixture_posterior import (
    posterior_doubted_interval,
    posterior_far_half_width,
)
from meanstream.operators.collaboration.mixture_prior import USUAL
from meanstream.operators.collaboration.prior_families import TAIL, TAIL_VARIANCE
from meanstream.operators.records import Floats

_EQUAL = 1e-6
_SPREADS = 160
_OUTCOMES = 9


class LearnedErrors(NamedTuple):
    """Squared errors, and the posterior variances that answers will state, by count; shape (n,)."""

    error: Floats
    variance: Floats


@dataclass(frozen=True, slots=True)
class LearnedForecast:
    """What releases of some variances will say about center and spread of the means.

    Attributes
    ----------
    number, count, noise : float array, shape (n_groups,)
        Releases of like count: how many, of how many samples each, and the variance of the privacy
        noise.
    sampling : float
        Variance of one sample.
    spread : float
        Standard deviation of the agents' means.
    width : float
        Of the declared bounds.
    """

    number: Floats
    count: Floats
    sampling: float
    noise: Floats
    spread: float
    width: float

    @property
    def variance(self) -> Floats:
        """Of a release around its agent's mean."""
        return np.asarray(self.sampling / self.count + self.noise)

    def predict(self, own: Floats) -> LearnedErrors:
        """Predict for agents whose own means have these variances."""
        if self.number.sum() < 2:
            return LearnedErrors(own, own)
        spreads = np.append(0.0, np.geomspace(1e-4 * self.width, self.width / 2, _SPREADS))
        total = self.variance + spreads[:, None] ** 2
        information = (self.number / total).sum(axis=1)
        probability, cautious = self._posteriors(total, information, spreads)
        # By spread and agent: the weight that the others get, if that were the spread.
        weight = own / (own + (spreads**2 + 1 / information)[:, None])
        mean = probability @ weight
        careful = cautious @ weight

        second = cautious @ weight**2
        truth = self.spread**2 + 1 / float((self.number / (self.variance + self.spread**2)).sum())
        error = (1 - mean) ** 2 * own + mean**2 * truth
        variance = (1 - careful) * own + (second - careful**2 + (mean - careful) ** 2) * (
            own + truth
        )

        return LearnedErrors(np.asarray(error.mean(axis=0)), np.asarray(variance.mean(axis=0)))

    def half_width(self, told: LearnedErrors, own: Floats, level: float) -> Floats:
        """Predict what intervals will be long on average, what they doubt included, for agents of these variances."""
        variance = self._doubted(told, own)
        half = posterior_far_half_width(variance, own, level)
        kept = np.minimum(np.sqrt(variance / own), 1.0)
        # Whom the prior describes is left by so much: quantiles of the size of a normal variable.
        size = ndtri(0.5 + 0.5 * (np.arange(_OUTCOMES) + 0.5) / _OUTCOMES)
        away = np.multiply.outer(size, np.sqrt(own * (1 - kept**2)))
        lower, upper = posterior_doubted_interval(
            np.zeros_like(away), half, mean=away, kept=kept, own_stddev=np.sqrt(own), level=level
        )

        return np.asarray((upper - lower).mean(axis=0) / 2)

    def _doubted(self, told: LearnedErrors, own: Floats) -> Floats:
        """Posterior variances, where the means of a count may be spread more widely than those of all counts."""
        if self.number.sum() < 2:
            return told.variance
        spread = self.spread**2 + 1 / float((self.number / (self.variance + self.spread**2)).sum())
        zero = np.zeros_like(self.number)
        fitted = np.full_like(self.number, spread)
        groups = CountGroups(
            number=self.number, mean=zero, squares=self.number * (self.variance + self.spread**2), count=self.count,
            noise_variance=self.noise,
        )  # fmt: skip
        doubt = local_spread_doubt(groups, self.sampling, self.sampling / own, zero, fitted).T
        doubt = np.concatenate([doubt, np.where(doubt.sum(axis=0, keepdims=True) < 1, TAIL, 0.0)])

        wider = np.append(FACTORS, TAIL_VARIANCE)[:, None] * spread
        total = own + spread
        # An own mean as far as is expected speaks against what is wider.
        density = np.sqrt(total / (own + wider)) * np.exp(0.5 * (1 - total / (own + wider)))
        weight = np.concatenate([1 - doubt.sum(axis=0, keepdims=True), doubt * density])
        shift = own / total - own / (own + wider)
        variance = np.concatenate(
            [told.variance[None], own * wider / (own + wider) + shift**2 * total]
        )

        return np.asarray((weight * variance).sum(axis=0) / weight.sum(axis=0))

    def _posteriors(
        self, total: Floats, information: Floats, spreads: Floats
    ) -> tuple[Floats, Floats]:
        """Posteriors of the spread for each outcome of the sum of squares, shape (outcomes, spreads).

        The second, which intervals rest on, holds equal means for impossible.
        """
        true = self.variance + self.spread**2
        degrees = max(float((self.number / true**2).sum() * (true**2).min()) - 1, 1.0)
        outcome = (
            2.0 * gammaincinv(0.5 * degrees, (np.arange(_OUTCOMES) + 0.5) / _OUTCOMES) / degrees
        )
        # By outcome and spread. Releases vary the sum of squares by what they tell: the precise
        # ones most.
        squares = (self.number * true / total).sum(axis=1) + np.multiply.outer(
            outcome - 1, true.min() * (self.number / total).sum(axis=1)
        )

        fixed = (self.number * np.log(total)).sum(axis=1) + np.log(information)
        # The learned prior of the spread, but for equal means; the grid is even in its log.
        fewer = 1 + spreads**2 / (USUAL * self.sampling) if self.sampling > 0 else 1.0
        cells = spreads**4 / fewer**3 / (spreads**4).sum()
        cells[0] = _EQUAL
        log_likelihood = -0.5 * (fixed + squares)
        value = np.exp(log_likelihood - log_likelihood.max(axis=1, keepdims=True)) * cells
        interval = value.copy()
        interval[:, 0] = 0.0
        found = (part / part.sum(axis=1, keepdims=True) for part in (value, interval))
        first, second = map(np.asarray, found)

        return first, second

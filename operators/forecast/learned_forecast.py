"""What a prior learned from releases of given variances will err and state, by the agent's own variance."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.special import gammaincinv, ndtri

from meanstream.operators.collaboration.alone import half_width_alone
from meanstream.operators.collaboration.prior.normal_prior import (
    FLAT_POWER,
    LEAST_SPREAD,
    MOST_SPREAD,
)
from meanstream.operators.records import Floats

_SPREADS = 60
_OUTCOMES = 9
_OWN = 5


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
        return self.sampling / self.count + self.noise

    def predict(self, own: Floats) -> LearnedErrors:
        """Predict for agents whose own means have these variances.

        Notes
        -----
        The posterior of the spread is computed for some outcomes of the releases' sum of squares,
        and weighed by the density of some outcomes of the own mean, as answers do. An answer that
        leaves the share b of an own mean m, where b0 were right, errs by
        `(1 - b0) own + (b - b0)^2 m^2`.
        """
        if self.number.sum() < 2:
            return LearnedErrors(own, own)
        spreads = np.concatenate(
            [[LEAST_SPREAD / 4], np.geomspace(LEAST_SPREAD, MOST_SPREAD, _SPREADS)]
        )
        spreads = self.width * spreads
        total = self.variance + spreads[:, np.newaxis] ** 2
        information = (self.number / total).sum(axis=1)
        believed = self._posterior(total, information, spreads)

        # By outcome of the releases, of the own mean, spread and agent.
        true = self.variance + self.spread**2
        truth = self.spread**2 + 1 / float((self.number / true).sum())
        size = ndtri(0.5 + 0.5 * (np.arange(_OWN) + 0.5) / _OWN)
        square = np.multiply.outer(size**2 / np.mean(size**2), own + truth)[:, np.newaxis]
        predicted = own + (spreads**2 + 1 / information)[:, np.newaxis]
        density = np.exp(-0.5 * square / predicted) / np.sqrt(predicted)
        share = believed[:, np.newaxis, :, np.newaxis] * density
        share /= share.sum(axis=2, keepdims=True)

        left = own / predicted
        mean = (share * left).sum(axis=2)
        second = (share * left**2).sum(axis=2)
        square = square[:, 0]
        right = own / (own + truth)
        error = (1 - right) * own + (mean - right) ** 2 * square
        variance = (1 - mean) * own + (second - mean**2) * square

        return LearnedErrors((error.mean(axis=(0, 1))), (variance.mean(axis=(0, 1))))

    def half_width(self, told: LearnedErrors, own: Floats, level: float) -> Floats:
        """Predict how long intervals will be on average, for agents of these variances."""
        return half_width_alone(np.minimum(told.variance, own), level)

    def _posterior(self, total: Floats, information: Floats, spreads: Floats) -> Floats:
        """Posterior of the spread for each outcome of the sum of squares, shape (outcomes, spreads).

        The cube of the spread is flat before, as in `NormalPrior`; the grid is even in its
        logarithm.
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
        log_likelihood = -0.5 * (fixed + squares)
        posterior = (
            np.exp(log_likelihood - log_likelihood.max(axis=1, keepdims=True)) * spreads**FLAT_POWER
        )

        return np.asarray(posterior / posterior.sum(axis=1, keepdims=True))

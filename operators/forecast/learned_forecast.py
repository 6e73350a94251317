"""What a prior learned from releases of given variances will err and state, by the agent's own variance."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from scipy.special import gammaincinv, ndtri

from meanstream.operators.agents.agent_memory import TURNS
from meanstream.operators.agents.agents_settings import AgentsSettings
from meanstream.operators.agents.half_life_memory import Outlook
from meanstream.operators.agents.release_times import Counts, Steady, require_samples_counted
from meanstream.operators.collaboration.alone import half_width_alone
from meanstream.operators.collaboration.prior.normal_prior import (
    FLAT_POWER,
    LEAST_SPREAD,
    MOST_SPREAD,
)
from meanstream.operators.records import Floats, Ints

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
        total = self.variance + spreads[:, None] ** 2
        information = (self.number / total).sum(axis=1)
        believed = self._posterior(total, information, spreads)

        # By outcome of the releases, of the own mean, spread and agent.
        true = self.variance + self.spread**2
        truth = self.spread**2 + 1 / float((self.number / true).sum())
        size = ndtri(0.5 + 0.5 * (np.arange(_OWN) + 0.5) / _OWN)
        square = np.multiply.outer(size**2 / np.mean(size**2), own + truth)[:, None]
        predicted = own + (spreads**2 + 1 / information)[:, None]
        density = np.exp(-0.5 * square / predicted) / np.sqrt(predicted)
        share = believed[:, None, :, None] * density
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


_MOST = 1e15
_SETTLED = 40 * TURNS
"""Steady releases after which what they hold does not change any more, to the last digits of a
forecast."""


@dataclass(frozen=True)
class Remembered:
    """Public: numbers of samples of equal weight, and noise, that follow from counts and settings.

    Parameters
    ----------
    settings : AgentsSettings
        With a schedule that counts samples. Means are taken to stay: nothing is left out for a
        change.

    Examples
    --------
    >>> known = {"lower": 0, "upper": 1, "epsilon": 1, "delta": 1e-6}
    >>> counts = np.array([100.0, 1e6])
    >>> for memory in ("forever", "half-life:1000", "window:1000"):
    ...     Remembered(AgentsSettings(**known, memory=memory)).own(counts).round().tolist()
    [100.0, 1000000.0]
    [100.0, 2882.0]
    [100.0, 1000.0]
    """

    settings: AgentsSettings

    def own(self, counts: Floats) -> Floats:
        """Give how many samples of equal weight agents with that many hold themselves."""
        kept = self.settings.kept
        if kept is None:
            return counts
        index = self.newest(counts)
        made = np.maximum(index, 1) - 1
        made_before = self._times.releases_up_to(np.floor(counts).astype(np.int64))
        since = counts - np.where(made_before > 0, self._times.at(np.maximum(made_before, 1)), 0)
        held = [np.where(index > 0, column[made], 0.0) for column in self._outlook[:2]]

        return kept.effective(index + 1, held[0], held[1], since)

    def needed(self, number: float) -> int | None:
        """Give with how many samples agents hold that many of equal weight, to 1 %.

        None where they never do.
        """

        def enough(count: float) -> bool:
            return float(self.own(np.array([count]))[0]) >= number * (1 - 1e-9)

        least = least_enough(enough, math.ceil(number), _MOST)

        if least is None:
            return None
        return math.ceil(least)

    def newest(self, counts: Floats | Ints) -> Ints:
        """Count the releases of agents with that many samples.

        Those after which nothing changes are one.
        """
        made = self._times.releases_up_to(np.floor(counts).astype(np.int64))
        return np.minimum(made, self._last)

    def released(self, index: Ints) -> tuple[Floats, Floats]:
        """Give how many samples of equal weight releases hold, and the variance of the noise in their means."""
        weight, squared, variance = (column[index - 1] for column in self._outlook)
        return weight * weight / squared, variance * (self.settings.grid.resolution / weight) ** 2

    @property
    def _times(self) -> Counts:
        return require_samples_counted(self.settings.times, self.settings.schedule)

    @property
    def _last(self) -> int:
        times = self._times

        if isinstance(times, Steady):
            return len(times.early) + _SETTLED
        return self.settings.horizon

    @cached_property
    def _outlook(self) -> Outlook:
        count = self._times.times(self._last)
        if self.settings.kept is not None:
            return self.settings.kept.outlook(count)
        number = count.astype(np.float64)

        return Outlook(number, number, self.settings.sum_variance(np.arange(1, self._last + 1)))


def least_enough(enough: Callable[[float], bool], low: float, high: float) -> float | None:
    """Bisect, in the logarithm, for the least number that is enough, to 1 %."""
    if not enough(high):
        return None
    if enough(low):
        return low

    while high > 1.01 * low:
        middle = math.sqrt(low * high)
        low, high = (low, middle) if enough(middle) else (middle, high)

    return high

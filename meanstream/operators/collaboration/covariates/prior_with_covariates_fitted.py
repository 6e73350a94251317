"""A population whose means may go with public attributes: every agent's answer, and what was learned."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.special import expit

from meanstream.operators.collaboration.alone import half_width_alone
from meanstream.operators.collaboration.covariates.learned_effects import LearnedEffects
from meanstream.operators.collaboration.covariates.predictive_density import log_predictive_density
from meanstream.operators.collaboration.prior_by_count_fitted import FittedByCount
from meanstream.operators.collaboration.prior_fitted import FittedPrior
from meanstream.operators.records import AgentEstimates, Floats, OwnMeans

USED = 0.8
"""Prior probability that an agent's mean follows its attributes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FittedWithCovariates:
    """Public: the population without attributes, what these explain, and the population of what they leave.

    Attributes
    ----------
    without, beyond : FittedByCount or FittedPrior
        Of the releases, and of the releases less their offsets.
    effects : LearnedEffects
    """

    without: FittedByCount | FittedPrior
    beyond: FittedByCount | FittedPrior
    effects: LearnedEffects

    def estimate(self, own: OwnMeans, *, level: float = 0.95) -> AgentEstimates:
        """Private: each agent's answer given its own mean and its public attributes, addressed to that agent only.

        Parameters
        ----------
        own : OwnMeans
            At least one sample each, with the codes of their attributes.
        level : float
            Nominal coverage of the interval.
        """
        first = self.without.estimate(own, level=level)
        offset = self.effects.offsets(own.covariates, own.count)
        doubt = self.effects.doubts(own.covariates, own.count)
        second = self.beyond.estimate(replace(own, mean=own.mean - offset), level=level)
        share = self._share(own, offset, doubt)
        return _mixed(first, second, own, offset=offset, doubt=doubt, share=share, bounds=self._bounds)

    def describe(self) -> dict[str, Any]:
        """Public: the fitted population as plain data, with what was learned of attributes."""
        learned = {"explained": self.effects.explained, "attributes": self.effects.described}
        return {**self.without.describe(), "covariates": learned}

    @property
    def _bounds(self) -> tuple[float, float]:
        plain = self.without.plain if isinstance(self.without, FittedByCount) else self.without
        return plain.lower, plain.upper

    def _share(self, own: OwnMeans, offset: Floats, doubt: Floats) -> Floats:
        """Probability that each agent's mean follows its attributes, given that mean."""
        width = self._bounds[1] - self._bounds[0]
        beyond = log_predictive_density(self.beyond, own.mean - offset, own.variance + doubt, own.count)
        without = log_predictive_density(self.without, own.mean, own.variance, own.count)
        wider = self.beyond.plain if isinstance(self.beyond, FittedByCount) else self.beyond
        # Both are relative to the widths of their own bounds.
        more = beyond - np.log((wider.upper - wider.lower) / width) - without
        return np.asarray(expit(np.log(USED / (1 - USED)) + more), np.float64)


def _mixed(
    first: AgentEstimates,
    second: AgentEstimates,
    own: OwnMeans,
    *,
    offset: Floats,
    doubt: Floats,
    share: Floats,
    bounds: tuple[float, float],
) -> AgentEstimates:
    """Mix the answers of both priors by the law of total variance."""
    level, nominal = first.level, half_width_alone(np.ones(1), first.level)
    moved = second.value + offset
    value = np.clip((1 - share) * first.value + share * moved, *bounds)
    apart = (1 - share) * (first.value - value) ** 2 + share * (moved - value) ** 2
    kept = 1 / np.maximum(second.effective_class_size, 1.0)
    unsure = (1 - kept) ** 2 * doubt

    def side(a: Floats, b: Floats) -> Floats:
        return np.sqrt((1 - share) * a**2 + share * (b**2 + nominal**2 * unsure) + apart)

    variance = np.where(np.isfinite(own.variance), own.variance, (bounds[1] - bounds[0]) ** 2)
    posterior = (1 - share) * variance / first.effective_class_size + apart
    posterior += share * (variance / second.effective_class_size + unsure)
    noise = [np.zeros(1) if one.noise_half_width is None else one.noise_half_width for one in (first, second)]
    return replace(
        first,
        value=value,
        lower=value - side(first.value - first.lower, second.value - second.lower),
        upper=value + side(first.upper - first.value, second.upper - second.value),
        effective_class_size=variance / posterior,
        level=level,
        noise_half_width=np.sqrt((1 - share) * noise[0] ** 2 + share * noise[1] ** 2),
        moved=value - first.value,
    )

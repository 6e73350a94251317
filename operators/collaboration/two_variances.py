"""Private: answers whose interval rests on the long-run variance of an agent's samples, and whose value does not."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Protocol

import numpy as np

from meanstream.operators.collaboration.covariates.prior_with_covariates_fitted import (
    FittedWithCovariates,
)
from meanstream.operators.collaboration.levels.prior_of_levels_fitted import FittedLevels
from meanstream.operators.collaboration.prior.prior_by_count_fitted import FittedByCount
from meanstream.operators.records import AgentEstimates, Floats, OwnMeans

ALIKE = 1.02
"""Variances whose ratio is within this of 1 give one answer."""


class FittedPopulation(Protocol):
    """What everyone's releases say: public, computed once per snapshot."""

    def estimate(self, own: OwnMeans, *, level: float = 0.95) -> AgentEstimates:
        """Private: answer each agent, given its own raw mean."""
        ...

    def describe(self) -> dict[str, Any]:
        """Public: the population as plain data.

        At least `method`, `n_agents`, `n_components` and `components`.
        """
        ...


def estimate_with_two_variances(
    fitted: FittedPopulation, own: OwnMeans, *, level: float = 0.95
) -> AgentEstimates:
    """Private: answer each agent, given its own raw mean; addressed to that agent only.

    Parameters
    ----------
    fitted : FittedPopulation
        Public: what everyone's releases say.
    own : OwnMeans
        With the variance of each mean for its interval and for its value.
    level : float
        Nominal coverage of the intervals.

    Notes
    -----
    Where samples depend on each other an own mean is worth less than that many independent samples if the next month is
    asked for, and as much if another half of the same samples is. The value rests on the variance of one sample, and
    the interval on that of the long run: the long one makes values worse where a half or a block of time is asked for,
    and hardly better by the next month. The learned prior does both at once: its interval is that of its answer's
    error. Of others the interval is that of an answer with the long-run variance, about the value; each of its sides is
    the root of the squares of its own length and of what the value was moved by.

    **Privacy.** How many agents have two variances depends on raw values, and how most priors evaluate on the number of
    agents: those evaluate all of them twice. The prior by count evaluates one agent as among whatever others.

    Examples
    --------
    >>> from meanstream.operators.collaboration.alone import FittedAlone
    >>> own = OwnMeans(agent=np.array([0]), count=np.array([4]), mean=np.array([2.0]), variance=np.array([1.0]),
    ...                value_variance=np.array([0.25]))
    >>> answer = estimate_with_two_variances(FittedAlone(), own)
    >>> answer.value.tolist(), answer.upper.round(2).tolist()
    ([2.0], [3.96])
    """
    answer = fitted.estimate(own, level=level)
    plain = fitted.without if isinstance(fitted, FittedWithCovariates | FittedLevels) else fitted
    if isinstance(plain, FittedByCount):
        return answer

    ratio = own.variance / np.maximum(own.value_variance, np.finfo(np.float64).tiny)
    two = (ratio > ALIKE) | (ratio < 1 / ALIKE)
    if not two.any():
        return answer

    short = fitted.estimate(replace(own, variance=own.value_variance), level=level)
    value = np.where(two, short.value, answer.value)
    moved = answer.moved
    if moved is not None and short.moved is not None:
        moved = np.where(two, short.moved, moved)

    shift = value - answer.value

    def side(length: Floats) -> Floats:
        return np.asarray(np.sqrt(np.square(length) + np.square(shift)))

    return replace(
        answer,
        value=value,
        lower=np.where(two, value - side(answer.value - answer.lower), answer.lower),
        upper=np.where(two, value + side(answer.upper - answer.value), answer.upper),
        moved=moved,
    )

"""The records that cross between operators: columns of many agents at once, and the answers an estimator gives.

`ReleaseColumns` is public (what crossed the privacy boundary); `OwnMeans` is private (it holds raw means and goes to
its owner only). Every array of a record has one entry per agent, in the same order.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
AnyInts = npt.NDArray[np.integer[Any]]
Bools = npt.NDArray[np.bool_]
Words = npt.NDArray[np.uint64]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseColumns:
    """Public: one release per entry; the newest of each agent makes a snapshot of the population.

    Attributes
    ----------
    agent : int array
        Index of the releasing agent.
    index : int array
        Which release of that agent this is, from 1.
    count : int array
        Number of samples in the released mean (public).
    total : int array
        The noised sum in grid units: the integer that is published.
    mean : float array
        The noised mean in the value's unit: `total` on the grid divided by `count`.
    noise_variance : float array
        Variance of the privacy noise in `mean`, in squared value units; known from the mechanism.
    """

    agent: Ints
    index: Ints
    count: Ints
    total: Ints
    mean: Floats
    noise_variance: Floats

    def __len__(self) -> int:
        return len(self.agent)

    def take(self, which: Ints | Bools) -> ReleaseColumns:
        """Select entries."""
        return ReleaseColumns(**{field.name: getattr(self, field.name)[which] for field in fields(self)})


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnMeans:
    """Private: what each agent knows of itself, before any collaboration.

    Attributes
    ----------
    agent : int array
        Index of the agent.
    count : int array
        Number of its samples.
    mean : float array
        Its raw running mean, in the value's unit.
    variance : float array
        Variance of that mean (the variance of one sample divided by `count`), in squared value units.
    """

    agent: Ints
    count: Ints
    mean: Floats
    variance: Floats

    def __len__(self) -> int:
        return len(self.agent)


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentEstimates:
    """Private: each agent's answer, addressed to that agent and to nobody else.

    Attributes
    ----------
    value, lower, upper : float array
        The estimate and its interval, in the value's unit.
    level : float
        Nominal coverage of the interval.
    effective_class_size : float array
        By how much the variance fell: variance of learning alone divided by the variance of the estimate; 1 means that
        nothing was gained.
    class_size : float array
        How many agents the answer treats as the own class, itself included (prior: expected size of its component).
    component : int array
        Most likely component of the fitted population, as numbered by its description; -1 where there are none.
    membership : float array
        Probability of that component; 1 where there are none.
    """

    value: Floats
    lower: Floats
    upper: Floats
    level: float
    effective_class_size: Floats
    class_size: Floats
    component: Ints
    membership: Floats

    def __len__(self) -> int:
        return len(self.value)


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnSamples:
    """Private: the sufficient statistics of each agent's own samples.

    Attributes
    ----------
    agent, count : int array
        Index of the agent and number of its samples.
    mean : float array
        Its raw running mean, in the value's unit; NaN where `count` is 0.
    squared_deviations : float array
        Sum of squared deviations from that mean, in squared value units.
    """

    agent: Ints
    count: Ints
    mean: Floats
    squared_deviations: Floats

    def __len__(self) -> int:
        return len(self.agent)

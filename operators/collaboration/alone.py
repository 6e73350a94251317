"""No collaboration: each agent's own mean and its interval."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from scipy.special import ndtri

from meanstream.operators.records import AgentEstimates, Floats, OwnMeans, ReleaseColumns
from meanstream.operators.validation import require_between, require_version

_ANSWERED = (
    "value",
    "lower",
    "upper",
    "effective_class_size",
    "class_size",
    "component",
    "membership",
)


def half_width_alone(variance: Floats, level: float) -> Floats:
    """Half the length of a normal interval, in the value's unit.

    Examples
    --------
    >>> half_width_alone(np.array([1.0, 4.0]), 0.95).round(2).tolist()
    [1.96, 3.92]
    """
    require_between(0, 1, level=level)
    return ndtri(0.5 + 0.5 * level) * np.sqrt(variance)


@dataclass(frozen=True, slots=True)
class FittedAlone:
    """The population of an agent that asks no one.

    Examples
    --------
    >>> own = OwnMeans(agent=np.array([0]), count=np.array([4]), mean=np.array([2.0]), variance=np.array([0.25]))
    >>> answer = FittedAlone().estimate(own)
    >>> answer.value.tolist(), answer.upper.round(2).tolist()
    ([2.0], [2.98])
    """

    method: str = "none"

    def estimate(self, own: OwnMeans, *, level: float = 0.95) -> AgentEstimates:
        """Private: each agent's own mean with a normal interval, addressed to that agent only."""
        half_width = half_width_alone(own.variance, level)
        ones = np.ones(len(own))
        return AgentEstimates(
            value=own.mean.copy(),
            lower=own.mean - half_width,
            upper=own.mean + half_width,
            level=level,
            effective_class_size=ones,
            class_size=ones.copy(),
            component=np.full(len(own), -1, dtype=np.int64),
            membership=ones.copy(),
            noise_half_width=0 * ones,
        )

    def describe(self) -> dict[str, Any]:
        """Public: that there is no model."""
        return {"method": self.method, "n_agents": 0, "n_components": 0, "components": []}


def alone_where_ahead(answer: AgentEstimates, own: OwnMeans) -> AgentEstimates:
    """Private: answer those alone whose mean has changed since what they released.

    The others cannot know of it yet.

    Everyone's releases say where agents were. Of one that has moved they are confidently wrong, and
    of many that have moved together, too, until they have released enough of what is new.

    Examples
    --------
    >>> own = OwnMeans(agent=np.arange(2), count=np.array([4, 4]), mean=np.array([2.0, 2.0]),
    ...                variance=np.array([0.25, 0.25]), ahead=np.array([False, True]))
    >>> together = replace(FittedAlone().estimate(own), value=np.array([1.0, 1.0]))
    >>> alone_where_ahead(together, own).value.tolist()
    [1.0, 2.0]
    """
    if not own.ahead.any():
        return answer
    alone = FittedAlone().estimate(own, level=answer.level)
    columns = {name: (getattr(answer, name), getattr(alone, name)) for name in _ANSWERED}
    noise = (
        None
        if answer.noise_half_width is None
        else np.where(own.ahead, 0.0, answer.noise_half_width)
    )
    mixed = {name: np.where(own.ahead, mine, others) for name, (others, mine) in columns.items()}
    moved = None if answer.moved is None else np.where(own.ahead, 0.0, answer.moved)

    return replace(answer, noise_half_width=noise, moved=moved, **mixed)


@dataclass(slots=True)
class ReleaseCount:
    """How many have released: all that those who ask no one keep of it; mergeable."""

    n: int = 0

    def merge(self, other: ReleaseCount) -> None:
        """Add others."""
        self.n += other.n

    def subtract(self, other: ReleaseCount) -> None:
        """Take out who was added before."""
        self.n -= other.n

    def snapshot(self) -> dict[str, Any]:
        """Plain data."""
        return {"version": 1, "n": self.n}

    @classmethod
    def restore(cls, state: dict[str, Any]) -> ReleaseCount:
        """Make the same of its snapshot."""
        require_version(state, 1)
        return cls(int(state["n"]))


@dataclass(frozen=True, slots=True)
class LearningAlone:
    """Learn from one's own samples only: the baseline of every comparison.

    Notes
    -----
    **Privacy.** Reads no release and makes none. With few samples the interval rests on the variance it is given, so
    give it one that is shrunk to the pool (`PooledVariance.own_variance`); that is defined from the first sample on.
    """

    name: ClassVar[str] = "none"

    def fit(self, releases: ReleaseColumns, variance: Floats) -> FittedAlone:  # noqa: ARG002 - the common interface
        """Ignore everyone's releases."""
        return FittedAlone()

    def summarize(self, releases: ReleaseColumns) -> ReleaseCount:
        """Count them."""
        return ReleaseCount(len(releases))

    def fit_summary(self, summary: ReleaseCount, sample_variance: object) -> FittedAlone:  # noqa: ARG002 - the same
        """Ignore everyone's releases."""
        return FittedAlone()

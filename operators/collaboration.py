"""What agents make of each other's releases: the common interface, and the registry of its implementations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, Protocol

from operators.learned_prior import LearnedPrior
from operators.learning_alone import LearningAlone
from operators.records import AgentEstimates, Floats, OwnMeans, ReleaseColumns
from operators.sorted_tests import SameMeanTests
from operators.validation import require


class FittedPopulation(Protocol):
    """What everybody's releases say: public, computed once per snapshot."""

    def estimate(self, own: OwnMeans, *, level: float = 0.95) -> AgentEstimates:
        """Private: answer each agent, given its own raw mean."""
        ...

    def describe(self) -> dict[str, Any]:
        """Public: the population as plain data; at least `method`, `n_agents`, `n_components` and `components`."""
        ...


class Collaboration(Protocol):
    """How agents use each other's releases. Post-processing: it spends no privacy."""

    name: ClassVar[str]

    def fit(self, releases: ReleaseColumns, variance: Floats) -> FittedPopulation:
        """Read the newest release of every agent, with the total variance of each released mean."""
        ...


COLLABORATIONS: dict[str, Callable[[float, float, float], Collaboration]] = {
    LearnedPrior.name: lambda lower, upper, _: LearnedPrior(lower, upper),
    SameMeanTests.name: lambda _, __, significance: SameMeanTests(significance),
    LearningAlone.name: lambda *_: LearningAlone(),
}


def make_collaboration(name: str, *, lower: float, upper: float, significance: float = 0.05) -> Collaboration:
    """Return a collaboration of the registry.

    Parameters
    ----------
    name : str
        A key of `COLLABORATIONS`.
    lower, upper : float
        Declared bounds of a sample, in the value's unit; the learned prior's range of means.
    significance : float
        Of the same-mean tests.

    Raises
    ------
    ValueError
        If the name is unknown or a parameter is out of range.

    Examples
    --------
    >>> make_collaboration("learned_prior", lower=0.0, upper=1.0)
    LearnedPrior(lower=0.0, upper=1.0, exact_classes=2e-06)
    """
    require(name in COLLABORATIONS, "collaboration", f"be one of {', '.join(COLLABORATIONS)}", name)
    return COLLABORATIONS[name](lower, upper, significance)

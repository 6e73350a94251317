"""What everyone's releases said at one refresh, for anyone who may see it: everyone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from meanstream.operators.collaboration.anytime_intervals import Coverage, anytime_intervals
from meanstream.operators.collaboration.joint_means import JointMeans, JointPosterior
from meanstream.operators.collaboration.registry import (
    FittedPopulation,
    answers_from_releases,
    means_of_releases,
)
from meanstream.operators.records import AgentEstimates, Bools, Floats, Ints, ReleaseColumns


@dataclass(frozen=True, slots=True, kw_only=True)
class AnsweredAgents:
    """Private: the estimates of one refresh; they mix in raw means and stay in the trust domain.

    Attributes
    ----------
    time : float
        Event time up to which samples are included, in seconds.
    names : tuple of str
        The agents that were answered.
    agent, count : int array, shape (n,)
        Their numbers, and how many samples each had.
    value, local : float array, shape (n,)
        Each agent's estimate, and its raw mean.
    interval, local_interval : float array, shape (n, 2)
        Their intervals.
    effective_class_size : float array, shape (n,)
        Variance of what each agent has alone, its own samples, over that of its estimate: its gain
        by collaboration.
    class_size : float array, shape (n,)
        Number of agents in the class of each, with itself.
    questions : tuple of str
        Quantiles and exceedances that each answer has, too.
    shares : float array, shape (n, questions, 3)
        Their values with both ends of their intervals.
    coverage : {"pointwise", "anytime"}
        Promise of the intervals of means.
    """

    time: float
    names: tuple[str, ...]
    agent: Ints
    count: Ints
    value: Floats
    interval: Floats
    local: Floats
    local_interval: Floats
    effective_class_size: Floats
    class_size: Floats
    questions: tuple[str, ...] = ()
    shares: Floats = field(default_factory=lambda: np.zeros((0, 0, 3)))
    coverage: str = "pointwise"

    def number(self, name: str) -> int | None:
        """Give the number of an agent by its name; None if it was not answered."""
        try:
            return int(self.agent[self.names.index(name)])
        except ValueError:
            return None

    def row(self, number: int) -> dict[str, Any] | None:
        """Give the answer of one agent; None if it has none."""
        rows = np.flatnonzero(self.agent == number)
        if not len(rows):
            return None
        row = int(rows[0])

        return {
            "time": self.time,
            "n": int(self.count[row]),
            "value": float(self.value[row]),
            "lower": float(self.interval[row, 0]),
            "upper": float(self.interval[row, 1]),
            "local": float(self.local[row]),
            "local_lower": float(self.local_interval[row, 0]),
            "local_upper": float(self.local_interval[row, 1]),
            "coverage": self.coverage,
            **(
                {"shares": dict(zip(self.questions, self.shares[row].tolist(), strict=True))}
                if self.questions
                else {}
            ),
        }


MOST_SHOWN = 1024
"""Agents that a summary of the population looks at; of more, that many evenly spaced ones."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PublicPopulation:
    """Public: what everyone's releases said at one refresh.

    **Privacy.** It holds releases and what was fitted to them, nothing of an agent's own samples:
    all that is computed from it is post-processing.

    Attributes
    ----------
    fitted : FittedPopulation
        Fitted to the releases.
    releases : ReleaseColumns
        The newest release of every agent that has made one, with what all of its own say
        (`OwnReleases`).
    variance, value_variance : float array
        Total variance of each released mean, for intervals and for values; two where samples depend
        on each other.
    lower, upper, level : float
        Bounds of a sample, and coverage of the intervals.
    coverage : {"pointwise", "anytime"}
        Promise of the intervals.
    n_components : int
        Components of the learned prior; 0 where no prior was learned.
    spread : float or None
        Standard deviation of the means within a component, in the value's unit; None where no prior
        was learned.
    goes_with_count : float or None
        Probability that means or their spread go with the agents' numbers of samples; None where it
        is not asked.
    description : dict
        What the event `Population` says of it.
    """

    fitted: FittedPopulation
    releases: ReleaseColumns
    variance: Floats
    value_variance: Floats
    lower: float
    upper: float
    level: float
    coverage: Coverage
    n_components: int
    spread: float | None
    goes_with_count: float | None
    description: dict[str, Any]

    def of(self, which: Bools) -> PublicPopulation:
        """Give the same population with some agents' releases, whose answers are as before."""
        if which.all():
            return self
        return replace(
            self,
            releases=self.releases.take(which),
            variance=self.variance[which],
            value_variance=self.value_variance[which],
        )

    def precision(self) -> tuple[Floats, Floats]:
        """Half-width of the interval and effective class size that the releases alone give to each agent.

        The interval is around what anyone can estimate from the releases (`answers_from_releases`),
        within the bounds. Of many agents, `MOST_SHOWN` are looked at, evenly spaced by their first
        appearance.
        """
        answer = self.answers()
        ends = np.clip([answer.lower, answer.upper], self.lower, self.upper)
        return (ends[1] - ends[0]) / 2, answer.effective_class_size

    def answers(self, *, all_rows: bool = False) -> AgentEstimates:
        """Give what the releases alone say of these agents, or of all."""
        n = len(self.releases)
        some = (
            np.arange(n)
            if all_rows
            else np.unique(np.linspace(0, n - 1, min(n, MOST_SHOWN)).astype(np.int64))
        )
        releases = self.releases.take(some)

        variance = self.variance[some]
        answer = answers_from_releases(
            self.fitted,
            releases,
            variance,
            value_variance=self.value_variance[some],
            level=self.level,
        )

        if self.coverage == "pointwise":
            return answer
        means = means_of_releases(releases, variance)
        return anytime_intervals(answer, means, lower=self.lower, upper=self.upper)

    def joint(self) -> JointMeans | None:
        """Give the joint posterior of the answers.

        None where the fitted population does not know it, and where intervals are valid at any
        time.
        """
        if self.coverage != "pointwise" or not isinstance(self.fitted, JointPosterior):
            return None
        own = means_of_releases(self.releases, self.variance, self.value_variance)
        return self.fitted.joint(own)

    @property
    def dependence(self) -> float | None:
        """Long-run variance of a typical agent over that of neighboring samples, once it is sure that they depend.

        None before that, and where nothing is known of it.
        """
        dependent = self.description.get("dependent")

        if dependent is None:
            return None
        return float(dependent["ratio"])

    @property
    def explained_by_covariates(self) -> float | None:
        """Share of the variance of means that the learned effects of covariates explain.

        None without covariates.
        """
        covariates = self.description.get("covariates")

        if covariates is None:
            return None
        return float(covariates["explained"])


def population_count_probability(description: Mapping[str, Any]) -> float | None:
    """Public: how likely means, or their spread, go with counts in a population.

    None where no one has asked.
    """
    probability = description.get("count_probability")

    if probability is None:
        return None
    return 1.0 - float(probability["same"])

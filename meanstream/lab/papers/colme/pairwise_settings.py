"""How the agents of Algorithm 1 release, test and combine: plain choices, checked at once."""

from __future__ import annotations

from dataclasses import dataclass

from meanstream.lab.papers.colme.pairwise_schedule import PAIRWISE_SCHEDULES
from meanstream.lab.papers.colme.variance_trackers import (
    Bayesian,
    FromReleases,
    Jeffreys,
    PrintedFromReleases,
    ReleasedVariance,
)
from meanstream.operators.counters.registry import Counter
from meanstream.operators.validation import require, require_positive


@dataclass(frozen=True, slots=True, kw_only=True)
class PairwiseSettings:
    """How the agents of Algorithm 1 release, test and combine.

    Parameters
    ----------
    agents, runs : int
        M agents in each of some independent runs.
    counter : Counter
        Noise of one pair's releases; its horizon is the largest number of releases of one agent to
        another.
    fresh_variance : float
        Variance of the noise of one p-sum, in squared value units.
    schedule : {"round_robin", "restricted_round_robin"}
    weights : {"last", "mean_of_means", "windowed", "gls"}
    test : {"lazy", "eager", "oracle"}
        Test the agent just asked, everyone at every step, or take given classes.
    variance : {"known", "released", "from_releases", "bayesian", "jeffreys"}
        Where the variance of one sample comes from; all but known use Welch's test.
    corrected : bool
        For from_releases: the unbiased estimator for intervals of unequal length, instead of
        equation (16).
    significance : float
        The tests at t run at significance / ln(t + 1).
    design_variance : float
        Variance of one sample that the weights gls assume.
    half_width : float, optional
        Half the length L of the declared interval: what an agent whose samples are all equal makes
        its variance of (`variance_schemes.sample_variance`); without it such an agent has no
        variance yet.
    whole : bool
        Whether samples are whole numbers, in units of a grid: then the sums that leave are rounded
        to whole numbers.
    """

    agents: int
    runs: int
    counter: Counter
    fresh_variance: float
    schedule: str = "round_robin"
    weights: str = "last"
    test: str = "lazy"
    variance: str = "known"
    corrected: bool = False
    significance: float = 0.05
    design_variance: float = 1.0
    half_width: float | None = None
    whole: bool = False

    def __post_init__(self) -> None:
        require(self.agents >= 2, "agents", "be at least 2", self.agents)
        require(self.runs >= 1, "runs", "be at least 1", self.runs)
        require_positive(fresh_variance=self.fresh_variance, design_variance=self.design_variance)

        require(
            self.schedule in PAIRWISE_SCHEDULES,
            "schedule",
            f"be one of {', '.join(PAIRWISE_SCHEDULES)}",
            self.schedule,
        )
        require(
            self.test in ("lazy", "eager", "oracle"), "test", "be lazy, eager or oracle", self.test
        )

        schemes = ("known", "released", "from_releases", "bayesian", "jeffreys")
        require(
            self.variance in schemes, "variance", f"be one of {', '.join(schemes)}", self.variance
        )

        common = self.schedule == "round_robin"
        require(
            common or self.weights != "gls",
            "weights",
            "not be gls unless schedule is round_robin",
            self.weights,
        )
        _ = self.scheme  # it checks the counter

    @property
    def scheme(self) -> ReleasedVariance | FromReleases | PrintedFromReleases | None:
        """How the variance of another agent's samples is estimated; None if it is known."""
        if self.variance == "released":
            return ReleasedVariance(self.counter, self.fresh_variance, 1.0)

        if self.variance in ("bayesian", "jeffreys"):
            prior = Bayesian if self.variance == "bayesian" else Jeffreys
            return prior(self.counter, self.fresh_variance)

        if self.variance == "from_releases":
            kind = FromReleases if self.corrected else PrintedFromReleases
            return kind(self.counter, self.fresh_variance)

        return None

"""What agents that query each other need: who queries whom and when, and the frozen settings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from meanstream.lab.papers.colme.variance_trackers import (
    PRIORS,
    VARIANCES,
    Bayesian,
    FromReleases,
    PrintedFromReleases,
    ReleasedVariance,
)
from meanstream.operators.counters.base import State, counter_rows
from meanstream.operators.counters.registry import Counter
from meanstream.operators.records import Bools, Ints
from meanstream.operators.validation import require, require_least, require_positive


@dataclass(frozen=True, slots=True)
class PairwiseQueries:
    """The queries of one step, or of several steps in which no pair exchanges twice, step by step.

    A pair (agent, other) of one run is a row `offset * columns + column`: `column` counts the
    agents of all runs, run by run, and `offset` numbers the others of an agent in the order of
    their indices, from 0.

    Attributes
    ----------
    rows : int array or slice
        The pairs that exchange a release now.
    asker : int array or slice
        Columns of the agents that ask, at each step.
    target : int array
        Columns of the agents that are queried, plus the number of columns times the step's number
        from 0.
    clock : int array
        Rows of what depends on release times alone: one of each step under round robin, else those
        of the pairs.
    """

    rows: Ints | slice
    asker: Ints | slice
    target: Ints
    clock: Ints

    @property
    def index(self) -> Ints:
        """The pairs as integers."""
        return counter_rows(self.rows)

    def put(
        self, array: npt.NDArray[Any], values: npt.NDArray[Any], lost: Bools | None = None
    ) -> None:
        """Set the entries of the pairs to values of shape (steps, askers).

        Or with one column for all askers. Those that are lost keep what they have.
        """
        if lost is not None:
            values = np.where(lost, array[self.rows].reshape(lost.shape), values)

        if isinstance(self.rows, slice):
            array[self.rows].reshape(len(values), -1)[...] = values
        else:
            array[self.rows] = values


class RoundRobin:
    """At time t every agent asks the ((t - 1) mod (M - 1) + 1)-th of the others, in the order of their indices.

    Release times are the same for all pairs with one offset, in all runs. With few partners each
    agent asks only those that come after it on a ring.
    """

    def __init__(self, agents: int, runs: int, partners: int | None = None) -> None:
        self.others = agents - 1 if partners is None else partners
        self.columns = runs * agents
        self.clocks = self.others
        """Number of rows of what depends on release times alone."""
        self._agent = np.tile(np.arange(agents), runs)
        self._first = np.repeat(np.arange(runs) * agents, agents)
        self._partners = partners
        self._agents = agents
        offset = np.arange(self.others)[:, np.newaxis]
        self._target = self._first + offset * self.columns + self._other(self._agent, offset)

    def _other(self, agent: Ints, offset: Ints) -> Ints:
        return schedule_other(agent, offset, self._agents, self._partners)

    def init(self) -> State:
        """Nothing is remembered: time alone decides."""
        return {}

    def independent_steps(self, time: int) -> int:
        """Return how many steps from this time (from 1) on can be asked together.

        Those left of the round.
        """
        return self.others - (time - 1) % self.others

    def ask(self, time: int, accepted: Bools, state: State, steps: int = 1) -> PairwiseQueries:  # noqa: ARG002 - time decides
        """Return the queries of some steps from this time (from 1) on, within one round."""
        offset = (time - 1) % self.others
        rows = slice(offset * self.columns, (offset + steps) * self.columns)
        return PairwiseQueries(
            rows=rows,
            asker=slice(None),
            target=(self._target[offset : offset + steps] - rows.start).ravel(),
            clock=np.arange(offset, offset + steps),
        )


class RestrictedRoundRobin(RoundRobin):
    """Round robin that skips the others outside one's class.

    An agent alone in its class asks no one.

    Notes
    -----
    **Privacy.** Who is queried depends on the asker's raw mean, and the asked see it: this schedule leaks. The epsilon
    of the mechanism says nothing about that channel.
    """

    def __init__(self, agents: int, runs: int, partners: int | None = None) -> None:
        super().__init__(agents, runs, partners)
        self.clocks = self.others * self.columns

    def init(self) -> State:
        """Remember the offset that each agent asked last, -1 before the first query."""
        return {"last": np.full(self.columns, -1, dtype=np.int64)}

    def independent_steps(self, time: int) -> int:  # noqa: ARG002 - a step's tests decide who asks at the next one
        """Return 1."""
        return 1

    def ask(self, time: int, accepted: Bools, state: State, steps: int = 1) -> PairwiseQueries:  # noqa: ARG002
        """Return the queries given the classes after the step before.

        The pointers in `state` move on.
        """
        last = state["last"]
        asker = np.flatnonzero(accepted.reshape(self.others, self.columns).any(axis=0))
        offset = last[asker]
        waiting = np.arange(len(asker))

        while waiting.size:
            moved = offset[waiting] + 1
            moved[moved == self.others] = 0
            offset[waiting] = moved
            waiting = waiting[~accepted[moved * self.columns + asker[waiting]]]

        last[asker] = offset
        index = offset * self.columns + asker
        target = self._first[asker] + self._other(self._agent[asker], offset)
        return PairwiseQueries(rows=index, asker=asker, target=target, clock=index)


def schedule_other(agent: Ints, offset: Ints, agents: int, partners: int | None) -> Ints:
    """Number the agents that come at an offset among the partners of others, without themselves."""
    if partners is None:
        return np.asarray(offset + (agent <= offset))
    return np.asarray((agent + 1 + offset) % agents)


def schedule_same_class(label: Ints, partners: int | None = None) -> Bools:
    """Lay out which pairs are in one class in the order of the pairs' rows.

    Parameters
    ----------
    label : int array, shape (runs, agents)
    partners : int, optional
        As of `PairwiseSettings`.

    Returns
    -------
    bool array, shape (agents - 1 or partners, runs * agents)
        Entry [o, r * agents + a]: is the o-th of the others in the class of a.

    Examples
    --------
    >>> schedule_same_class(np.array([[0, 1, 0]])).astype(int).tolist()
    [[0, 0, 1], [1, 0, 0]]
    """
    agents = label.shape[1]
    offsets = np.arange(agents - 1 if partners is None else partners)
    others = [schedule_other(np.arange(agents), offset, agents, partners) for offset in offsets]
    same = [label == label[:, other] for other in others]
    return np.stack(same).reshape(len(same), -1)


PAIRWISE_SCHEDULES: dict[str, type[RoundRobin]] = {
    "round_robin": RoundRobin,
    "restricted_round_robin": RestrictedRoundRobin,
}


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
    variance : {"known", "released", "from_releases", "bayesian", "jeffreys", "uniform"}
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
        its variance of (`scheme_sample_variance`); without it such an agent has no
        variance yet.
    whole : bool
        Whether samples are whole numbers, in units of a grid: then the sums that leave are rounded
        to whole numbers.
    partners : int, optional
        How many others an agent asks: those that come after it on a ring. Default: all.
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
    partners: int | None = None

    def __post_init__(self) -> None:
        require_least(2, agents=self.agents)
        require_least(1, runs=self.runs)
        require_positive(fresh_variance=self.fresh_variance, design_variance=self.design_variance)
        few = self.partners is None or 1 <= self.partners < self.agents
        require(few, "partners", f"lie in 1..{self.agents - 1}", self.partners)

        require(
            self.schedule in PAIRWISE_SCHEDULES,
            "schedule",
            f"be one of {', '.join(PAIRWISE_SCHEDULES)}",
            self.schedule,
        )
        require(
            self.test in ("lazy", "eager", "oracle"), "test", "be lazy, eager or oracle", self.test
        )

        rule = f"be one of {', '.join(VARIANCES)}"
        require(self.variance in VARIANCES, "variance", rule, self.variance)

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

        if self.variance in PRIORS:
            return Bayesian(self.counter, self.fresh_variance, self.variance)

        if self.variance == "from_releases":
            kind = FromReleases if self.corrected else PrintedFromReleases
            return kind(self.counter, self.fresh_variance)

        return None

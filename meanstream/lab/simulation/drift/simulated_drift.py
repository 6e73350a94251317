"""Simulated agents whose means move: squared error and coverage by the age of the change."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any, Protocol, Self

import numpy as np

from meanstream.lab.simulation.data import DataModel, MeansModel, data_half_width
from meanstream.lab.simulation.simulation_result import Track
from meanstream.operators.agents.agent_memory import AUTO, FOREVER, parse_memory
from meanstream.operators.agents.agents import Agents, AgentsSettings
from meanstream.operators.collaboration.alone import alone_where_ahead, half_width_alone
from meanstream.operators.collaboration.followed_releases import FollowedReleases
from meanstream.operators.collaboration.registry import (
    estimate_with_two_variances,
    make_collaboration,
)
from meanstream.operators.collaboration.variance.pooled_variance import pooled_own_means
from meanstream.operators.noise.keyed import KeyedNoise
from meanstream.operators.records import Bools, Floats
from meanstream.operators.validation import LARGEST, require

LEVEL = 0.95
Answers = tuple[Floats, Floats, Floats]
"""Values, and the lower and upper ends of their intervals."""


class DriftLearner(Protocol):
    """Anyone who takes samples of all agents and answers each of them."""

    def take(self, samples: Floats, time: float) -> None:
        """Take samples of shape (samples, agents)."""
        ...

    def answers(self) -> Answers:
        """Answer every agent."""
        ...


class HostedAgents:
    """Agents with a memory, answered as the engine and Beam answer them.

    Parameters
    ----------
    agents : int
    settings : AgentsSettings
    collaboration : str
        As in `make_collaboration`.
    seed : int
        Of the key of the noise.

    Notes
    -----
    **Privacy.** None: the key follows from the seed, for simulation only.
    """

    def __init__(
        self, agents: int, settings: AgentsSettings, collaboration: str, seed: int
    ) -> None:
        key = np.random.default_rng(1000 + seed).bytes(16)
        self._agents = Agents(settings, KeyedNoise(key, deployment="simulation", purpose="agents"))
        self._agents.add_agents([f"agent {i}" for i in range(agents)])
        self._followed = FollowedReleases(settings)
        self._way = make_collaboration(collaboration, lower=settings.lower, upper=settings.upper)

    def take(self, samples: Floats, time: float) -> None:
        """Take samples of shape (samples, agents), in order, within one second from `time` on."""
        n_samples, n_agents = samples.shape
        agent = np.tile(np.arange(n_agents), n_samples)
        times = np.repeat(time + np.arange(n_samples) / n_samples, n_agents)

        batch = self._agents.update(agent, samples.ravel(), times)
        self._followed.observe(batch.releases, batch.before)

    def answers(self) -> Answers:
        """Fit the population and answer everyone."""
        pool = self._followed.posterior
        fitted = self._way.fit_summary(
            self._way.summarize(self._followed.combined(self._agents.latest())), pool
        )
        own = pooled_own_means(self._agents.own(), pool)
        answers = alone_where_ahead(estimate_with_two_variances(fitted, own, level=LEVEL), own)

        return answers.value, answers.lower, answers.upper


class ExponentialMean:
    """Every agent alone, with an exponentially weighted mean; the variance of a sample is known.

    Parameters
    ----------
    length : float
        A sample weighs 1 - 1 / length times as much as the next one.
    stddev : float
        Of a sample.

    Examples
    --------
    >>> alone = ExponentialMean(2.0, stddev=0.5)
    >>> alone.take(np.array([[0.0], [3.0]]), 0.0)
    >>> alone.answers()[0].tolist()
    [2.0]
    """

    def __init__(self, length: float, *, stddev: float) -> None:
        self._length = length
        self._half = float(half_width_alone(np.array(stddev**2 / (2 * length - 1)), LEVEL))
        self._value: Floats | None = None
        self._weight = 0.0

    def take(self, samples: Floats, time: float) -> None:  # noqa: ARG002 - it forgets by samples
        """Take samples of shape (samples, agents), one row after the other."""
        value = np.zeros(samples.shape[1]) if self._value is None else self._value
        for row in samples:
            self._weight = self._weight * (1 - 1 / self._length) + 1
            value = value + (row - value) / self._weight

        self._value = value

    def answers(self) -> Answers:
        """Give the means, with intervals for weights that go back for ever."""
        value = np.zeros(0) if self._value is None else self._value
        return value, value - self._half, value + self._half


class WindowMean:
    """Every agent alone, with the mean of its newest samples; the variance of a sample is known.

    Parameters
    ----------
    length : int
        How many samples.
    stddev : float
        Of a sample.

    Examples
    --------
    >>> alone = WindowMean(2, stddev=0.5)
    >>> alone.take(np.array([[9.0], [0.0], [3.0]]), 0.0)
    >>> alone.answers()[0].tolist()
    [1.5]
    """

    def __init__(self, length: int, *, stddev: float) -> None:
        self._length = length
        self._stddev = stddev
        self._newest: Floats | None = None

    def take(self, samples: Floats, time: float) -> None:  # noqa: ARG002 - it forgets by samples
        """Take samples of shape (samples, agents)."""
        known = samples if self._newest is None else np.vstack([self._newest, samples])
        self._newest = known[-self._length :].copy()

    def answers(self) -> Answers:
        """Give the means and their intervals."""
        newest = np.zeros((1, 0)) if self._newest is None else self._newest
        value = newest.mean(axis=0)
        half = float(half_width_alone(np.array(self._stddev**2 / len(newest)), LEVEL))
        return value, value - half, value + half


SHARE = 0.5
"""Of the agents that a new class takes, unless it says how many."""
MOST_SAMPLES = 10**9
_FORMS = "be step:SIZE,SHARE, walk:SD/EVERY, new-class:MEAN[,SHARE] or all:SIZE, each with @SAMPLES or without"
_NUMBER = r"([+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)"
_WHOLE = r"(\d{1,10})"
_WRITTEN = {
    "step": re.compile(rf"{_NUMBER},{_NUMBER}", re.ASCII),
    "walk": re.compile(rf"{_NUMBER}/{_WHOLE}", re.ASCII),
    "new-class": re.compile(rf"{_NUMBER}(?:,{_NUMBER})?", re.ASCII),
    "all": re.compile(_NUMBER, re.ASCII),
}


@dataclass(frozen=True, slots=True)
class MovingMeans:
    """Where the agents' means are.

    Parameters
    ----------
    levels : float array, shape (levels, agents)
        All means that the agents have, one row after the other.
    begin, every : int
        The second row holds from sample `begin` on, counted from 0, and each further one `every`
        samples later.
    """

    levels: Floats
    begin: int
    every: int

    def of_samples(self, start: int, stop: int) -> Floats:
        """Give the means behind samples `start` to `stop` of each agent, shape (samples, agents)."""
        since = np.arange(start, stop) - self.begin
        return np.asarray(
            self.levels[
                np.where(since < 0, 0, np.minimum(1 + since // self.every, len(self.levels) - 1))
            ]
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeOfMeans:
    """A change of some or all means.

    Parameters
    ----------
    kind : {"step", "walk", "new-class", "all"}
        A share of the agents moves by `size`; every mean takes a normal step of standard deviation
        `size` again and again; a share of the agents moves to the mean `size`; everyone moves by
        `size`.
    size : float
    share : float
        Of the agents that change, spread evenly over them.
    every : int or None
        Samples between two steps of a walk.
    begin : int or None
        Samples of each agent before the change; None is half of them.

    Examples
    --------
    >>> ChangeOfMeans.parse("step:0.2,0.25@5000")
    ChangeOfMeans(kind='step', size=0.2, share=0.25, every=None, begin=5000)
    >>> ChangeOfMeans.parse("step:0.2,0.25").changed(8).tolist()
    [True, False, False, False, True, False, False, False]
    """

    kind: str
    size: float
    share: float
    every: int | None
    begin: int | None

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read `step:SIZE,SHARE | walk:SD/EVERY | new-class:MEAN[,SHARE] | all:SIZE`, and `@SAMPLES` after each."""
        written, separator, samples = text.partition("@")
        kind, _, rest = written.partition(":")
        numbers = _WRITTEN[kind].fullmatch(rest) if kind in _WRITTEN else None
        begin = re.fullmatch(_WHOLE, samples, re.ASCII)

        if numbers is None or (separator and begin is None):
            raise ValueError(f"change must {_FORMS}, got {text!r}")
        size = float(numbers[1])
        second = numbers[2] if numbers.re.groups > 1 else None
        require(math.isfinite(size), "change", "be finite", text)
        require(
            kind != "walk" or size >= 0,
            "change",
            "have a standard deviation that is not negative",
            text,
        )

        every = int(second or 0) if kind == "walk" else None
        require(
            every is None or 1 <= every <= MOST_SAMPLES,
            "change",
            f"step every 1 to {MOST_SAMPLES} samples",
            text,
        )

        share = (
            float(second)
            if second is not None and kind != "walk"
            else SHARE
            if kind == "new-class"
            else 1.0
        )
        require(0 < share <= 1, "change", "have a SHARE in (0, 1]", text)
        first = None if begin is None else int(begin[0])
        rule = f"begin after 1 to {MOST_SAMPLES} samples"
        require(first is None or 1 <= first <= MOST_SAMPLES, "change", rule, text)

        return cls(kind=kind, size=size, share=share, every=every, begin=first)

    def changed(self, agents: int) -> Bools:
        """Tell which agents change: at least one."""
        number = max(round(self.share * agents), 1)
        return np.asarray(np.arange(agents) * number % agents < number)

    def apply(
        self, generator: np.random.Generator, mean: Floats, begin: int, steps: int
    ) -> MovingMeans:
        """Give the means of agents over `steps` samples that start at `mean` and change after `begin` samples."""
        if self.kind == "walk":
            every = int(self.every or 1)
            moves = generator.normal(0.0, self.size, (-(-(steps - begin) // every), len(mean)))
            return MovingMeans(np.vstack([mean, mean + np.cumsum(moves, axis=0)]), begin, every)

        after = self.size if self.kind == "new-class" else mean + self.size
        return MovingMeans(
            np.stack([mean, np.where(self.changed(len(mean)), after, mean)]), begin, steps
        )


AGES = (200, 500, 1000, 2000, 5000)
"""Samples of each agent since the change at which answers are measured, as far as they are
simulated."""
STEPS = 10_000
COLLABORATIONS = ("learned_prior", "none")
BLOCK = 100
MOST_MOVES = 10**8
WIDEST = 1e6
"""In standard deviations of a sample: how far apart simulated means may be."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DriftConfig:
    """Everything that determines a simulation of means that move.

    Parameters
    ----------
    change : str
        See `ChangeOfMeans.parse`; without `@SAMPLES` it comes after half of the steps.
    agents, steps, runs, seed : int
        Run r depends on seed + r only.
    means, spread, class_sizes, stddev
        As in `SimulationConfig`; samples are uniform.
    epsilon, delta : float
        Privacy of one sample over all releases of its agent.
    memory : str
        `forever` or `half-life:SAMPLES`.
    collaboration : str
        `learned_prior`, the engine's default, or `none`.
    lower, upper : float or None
        Declared bounds of a sample; by default those of a run's own samples.
    ages : tuple of int or None
        Samples since the change at which to measure; by default those of `AGES` that are simulated.
    """

    change: str
    agents: int = 200
    steps: int = STEPS
    means: str = "classes:0.2,0.4,0.8"
    spread: float = 0.0
    class_sizes: tuple[int, ...] | None = None
    stddev: float = 0.5
    epsilon: float = 1.0
    delta: float = 1e-6
    memory: str = FOREVER
    collaboration: str = "learned_prior"
    runs: int = 20
    seed: int = 1
    lower: float | None = None
    upper: float | None = None
    ages: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        for name, least in (("agents", 2), ("steps", 1), ("runs", 1)):
            require(getattr(self, name) >= least, name, f"be at least {least}", getattr(self, name))

        require(
            self.steps <= MOST_SAMPLES,
            "steps",
            f"be at most {MOST_SAMPLES} with change",
            self.steps,
        )
        require(self.seed >= 0, "seed", "not be negative", self.seed)
        change = ChangeOfMeans.parse(self.change)
        begin = self.steps // 2 if change.begin is None else change.begin

        least = AGES[0] if self.ages is None else max(self.ages)
        rule = f"begin {least} samples or more before the last of {self.steps} steps"
        require(begin >= 1 and begin + least <= self.steps, "change", rule, self.change)
        moves = self.agents * (self.steps - begin) // (change.every or self.steps)
        require(
            moves <= MOST_MOVES, "change", f"make at most {MOST_MOVES} steps of means", self.change
        )

        require(0 <= self.spread <= LARGEST, "spread", f"be from 0 to {LARGEST:g}", self.spread)
        self.means_model().check(self.agents)
        data_half_width("uniform", self.stddev)
        require(self.collaboration in COLLABORATIONS, "collaboration", f"be one of {', '.join(COLLABORATIONS)} with "
                "change", self.collaboration)  # fmt: skip

        if self.memory != AUTO:
            rule = "be forever, auto, half-life:SAMPLES or window:SAMPLES: simulated samples have no time"
            require(parse_memory(self.memory).seconds is None, "memory", rule, self.memory)

        object.__setattr__(self, "memory", self.settings(0.0, 1.0).memory)

    def change_of_means(self) -> tuple[ChangeOfMeans, int]:
        """Give the change, and after how many samples it comes."""
        change = ChangeOfMeans.parse(self.change)
        return change, self.steps // 2 if change.begin is None else change.begin

    def means_model(self) -> MeansModel:
        """Where means come from before the change."""
        return MeansModel.parse(
            self.means, data="uniform", spread=self.spread, class_sizes=self.class_sizes
        )

    def settings(self, lower: float, upper: float) -> AgentsSettings:
        """Give the agents' settings for these bounds."""
        return AgentsSettings(
            lower=lower, upper=upper, epsilon=self.epsilon, delta=self.delta, memory=self.memory
        )

    def measured_ages(self) -> tuple[int, ...]:
        """Give the ages at which answers are measured."""
        last = self.steps - self.change_of_means()[1]
        return self.ages or tuple(age for age in AGES if age <= last)


@dataclass(frozen=True, slots=True, kw_only=True)
class DriftPart:
    """How some agents were answered at each age.

    Mean over runs, its standard error, and coverage of the intervals.
    """

    mse: list[float]
    stderr: list[float] | None
    coverage: list[float]


@dataclass(frozen=True, slots=True, kw_only=True)
class DriftResult:
    """What was measured of agents that changed and of those that did not, who may be no one."""

    ages: tuple[int, ...]
    changed: DriftPart
    unchanged: DriftPart | None
    config: dict[str, Any]

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return asdict(self)


MakeLearner = Callable[[DriftConfig, AgentsSettings, int], DriftLearner]


def hosted_agents(config: DriftConfig, settings: AgentsSettings, seed: int) -> DriftLearner:
    """Make the agents of one run, as they are hosted."""
    return HostedAgents(config.agents, settings, config.collaboration, seed)


def simulate_drift(
    config: DriftConfig, track: Track = iter, *, learner: MakeLearner = hosted_agents
) -> DriftResult:
    """Simulate; `track` gives the runs one by one, and `learner` makes who learns in each of them.

    Examples
    --------
    >>> found = simulate_drift(DriftConfig(change="step:0.4,0.5", agents=40, steps=800, runs=1))
    >>> found.ages, found.unchanged.mse[0] < found.changed.mse[0]
    ((200,), True)
    """
    chunks = [range(r, r + 1) for r in range(config.runs)]
    measured = [_run(config, learner, config.seed + r) for chunk in track(chunks) for r in chunk]
    error, covered = (np.array([run[k] for run in measured]) for k in range(2))
    changed = config.change_of_means()[0].changed(config.agents)

    return DriftResult(
        ages=config.measured_ages(),
        changed=_part(error, covered, changed),
        unchanged=None if changed.all() else _part(error, covered, ~changed),
        config=asdict(config),
    )


def _part(error: Floats, covered: Bools, who: Bools) -> DriftPart:
    """Average what is of shape (runs, ages, agents) over some agents."""
    by_run = error[:, :, who].mean(axis=2)
    runs = len(by_run)
    return DriftPart(
        mse=by_run.mean(axis=0).tolist(),
        stderr=(by_run.std(axis=0, ddof=1) / np.sqrt(runs)).tolist() if runs > 1 else None,
        coverage=covered[:, :, who].mean(axis=(0, 2)).tolist(),
    )


def _run(config: DriftConfig, make: MakeLearner, seed: int) -> tuple[Floats, Bools]:
    """Let agents learn through a change.

    Give squared errors and who is covered, of shape (ages, agents).
    """
    change, begin = config.change_of_means()
    ages = config.measured_ages()
    stop = begin + max(ages)
    rng = np.random.default_rng(seed)
    mean, _ = config.means_model().draw(rng, config.agents)
    moving = change.apply(rng, mean, begin, stop)
    learner = make(config, config.settings(*_bounds(config, moving)), seed)
    data = DataModel("uniform", config.stddev, data_half_width("uniform", config.stddev))
    cuts = sorted({*range(0, stop, BLOCK), begin, *(begin + age for age in ages)})
    error = []
    covered = []

    for first, last in pairwise(cuts):
        means = moving.of_samples(first, last)
        learner.take(data.sample(rng, means, 1)[0], float(first))

        if last - begin in ages:
            value, low, high = learner.answers()
            now = means[-1]
            error.append((value - now) ** 2)
            covered.append((low <= now) & (now <= high))

    return np.array(error), np.array(covered)


def _bounds(config: DriftConfig, moving: MovingMeans) -> tuple[float, float]:
    """Give the declared bounds, or those of all samples of a run."""
    for name, levels in (("means", moving.levels[:1]), ("change", moving.levels)):
        far = float(np.abs(levels).max()) if np.isfinite(levels).all() else np.inf
        rule = (
            f"keep means within {WIDEST:g} standard deviations of a sample ({config.stddev:g}) of 0"
        )
        require(far <= WIDEST * config.stddev, name, rule, getattr(config, name))

    half = data_half_width("uniform", config.stddev)
    lower = float(moving.levels.min()) - half
    upper = float(moving.levels.max()) + half
    return (
        lower if config.lower is None else config.lower,
        upper if config.upper is None else config.upper,
    )

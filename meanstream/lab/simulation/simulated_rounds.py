"""What estimators of rounds achieve, of one mean or of several numbers, over many populations."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from typing import Any, cast

import numpy as np

from meanstream.lab.random_words import SeededWords
from meanstream.lab.simulation.round_laws import (
    BetweenLaw,
    RoundPopulation,
    SampleLaw,
    draw_population_sizes,
    parse_round_law,
)
from meanstream.lab.simulation.vector_laws import VectorLaw, parse_vector_law
from meanstream.operators.estimators.registry import build_estimator, estimator_class
from meanstream.operators.records import Floats, Ints
from meanstream.operators.rounds.central_rounds import CentralEstimator, run_central
from meanstream.operators.rounds.round_protocol import (
    Estimator,
    assign_protocol_stages,
    run_protocol,
)
from meanstream.operators.rounds.round_records import Estimate, Summaries
from meanstream.operators.rounds.user_sizes import SizeDistribution
from meanstream.operators.validation import require, require_least

SEVERAL = frozenset({"dimension", "components", "terms", "categories", "quantiles"})
"""Options of estimators that answer several numbers."""


@dataclass(frozen=True, kw_only=True)
class WindowsConfig:
    """What simulations of one mean and of several numbers have in common.

    The same record and seed give the same numbers.

    Parameters
    ----------
    estimator : str
        A key of `meanstream.operators.estimators.registry.ESTIMATORS`.
    users : int
        How many users there are.
    epsilon : float
        Privacy of one user's samples.
    sizes : str
        Law of a user's number of samples, as in `SizeDistribution.parse`; the estimator is told it.
    mode : {"tuned", "paper"}
    options : dict
        Further options of the estimator.
    runs, seed : int
        Run r depends on (seed, r) only: more runs extend the same list of runs.
    """

    estimator: str
    users: int = 10_000
    epsilon: float = 1.0
    sizes: str = "point:1"
    mode: str = "tuned"
    options: Mapping[str, Any] = field(default_factory=dict)
    runs: int = 100
    seed: int = 1

    def __post_init__(self) -> None:
        require_least(1, users=self.users, runs=self.runs)
        require(self.seed >= 0, "seed", "not be negative", self.seed)

    @cached_property
    def size_law(self) -> SizeDistribution:
        """Law of a user's number of samples."""
        return SizeDistribution.parse(self.sizes)

    def _build(self, users: int, sizes: SizeDistribution, **known: Any) -> Estimator:
        """Build the estimator, which is told the number of users and the law of their sizes."""
        return build_estimator(
            self.estimator,
            epsilon=self.epsilon,
            users=users,
            sizes=sizes,
            mode=self.mode,
            **(known | dict(self.options)),
        )


@dataclass(frozen=True, kw_only=True)
class RoundsConfig(WindowsConfig):
    """Everything that determines a simulation of one mean.

    Parameters
    ----------
    data : str
        Law of the samples on [-1, 1]: `rademacher:mean | three:q | beta:a,b | bernoulli:p |
        normal:mean,sd`, as in
        `parse_round_law`.
    between_users_law : str or None
        Law of users' own means around that of the data: `normal:SD | skewed:SD | far:SHARE`. The
        estimator is not told.
    order : {"shuffled", "sorted"}
        Whether users come sorted by size; results have the same law.
    least_size : int
        Only users with at least that many samples are queried (1: all). This is for schemes that
        drop users with fewer: whether a user has as many is then public.

    Examples
    --------
    >>> RoundsConfig(estimator="duchi", users=10, epsilon=1.0, sizes="point:0")
    Traceback (most recent call last):
    ValueError: sizes must have whole sizes from 1, got 'point:0'
    """

    data: str | SampleLaw = "rademacher:0"
    between_users_law: str | None = None
    order: str = "shuffled"
    least_size: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        require_least(1, least_size=self.least_size)
        _ = self.population  # parsed here, so that a wrong option is refused before anything runs

    @cached_property
    def population(self) -> RoundPopulation:
        """Everyone who is queried."""
        between = (
            None if self.between_users_law is None else BetweenLaw.parse(self.between_users_law)
        )
        everybody = RoundPopulation(
            self.users,
            self.size_law,
            parse_round_law(self.data) if isinstance(self.data, str) else self.data,
            between,
            self.order,
        )

        return everybody.of_at_least(self.least_size)

    def build(self) -> Estimator:
        """Build the estimator, which is told the number of users and the law of their sizes (the ideal one, more)."""
        rule = "answer one mean (vectors have laws of their own: `VectorConfig`)"
        require(
            not SEVERAL & estimator_class(self.estimator).options, "estimator", rule, self.estimator
        )
        population = self.population
        between = 0.0 if population.between is None else population.between.spread
        known = estimator_class(self.estimator).simulated_options(population.theta, between)

        return self._build(population.users, population.sizes, **known)

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return asdict(self) | {"data": self.data if isinstance(self.data, str) else "own"}


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundsResult:
    """What a simulation of rounds found.

    Attributes
    ----------
    mse, stderr : float
        Mean squared error of the estimate over the runs, and its standard error (None for a single
        run). The estimate is taken before it is cut to [-1, 1]: as in the papers, and unbiased.
    mse_cut : float
        The same for the answer, which is cut.
    bias, bias_stderr : float
        Mean error over the runs before cutting, and its standard error.
    coverage : float
        Share of the runs whose interval holds theta.
    predicted_mse : float or None
        What the estimator predicted, squared.
    theta : float
        The true mean over the law of users' means.
    effective_size, bins : int or None
        What the estimator chose, where it has such a thing.
    config : dict
        The configuration as plain data.
    """

    mse: float
    stderr: float | None
    bias: float
    bias_stderr: float | None
    coverage: float
    predicted_mse: float | None
    theta: float
    effective_size: int | None
    bins: int | None
    mse_cut: float
    config: dict[str, Any]

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON, in the order of the attributes."""
        return {name: getattr(self, name) for name in self.__slots__}


def simulate_rounds(
    config: RoundsConfig,
    estimator: Estimator | None = None,
    track: Callable[[range], Iterable[int]] = iter,
) -> RoundsResult:
    """Simulate a configuration.

    Parameters
    ----------
    config : RoundsConfig
    estimator : Estimator, optional
        What `config.build()` gave, if that was called already.
    track : callable
        Gives the runs one by one, and may show how far that is.

    Examples
    --------
    >>> config = RoundsConfig(estimator="duchi", users=1000, epsilon=22 / 35, mode="paper", runs=50)
    >>> result = simulate_rounds(config)
    >>> round(result.mse, 4), round(result.predicted_mse, 4), result.coverage
    (0.0108, 0.0108, 0.94)
    """
    return simulate_rounds_alike(
        [(config, config.build() if estimator is None else estimator)], track
    )[0]


def simulate_rounds_alike(
    asked: Sequence[tuple[RoundsConfig, Estimator]], track: Callable[[range], Iterable[int]] = iter
) -> list[RoundsResult]:
    """Simulate configurations that differ in their estimators, each population drawn once.

    As each has it alone.
    """
    first = asked[0][0]
    alike: dict[str, Any] = {
        "estimator": first.estimator,
        "mode": first.mode,
        "options": first.options,
    }

    require(
        all(replace(config, **alike) == first for config, _ in asked),
        "configurations",
        "have one population",
        len(asked),
    )
    answers: list[list[Estimate]] = [[] for _ in asked]

    for run in track(range(first.runs)):
        rng = np.random.default_rng([first.seed, run])
        users = first.population.draw(rng)
        for (_, estimator), estimates in zip(asked, answers, strict=True):
            estimates.append(_answer_round(estimator, users, run, deepcopy(rng)))

    return [
        _result(config, estimator, estimates)
        for (config, estimator), estimates in zip(asked, answers, strict=True)
    ]


def _result(config: RoundsConfig, estimator: Estimator, answers: list[Estimate]) -> RoundsResult:
    """Compare the answers of all runs with the truth."""
    columns = np.array(
        [
            [float(x) for x in (answer.unclipped, answer.value, answer.lower, answer.upper)]
            for answer in answers
        ]
    )
    theta = config.population.theta
    error = columns[:, 0] - theta
    said = estimator.describe()

    return RoundsResult(
        mse=float(np.mean(error**2)),
        stderr=simulated_rounds_stderr(error**2),
        bias=float(np.mean(error)),
        bias_stderr=simulated_rounds_stderr(error),
        coverage=float(np.mean((columns[:, 2] <= theta) & (theta <= columns[:, 3]))),
        predicted_mse=predicted_rounds_mse(said),
        theta=theta,
        effective_size=said.get("effective_size"),
        bins=said.get("bins"),
        mse_cut=float(np.mean((columns[:, 1] - theta) ** 2)),
        config=config.as_dict(),
    )


def simulate_round(config: RoundsConfig, estimator: Estimator, run: int = 0) -> Estimate:
    """Simulate one round; run r depends on the seed and on r only."""
    rng = np.random.default_rng([config.seed, run])
    return _answer_round(estimator, config.population.draw(rng), run, rng)


def _answer_round(
    estimator: Estimator, users: Summaries, run: int, rng: np.random.Generator
) -> Estimate:
    """Ask a population that was drawn.

    The reports' random bits come from the generator that has drawn it.
    """
    stage = assign_protocol_stages(estimator.shares, users.user, b"simulated round %d" % run)
    if estimator.trust == "central":
        curator = cast(CentralEstimator, estimator)
        estimate = run_central(curator, users, stage, [SeededWords(rng, 1) for _ in curator.rounds])
    else:
        estimate = simulate_round_stages(estimator, users, stage, rng)

    require(estimate.value.ndim == 0, "estimator", "answer one mean", estimator.name)
    return estimate


def simulate_round_stages(
    estimator: Estimator, users: Summaries, stage: Ints, rng: np.random.Generator
) -> Estimate:
    """Run all stages of local privacy over users, each asked in its own stage."""
    users_of_stage = np.bincount(stage, minlength=len(estimator.shares))
    return run_protocol(estimator, users, stage, [SeededWords(rng, int(n)) for n in users_of_stage])


def simulated_rounds_stderr(values: Floats) -> float | None:
    """Give the standard error of a mean over runs; None for a single one."""
    if len(values) < 2:
        return None
    return float(values.std(ddof=1) / np.sqrt(len(values)))


def predicted_rounds_mse(described: Mapping[str, Any]) -> float | None:
    """Square what an estimator predicts as its standard error, if it does."""
    predicted = described.get("predicted_stderr")

    if predicted is None:
        return None
    return float(predicted) ** 2


@dataclass(frozen=True, kw_only=True)
class VectorConfig(WindowsConfig):
    """Everything that determines a simulation of several numbers.

    Parameters
    ----------
    data : str
        Law of the samples, as in `meanstream.lab.simulation.vector_laws.parse_vector_law`.
    dimension : int
        Number of coordinates of a sample.
    theta : tuple of float
        Means of the coordinates, or coefficients of the density, for the laws that take them.
    """

    sizes: str = "point:100"
    data: str = "rademacher"
    dimension: int = 1
    theta: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        require_least(1, dimension=self.dimension)
        # Parsed here, so that a wrong option is refused before anything runs.
        _ = (self.law, self.size_law)

    @cached_property
    def law(self) -> VectorLaw:
        """Law of the samples."""
        return parse_vector_law(self.data, dimension=self.dimension, theta=self.theta)

    def build(self) -> Estimator:
        """Build the estimator, which is told the number of users and the law of their sizes."""
        return self._build(self.users, self.size_law)

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return asdict(self) | {"theta": list(self.theta), "options": dict(self.options)}


@dataclass(frozen=True, slots=True, kw_only=True)
class VectorResult:
    """What a simulation of vectors found.

    Attributes
    ----------
    mse, stderr : float
        Mean over the runs of the squared error summed over coordinates (integrated, for a density),
        before values are cut, and its standard error (None for a single run). All numbers are on
        [-1, 1]; shares on [0, 1].
    mse_cut : float
        The same for the answer, which is cut.
    bias : list of float
        Mean error of each coordinate over the runs.
    mean, deviation : list of float
        Mean and standard deviation of each coordinate's estimate over the runs.
    coverage : float
        Share of the intervals that hold the truth, over runs and coordinates.
    predicted_mse : float or None
    theta : list of float
        The truth (its mean over the runs, where runs have truths of their own).
    found : list of list of float
        Every run's estimate.
    config : dict
    """

    mse: float
    stderr: float | None
    mse_cut: float
    bias: list[float]
    mean: list[float]
    deviation: list[float]
    coverage: float
    predicted_mse: float | None
    theta: list[float]
    found: list[list[float]]
    config: dict[str, Any]

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON, without the single runs."""
        return {name: getattr(self, name) for name in self.__slots__ if name != "found"}


def simulate_vectors(config: VectorConfig, estimator: Estimator | None = None) -> VectorResult:
    """Simulate a configuration.

    Parameters
    ----------
    config : VectorConfig
    estimator : Estimator, optional
        What `config.build()` gave, if that was called already.

    Examples
    --------
    >>> config = VectorConfig(
    ...     estimator="kent.linf", users=4000, sizes="point:400", epsilon=4.0, dimension=4, data="corner:0.9",
    ...     options={"dimension": 4}, runs=10)
    >>> result = simulate_vectors(config)
    >>> np.array(result.theta).round(2), np.array(result.mean).round(2) + 0.0
    (array([0.8, 0. , 0. , 0. ]), array([0.8, 0. , 0. , 0. ]))
    """
    estimator = config.build() if estimator is None else estimator
    runs = [_vector_run(config, estimator, run) for run in range(config.runs)]
    columns = np.array([a for a, *_ in runs])
    truth = np.array([b for _, b, _ in runs])
    left_out = [c for *_, c in runs]
    raw, cut, lower, upper = columns.transpose(1, 0, 2)
    predicted = predicted_rounds_mse(estimator.describe())

    if predicted is not None and estimator_class(config.estimator).answers == "shares":
        predicted /= 4.0

    error = ((raw - truth) ** 2).sum(axis=1) + left_out
    return VectorResult(
        mse=float(error.mean()),
        stderr=simulated_rounds_stderr(error),
        mse_cut=float((((cut - truth) ** 2).sum(axis=1) + left_out).mean()),
        bias=(raw - truth).mean(axis=0).tolist(),
        mean=raw.mean(axis=0).tolist(),
        deviation=raw.std(axis=0).tolist(),
        coverage=float(((lower <= truth) & (truth <= upper)).mean()),
        predicted_mse=predicted,
        theta=truth.mean(axis=0).tolist(),
        found=raw.tolist(),
        config=config.as_dict(),
    )


def _vector_run(
    config: VectorConfig, estimator: Estimator, run: int
) -> tuple[Floats, Floats, float]:
    """Unclipped and clipped value and the interval, each (d,).

    The truth (d,); and its part beyond d.
    """
    estimate, truth = simulate_vector_round(config, estimator, run)
    columns = [
        np.atleast_1d(x)
        for x in (estimate.unclipped, estimate.value, estimate.lower, estimate.upper)
    ]
    rows = np.array(columns, dtype=np.float64)

    if estimator_class(config.estimator).answers == "shares":
        return 0.5 * (rows + 1.0), 0.5 * (truth + 1.0), 0.0
    d = rows.shape[1]
    # A density may have more coefficients than are estimated, or fewer: those are 0.
    beyond = float((truth[d:] ** 2).sum())

    return rows, np.pad(truth[:d], (0, max(d - len(truth), 0))), beyond


def simulate_vector_round(
    config: VectorConfig, estimator: Estimator, run: int
) -> tuple[Estimate, Floats]:
    """Simulate one window: the answer, and the truth."""
    rng = np.random.default_rng([config.seed, run])
    count = draw_population_sizes(config.size_law, config.users, rng)
    features = getattr(estimator, "features", lambda values: values)
    users, truth = config.law.draw(count, features, rng)
    stage = assign_protocol_stages(estimator.shares, users.user, b"simulated round %d" % run)

    return simulate_round_stages(estimator, users, stage, rng), truth

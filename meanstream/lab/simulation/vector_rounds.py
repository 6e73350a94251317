"""What estimators of several numbers achieve.

Their error and coverage over many simulated windows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from meanstream.lab.simulation.round_population import draw_population_sizes
from meanstream.lab.simulation.simulated_rounds import (
    predicted_rounds_mse,
    simulate_round_stages,
    simulated_rounds_stderr,
)
from meanstream.lab.simulation.vector_laws import VectorLaw, parse_vector_law
from meanstream.operators.estimators.registry import build_estimator, estimator_class
from meanstream.operators.records import Floats
from meanstream.operators.rounds.round_protocol import Estimator, assign_protocol_stages
from meanstream.operators.rounds.round_records import Estimate
from meanstream.operators.rounds.user_sizes import SizeDistribution
from meanstream.operators.validation import require


@dataclass(frozen=True, kw_only=True)
class VectorConfig:
    """Everything that determines a simulation of rounds of vectors.

    The same record and seed give the same numbers.

    Parameters
    ----------
    estimator : str
        A key of `meanstream.operators.estimators.registry.ESTIMATORS`.
    users : int
    epsilon : float
        Privacy of one user's samples.
    sizes : str
        Law of a user's number of samples, as in `SizeDistribution.parse`; the estimator is told it.
    data : str
        Law of the samples, as in `meanstream.lab.simulation.vector_laws.parse_vector_law`.
    dimension : int
        Number of coordinates of a sample.
    theta : tuple of float
        Means of the coordinates, or coefficients of the density, for the laws that take them.
    mode : {"tuned", "paper"}
    options : dict
        Further options of the estimator.
    runs, seed : int
        Run r depends on (seed, r) only.
    """

    estimator: str
    users: int = 10_000
    epsilon: float = 1.0
    sizes: str = "point:100"
    data: str = "rademacher"
    dimension: int = 1
    theta: tuple[float, ...] = ()
    mode: str = "tuned"
    options: Mapping[str, Any] = field(default_factory=dict)
    runs: int = 100
    seed: int = 1

    def __post_init__(self) -> None:
        require(self.users >= 1, "users", "be at least 1", self.users)
        require(self.dimension >= 1, "dimension", "be at least 1", self.dimension)
        require(self.runs >= 1, "runs", "be at least 1", self.runs)
        require(self.seed >= 0, "seed", "not be negative", self.seed)
        _ = (
            self.law,
            self.size_law,
        )  # parsed here, so that a wrong option is refused before anything runs

    @cached_property
    def law(self) -> VectorLaw:
        """Law of the samples."""
        return parse_vector_law(self.data, dimension=self.dimension, theta=self.theta)

    @cached_property
    def size_law(self) -> SizeDistribution:
        """Law of a user's number of samples."""
        return SizeDistribution.parse(self.sizes)

    def build(self) -> Estimator:
        """Build the estimator, which is told the number of users and the law of their sizes."""
        return build_estimator(
            self.estimator,
            epsilon=self.epsilon,
            users=self.users,
            sizes=self.size_law,
            mode=self.mode,
            **self.options,
        )

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
    runs = [_one_run(config, estimator, run) for run in range(config.runs)]
    found = np.array([a for a, *_ in runs])
    truth = np.array([b for _, b, _ in runs])
    left_out = [c for *_, c in runs]
    raw, cut, lower, upper = found.transpose(1, 0, 2)
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


def _one_run(config: VectorConfig, estimator: Estimator, run: int) -> tuple[Floats, Floats, float]:
    """Unclipped and clipped value and the interval, each (d,).

    The truth (d,); and its part beyond d.
    """
    estimate, truth = simulate_vector_round(config, estimator, run)
    columns = [
        np.atleast_1d(x)
        for x in (estimate.unclipped, estimate.value, estimate.lower, estimate.upper)
    ]
    found = np.array(columns, dtype=np.float64)

    if estimator_class(config.estimator).answers == "shares":
        return 0.5 * (found + 1.0), 0.5 * (truth + 1.0), 0.0
    d = found.shape[1]
    # A density may have more coefficients than are estimated, or fewer: those are 0.
    beyond = float((truth[d:] ** 2).sum())

    return found, np.pad(truth[:d], (0, max(d - len(truth), 0))), beyond


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

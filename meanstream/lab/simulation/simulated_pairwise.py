"""The simulation of pairwise schedules: `PairwiseAgents` on drawn data, or Algorithm 1 replayed on given arrays."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import ndtri

from meanstream.lab.papers.colme.pairwise_agents import (
    PairwiseAgents,
    PairwiseSettings,
    schedule_same_class,
)
from meanstream.lab.simulation.agent_population import Simulated, SimulatedUsers
from meanstream.lab.simulation.config import SimulationConfig
from meanstream.lab.simulation.data import MeansModel, data_model, own_or_text
from meanstream.lab.simulation.simulation_result import (
    RunErrors,
    SimulationResult,
    Track,
    result_chunks,
)
from meanstream.operators.counters.registry import Counter, counter_noise_variance, make_counter
from meanstream.operators.records import Bools, Floats, Ints
from meanstream.operators.validation import require, require_positive

_COLUMNS = 4096
"""Agents of all runs of one chunk, if steps are taken one by one: enough to hide the cost of a
NumPy call."""
_TOGETHER = 4
"""Steps that replace as many runs, where a round is long enough: then the pairs of a chunk are
fewer."""
_PAIR_BYTES = 1 << 30
_BLOCK = 128


def simulated_pairwise_noise(config: SimulationConfig) -> tuple[Counter, float]:
    """Return the counter of one pair and the variance of the noise of one p-sum, in squared value units.

    Mode paper composes as the papers do (epsilon and delta divided by the levels of PM-II);
    variance released leaves half of epsilon and delta for the means.

    Examples
    --------
    >>> config = SimulationConfig.from_options(mode="paper")
    >>> counter, variance = simulated_pairwise_noise(config)
    >>> counter, round(variance, 2)
    (Pm1(horizon=151), 84.23)
    """
    counter = make_counter(config.counter, horizon=config.most_releases, levels=config.levels)
    share = 0.5 if config.variance == "released" else 1.0
    variance = counter_noise_variance(
        counter,
        epsilon=share * config.epsilon,
        delta=share * config.delta,
        sensitivity=2 * config.half_width,
        noise=config.noise,
        calibration=config.calibration,
        composition="basic" if config.mode == "paper" else "concentrated",
    )

    return counter, variance


def simulated_pairwise_agents(
    config: SimulationConfig,
    *,
    runs: int,
    variance: Floats,
    classes: Bools | None = None,
    noise_variance: float | None = None,
) -> PairwiseAgents:
    """Make the agents of a configuration.

    `noise_variance` overrides the calibrated noise of one p-sum.
    """
    counter, calibrated = simulated_pairwise_noise(config)
    known = config.variance == "known"
    settings = PairwiseSettings(
        agents=variance.shape[1],
        runs=runs,
        counter=counter,
        fresh_variance=calibrated if noise_variance is None else noise_variance,
        schedule=config.schedule,
        weights=config.weights,
        test=config.test,
        variance=config.variance,
        corrected=config.mode == "tuned",
        significance=config.significance,
        design_variance=simulated_pairwise_design_variance(config, variance),
        half_width=config.half_width,
        partners=config.partners,
    )

    return PairwiseAgents(settings, sample_variance=variance if known else None, classes=classes)


def simulated_pairwise_design_variance(config: SimulationConfig, variance: Floats) -> float:
    """Variance of one sample that gls weights assume.

    The known one if all agents have the same, else `L^2 / 3`.

    The latter is the variance of uniform data on the declared interval.
    """
    common = config.variance == "known" and config.stddev is not None

    if common:
        return float(variance[0, 0])
    return config.half_width**2 / 3


def simulate_pairwise(config: SimulationConfig, track: Track = iter) -> SimulationResult:
    """Simulate in chunks of runs; the numbers do not depend on the chunks.

    Examples
    --------
    >>> config = SimulationConfig.from_options(mode="paper", agents=10, steps=50, runs=3)
    >>> result = simulate_pairwise(config)
    >>> result.checkpoints, len(result.mse), result.mse[0] < 2 * result.local[0]
    ([50], 1, True)
    """
    chunks = track(result_chunks(config.runs, _chunk_runs(config)))
    errors = RunErrors.joined([_simulate_chunk(config, runs) for runs in chunks])
    return SimulationResult.from_errors(config, errors)


def _chunk_runs(config: SimulationConfig) -> int:
    """How many runs to simulate at once: bounded by cache and by the memory of the pairs' state."""
    numbers = 8 if config.variance == "known" else 16
    levels = (
        config.most_releases.bit_length()
        if config.counter == "pm2"
        else 5 * (config.counter == "toeplitz")
    )
    numbers += levels * (1 if config.variance == "known" else 7)

    numbers += config.most_releases if config.weights == "gls" else 0
    others = config.partners or config.agents - 1
    per_run = 8 * numbers * config.agents * others
    together = 1 if config.schedule == "restricted_round_robin" else min(_TOGETHER, others)

    return max(1, min(config.runs, _COLUMNS // (config.agents * together), _PAIR_BYTES // per_run))


def _simulate_chunk(config: SimulationConfig, runs: range) -> RunErrors:
    simulated = Simulated.draw(config, runs)
    population = simulated.population
    classes = None
    if population.exact_classes:
        classes = schedule_same_class(population.label, config.partners)

    agents = simulated_pairwise_agents(
        config, runs=len(runs), variance=population.variance, classes=classes
    )
    errors = RunErrors.empty(len(config.checkpoints), len(runs))
    room = [np.empty((_BLOCK, len(runs), config.agents)) for _ in range(3)]
    done = 0

    for i, checkpoint in enumerate(config.checkpoints):
        while done < checkpoint:
            steps = min(_BLOCK, checkpoint - done)
            _run_block(config, agents, simulated, steps, room)
            done += steps

        _score(config, agents, population, classes, errors, i)

    return errors


def _run_block(
    config: SimulationConfig,
    agents: PairwiseAgents,
    simulated: Simulated,
    steps: int,
    room: list[Floats],
) -> None:
    stddev = agents.settings.fresh_variance**0.5
    data = simulated.samples(steps, room[0])
    noise = simulated.unit_noise(steps, config.noise, room[1])
    noise *= stddev
    second = None

    if config.variance == "released":
        second = simulated.unit_noise(steps, config.noise, room[2])
        second *= (
            stddev * 2 * config.half_width
        )  # sensitivity 4L^2/n of a sample variance against 2L/n of a mean

    agents.steps(data, noise, second, simulated.lost(steps, config.lost or 0.0))


def _score(  # noqa: PLR0917
    config: SimulationConfig,
    agents: PairwiseAgents,
    population: SimulatedUsers,
    classes: Bools | None,
    errors: RunErrors,
    i: int,
) -> None:
    """Fill in row i: the errors of all runs of the chunk now."""
    value, variance = agents.estimate()
    truth = population.mean
    own = agents.own_mean
    error = value - truth
    errors.mse[i] = (error**2).mean(axis=1)
    errors.local[i] = ((own - truth) ** 2).mean(axis=1)
    errors.ideal[i] = ((population.ideal(own) - truth) ** 2).mean(axis=1)
    width = float(ndtri((1 + config.level) / 2)) * np.sqrt(variance)
    errors.coverage[i] = (np.abs(error) <= width).mean(axis=1)

    if classes is not None:
        oracle, _ = agents.estimate(classes)
        errors.oracle[i] = ((oracle - truth) ** 2).mean(axis=1)
        errors.type1[i], errors.type2[i] = _membership_errors(agents.accepted, classes, len(truth))


def _membership_errors(accepted: Bools, classes: Bools, runs: int) -> tuple[Floats, Floats]:
    """Return, by run, the share of pairs of one class that are rejected, and of other pairs that are accepted.

    Examples
    --------
    >>> accepted, classes = np.array([[True, False, True, True]]), np.array([[True, True, False, True]])
    >>> [share.tolist() for share in _membership_errors(accepted, classes, 1)]
    [[0.3333333333333333], [1.0]]
    """

    def by_run(pairs: Bools) -> Ints:
        counts: Ints = pairs.reshape(len(pairs), runs, -1).sum(axis=(0, 2))
        return counts

    with np.errstate(invalid="ignore", divide="ignore"):
        type1 = by_run(classes & ~accepted) / by_run(classes)
        type2 = by_run(accepted & ~classes) / by_run(~classes)

    return type1, type2


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """Algorithm 1 replayed once.

    Estimates of shape (steps, agents), and every agent's class after the last step.
    """

    estimates: Floats
    classes: list[list[int]]


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceInputs:
    """Given arrays for a replay.

    Parameters
    ----------
    data, noise : float arrays, shape (steps, agents)
        Samples, and the unit-variance fresh noise of the p-sum that the query of agent a at t
        creates.
    noise_variance : float, optional
        Variance of the noise of one p-sum (default: as calibrated by the configuration).
    variance_noise : float array, shape (steps, agents), optional
        For variance released, and used there only: the same as `noise` for the released sample
        variance; the variance of its draws is (2L)^2 times `noise_variance`.
    """

    data: Floats
    noise: Floats
    noise_variance: float | None = None
    variance_noise: Floats | None = None

    def check(self, config: SimulationConfig) -> None:
        """Refuse arrays that do not fit together or the configuration."""
        require(not config.is_broadcast, "schedule", "be pairwise for a trace", config.schedule)
        require(
            config.collaboration == "tests",
            "collaboration",
            "be tests for a trace",
            config.collaboration,
        )
        shape = (config.steps, config.agents)

        for name in ("data", "noise", "variance_noise"):
            array = getattr(self, name)
            if array is not None:
                require(
                    array.shape == shape, name, f"have shape (steps, agents) = {shape}", array.shape
                )
                require(bool(np.isfinite(array).all()), name, "be finite", "NaN or infinity")

        released = config.variance == "released"
        rule = "be given for variance released"
        require(self.variance_noise is not None or not released, "variance_noise", rule, None)

        if self.noise_variance is not None:
            require_positive(noise_variance=self.noise_variance)


def trace_true_label(config: SimulationConfig) -> Ints | None:
    """Classes of the agents in the order of `class_sizes`; None if these are not given."""
    if config.class_sizes is None:
        return None
    return np.repeat(np.arange(len(config.class_sizes)), config.class_sizes)


def trace_known_variance(config: SimulationConfig) -> Floats:
    """Variance of one sample of every agent of a trace, from stddev, or from the classes' means for other data."""
    label = trace_true_label(config)
    mean = np.full(config.agents, np.nan)

    if label is not None:
        mean = np.asarray(
            MeansModel.parse(own_or_text(config.means), data=own_or_text(config.data)).numbers
        )[label]

    variance = data_model(config.data, config.stddev, config.half_width).variance(mean)
    unknown = config.variance == "known" and not np.isfinite(variance).all()
    require(
        not unknown, "class_sizes", f"be given to know the variances of {config.data} data", None
    )

    return variance


def trace(config: SimulationConfig, given: TraceInputs) -> Trace:
    """Replay Algorithm 1 on given data and noise with the production operators.

    Examples
    --------
    >>> config = SimulationConfig.from_options(mode="paper", agents=2, steps=3)
    >>> flat = np.full((3, 2), 0.25)
    >>> trace(config, TraceInputs(data=flat, noise=0 * flat)).classes
    [[0, 1], [0, 1]]
    """
    given.check(config)
    label = trace_true_label(config)
    require(
        config.test != "oracle" or label is not None,
        "class_sizes",
        "be given for a trace with test oracle",
        None,
    )

    variance = trace_known_variance(config)[np.newaxis]
    classes = None if label is None else schedule_same_class(label[np.newaxis])
    agents = simulated_pairwise_agents(
        config, runs=1, variance=variance, classes=classes, noise_variance=given.noise_variance
    )
    stddev = agents.settings.fresh_variance**0.5
    estimates = np.empty_like(given.data)

    for step, (values, fresh) in enumerate(zip(given.data, stddev * given.noise, strict=True)):
        second = None
        if given.variance_noise is not None and config.variance == "released":
            second = 2 * config.half_width * stddev * given.variance_noise[step]

        agents.step(values, fresh, second)
        estimates[step] = agents.estimate()[0]

    return Trace(estimates=estimates, classes=_members(agents.accepted))


def _members(accepted: Bools) -> list[list[int]]:
    """List every agent's class, itself included, from the layout of the pairs of one run."""
    agents = range(accepted.shape[1])
    return [
        sorted([a, *(int(o + (a <= o)) for o in np.flatnonzero(accepted[:, a]))]) for a in agents
    ]

"""Run a simulation: dispatch on collaboration and schedule."""

from __future__ import annotations

import numpy as np
from scipy.special import stdtrit

from meanstream.lab.simulation.agent_population import Simulated
from meanstream.lab.simulation.broadcast import simulate_broadcast
from meanstream.lab.simulation.config import SimulationConfig
from meanstream.lab.simulation.simulated_pairwise import simulate_pairwise
from meanstream.lab.simulation.simulation_result import (
    RunErrors,
    SimulationResult,
    Track,
    result_chunks,
)


def simulate(config: SimulationConfig, track: Track = iter) -> SimulationResult:
    """Simulate a configuration.

    `track` gives the chunks of runs one by one, and may show how far that is.

    Examples
    --------
    >>> config = SimulationConfig.from_options(mode="paper", agents=10, steps=50, runs=3, collaboration="none")
    >>> result = simulate(config)
    >>> result.mse == result.local, result.oracle
    (True, None)
    """
    if config.collaboration == "none":
        return simulate_local(config, track)

    if config.is_broadcast:
        return simulate_broadcast(config, track)
    return simulate_pairwise(config, track)


def simulate_local(config: SimulationConfig, track: Track = iter) -> SimulationResult:
    """Simulate agents that never ask anyone.

    The interval is Student's, or normal where the variance is known.

    Examples
    --------
    >>> config = SimulationConfig.from_options(mode="paper", agents=50, steps=20, runs=2, collaboration="none")
    >>> 0.8 < simulate_local(config).mse[0] * 20 / 0.25 < 1.2
    True
    """
    errors = RunErrors.joined(
        [_simulate_run(config, runs.start) for runs in track(result_chunks(config.runs))]
    )
    return SimulationResult.from_errors(config, errors)


def _simulate_run(config: SimulationConfig, run: int) -> RunErrors:
    simulated = Simulated.draw(config, range(run, run + 1))
    population = simulated.population
    errors = RunErrors.empty(len(config.checkpoints), 1)
    total = np.zeros_like(population.mean)
    square = np.zeros_like(population.mean)  # of deviations from the true mean: nothing cancels
    done = 0

    for i, checkpoint in enumerate(config.checkpoints):
        while done < checkpoint:
            data = simulated.samples(min(256, checkpoint - done))
            total += data.sum(axis=0)
            square += ((data - population.mean) ** 2).sum(axis=0)
            done += len(data)

        own = total / done
        error = own - population.mean
        errors.mse[i] = errors.local[i] = (error**2).mean(axis=1)
        errors.ideal[i] = ((population.ideal(own) - population.mean) ** 2).mean(axis=1)
        known = config.variance == "known"
        spread = population.variance if known else (square - done * error**2) / max(done - 1, 1)
        threshold = float(stdtrit(np.inf if known else max(done - 1, 1), (1 + config.level) / 2))

        if known or done > 1:
            errors.coverage[i] = (np.abs(error) <= threshold * np.sqrt(spread / done)).mean(axis=1)

    return errors

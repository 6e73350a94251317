"""Run a simulation: dispatch on collaboration and schedule."""

from __future__ import annotations

from meanstream.operators.papers.simulation.broadcast import simulate_broadcast
from meanstream.operators.papers.simulation.config import SimulationConfig
from meanstream.operators.papers.simulation.local_learning import simulate_local
from meanstream.operators.papers.simulation.simulated_pairwise import simulate_pairwise
from meanstream.operators.papers.simulation.simulation_result import SimulationResult, Track


def simulate(config: SimulationConfig, track: Track = iter) -> SimulationResult:
    """Simulate a configuration; `track` gives the chunks of runs one by one, and may show how far that is.

    Examples
    --------
    >>> config = SimulationConfig.from_options(mode="paper", agents=10, steps=50, runs=3, collaboration="none")
    >>> result = simulate(config)
    >>> result.mse == result.local, result.oracle
    (True, None)
    """
    if config.collaboration == "none":
        return simulate_local(config, track)
    return simulate_broadcast(config, track) if config.is_broadcast else simulate_pairwise(config, track)

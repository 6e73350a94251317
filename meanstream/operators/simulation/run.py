"""Run a simulation: dispatch on collaboration and schedule."""

from __future__ import annotations

from meanstream.operators.simulation.broadcast import simulate_broadcast
from meanstream.operators.simulation.config import SimulationConfig
from meanstream.operators.simulation.local import simulate_local
from meanstream.operators.simulation.pairwise import simulate_pairwise
from meanstream.operators.simulation.result import SimulationResult


def simulate(config: SimulationConfig) -> SimulationResult:
    """Simulate a configuration.

    Examples
    --------
    >>> config = SimulationConfig.from_options(mode="paper", agents=10, steps=50, runs=3, collaboration="none")
    >>> result = simulate(config)
    >>> result.mse == result.local, result.oracle
    (True, None)
    """
    if config.collaboration == "none":
        return simulate_local(config)
    return simulate_broadcast(config) if config.is_broadcast else simulate_pairwise(config)

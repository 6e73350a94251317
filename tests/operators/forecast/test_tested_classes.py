"""Theorem 1 of ColME: the expected error with tests against the simulation, and the crossing."""

from __future__ import annotations

import numpy as np

from meanstream.lab.papers.bounds.agents_forecast import forecast_agents_table
from meanstream.lab.simulation.config import SimulationConfig
from meanstream.lab.simulation.simulated_pairwise import simulate_pairwise

STEPS = (60, 150, 300, 600)


def test_the_error_is_that_of_simulated_agents() -> None:
    options = {"agents": 60, "checkpoints": STEPS, "epsilon": 1.0, "delta": 1e-6}
    config = SimulationConfig.from_options(
        mode="paper", steps=STEPS[-1], runs=40, seed=3, **options
    )
    simulated = simulate_pairwise(config)
    expected = forecast_agents_table(
        classes=3, stddev=0.5, half_width=0.75**0.5, means=[0.2, 0.4, 0.8], **options
    )
    # Four standard errors (false alarm below 3e-4), and 8 % for the expansion; known classes err 10
    # times less.
    away = np.abs(np.array(simulated.mse) - expected["tested"])
    assert (away < 4 * np.array(simulated.stderr) + 0.08 * np.array(expected["tested"])).all()


def test_together_is_better_from_some_time_on() -> None:
    """The review's simulation of the paper's own scenario has 2.4 times the error alone at 200, .31
    times at 500."""
    expected = forecast_agents_table(
        agents=200,
        checkpoints=[2000],
        classes=3,
        stddev=0.5,
        half_width=0.75**0.5,
        epsilon=1.0,
        delta=1e-6,
        means=[0.2, 0.4, 0.8],
    )
    assert 300 < expected["better_together_from"] <= 500

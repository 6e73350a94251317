"""Theorem 1 of ColME: the expected error with tests against the simulation, and the crossing."""

from __future__ import annotations

import numpy as np
import pytest

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


@pytest.mark.parametrize("steps", [500, 2_000])
def test_together_is_better_from_one_time_on_whatever_the_steps(steps: int) -> None:
    """Simulated (8 runs, seed 3), the error is 1.05 (standard error .07) of alone at 380, .88 at 400."""
    options = {"agents": 200, "classes": 3, "stddev": 0.5, "half_width": 0.75**0.5}
    expected = forecast_agents_table(
        checkpoints=[379, 380, steps],
        epsilon=1.0,
        delta=1e-6,
        means=[0.2, 0.4, 0.8],
        **options,
    )
    before, after, _ = np.array(expected["tested"]) / expected["local"]

    assert expected["better_together_from"] == 380
    assert after < 1.0 <= before

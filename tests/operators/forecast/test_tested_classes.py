"""Theorem 1 of ColME: the expected error with tests against the simulation, and the crossing."""

from __future__ import annotations

import numpy as np
import pytest

from meanstream.lab.papers.bounds.agents_forecast import forecast_agents_table
from meanstream.lab.papers.colme.consensus import partner_edges
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


def test_consensus_errs_as_mixed_releases_of_known_classes_do() -> None:
    """A dense transcription on normal releases, own ones left out; placements of its own."""
    agents, classes, t, runs = 90, 3, 400, 300
    expected = forecast_agents_table(
        agents=agents,
        classes=classes,
        checkpoints=[t],
        stddev=0.5,
        half_width=0.75**0.5,
        epsilon=1.0,
        delta=1e-6,
        counter="toeplitz",
        schedule="broadcast:preferred:10",
    )
    rng = np.random.default_rng(7)
    variance = expected["statistic_variance"][0]
    squares = []
    for _ in range(runs):
        label = rng.integers(0, classes, agents)
        accepted = np.zeros((agents, agents))
        for a, b in zip(*partner_edges(np.arange(agents), 10), strict=True):
            accepted[a, b] = accepted[b, a] = label[a] == label[b]

        degree = accepted.sum(axis=0)
        mixing = accepted / (np.maximum(degree, degree[:, np.newaxis]) + 1)
        mixing += np.diag(1 - mixing.sum(axis=1))
        weights = np.linalg.matrix_power(mixing, 8)
        others = weights - np.diag(np.diagonal(weights))
        # Who has no partner of its class learns alone.
        hears = others.sum(axis=1) > 0
        others[hears] /= others[hears].sum(axis=1, keepdims=True)
        precision = np.zeros(agents)
        precision[hears] = 1 / (variance * (others[hears] ** 2).sum(axis=1))
        mixed = others @ rng.normal(0, variance**0.5, agents)
        mean = rng.normal(0, (0.25 / t) ** 0.5, agents)
        answer = (mean * t / 0.25 + mixed * precision) / (t / 0.25 + precision)
        squares.append(np.mean(answer**2))

    # Four standard errors of both averages: that of the forecast is over 22 placements.
    stderr = np.std(squares) / runs**0.5
    assert abs(np.mean(squares) - expected["consensus"][0]) < 4 * stderr + 0.01 * np.mean(squares)
    assert expected["oracle"][0] < expected["consensus"][0] < 0.5 * expected["local"][0]


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

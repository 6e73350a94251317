"""Propositions 1 to 3: brute force for few agents, the reference table for two hundred, limits,
refusals."""

from __future__ import annotations

import itertools
import json
from functools import partial
from typing import Any

import numpy as np
import pytest

from meanstream.lab.papers.bounds.agents_forecast import (
    forecast_agents_alone,
    forecast_agents_random_classes,
    forecast_agents_table,
    oracle_expected_reciprocal,
    oracle_restricted_round_robin,
    oracle_round_robin,
    oracle_round_robin_precision,
    oracle_round_robin_times,
)
from meanstream.lab.papers.colme.statistic import statistic_variance_table, weights
from meanstream.operators.counters.pm1 import Pm1
from meanstream.operators.counters.registry import make_counter
from tests.oracles.partial_sums import variance_of_statistic

FIGURE_2: dict[str, Any] = {
    "agents": 200,
    "classes": 3,
    "stddev": 0.5,
    "half_width": 0.5 * 3**0.5,
    "epsilon": 1.0,
    "delta": 1e-6,
}
TIMES = [1000, 2000, 5000, 10_000, 30_000]


def brute_force(own: float, precision: np.ndarray, p: float) -> float:
    total = 0.0
    for members in itertools.product([0, 1], repeat=len(precision)):
        size = sum(members)
        total += p**size * (1 - p) ** (len(precision) - size) / (own + np.dot(members, precision))
    return total


@pytest.mark.parametrize("p", [0.0, 0.2, 0.5, 1.0])
@pytest.mark.parametrize("n", [1, 3, 10])
def test_integral_is_the_sum_over_placements(n: int, p: float) -> None:
    precision = np.random.default_rng(n).uniform(0, 3, n) * 10.0 ** np.arange(n)
    for own in (1e-3, 1.0, 1e4):
        assert oracle_expected_reciprocal(own, precision, p) == pytest.approx(
            brute_force(own, precision, p), rel=1e-10
        )


def test_agents_not_heard_of_do_not_count() -> None:
    assert oracle_expected_reciprocal(4.0, np.zeros(5), 0.3) == pytest.approx(0.25, rel=1e-11)


@pytest.mark.parametrize("name", ["pm1", "pm2", "toeplitz", "optimal"])
@pytest.mark.parametrize("weighting", ["last", "mean_of_means", "windowed", "gls"])
def test_oracle_round_robin_is_proposition_3(name: str, weighting: str) -> None:
    """Every placement of 5 agents in 2 classes, every statistic from its own release times."""
    agents, s2, fresh, counter = 5, 0.25, 3.0, make_counter(name, horizon=20)
    table = partial(
        statistic_variance_table,
        name=weighting,
        sample_variance=s2,
        counter=counter,
        fresh_variance=fresh,
    )
    found = oracle_round_robin(
        np.array([1, 3, 4, 5, 30]), agents=agents, classes=2, sample_variance=s2, table=table
    )
    for t, error in zip([1, 3, 4, 5, 30], found, strict=True):
        precision = []
        for position in range(1, agents):
            times = np.arange(position, t + 1, agents - 1)
            if len(times) == 0:
                precision.append(0.0)
            elif weighting == "gls":
                precision.append(1 / table(times)[-1])
            else:
                w = weights(weighting, len(times))
                known: dict[str, Any] = {
                    "sample_variance": s2,
                    "counter": counter,
                    "fresh_variance": fresh,
                }
                precision.append(1 / float(variance_of_statistic(times, w, **known)))
        assert error == pytest.approx(brute_force(t / s2, np.array(precision), 0.5), rel=1e-10)


def test_restricted_round_robin_asks_its_class_only() -> None:
    agents, s2, t = 4, 0.25, 13
    table = partial(
        statistic_variance_table,
        name="last",
        sample_variance=s2,
        counter=Pm1(100),
        fresh_variance=3.0,
    )
    expected = 0.0
    for size, ways in ((1, 1), (2, 3), (3, 3), (4, 1)):
        own = t / s2
        if size > 1:
            own += oracle_round_robin_precision(
                t, size, table(oracle_round_robin_times(size, t))
            ).sum()
        expected += ways * 0.5 ** (agents - 1) / own
    found = oracle_restricted_round_robin(
        np.array([t]), agents=agents, classes=2, sample_variance=s2, table=table
    )
    assert found[0] == pytest.approx(expected, rel=1e-12)


def test_reference_table_of_figure_2() -> None:
    table = forecast_agents_table(checkpoints=TIMES, **FIGURE_2)
    np.testing.assert_allclose(table["local"], [2.5e-4, 1.25e-4, 5e-5, 2.5e-5, 8.33e-6], rtol=1e-3)
    np.testing.assert_allclose(
        table["ideal"], [3.75e-6, 1.88e-6, 7.5e-7, 3.75e-7, 1.25e-7], rtol=3e-3
    )
    np.testing.assert_allclose(
        table["oracle"], [1.16e-5, 5.33e-6, 2.03e-6, 1.0e-6, 3.30e-7], rtol=0.01
    )
    assert table["releases"] == [6, 11, 26, 51, 151]
    assert table["horizon"] == 151


def test_schedules_without_noise_reach_the_ideal() -> None:
    """As epsilon grows the noise vanishes, and late in the run the statistic's delay of one round
    does too."""
    free = FIGURE_2 | {"epsilon": 1e9}
    for schedule in ("round_robin", "broadcast:geometric:10,1.0001"):
        table = forecast_agents_table(
            checkpoints=[30_000], schedule=schedule, calibration="analytic", **free
        )
        assert 1.0 < table["oracle"][0] / table["ideal"][0] < 1.01


def test_toeplitz_improves_on_pm1_and_gls_on_last() -> None:
    tuned = FIGURE_2 | {"agents": 20, "calibration": "analytic", "checkpoints": [200, 1500]}
    pm1 = forecast_agents_table(**tuned)["oracle"]
    toeplitz = forecast_agents_table(**tuned, counter="toeplitz")["oracle"]
    gls = forecast_agents_table(**tuned, counter="toeplitz", weights="gls")["oracle"]
    assert all(c < b < a for a, b, c in zip(pm1, toeplitz, gls, strict=True))


def test_local_and_ideal() -> None:
    t = np.array([10, 20])
    np.testing.assert_allclose(forecast_agents_alone(t, np.array([1.0, 3.0])), [0.2, 0.1])
    sizes = np.random.default_rng(4).binomial(9, 1 / 3, 200_000) + 1
    average = (1 / sizes).mean() / 10
    stderr = (1 / sizes).std() / 10 / np.sqrt(len(sizes))
    exact = forecast_agents_random_classes(np.array([10]), 1.0, agents=10, classes=3)[0]
    assert abs(average - exact) < 4.5 * stderr  # false-alarm rate 7e-6


def test_table_is_plain_data() -> None:
    table = forecast_agents_table(
        checkpoints=[5, 50], schedule="broadcast:geometric:10,2", **FIGURE_2
    )
    assert json.loads(json.dumps(table)) == table
    assert table["statistic_variance"][0] is None
    assert table["releases"] == [0, 3]
    assert table["oracle"][0] == pytest.approx(table["local"][0])


def test_one_class_and_many() -> None:
    one = forecast_agents_table(checkpoints=[500], **(FIGURE_2 | {"classes": 1, "agents": 10}))
    restricted = forecast_agents_table(
        checkpoints=[500],
        schedule="restricted_round_robin",
        **(FIGURE_2 | {"classes": 1, "agents": 10}),
    )
    assert one["oracle"] == pytest.approx(
        restricted["oracle"], rel=1e-9
    )  # everybody is in the class
    assert one["ideal"][0] == pytest.approx(one["local"][0] / 10)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"agents": 1}, "agents must be at least 2, got 1"),
        ({"classes": 0}, "classes must be at least 1, got 0"),
        ({"checkpoints": []}, "checkpoints must be times from 1 on"),
        ({"checkpoints": [0]}, "checkpoints must be times from 1 on"),
        ({"delta": 1.0}, "delta must lie strictly between 0 and 1"),
        ({"epsilon": 1.5}, "epsilon must be at most 1"),
        (
            {"schedule": "ring"},
            "schedule must be one of round_robin, restricted_round_robin, broadcast",
        ),
        ({"schedule": "broadcast:every:1d"}, "schedule must count samples here"),
        ({"weights": "best"}, "weights must be one of"),
    ],
)
def test_refusals(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        forecast_agents_table(**(FIGURE_2 | {"checkpoints": [100]} | change))

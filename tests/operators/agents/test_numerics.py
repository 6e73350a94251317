"""What finite arithmetic adds to noise is small, stated, or refused."""

from __future__ import annotations

import math
from typing import Any

import pytest

from meanstream.operators.agents.agents_settings import AgentsSettings
from meanstream.operators.estimators.registry import ESTIMATORS, estimator_class
from meanstream.operators.noise.distributions import TAIL_DELTA, GaussianNoise, LaplaceNoise
from meanstream.operators.noise.numerics import LARGEST_SHARE, numeric_slack
from tests.pipelines.command_line import arguments, asks, meanstream

AGENTS: dict[str, Any] = {"lower": 0, "upper": 1, "epsilon": 1, "delta": 1e-6, "spread_share": 0}


@pytest.mark.parametrize("noise", [GaussianNoise(1e6), LaplaceNoise(3e7)])
@pytest.mark.parametrize("draws", [1, 40, 10**4, 10**6])
def test_the_sum_of_small_errors_is_never_more_than_the_worst_case(noise: Any, draws: int) -> None:
    worst = draws * noise.epsilon_slack
    assert numeric_slack(noise, draws) == worst
    assert numeric_slack(noise, draws, 1e-12) <= worst
    # Of n draws that are off by a fair coin each, Hoeffding's bound; concentrated DP gives no less.
    assert numeric_slack(noise, draws, 1e-12) >= min(
        worst, noise.epsilon_slack * math.sqrt(draws / 2 * math.log(1e12))
    )


@pytest.mark.parametrize("counter", ["pm1", "pm2", "toeplitz"])
@pytest.mark.parametrize("horizon", [1, 40, 10_000])
def test_agents_state_what_float64_adds(counter: str, horizon: int) -> None:
    settings = AgentsSettings(**AGENTS, counter=counter, horizon=horizon)
    assert 0 < settings.numeric_slack <= LARGEST_SHARE * settings.epsilon
    named = {**AGENTS, "counter": counter, "horizon": horizon}
    total = asks("explain", "agents", "--json", *arguments(named)).json["total"]
    assert total["epsilon_with_numerics"] == 1 + settings.numeric_slack


@pytest.mark.parametrize(
    "changes",
    [
        {"epsilon": 1e-4},
        {"per_person": 60_000},
        {"epsilon": 1e-4, "noise": "laplace", "counter": "pm2"},
    ],
)
def test_agents_for_whom_it_is_more_than_a_hundredth_are_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(
        ValueError, match=r"^epsilon must be at least .*, a hundredth of which is what float64 adds"
    ):
        AgentsSettings(**AGENTS | changes)


@pytest.mark.parametrize(
    "changes", [{}, {"spread_share": 0}, {"per_person": 20}, {"horizon": 1}, {"counter": "pm1"}]
)
@pytest.mark.parametrize("epsilon", [1e-4, 0.01])
def test_the_epsilon_that_the_refusal_names_is_accepted_and_less_is_not(
    changes: dict[str, Any], epsilon: float
) -> None:
    given = {**AGENTS, **changes}
    if epsilon == 0.01 and "per_person" not in changes:
        given["horizon"] = 400
    given["noise"] = "gaussian"
    with pytest.raises(ValueError, match="epsilon must be at least") as caught:
        AgentsSettings(**given | {"epsilon": epsilon})
    least = float(str(caught.value).split("at least ")[1].split(",")[0])
    assert AgentsSettings(**given | {"epsilon": least}).epsilon == least
    with pytest.raises(ValueError, match="must be"):
        AgentsSettings(**given | {"epsilon": 0.85 * least})


def test_tails_are_inside_delta_of_gaussian_noise() -> None:
    tiny = AGENTS | {"delta": 40 * TAIL_DELTA}
    with pytest.raises(
        ValueError, match=r"^delta must exceed the 2\.2e-18 that the noise's tails cost"
    ):
        AgentsSettings(**tiny | {"noise": "gaussian"})
    assert AgentsSettings(**tiny).pure


CENTRAL = [
    name for name in ESTIMATORS if getattr(estimator_class(name), "trust", "local") == "central"
]


@pytest.mark.parametrize("name", CENTRAL)
def test_a_curator_states_what_float64_adds_or_refuses(name: str) -> None:
    named = {
        "lower": 0,
        "upper": 1,
        "window": "1d",
        "users": 1000,
        "estimator": name,
        "sizes": "uniform:1,20",
    }
    total = asks("explain", "rounds", "--json", *arguments({**named, "epsilon": 1})).json["total"]
    assert 1 < total["with_numerics"]["epsilon"] <= 1 + LARGEST_SHARE
    assert total["delta"] < total["with_numerics"]["delta"] <= total["delta"] + 100 * TAIL_DELTA
    refused = asks("explain", "rounds", *arguments({**named, "epsilon": 0.0005}))
    assert "a hundredth of which is what float64 adds" in refused.message


NEEDED = {
    "kent.sparse_select": "sparsity=1",
    "kent.sparse_threshold": "sparsity=1",
    "kent.mixture": "components=2",
    "kent.cover": "radius=0.1",
}


@pytest.mark.parametrize("epsilon", ["1e308", "1e-5"])
@pytest.mark.parametrize("name", ESTIMATORS)
def test_an_epsilon_beyond_arithmetic_is_refused_by_every_estimator(
    name: str, epsilon: str
) -> None:
    given = ["--users", "20", "--runs", "1", "--estimator", name, "--epsilon", epsilon]
    given += ["--option", NEEDED[name]] if name in NEEDED else []
    assert meanstream("simulate", "rounds", *given).message == (
        f"epsilon must be from 0.0001 to 1e100, got {epsilon}"
    )

"""The choice of the mechanism: least noise among all that keep the promise, and honest refusals."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from meanstream.operators.agents.agents_settings import AgentsSettings
from meanstream.operators.agents.defaults import (
    mean_noise_variance,
    mechanism_facts,
    mechanism_name,
    other_mechanisms,
)
from meanstream.operators.counters.registry import COUNTERS, NOISES
from meanstream.operators.noise.keyed import canonical_spelling

BOUNDS: dict[str, Any] = {"lower": 0.0, "upper": 1.0}
LEAST = [
    ({"epsilon": 1, "horizon": 1}, 1.92),
    ({"epsilon": 1, "horizon": 12}, 12.5),
    ({"epsilon": 1, "horizon": 40}, 39.3),
    ({"epsilon": 1, "horizon": 100}, 72.0),
    ({"epsilon": 3, "horizon": 365}, 14.6),
    ({"epsilon": 10, "horizon": 40}, 0.0175),
    ({"epsilon": 0.1, "horizon": 100}, 7279.0),
]
"""Mean variance of a sum, in squared widths, worked out apart from this code; without votes."""


@pytest.mark.parametrize(("asked", "variance"), LEAST)
def test_the_variance_is_the_least_known(asked: dict[str, Any], variance: float) -> None:
    settings = AgentsSettings(**BOUNDS, **asked, spread_share=0)
    assert settings.delta == 0
    found = mean_noise_variance(settings) / settings.grid.span**2
    assert found == pytest.approx(variance, rel=0.01)


@pytest.mark.parametrize(
    ("epsilon", "horizon", "per_person"),
    [*itertools.product((0.1, 1.0, 10.0), (1, 40, 300), (None, 20))],
)
def test_no_registered_mechanism_has_less_noise(
    epsilon: float, horizon: int, per_person: int | None
) -> None:
    given = {**BOUNDS, "epsilon": epsilon, "delta": 1e-6, "horizon": horizon}
    given["per_person"] = per_person
    chosen = mean_noise_variance(AgentsSettings(**given))

    for counter, noise in itertools.product(COUNTERS, NOISES):
        if counter == "optimal" and horizon > 40:
            continue  # the cube of the horizon
        try:
            other = AgentsSettings(**given, counter=counter, noise=noise)
        except ValueError:
            continue
        assert chosen <= 1.02 * mean_noise_variance(other), (counter, noise)


def test_the_choice_is_spelled() -> None:
    """The mechanism is in the key of the noise, and settings are what they say."""
    asked = AgentsSettings(**BOUNDS, epsilon=1)
    said = AgentsSettings(**BOUNDS, epsilon=1, noise=asked.noise, counter=asked.counter)
    assert asked == said
    assert canonical_spelling(asked)["noise"] == "staircase"
    assert replace(asked, name="x").noise == "staircase"


def test_no_pure_mechanism_without_asking_for_gaussian() -> None:
    many = AgentsSettings(**BOUNDS, epsilon=0.1, delta=1e-6, horizon=1000)
    assert many.noise == "gaussian"
    assert AgentsSettings(**BOUNDS, epsilon=0.1, horizon=1000).pure


@pytest.mark.parametrize("odds", [0.51, 0.55, 0.7, 0.95])
@pytest.mark.parametrize("noise", ["auto", *NOISES])
def test_odds_are_kept_and_used_up(odds: float, noise: str) -> None:
    settings = AgentsSettings(**BOUNDS, odds=odds, horizon=12, noise=noise)
    assert settings.odds is None
    assert odds - 2e-4 <= settings.guessed_right <= odds + 1e-12
    percent = AgentsSettings(**BOUNDS, odds=f"{100 * odds:g}%", horizon=12, noise=noise)
    assert percent == settings


def test_at_equal_odds_a_gaussian_has_less_noise() -> None:
    pure, chosen = (
        mean_noise_variance(AgentsSettings(**BOUNDS, odds=0.55, horizon=1, noise=noise))
        for noise in ("laplace", "auto")
    )
    assert pure / chosen > 2.5


@pytest.mark.parametrize(
    ("asked", "refusal"),
    [
        ({}, "epsilon must be given, or odds"),
        ({"epsilon": 1, "odds": 0.6}, "odds must be left out with epsilon"),
        ({"odds": 0.5}, "odds must lie between 50 % and 100 %"),
        ({"odds": "100%"}, "odds must lie between 50 % and 100 %"),
        ({"odds": "often"}, "odds must be"),
        (
            {"epsilon": 1, "noise": "normal"},
            "noise must be one of auto, laplace, staircase, gaussian",
        ),
        ({"epsilon": 1, "noise": "gaussian"}, "delta must be more than 0 with noise 'gaussian'"),
        (
            {"epsilon": 1, "counter": "toeplitz"},
            "delta must be positive, such as 1e-6, for the toeplitz counter, whose noise is Gaussian",
        ),
        (
            {"epsilon": 1, "counter": "optimal", "noise": "laplace"},
            "noise must be gaussian for the optimal counter, got 'laplace'",
        ),
        (
            {"epsilon": 1, "memory": "half-life:100"},
            "delta must be more than 0, such as 1e-6, with a",
        ),
        ({"epsilon": 1, "delta": -0.1}, r"delta must lie in \[0, 1\)"),
        ({"epsilon": 1e200}, "epsilon must be from"),
    ],
)
def test_refused_in_one_line(asked: dict[str, Any], refusal: str) -> None:
    with pytest.raises(ValueError, match=refusal) as refused:
        AgentsSettings(**BOUNDS, **asked)
    assert "\n" not in str(refused.value)


def test_the_best_other_is_told() -> None:
    settings = AgentsSettings(**BOUNDS, epsilon=1, delta=1e-6, horizon=12)
    others = other_mechanisms(settings)
    variances = [mean_noise_variance(other) for other in others]
    assert variances == sorted(variances)
    assert variances[0] >= mean_noise_variance(settings)
    assert {"optimal.gaussian", "toeplitz.gaussian"} <= {mechanism_name(one) for one in others}
    facts = mechanism_facts(settings)
    assert (facts.mechanism, facts.other) == ("pm1.staircase", mechanism_name(others[0]))


def test_terms_are_the_draws_of_a_sum() -> None:
    index = np.arange(1, 31)
    given = {**BOUNDS, "epsilon": 1, "delta": 1e-6, "horizon": 30}
    for counter in ("pm1", "pm2", "two_level"):
        settings = AgentsSettings(**given, counter=counter, noise="laplace")
        matrix = settings.mechanism.matrix(30)
        assert set(np.unique(matrix)) == {0.0, 1.0}
        assert settings.noise_terms(index).tolist() == matrix.sum(axis=1).tolist()
    assert not AgentsSettings(**given, noise="gaussian").noise_terms(index).any()

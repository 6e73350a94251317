"""The production simulator equals the transcription of Algorithm 1 on the same data and noise."""

from __future__ import annotations

import re
from itertools import product

import numpy as np
import pytest

from meanstream.lab.simulation.agent_population import Simulated
from meanstream.lab.simulation.config import CHOICES, SimulationConfig
from meanstream.lab.simulation.simulate_agents import simulate
from meanstream.lab.simulation.simulated_pairwise import (
    TraceInputs,
    simulated_pairwise_design_variance,
    trace,
    trace_known_variance,
    trace_true_label,
)
from meanstream.operators.counters.registry import make_counter
from tests.oracles.transcription import Inputs, transcribe

AGENTS, STEPS = 5, 48
SIZES = (2, 2, 1)


def combinations() -> list[dict[str, str]]:
    names = ("counter", "weights", "schedule", "test", "variance", "mode")
    every = product(
        CHOICES["counter"],
        CHOICES["weights"],
        ("round_robin", "restricted_round_robin"),
        CHOICES["test"],
        CHOICES["variance"],
        CHOICES["mode"],
    )
    chosen = [dict(zip(names, combination, strict=True)) for combination in every]
    return [
        c for c in chosen if c["mode"] == "paper" or c["variance"] == "from_releases"
    ]  # elsewhere the same


def configured(**choices: str) -> SimulationConfig:
    options = {
        "data": "uniform",
        "means": "classes:0.2,0.4,0.8",
        "class_sizes": SIZES,
        "collaboration": "tests",
    }
    return SimulationConfig.from_options(
        agents=AGENTS, steps=STEPS, calibration="classical", **options | choices
    )  # type: ignore[arg-type]


def refusal(choices: dict[str, str]) -> str | None:
    """Why a combination is refused, or None."""
    try:
        configured(**choices)
    except ValueError as error:
        return str(error)
    return None


def arrays(seed: int, *, discrete: bool = False) -> dict[str, np.ndarray]:
    generator = np.random.default_rng(seed)
    mean = np.repeat([0.2, 0.4, 0.8], SIZES)
    data = (
        (generator.random((STEPS, AGENTS)) < mean) * 1.0
        if discrete
        else mean + generator.uniform(-0.5, 0.5, (STEPS, AGENTS))
    )
    return {
        "data": data,
        "noise": generator.standard_normal((STEPS, AGENTS)),
        "variance_noise": generator.standard_normal((STEPS, AGENTS)),
    }


def both(config: SimulationConfig, noise_variance: float, given: dict[str, np.ndarray]) -> tuple:
    second = given["variance_noise"] if config.variance == "released" else None
    produced = trace(
        config,
        TraceInputs(
            data=given["data"],
            noise=given["noise"],
            noise_variance=noise_variance,
            variance_noise=second,
        ),
    )
    variance = trace_known_variance(config)
    expected = transcribe(
        Inputs(
            config=config,
            data=given["data"],
            noise=given["noise"],
            noise_variance=noise_variance,
            variance=variance,
            design_variance=simulated_pairwise_design_variance(config, variance[np.newaxis]),
            variance_noise=second,
            variance_noise_variance=(2 * config.half_width) ** 2 * noise_variance,
            label=trace_true_label(config),
            matrix=make_counter("toeplitz", horizon=config.most_releases).matrix(
                config.most_releases
            ),
        )
    )
    return produced, expected


@pytest.mark.parametrize(
    "choices", [c for c in combinations() if not refusal(c)], ids=lambda c: "-".join(c.values())
)
def test_production_equals_the_transcription(choices: dict[str, str]) -> None:
    config = configured(**choices)
    seed = sum(map(ord, "".join(choices.values())))
    produced, (estimates, classes) = both(config, (0.01, 10.0)[seed % 2], arrays(seed))
    np.testing.assert_allclose(produced.estimates, estimates, rtol=0, atol=1e-9)
    assert produced.classes == classes


@pytest.mark.parametrize("variance", ["known", "released", "from_releases"])
@pytest.mark.parametrize("test", ["lazy", "eager"])
def test_discrete_data_with_zero_sample_variances(variance: str, test: str) -> None:
    """Agents whose first samples are all equal: no NaN, and the transcription's fall-back."""
    config = configured(
        data="bernoulli", means="classes:0.05,0.5,0.95", variance=variance, test=test, mode="paper"
    )
    given = arrays(11, discrete=True)
    given["data"][:, 0] = 0.0
    produced, (estimates, classes) = both(config, 0.5, given)
    assert np.isfinite(produced.estimates).all()
    np.testing.assert_allclose(produced.estimates, estimates, rtol=0, atol=1e-9)
    assert produced.classes == classes


def test_every_combination_works_or_is_refused_in_one_line() -> None:
    """Every combination works or is refused with the option, the rule and the value."""
    refusals = [reason for reason in map(refusal, combinations()) if reason]
    assert 0 < len(refusals) < 0.65 * len(combinations())
    for reason in refusals:
        assert re.fullmatch(r"(counter|variance|weights) must .+, got '\w+'", reason)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"epsilon": 0.0}, "epsilon must be positive and finite, got 0.0"),
        ({"delta": 1.0}, "delta must lie strictly between 0 and 1, got 1.0"),
        (
            {"mode": "paper", "epsilon": 1.5},
            "epsilon must be at most 1 with calibration classical, got 1.5",
        ),
        ({"mode": "fast"}, "mode must be one of paper, tuned, got 'fast'"),
        ({"noise": "laplace"}, "noise must be gaussian with counter toeplitz"),
        (
            {"counter": "pm2", "mode": "paper", "levels": 7},
            "levels must be at least 8 for 151 releases, got 7",
        ),
        ({"levels": 7}, "levels must be left out with counter optimal, got 7"),
        ({"agents": 1}, "agents must be at least 2, got 1"),
        ({"checkpoints": (5, 5)}, "checkpoints must increase"),
        ({"checkpoints": (40_000,)}, "checkpoints must increase and lie in 1..steps"),
        (
            {"mode": "paper", "collaboration": "learned_prior"},
            "collaboration must be tests or none with schedule",
        ),
        (
            {"mode": "paper", "schedule": "round_robin:geometric:10,2"},
            "schedule must take no release times",
        ),
        (
            {"schedule": "broadcast:every:1d"},
            "schedule must be broadcast, broadcast:preferred:FIRST",
        ),
        ({"schedule": "gossip"}, "schedule must be one of"),
        (
            {"mode": "paper", "weights": "gls", "agents": 5},
            "weights must not be gls beyond 512 releases",
        ),
        (
            {"mode": "paper", "test": "oracle", "spread": 0.1},
            "test must be lazy or eager with means",
        ),
        ({"data": "normal"}, "half_width must be given for data normal"),
        *[({"stddev": x}, "stddev must be from 1e-30 to 1e+30") for x in (1e-320, 1e-200, 1e200)],
        ({"half_width": 1e200}, "half_width must lie strictly between 0 and 1e+31"),
        ({"spread": 1e200}, "spread must be from 0 to 1e+30"),
        ({"means": "classes:1e200,0"}, "means must be from -1e+30 to 1e+30"),
        ({"half_width": 0.5}, "half_width must be at least that of the data"),
        ({"data": "bernoulli", "stddev": 0.5}, "stddev must be left out for data bernoulli"),
        ({"data": "beta"}, "data must be written beta:CONCENTRATION"),
        ({"data": "beta:0"}, "data must be positive and finite"),
        ({"data": "cauchy"}, "data must be one of"),
        ({"data": "bernoulli", "means": "classes:0.2,1.4"}, "means must lie in"),
        ({"data": "beta:2", "means": "classes:0,0.5"}, "means must lie strictly inside"),
        ({"means": "classes:a,b"}, "means must be written with numbers"),
        ({"means": "normal:1"}, "means must be classes:LIST, normal:MEAN,SD"),
        ({"means": "uniform:2,1"}, "means must have A below B"),
        ({"means": "normal:0,1", "spread": 0.1}, "spread must be left out"),
        ({"class_sizes": (1, 2)}, "class_sizes must list 3 sizes"),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
def test_bad_options_name_the_option_the_rule_and_the_value(
    options: dict[str, object], message: str
) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        SimulationConfig.from_options(**options)  # type: ignore[arg-type]


@pytest.mark.parametrize("data", ["uniform", "beta:3", "bernoulli", "rademacher", "normal"])
def test_samples_have_the_mean_and_variance_of_their_agent(data: str) -> None:
    """2e5 samples of each of 3 agents: within 5 standard errors (30 numbers: false alarm below
    2e-5)."""
    stddev, half_width = (0.3, 0.4) if data == "normal" else (None, None)
    config = SimulationConfig.from_options(
        data=data,
        stddev=stddev,
        half_width=half_width,
        agents=3,
        means="classes:0.2,0.4,0.8",
        class_sizes=(1, 1, 1),
    )
    simulated = Simulated.draw(config, range(1))
    samples = simulated.samples(200_000)[:, 0]
    truth, variance = simulated.population.mean[0], simulated.population.variance[0]
    np.testing.assert_array_less(
        np.abs(samples.mean(0) - truth), 5 * np.sqrt(variance / len(samples))
    )
    fourth = ((samples - truth) ** 4).mean(0)
    error = np.sqrt((fourth - variance**2) / len(samples)) + 1e-12
    np.testing.assert_array_less(np.abs(((samples - truth) ** 2).mean(0) - variance), 5 * error)
    assert np.abs(
        samples - (0.5 if data in ("beta:3", "bernoulli") else 0 if data == "rademacher" else truth)
    ).max() <= (config.half_width * (1 + 1e-12))


def test_unit_noise_has_unit_variance() -> None:
    """1e5 draws of each shape within 5 standard errors (false alarm below 3e-6)."""
    simulated = Simulated.draw(SimulationConfig.from_options(agents=10), range(1))
    for noise, kurtosis in (("gaussian", 3.0), ("laplace", 6.0)):
        draws = simulated.unit_noise(10_000, noise)
        assert abs((draws**2).mean() - 1) < 5 * np.sqrt((kurtosis - 1) / draws.size)


def test_numbers_do_not_depend_on_chunks_and_runs_extend_each_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    options = {"mode": "paper", "agents": 8, "steps": 60, "checkpoints": (7, 60)}
    whole = simulate(SimulationConfig.from_options(runs=4, **options))  # type: ignore[arg-type]
    monkeypatch.setattr("meanstream.lab.simulation.simulated_pairwise._COLUMNS", 8)
    np.testing.assert_allclose(
        simulate(SimulationConfig.from_options(runs=4, **options)).mse, whole.mse, rtol=1e-12
    )  # type: ignore[arg-type]
    first = simulate(SimulationConfig.from_options(runs=1, **options))  # type: ignore[arg-type]
    rest = [simulate(SimulationConfig.from_options(runs=r, **options)).mse for r in (2, 3)]  # type: ignore[arg-type]
    assert first.stderr is None
    assert all(len(mse) == 2 for mse in rest)


def test_measures_that_do_not_apply_are_null() -> None:
    spread = simulate(
        SimulationConfig.from_options(mode="paper", agents=6, steps=20, runs=2, spread=0.1)
    )
    assert spread.oracle is spread.type1 is spread.type2 is None
    assert spread.ideal == spread.local
    alone = simulate(
        SimulationConfig.from_options(
            mode="paper", agents=6, steps=20, runs=2, collaboration="none"
        )
    )
    assert alone.oracle is alone.type1 is None
    assert alone.mse == alone.local
    assert alone.coverage is not None


def test_oracle_classes_make_no_membership_errors() -> None:
    result = simulate(
        SimulationConfig.from_options(mode="paper", agents=9, steps=40, runs=3, test="oracle")
    )
    assert result.type1 == result.type2 == [0.0]
    assert result.mse == pytest.approx(result.oracle)

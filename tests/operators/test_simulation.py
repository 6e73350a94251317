"""The production simulator equals the transcription of Algorithm 1 on the same data and noise."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from operators.counter import make_counter
from operators.simulation.config import CHOICES, SimulationConfig
from operators.simulation.pairwise import design_variance
from operators.simulation.trace import TraceInputs, known_variance, trace, true_label
from operators.simulation.transcription import Inputs, transcribe

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
    return [c for c in chosen if c["mode"] == "paper" or c["variance"] == "from_releases"]  # elsewhere the same


def configured(**choices: str) -> SimulationConfig | None:
    """The configuration, or None where the combination is refused."""
    options = {"data": "uniform", "means": "classes:0.2,0.4,0.8", "class_sizes": SIZES, "collaboration": "tests"}
    try:
        return SimulationConfig.from_options(agents=AGENTS, steps=STEPS, calibration="classical", **options | choices)
    except ValueError:
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
        TraceInputs(data=given["data"], noise=given["noise"], noise_variance=noise_variance, variance_noise=second),
    )
    variance = known_variance(config)
    expected = transcribe(
        Inputs(
            config=config,
            data=given["data"],
            noise=given["noise"],
            noise_variance=noise_variance,
            variance=variance,
            design_variance=design_variance(config, variance[np.newaxis]),
            variance_noise=second,
            variance_noise_variance=(2 * config.half_width) ** 2 * noise_variance,
            label=true_label(config),
            matrix=make_counter("toeplitz", horizon=config.most_releases).matrix(config.most_releases),
        )
    )
    return produced, expected


@pytest.mark.parametrize("choices", combinations(), ids=lambda c: "-".join(c.values()))
def test_production_equals_the_transcription(choices: dict[str, str]) -> None:
    config = configured(**choices)
    if config is None:
        pytest.skip("refused; see test_every_refusal_is_one_line")
    seed = sum(map(ord, "".join(choices.values())))
    produced, (estimates, classes) = both(config, (0.01, 10.0)[seed % 2], arrays(seed))
    np.testing.assert_allclose(produced.estimates, estimates, rtol=0, atol=1e-9)
    assert produced.classes == classes

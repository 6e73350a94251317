"""What was fitted on one worker answers on another as it does where it was fitted, for every way to
collaborate."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import meanstream.pipelines.beam.agents.agents_coders  # noqa: F401 - it registers the kinds
from meanstream.operators.agents.agents import Agents, AgentsSettings
from meanstream.operators.collaboration.registry import COLLABORATIONS, make_collaboration
from meanstream.operators.collaboration.variance.pooled_variance import pooled_own_means
from meanstream.operators.noise.keyed import KeyedNoise
from meanstream.pipelines.beam.element_types.columns_coder import record_bytes, record_of_bytes

SETTINGS = AgentsSettings(lower=0, upper=1, epsilon=8, delta=1e-6, name="bytes")


def fitted_and_own(name: str) -> tuple[Any, Any]:
    agents = Agents(
        SETTINGS,
        KeyedNoise(b"0d409462e4304f9f66770dc046be10c9", deployment="bytes", purpose="agents"),
    )
    agents.add_agents([f"a{number}" for number in range(60)])
    rng, who = np.random.default_rng(4), np.repeat(np.arange(60), 40)
    values = np.clip(rng.normal(np.where(who % 2, 0.3, 0.7), 0.1), 0, 1)
    agents.update(who, values, np.arange(len(who), dtype=np.float64))
    collaboration = make_collaboration(name, lower=0, upper=1)
    return collaboration.fit_summary(
        collaboration.summarize(agents.latest()), 0.01
    ), pooled_own_means(agents.own(), 0.01)


@pytest.mark.parametrize("name", COLLABORATIONS)
def test_a_population_that_was_read_answers_as_before(name: str) -> None:
    fitted, own = fitted_and_own(name)
    read = record_of_bytes("fitted", record_bytes("fitted", fitted))
    before, after = fitted.estimate(own), read.estimate(own)
    for field in ("value", "lower", "upper", "noise_half_width", "class_size"):
        np.testing.assert_array_equal(getattr(after, field), getattr(before, field))
    assert read.describe() == fitted.describe()

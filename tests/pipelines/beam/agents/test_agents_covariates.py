"""Public covariates on Beam: the engine's population to the bit, and state that knows of no
attributes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from meanstream.operators.collaboration.covariates.covariate_releases import CovariateReleases
from meanstream.pipelines.beam.agents.agent_transforms import CollaborateAgents
from meanstream.pipelines.beam.agents.fit_population import HashedCovariates, agent_covariates
from meanstream.streaming.engine.engine_options import EngineOptions
from tests.pipelines.beam.support.agents_world import (
    SETTINGS,
    assert_same_estimates,
    by_agent,
    engine_on,
    samples,
)
from tests.pipelines.beam.support.collecting import collector, run_pipeline

KINDS: dict[str, dict[str, Any]] = {
    f"agent {a}": {"kind": "even" if a % 2 == 0 else "odd", "size": float(a) if a % 5 else None}
    for a in range(24)
}


def test_a_pipeline_answers_as_the_engine_does(tmp_path: Path) -> None:
    import apache_beam as beam

    world = engine_on(tmp_path, samples(), covariates=agent_covariates(KINDS))
    stream = [samples()[place] for place in np.random.default_rng(7).permutation(600).tolist()]
    keep, events = collector()

    def build(pipeline: beam.Pipeline) -> Any:
        made = (
            pipeline
            | beam.Create(stream, reshuffle=False)
            | CollaborateAgents(
                SETTINGS, EngineOptions(covariates=agent_covariates(KINDS)), shards=4
            )
        )
        _ = made.population | "Population" >> keep
        return made.estimates

    found, _ = run_pipeline(build)
    lines = [line for batch in found for line in batch.lines]
    assert_same_estimates(lines, world.lines("estimates"), SETTINGS)
    assert any(event["moved_by_covariates"] != 0 for event in by_agent(lines).values())
    (expected,) = map(json.loads, world.lines("population"))
    (event,) = (json.loads(one.model_dump_json()) for one in events)
    assert event["fitted"]["covariates"] == expected["fitted"]["covariates"]
    assert event["fitted"] == expected["fitted"]
    assert event["fitted"]["covariates"]["attributes"][0]["levels"][0]["agents"] == 12


def test_codes_are_added_at_the_fit() -> None:
    hashed = HashedCovariates(agent_covariates(KINDS))
    one = np.ones(2, np.int64)
    nobody = CovariateReleases(
        agent=7 * one,
        count=one,
        mean=np.ones(2),
        noise_variance=np.ones(2),
        noise_terms=one,
        codes=one[:, None],
    )
    found = hashed.of_summary(nobody)
    assert isinstance(found, CovariateReleases)
    assert found.codes.tolist() == [[3, 4096]] * 2
    assert found.noise_terms.tolist() == [1, 1]
    assert HashedCovariates(None).of_summary(nobody) is nobody


def test_what_is_no_mapping_is_refused_in_one_line() -> None:
    with pytest.raises(TypeError, match="covariates must map agents to their attributes, got list"):
        agent_covariates([1])  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="covariates must have one type of values in each column"):
        agent_covariates({"a": {"x": 1}, "b": {"x": "y"}})
    with pytest.raises(ValueError, match="collaboration must be learned_prior or pooled_prior"):
        CollaborateAgents(
            SETTINGS, EngineOptions(covariates=agent_covariates(KINDS), collaboration="none")
        )

"""Shards that are ready in one bundle are answered in one evaluation: the same bytes as each by
itself."""

from __future__ import annotations

from typing import Any

import apache_beam as beam
import pytest

from meanstream.operators.collaboration.registry import COLLABORATIONS
from meanstream.pipelines.beam.agents import answer_agents as answer
from meanstream.pipelines.beam.agents.agent_transforms import CollaborateAgents
from meanstream.streaming.agents.estimates import PersonalEstimates
from meanstream.streaming.engine.engine_options import EngineOptions
from tests.pipelines.beam.support.agents_world import HOUR, SETTINGS, samples
from tests.pipelines.beam.support.collecting import run_pipeline


def answered(
    monkeypatch: pytest.MonkeyPatch, together: int, collaboration: str, **how: Any
) -> tuple[list[bytes], int]:
    """Give all answers, sorted, and how many evaluations have made them."""
    asked: list[int] = []
    rows = PersonalEstimates.answer_rows

    def counted(self: PersonalEstimates, names: Any, *given: Any, **named: Any) -> Any:
        asked.append(len(names))
        return rows(self, names, *given, **named)

    def build(pipeline: beam.Pipeline) -> Any:
        read = pipeline | beam.Create(samples(300, 30), reshuffle=False)
        return (
            read
            | CollaborateAgents(
                SETTINGS, EngineOptions(collaboration=collaboration), shards=20, **how
            )
        ).estimates

    with monkeypatch.context() as patch:
        patch.setattr(answer, "TOGETHER", together)
        patch.setattr(PersonalEstimates, "answer_rows", counted)
        batches, _ = run_pipeline(build)
    return sorted(line for batch in batches for line in batch.lines), len(asked)


@pytest.mark.parametrize("collaboration", COLLABORATIONS)
@pytest.mark.parametrize("how", [{}, {"refresh": 30 * HOUR}], ids=["once", "windows"])
def test_shards_together_are_answered_as_each_alone(
    collaboration: str, how: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    alone, often = answered(monkeypatch, 1, collaboration, **how)
    together, once = answered(monkeypatch, answer.TOGETHER, collaboration, **how)
    assert together == alone
    assert len(together) >= 30
    assert once < often
    assert often >= 12, "each shard with agents by itself"


def test_some_shards_together_are_answered_as_each_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    alone, often = answered(monkeypatch, 1, "learned_prior")
    some, between = answered(monkeypatch, 7, "learned_prior")
    assert some == alone
    assert 1 < between < often

"""Whole pipelines under both of Beam's checks of types at run time: they pass, and change
nothing."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import apache_beam as beam
import pytest
from apache_beam import typehints

from meanstream.pipelines.beam.agents.agent_transforms import (
    AgentWindows,
    CollaborateAgents,
    CollaboratePairwise,
    EngineOptions,
    EstimateAgents,
    ParseMessages,
    ReleaseMeans,
    SampleRows,
    SingleEvents,
    SnapshotReleases,
)
from meanstream.pipelines.beam.rounds.round_transforms import AnswerReports, ReportRounds, RunRounds
from meanstream.pipelines.beam.worker.beam_steps import Step
from meanstream.streaming.sources.mapping import ColumnMapping
from tests.pipelines.beam.agents.test_agents_pairwise import SETTINGS as PAIRWISE
from tests.pipelines.beam.agents.test_agents_pairwise import samples as pairwise_samples
from tests.pipelines.beam.support.agents_world import HOUR, SETTINGS, samples
from tests.pipelines.beam.support.collecting import collector, run_pipeline
from tests.streaming.support.rounds_world import rounds_settings
from tests.streaming.support.rounds_world import samples as rounds_samples

CHECKS = ["--runtime_type_check", "--performance_runtime_type_check"]
NO_SAMPLES: list[Any] = [None, b"", ("agent 1", "much", 0.0)]
MAYBE_NONE = {"drifts", "notices", "refusals", "results"}
Outputs = dict[str, Any]


def agents(pipeline: beam.Pipeline) -> Outputs:
    given = pipeline | beam.Create([*samples(120), *NO_SAMPLES], reshuffle=False)
    made = given | CollaborateAgents(SETTINGS, refresh=28 * HOUR, shards=3)
    single = {
        name: getattr(made, name) | f"Single {name}" >> SingleEvents(SETTINGS)
        for name in ("releases", "estimates")
    }
    return {**made._asdict(), **{f"single {name}": one for name, one in single.items()}}


def parts(pipeline: beam.Pipeline) -> Outputs:
    """Releases that others have read, event by event, and own agents under them."""
    windows, options = AgentWindows(refresh=28 * HOUR), EngineOptions()
    made = (
        pipeline
        | beam.Create(samples(120), reshuffle=False)
        | ReleaseMeans(SETTINGS, refresh=28 * HOUR, shards=3)
    )
    topic = made.releases | SingleEvents(SETTINGS)
    population = topic | SnapshotReleases(SETTINGS, options, windows, shards=3, ticks=made.ticks)
    estimate = EstimateAgents(SETTINGS, options, windows, population=population, shards=3)
    return {"estimates": made.own | estimate}


def pairwise(pipeline: beam.Pipeline) -> Outputs:
    made = (
        pipeline
        | beam.Create([*pairwise_samples(), *NO_SAMPLES], reshuffle=False)
        | CollaboratePairwise(PAIRWISE)
    )
    return {"estimates": made.estimates, "releases": made.releases, "rejected": made.rejected}


def messages(pipeline: beam.Pipeline) -> Outputs:
    lines = [f"{agent},{value!r},{time!r}" for agent, value, time in samples(60)]
    parse = ParseMessages(
        ColumnMapping(), columns=["agent", "value", "time"], privacy_unit="sample"
    )
    parsed = pipeline | beam.Create([*lines, "agent 1,3"], reshuffle=False) | parse
    answers = parsed.samples | CollaborateAgents(SETTINGS, shards=2)
    return {
        "estimates": answers.estimates,
        "rows": parsed.samples | SampleRows(),
        "rejected": parsed.rejected,
    }


def rounds(**settings: Any) -> Callable[[beam.Pipeline], Outputs]:
    def build(pipeline: beam.Pipeline) -> Outputs:
        given = pipeline | beam.Create([*rounds_samples(), *NO_SAMPLES], reshuffle=False)
        return (given | RunRounds(rounds_settings(**settings), shards=3))._asdict()

    return build


def two_sides(pipeline: beam.Pipeline) -> Outputs:
    settings = rounds_settings(estimator="one_shot")
    reported = (
        pipeline | beam.Create(rounds_samples(), reshuffle=False) | ReportRounds(settings, shards=3)
    )
    return {
        "reports": reported.reports,
        **dict(
            zip(("results", "estimates"), reported.reports | AnswerReports(settings), strict=True)
        ),
    }


PIPELINES: dict[str, Callable[[beam.Pipeline], Outputs]] = {
    "agents": agents,
    "parts": parts,
    "pairwise": pairwise,
    "messages": messages,
    "rounds": rounds(),
    "dame": rounds(estimator="dame", sizes="uniform:1,30"),
    "rounds that repeat": rounds(estimator="repeating", epsilon=4.0),
    "a budget": rounds(estimator="one_shot", user_budget=4.0),
    "sessions": rounds(window="session:2h"),
    "two sides": two_sides,
}


def found(case: str, *options: str) -> dict[str, list[str]]:
    """Show everything that the outputs of a pipeline hold, in one order."""
    kept: dict[str, list[Any]] = {}

    def build(pipeline: beam.Pipeline) -> Any:
        outputs = PIPELINES[case](pipeline)
        for name, output in outputs.items():
            keep, kept[name] = collector()
            _ = output | f"Keep {name}" >> keep
        return next(iter(outputs.values()))

    run_pipeline(build, options=options)
    return {name: sorted(map(shown, elements)) for name, elements in kept.items()}


def shown(element: Any) -> str:
    return re.sub(r" at 0x[0-9a-f]+", "", repr(element))


@pytest.mark.parametrize("case", PIPELINES)
def test_a_check_of_types_passes_and_changes_nothing(case: str) -> None:
    plain = found(case)
    assert [
        name for name, elements in plain.items() if not elements and name not in MAYBE_NONE
    ] == []
    for check in CHECKS:
        assert found(case, check) == plain, check


class Wrong(Step):
    """Known-bad: gives something else than it says, which its coder takes."""

    def process(self, element: int) -> Iterator[Any]:
        yield element


@pytest.mark.parametrize("check", CHECKS)
def test_a_wrong_type_is_found_by_the_check(check: str) -> None:
    def build(pipeline: beam.Pipeline) -> Any:
        return (
            pipeline
            | beam.Create([1], reshuffle=False)
            | beam.ParDo(Wrong()).with_output_types(float)
        )

    assert run_pipeline(build)[0] == [1]
    with pytest.raises(
        typehints.decorators.TypeCheckError, match=r"should be of type|return type violated"
    ):
        run_pipeline(build, options=[check])

"""The two sides as two pipelines: the users' emits reports only, the statistician's never meets a
raw type."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.pipeline import PipelineVisitor
from apache_beam.runners.portability.fn_api_runner import FnApiRunner

from meanstream.operators.rounds.round_records import Summaries
from meanstream.pipelines.beam.element_types.columns_coder import ColumnsCoder
from meanstream.pipelines.beam.rounds import two_sides as sides
from meanstream.pipelines.beam.rounds.round_transforms import (
    AnswerReports,
    ReportLines,
    ReportRounds,
    RunRounds,
)
from meanstream.pipelines.beam.rounds.rounds_elements import (
    ForRound,
    ReportBatch,
    UserBatch,
    UserSamples,
)
from meanstream.pipelines.beam.rounds.two_sides import PinnedResults
from meanstream.streaming.events.event_columns import SampleColumns
from meanstream.streaming.events.round_events import StageResult, WindowEstimate
from meanstream.streaming.rounds.summarize_users import UserSums
from meanstream.streaming.rounds.window_round import WindowRound
from meanstream.streaming.rounds.window_widths import Window
from tests.pipelines.beam.support.collecting import collector, lines, run, run_pipeline
from tests.streaming.support.rounds_world import RoundsWorld, rounds_settings, samples
from tests.streaming.support.scripted_source import ScriptedSource

PRIVATE = (ForRound, UserBatch, UserSamples, SampleColumns, UserSums, Summaries)


def report(
    settings: Any, results: list[StageResult], pins: Path | None = None
) -> list[ReportBatch]:
    """Run the users' side; by default it has accepted nothing before."""
    return reported(settings, results, pins)[0]


def reported(
    settings: Any, results: list[StageResult], pins: Path | None = None
) -> tuple[list[ReportBatch], dict[str, int]]:
    """Run the users' side, and look at what it counts, too."""

    def build(pipeline: beam.Pipeline) -> Any:
        told = pipeline | "Results" >> beam.Create(results).with_output_types(StageResult)
        given = pipeline | "Samples" >> beam.Create(samples(), reshuffle=False)
        return given | ReportRounds(settings, results=told, pins=pins or folder)

    with tempfile.TemporaryDirectory() as folder:
        return run_pipeline(build)


def answer(
    settings: Any, reports: list[ReportBatch]
) -> tuple[list[StageResult], list[WindowEstimate]]:
    """Run the statistician's side, which is given reports as bytes."""
    coder = ColumnsCoder(ReportBatch)
    wire = [coder.decode(coder.encode(batch)) for batch in reports]
    note, results = collector()

    def build(pipeline: beam.Pipeline) -> Any:
        given = pipeline | beam.Create(wire, reshuffle=False).with_output_types(ReportBatch)
        found, estimates = given | AnswerReports(settings)
        _ = found | "Note" >> note
        return estimates

    return results, run_pipeline(build)[0]


@pytest.mark.parametrize("changes", [{}, {"users": 12, "window": "session:3h"}])
def test_two_pipelines_that_talk_give_the_bytes_of_one(changes: dict[str, Any]) -> None:
    settings = rounds_settings(**changes)
    hosted, _ = run(samples(), RunRounds(settings))
    first = report(settings, [])
    results, none = answer(settings, first)
    assert len(results) == len(hosted) > 1
    assert none == []
    second = report(settings, results)
    assert {batch.stage for batch in second} == {1}
    again, estimates = answer(settings, [*first, *second])
    assert lines(estimates) == lines(hosted)
    assert sorted(r.model_dump_json() for r in again) == sorted(
        r.model_dump_json() for r in results
    )


@pytest.mark.parametrize("fault", [False, True])
def test_of_two_results_of_a_stage_everybody_takes_the_same(
    fault: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A user who took the one, and after a retry the other, would make two reports with one
    noise."""
    if fault:
        monkeypatch.setattr(sides, "sorted", list, raising=False)
    settings = rounds_settings(users=12)
    results, _ = answer(settings, report(settings, []))
    others = [
        result.model_copy(update={"public": {**result.public, "center": 0.45}})
        for result in results
    ]
    assert all(one.public != other.public for one, other in zip(results, others, strict=True))
    made = [
        sorted(
            (b.window, sorted(zip(b.names.to_pylist(), b.reports.tolist(), strict=True)))
            for b in batches
        )
        for batches in (
            report(settings, [*results, *others]),
            report(settings, [*others, *results]),
        )
    ]
    assert (made[0] == made[1]) is not fault


def test_a_side_that_has_nothing_to_say_to_a_result_says_nothing() -> None:
    settings = rounds_settings(estimator="one_shot")
    reports = report(settings, [])
    results, estimates = answer(settings, reports)
    assert (len(results), len(estimates)) == (0, 4)


def test_reports_are_those_of_the_engine(tmp_path: Path) -> None:
    world = RoundsWorld(tmp_path, rounds_settings())
    world.run(ScriptedSource(samples()))
    results = [StageResult.model_validate_json(line) for line in world.lines("stages")]
    written: list[bytes] = []
    for published in ([], results):
        reports = report(world.settings, published)
        written += run(reports, ReportLines(world.settings))[0]
    # Besides reports, the engine says there when a stage has all of them.
    assert sorted(written) == sorted(
        line for line in world.lines("reports") if b'"payload"' in line
    )
    assert len(written) == 4 * 12


class Types(PipelineVisitor):
    """Every element type and coder of a pipeline, as text."""

    def __init__(self) -> None:
        self.texts: set[str] = set()

    def visit_value(self, value: Any, producer_node: Any) -> None:
        self.texts.add(repr(value.element_type))

    def visit_transform(self, transform_node: Any) -> None:
        hints = transform_node.transform.get_type_hints() if transform_node.transform else None
        self.texts.add(repr(hints))


def types_of(build: Callable[[beam.Pipeline], Any]) -> str:
    pipeline = beam.Pipeline(runner=FnApiRunner(), options=PipelineOptions([]))
    _ = build(pipeline)
    seen = Types()
    pipeline.visit(seen)
    proto = pipeline.to_runner_api()
    payloads = [coder.spec.payload for coder in proto.components.coders.values()]
    return "\n".join([*seen.texts, *(payload.decode("latin-1") for payload in payloads)])


def raw_types(text: str) -> set[str]:
    return {kind.__name__ for kind in PRIVATE if kind.__name__ in text}


def test_no_raw_type_occurs_in_the_pipeline_of_the_statistician() -> None:
    settings = rounds_settings()
    given = beam.Create([], reshuffle=False).with_output_types(ReportBatch)
    text = types_of(lambda pipeline: pipeline | given | AnswerReports(settings))
    assert raw_types(text) == set()
    assert "ReportBatch" in text
    # The same search does find raw types where they are.
    assert raw_types(
        types_of(lambda pipeline: pipeline | beam.Create(samples()) | RunRounds(settings))
    ) == {
        "ForRound",
        "UserBatch",
    }


def test_what_the_statistician_is_given_is_public(monkeypatch: pytest.MonkeyPatch) -> None:
    settings, seen = rounds_settings(), set()
    for kind in (sides.StampReports, sides.AnswerReceived, sides.ReportNextStage):
        process = kind.process

        def watched(
            self: Any, element: Any, *side: Any, _process: Any = process, **named: Any
        ) -> Any:
            # Beam calls with what the signature says; what is watched is the element and everything
            # beside it.
            if isinstance(element, tuple):
                element = element[0], list(element[1])
                side = (*side, *element[1])
            seen.update(type(part).__name__ for part in (element, *side))
            return _process(self, element, **named)

        watched.__name__ = "process"
        monkeypatch.setattr(kind, "process", _like(process, watched))
    reports = report(settings, [])
    assert "tuple" in seen  # of the users' side: shard and users
    seen.clear()
    answer(settings, reports)
    assert seen == {"ReportBatch", "tuple"}


def _like(process: Any, watched: Any) -> Any:
    import functools

    return functools.wraps(process)(watched)


@pytest.mark.parametrize("kind", ["samples", "users"])
def test_private_elements_are_refused(kind: str) -> None:
    settings = rounds_settings()
    if kind == "users":
        given = beam.Create([], reshuffle=False).with_output_types(tuple[int, UserBatch])
    else:
        given = beam.Create(samples(), reshuffle=False)
    with pytest.raises(TypeError, match="statistician takes reports only"):
        run_pipeline(lambda pipeline: (pipeline | given | AnswerReports(settings))[1])


def test_an_untyped_private_element_is_refused_when_it_comes() -> None:
    given = beam.Create([samples()[0]], reshuffle=False)
    untyped = beam.Map(lambda sample: sample).with_output_types(Any)
    with pytest.raises(Exception, match="statistician takes reports only, got tuple"):
        run_pipeline(
            lambda pipeline: (pipeline | given | untyped | AnswerReports(rounds_settings()))[1]
        )


# -- a statistician who lies, over several pipelines ------------------------------------------------------------------


def made_of(batches: list[ReportBatch]) -> list[Any]:
    return sorted(
        (b.window, b.stage, sorted(zip(b.names.to_pylist(), b.reports.tolist(), strict=True)))
        for b in batches
    )


@pytest.mark.parametrize("forgets", [False, True])
def test_another_pipeline_asks_nobody_upon_another_result(forgets: bool, tmp_path: Path) -> None:
    """The known-bad twin has a new folder each time, as there was none before: users of a stage
    report twice."""
    settings = rounds_settings(users=12)
    results, _ = answer(settings, report(settings, []))
    others = [
        result.model_copy(update={"public": {**result.public, "center": 0.45}})
        for result in results
    ]
    first, counted = reported(settings, results, tmp_path)
    assert counted.get("results_refused", 0) == 0
    assert {batch.stage for batch in first} == {1}
    places = [tmp_path] * 2
    if forgets:
        places = [tmp_path / "second", tmp_path / "third"]
        for place in places:
            place.mkdir()
    later = [
        reported(settings, said, place) for said, place in zip((others, []), places, strict=True)
    ]
    assert (made_of(later[0][0]) == made_of(first)) is not forgets
    assert (
        made_of(later[1][0]) == made_of(first)
    ) is not forgets  # the result is kept, although nobody says it again
    assert (later[0][1].get("results_refused", 0) > 0) is not forgets


def test_results_that_no_stage_finds_are_refused_counted_and_not_kept(tmp_path: Path) -> None:
    settings = rounds_settings(users=12)
    first = report(settings, [])
    results, _ = answer(settings, first)
    bad = [
        result.model_copy(update={"public": {"center": 1e308, "votes": 1}}) for result in results
    ]
    batches, counted = reported(settings, bad, tmp_path)
    assert made_of(batches) == made_of(first)
    assert counted["results_refused"] >= len(bad)
    assert list(tmp_path.iterdir()) == []
    assert {batch.stage for batch in report(settings, results, tmp_path)} == {1}
    assert len(list(tmp_path.iterdir())) == len(results)


def test_the_worker_who_is_second_takes_the_result_of_the_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = rounds_settings(users=12)
    result, *_ = answer(settings, report(settings, []))[0]
    this = WindowRound(settings, Window.between(result.start, result.end), users=12)
    other = result.model_copy(update={"public": {**result.public, "center": 0.45}})
    pins, late = PinnedResults(str(tmp_path)), PinnedResults(str(tmp_path))
    look, looked = PinnedResults._read, []

    def too_early(place: Path) -> StageResult | None:
        looked.append(place)
        if len(looked) > 1:
            return look(place)
        assert pins.accepted(this, 0, {}, [result]) == (
            result.public,
            0,
        )  # between looking and making the file
        return None

    with monkeypatch.context() as patch:
        patch.setattr(late, "_read", too_early)
        assert late.accepted(this, 0, {}, [other]) == (result.public, 1)
    (place,) = tmp_path.iterdir()
    place.write_text("{}")
    with pytest.raises(ValueError, match="pins must hold results of stages, got another file"):
        pins.accepted(this, 0, {}, [result])


@pytest.mark.parametrize(
    ("told", "pins", "message"),
    [
        (True, None, "pins must be given with results, and only then, got None"),
        (False, "/tmp", "pins must be given with results, and only then, got '/tmp'"),  # noqa: S108 - nothing is made
        (True, "pins", "pins must be an absolute path, got 'pins'"),
    ],
)
def test_results_need_a_place_where_the_accepted_ones_are_kept(
    told: bool, pins: str | None, message: str
) -> None:
    results = beam.Pipeline(runner="FnApiRunner") | beam.Create([]) if told else None
    with pytest.raises(ValueError, match=message):
        ReportRounds(rounds_settings(), results=results, pins=pins)

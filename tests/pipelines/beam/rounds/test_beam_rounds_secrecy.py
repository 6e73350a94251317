"""What rounds on Beam show to others: nothing of how many samples a user sends, when, and which of
them were bad."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import apache_beam as beam
import pytest

from meanstream.pipelines.beam.input import beam_intake as intake
from meanstream.pipelines.beam.input.parse_lines import dead_letters_of_parse
from meanstream.pipelines.beam.kafka.beam_kafka_source import ReadKafka
from meanstream.pipelines.beam.kafka.write_kafka import WriteKafka
from meanstream.pipelines.beam.pubsub.read_pubsub import ReadPubSub
from meanstream.pipelines.beam.rounds.round_transforms import (
    ReportRounds,
    RunRounds,
    SummarizeUsers,
)
from meanstream.pipelines.beam.worker import beam_metrics as metrics
from meanstream.streaming.events.base import PrivateEvent, PublicEvent
from meanstream.streaming.events.event_columns import Rejects
from meanstream.streaming.events.wire import PrivateDeadLetter
from meanstream.streaming.sinks.sink_protocol import Trust
from meanstream.streaming.sources.mapping import ColumnMapping
from tests.noninterference.rounds_worlds import charged_as
from tests.pipelines.beam.support.collecting import collector, run_pipeline
from tests.pipelines.command_line import SECRET, Ran, arguments, meanstream
from tests.streaming.support.rounds_world import DAY, rounds_settings

Row = tuple[str, object, float]
CHANGED = "user 1"
BAD: list[Row] = [
    (CHANGED, "nan", 5.0),
    (CHANGED, "", 6.0),
    (CHANGED, 1.0, 5e9),
    (CHANGED, "x", 7.0),
]


def rows(changed: str | None) -> list[Row]:
    """Two days of five users; one of them sends other samples within its days."""
    found: list[Row] = []
    for user in range(5):
        for day in range(2):
            times = [day * DAY + 3600.0 * (1 + user), day * DAY + 3600.0 * (9 + user)]
            if f"user {user}" == CHANGED and changed == "number":
                times = [times[0] + n for n in range(40)] + times[
                    1:
                ] * 3  # the last one comes again, under one id
            elif f"user {user}" == CHANGED and changed == "times":
                times = [time + 7000.0 for time in times]
            found += [(f"user {user}", 2.0 + user, time) for time in times]
    found += [("user 0", "nan", 9.0), *(BAD if changed == "bad records" else [])]
    return sorted(found, key=lambda row: row[2])


def public_metrics(result: Any) -> list[str]:
    """Every counter and distribution of the public namespace, with its step."""
    found = result.metrics().query(beam.metrics.MetricsFilter().with_namespace(metrics.NAMESPACE))
    told = (*found["counters"], *found["distributions"])
    return sorted(f"{one.key.step} {one.key.metric.name} {one.committed}" for one in told)


def on_a_file(folder: Path, changed: str | None, estimator: str) -> tuple[Ran, bytes, list[str]]:
    """`run rounds --runner --json`: how it ended, its answers, the runner's public metrics."""
    folder.mkdir()
    lines = [f"{user},{value},{time},{user}-{time}" for user, value, time in rows(changed)]
    (folder / "samples.csv").write_text("\n".join(["user,value,time,id", *lines]) + "\n")
    seen: list[str] = []
    totals = metrics.metric_counters

    def look(result: Any) -> dict[str, int]:
        seen.extend(public_metrics(result))
        return totals(result)

    options = {
        "source": "samples.csv", "id": "id", "lower": 0, "upper": 10, "epsilon": 2, "window": "1d", "name": "test",
        "user_budget": 2, "estimator": estimator, "store": "rounds.db", "sink": "means.jsonl", "runner": "FnApiRunner",
    }  # fmt: skip
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setattr(metrics, "metric_counters", look)
        ran = meanstream(
            "run",
            "rounds",
            *arguments(options),
            "--json",
            environment={"MEANSTREAM_SECRET": SECRET},
        )
    return ran, (folder / "means.jsonl").read_bytes(), seen


def elements(_folder: Path, changed: str | None, estimator: str) -> tuple[Any, Any, list[str]]:
    """`RunRounds` on elements: its answers and its public metrics."""
    given = [
        (user, value if isinstance(value, float) else None, time)
        for user, value, time in rows(changed)
    ]
    seen: list[str] = []
    query = beam.runners.portability.fn_api_runner.fn_runner.RunnerResult.metrics

    def metrics_of(self: Any) -> Any:
        found = query(self)
        seen[:] = public_metrics(_Result(found))
        return found

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            beam.runners.portability.fn_api_runner.fn_runner.RunnerResult, "metrics", metrics_of
        )
        run = RunRounds(rounds_settings(estimator=estimator, user_budget=4.0))
        answers, _ = run_pipeline(lambda p: p | beam.Create(given, reshuffle=False) | run)
    return None, sorted(one.model_dump_json() for one in answers), seen


class _Result:
    """A pipeline's result of which there are metrics only."""

    def __init__(self, found: Any) -> None:
        self._found = found

    def metrics(self) -> Any:
        return self._found


@pytest.mark.parametrize("shown", [False, True])
@pytest.mark.parametrize(
    ("run", "estimator"),
    [(on_a_file, "one_shot"), (on_a_file, "cummings.known_sizes"), (elements, "one_shot")],
)
def test_a_users_samples_change_no_byte_under_reports_that_are_the_same(
    run: Callable[..., Any],
    estimator: str,
    shown: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if shown:  # a known-bad twin: one namespace for all
        monkeypatch.setattr(metrics, "PRIVATE_NAMESPACE", metrics.NAMESPACE)
    told: dict[Any, Any] = {}
    with charged_as(told):
        first = run(tmp_path / "first", None, estimator)
        others = {
            how: run(tmp_path / how, how, estimator) for how in ("number", "times", "bad records")
        }
    assert told
    assert len(first[2]) >= 3
    assert first[1]
    differing = {how for how, other in others.items() if other != first}
    assert differing == ({"number", "bad records"} if shown else set())


def test_dead_letters_of_rounds_are_private_and_no_public_topic_takes_them() -> None:
    pipeline = beam.Pipeline(runner="FnApiRunner")
    given = pipeline | beam.Create([("user 1", 1.0, 5.0)])
    summarize, report = SummarizeUsers(rounds_settings()), ReportRounds(rounds_settings())
    made = [given | step for step in (RunRounds(rounds_settings()), summarize, report)]
    assert {one.rejected.element_type for one in made} == {PrivateDeadLetter}
    place = "kafka://127.0.0.1:1/letters"
    _ = made[0].rejected | "Private" >> WriteKafka(place, role="dead_letters", trust=Trust.PRIVATE)
    with pytest.raises(
        TypeError, match="public sink must be given public events, got PrivateDeadLetter"
    ):
        _ = made[0].rejected | "Public" >> WriteKafka(place, role="dead_letters")


def test_what_is_rejected_is_a_private_letter_when_it_comes() -> None:
    keep, found = collector()

    def build(pipeline: beam.Pipeline) -> Any:
        answers = (
            pipeline | beam.Create([None, ("user 1", 1.0, 5.0)]) | RunRounds(rounds_settings())
        )
        _ = answers.rejected | "Rejected" >> keep
        return answers

    run_pipeline(build)
    assert [(type(one), one.reason) for one in found] == [(PrivateDeadLetter, "malformed")]


@pytest.mark.parametrize(("unit", "kind"), [("user", PrivateEvent), ("sample", PublicEvent)])
def test_letters_of_a_source_are_those_of_what_it_is_for(unit: Any, kind: type) -> None:
    rejects = Rejects()
    rejects.add("malformed", 3, 40)
    (letter,) = dead_letters_of_parse(rejects, "samples", unit)
    assert isinstance(letter, kind)
    pipeline = beam.Pipeline(runner="FnApiRunner")
    read = pipeline | ReadKafka("kafka://127.0.0.1:1/samples", ColumnMapping(), privacy_unit=unit)
    assert issubclass(read.dead_letters.element_type, kind)


def test_a_source_without_end_says_whether_its_windows_close_by_the_clock() -> None:
    """Agents' pipelines that left it out closed windows by the clock, silently."""
    rule = "privacy_unit must be 'sample' for agents or 'user' for rounds, whose windows close by the clock, with until"
    with pytest.raises(ValueError, match=rule):
        ReadKafka("kafka://127.0.0.1:1/samples", ColumnMapping(), until_end=False)


def test_a_source_is_for_rounds_unless_it_says_otherwise() -> None:
    pipeline = beam.Pipeline(runner="FnApiRunner")
    read = pipeline | ReadKafka("kafka://127.0.0.1:1/samples", ColumnMapping())
    assert read.dead_letters.element_type is PrivateDeadLetter
    for make in (
        lambda: ReadKafka("kafka://127.0.0.1:1/samples", ColumnMapping(), privacy_unit="agent"),  # type: ignore[arg-type]
        lambda: ReadPubSub(
            "projects/project-1/subscriptions/samples", ColumnMapping(), privacy_unit="agent"
        ),  # type: ignore[arg-type]
    ):
        with pytest.raises(
            ValueError, match="privacy_unit must be one of sample, user, got 'agent'"
        ):
            make()


def test_steps_take_what_is_private_from_where_they_say() -> None:
    assert (
        intake.metric_counter("samples", private=True).metric_name.namespace
        == metrics.PRIVATE_NAMESPACE
    )
    assert intake.metric_counter("samples").metric_name.namespace == metrics.NAMESPACE

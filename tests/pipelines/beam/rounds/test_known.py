"""What a round has found meets every element of that round, in any order, and no other's."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pytest

from meanstream.operators.rounds.round_records import Tally
from meanstream.pipelines.beam.rounds import known_results as known
from meanstream.pipelines.beam.rounds.known_results import (
    WithFindings,
    known_at_one_worker,
    known_reports_by_shard,
)
from meanstream.pipelines.beam.rounds.rounds_elements import ReportBatch, StageFindings, StageTally
from meanstream.pipelines.beam.rounds.rounds_windows import CarryRounds, carried_in_window
from meanstream.streaming.events.round_events import StageResult
from meanstream.streaming.rounds.window_widths import Window
from tests.pipelines.beam.support.collecting import run_pipeline
from tests.streaming.support.rounds_world import DAY, rounds_settings

SETTINGS = rounds_settings(estimator="one_shot")
DAYS = [Window(round(day * DAY * 1e6), round((day + 1) * DAY * 1e6)) for day in range(3)]
FOUND = [
    StageFindings(window=window, stage=0, users=10 + day) for day, window in enumerate(DAYS[:2])
]
NAMES = [f"user {number}" for number in range(20)]


class Meets(beam.DoFn):
    """Tells which element was given which findings; `setup` must have been called."""

    def setup(self) -> None:
        self._ready = True

    def process(
        self, element: ReportBatch, findings: StageFindings | None = None
    ) -> Iterator[tuple[int, str, int]]:
        assert self._ready
        yield (
            element.window.start,
            element.names[0].as_py(),
            0 if findings is None else findings.users,
        )


def reports(window: Window) -> Iterator[ReportBatch]:
    for name in NAMES:
        names = pa.array([name], pa.large_string())
        yield ReportBatch(
            window=window, stage=1, users=12, names=names, reports=np.zeros((1, 1), np.int64)
        )


def met(keys: int) -> list[Any]:
    """Let three rounds meet the findings of the first two."""

    def build(pipeline: beam.Pipeline) -> Any:
        either = []
        for label, kind, values in (
            ("Reports", ReportBatch, [batch for window in DAYS for batch in reports(window)]),
            ("Found", StageFindings, FOUND),
        ):
            stamped = [carried_in_window(SETTINGS, value, value.window) for value in values]
            given = pipeline | label >> beam.Create(stamped, reshuffle=False).with_output_types(Any)
            told = given | f"{label} at" >> beam.Map(lambda one: one).with_output_types(kind)
            either.append(told | f"{label} carried" >> CarryRounds(SETTINGS))
        return either[0] | WithFindings(
            Meets(), either[1], SETTINGS, known_reports_by_shard(keys), out=tuple[int, str, int]
        )

    return sorted(run_pipeline(build)[0])


WANTED = sorted(
    (window.start, name, users)
    for window, users in zip(DAYS, (10, 11, 0), strict=True)
    for name in NAMES
)


@pytest.mark.parametrize("keys", [1, 3, 8])
@pytest.mark.parametrize("small", [0, 1, 20, known.SMALL])
def test_every_element_meets_the_findings_of_its_round_or_none(
    keys: int, small: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether a batch of one user and a round of ten are small or not."""
    monkeypatch.setattr(known, "SMALL", small)
    assert met(keys) == WANTED


def test_findings_that_do_not_reach_every_key_are_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(known, "SMALL", 0)
    every = known._FindingsToAll.process

    def first(self: Any, element: StageFindings) -> Iterator[tuple[int, bytes]]:
        yield next(every(self, element))

    monkeypatch.setattr(known._FindingsToAll, "process", first)
    assert met(3) != WANTED


def results(*numbers: int) -> list[StageResult]:
    """Results of the first stage of each round, told apart by the number of users."""
    return [
        StageResult(
            round_id=f"round {window.start}",
            start=at(window.start),
            end=at(window.end),
            stage=0,
            users=n,
            public={},
        )
        for window in DAYS
        for n in numbers
    ]


def at(micros: int) -> datetime:
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=micros)


class Told(beam.DoFn):
    """Tells which element was given which results."""

    def process(
        self,
        element: ReportBatch,
        findings: StageFindings | None = None,
        results: Iterable[StageResult] = (),
    ) -> Iterator[tuple[str, str, int, list[int]]]:
        (round_id,) = {result.round_id for result in results}
        users = 0 if findings is None else findings.users
        yield round_id, element.names[0].as_py(), users, [result.users for result in results]


@pytest.mark.parametrize("findings", [True, False])
def test_every_element_meets_the_results_of_its_round_in_one_order(findings: bool) -> None:
    """Whatever order a runner gives them in: of two results of one stage everybody has to take the
    same."""
    met = []
    for order in ((7, 3, 5), (5, 7, 3), (3, 5, 7)):

        def build(pipeline: beam.Pipeline, order: tuple[int, ...] = order) -> Any:
            batches = [
                carried_in_window(SETTINGS, batch, window)
                for window in DAYS
                for batch in reports(window)
            ]
            given = pipeline | "Reports" >> beam.Create(batches, reshuffle=False).with_output_types(
                Any
            )
            given = (
                given
                | beam.Map(lambda one: one).with_output_types(ReportBatch)
                | CarryRounds(SETTINGS)
            )
            told = pipeline | "Results" >> beam.Create(results(*order), reshuffle=False)
            found = None
            if findings:
                stamped = [carried_in_window(SETTINGS, one, one.window) for one in FOUND]
                found = pipeline | "Found" >> beam.Create(
                    stamped, reshuffle=False
                ).with_output_types(Any)
                found = found | "Found at" >> beam.Map(lambda one: one).with_output_types(
                    StageFindings
                )
                found = found | "Found carried" >> CarryRounds(SETTINGS)
            out = tuple[str, str, int, list[int]]
            return given | WithFindings(
                Told(), found, SETTINGS, known_reports_by_shard(3), out=out, results=told
            )

        met.append(sorted(run_pipeline(build)[0]))
    users = (10, 11, 0) if findings else (0, 0, 0)
    assert met[0] == sorted(
        (f"round {window.start}", name, n, [3, 5, 7])
        for window, n in zip(DAYS, users, strict=True)
        for name in NAMES
    )
    assert met[0] == met[1] == met[2]


def test_a_window_of_a_result_is_exact_to_the_microsecond() -> None:
    window = Window(-1, 1357172400_123_457)
    result = StageResult(
        round_id="r", start=at(window.start), end=at(window.end), stage=0, users=1, public={}
    ).model_dump_json()
    read = StageResult.model_validate_json(result)
    assert Window.between(read.start, read.end) == window


def test_findings_come_in_any_place_and_once() -> None:
    placing = known_at_one_worker(StageTally)
    tally = StageTally(window=DAYS[0], stage=0, users=12, tally=Tally(3, (2**70, 1)))
    bytes_of = known._ElementBytes(placing)
    bytes_of.setup()
    ((key, element),) = bytes_of.process(tally)
    ((_, found),) = known._FindingsToAll(1).process(FOUND[0])

    class Pairs(beam.DoFn):
        def process(self, element: Any, findings: Any = None) -> Iterator[Any]:
            yield element, findings

    apply = known._Apply(Pairs(), placing)
    apply.setup()
    for either in ([found, element, element], [element, found, element], [element, element, found]):
        assert list(apply.process((key, either))) == [(tally, FOUND[0])] * 2
    assert list(apply.process((key, [element]))) == [(tally, None)]
    assert list(apply.process((key, [found]))) == []
    with pytest.raises(
        ValueError, match="findings must be given at most once for every round, got 2"
    ):
        list(apply.process((key, [found, element, found])))

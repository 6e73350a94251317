"""Whatever is executed again makes the same report again: a second, fresh one would average the
noise away."""

from __future__ import annotations

import pickle
from collections import Counter, defaultdict
from collections.abc import Iterable
from typing import Any

import apache_beam as beam
import numpy as np
import pytest
from apache_beam.internal import cloudpickle_pickler
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.runners.portability.fn_api_runner import FnApiRunner

from meanstream.operators.noise.keyed import KeyedNoise
from meanstream.pipelines.beam.rounds import answer_rounds
from meanstream.pipelines.beam.rounds.answer_rounds import stage_reports
from meanstream.pipelines.beam.rounds.round_transforms import (
    ReportRounds,
    RunRounds,
    SummarizeUsers,
)
from meanstream.pipelines.beam.rounds.rounds_elements import ReportBatch, UserBatch
from meanstream.pipelines.beam.worker.worker_secret import SecretLocation
from meanstream.streaming.rounds.window_round import WindowRound
from meanstream.streaming.rounds.window_widths import Window
from tests.pipelines.beam.support.collecting import lines, run
from tests.streaming.support.rounds_world import SECRET, rounds_settings, samples

REPEAT = ["--direct_runner_bundle_repeat=4"]
Reports = dict[tuple[Window, int, str], list[tuple[int, ...]]]


def by_user(batches: Iterable[ReportBatch]) -> Reports:
    """All reports that were made, for each round, stage and user."""
    found = defaultdict(list)
    for batch in batches:
        for name, row in zip(batch.names.to_pylist(), batch.reports.tolist(), strict=True):
            found[batch.window, batch.stage, name].append(tuple(row))
    return found


def fresh_reports(
    this: WindowRound, stage: int, public: Any, batch: UserBatch, secret: SecretLocation
) -> ReportBatch:
    """What must not be: noise that is drawn. The known-bad twin of `stage_reports`."""
    asked = batch.take(this.stage_of(batch.words) == stage)
    summaries = asked.sums.summaries(asked.words, this.settings.grid)
    bits = np.random.default_rng().integers(0, 2**64, (len(asked), 2), np.uint64)
    reports = this.estimator.rounds[stage].encode(summaries, public, lambda draw: bits)
    return ReportBatch(
        window=this.window, stage=stage, users=this.users, names=asked.names, reports=reports
    )


@pytest.mark.parametrize("make", [stage_reports, fresh_reports])
def test_a_repeated_bundle_makes_the_same_reports(
    make: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[ReportBatch] = []

    def noted(*arguments: Any) -> ReportBatch:
        made.append(make(*arguments))
        return made[-1]

    monkeypatch.setattr(answer_rounds, "stage_reports", noted)
    run(samples(), RunRounds(rounds_settings()), options=REPEAT)
    reports = by_user(made)
    assert {stage for _, stage, _ in reports} == {0, 1}
    assert len(reports) == len({(window, name) for window, _, name in reports}) == 4 * 12
    assert min(map(len, reports.values())) >= 4
    several = sum(len(set(rows)) > 1 for rows in reports.values())
    # Fresh bits: 48 users say one of two things at least four times over; all of them the same with
    # less than 1e-12.
    assert (several == 0) if make is stage_reports else (several > 0)


def test_whole_pipelines_that_repeat_their_bundles_give_the_same_bytes() -> None:
    settings = rounds_settings(user_budget=6.0)
    first, counters = run(samples(), RunRounds(settings))
    repeated, _ = run(samples(), RunRounds(settings), options=REPEAT)
    assert len(first) == 4
    assert len(repeated) > 4  # each execution is noted
    assert set(lines(first)) == set(lines(repeated))
    assert counters["over_budget"] == 12


def test_each_user_reports_once_per_round_in_one_stage() -> None:
    batches, _ = run(samples(), ReportRounds(rounds_settings()))
    made = by_user(batches)
    assert all(len(reports) == 1 for reports in made.values())
    assert {stage for _, stage, _ in made} == {0}
    per_round = Counter(window for window, _, _ in made)
    assert min(per_round.values()) > 0
    assert max(per_round.values()) < 12  # the others are asked in the second stage


def test_another_secret_makes_other_reports(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = rounds_settings(estimator="one_shot", epsilon=0.5)
    first, _ = run(samples(), RunRounds(settings))
    monkeypatch.setenv("MEANSTREAM_SECRET", SECRET[::-1])
    second, _ = run(samples(), RunRounds(settings))
    # Four windows of twelve one-bit or wider reports: equal by chance in all with a probability
    # below 2**-20.
    assert lines(first) != lines(second)


def test_the_secret_is_not_in_the_pipeline(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "secret").write_text(SECRET)
    pickled: list[bytes] = []
    compress = cloudpickle_pickler.bz2.compress
    monkeypatch.setattr(
        cloudpickle_pickler.bz2,
        "compress",
        lambda data, **k: pickled.append(data) or compress(data),
    )
    place = SecretLocation(file=f"{tmp_path}/secret")
    pipeline = beam.Pipeline(runner=FnApiRunner(), options=PipelineOptions([]))
    _ = pipeline | beam.Create(samples()) | RunRounds(rounds_settings(), secret=place)
    graph = pipeline.to_runner_api().SerializeToString() + b"".join(pickled)
    assert place.load() == SECRET.encode()
    assert SECRET.encode() not in graph
    assert f"{tmp_path}/secret".encode() in graph  # so the search would find it
    with pytest.raises(TypeError, match="holds a secret"):
        pickle.dumps(KeyedNoise(SECRET.encode(), deployment="d", purpose="p"))


def test_no_report_is_an_answer_too() -> None:
    settings = rounds_settings(users=12)
    this = WindowRound(settings, Window(0, 86_400_000_000), users=12)
    users, _ = run(samples(n=40), SummarizeUsers(settings))
    batch = users[0][1]
    report = stage_reports(
        this, 0, {}, batch.take(np.zeros(len(batch), np.bool_)), SecretLocation()
    )
    assert (len(report), report.users) == (0, 12)

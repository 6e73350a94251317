"""What a user of Beam may pass to a transform: taken as meant, or one line before anything runs."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.runners.portability.spark_runner import SparkRunner
from apache_beam.testing.test_stream import TestStream as Stream
from apache_beam.transforms.display import DisplayData
from apache_beam.transforms.window import FixedWindows, GlobalWindows, Sessions, SlidingWindows
from apache_beam.utils.timestamp import Duration

from meanstream.pipelines.beam.agents.agent_transforms import (
    AgentWindows,
    CollaborateAgents,
    CollaboratePairwise,
    ReleaseMeans,
    SingleEvents,
    SnapshotReleases,
)
from meanstream.pipelines.beam.rounds.round_transforms import AnswerReports, ReportRounds, RunRounds
from meanstream.pipelines.beam.worker.transform_arguments import as_window
from meanstream.streaming.engine.engine_options import EngineOptions
from meanstream.streaming.rounds.rounds_settings import RoundsSettings
from tests.pipelines.beam.support.agents_world import SETTINGS, samples
from tests.pipelines.beam.support.collecting import run_pipeline
from tests.streaming.support.rounds_world import rounds_settings

AGENTS = {"name": "test", "lower": 0, "upper": 10, "epsilon": 1.0, "delta": 1e-6}
ROUNDS = {"name": "test", "lower": 0, "upper": 10, "epsilon": 1.0, "window": "60s"}


@pytest.mark.parametrize(
    "refresh",
    [60, 60.0, "60", "60s", "1m", Duration(seconds=60), timedelta(minutes=1), FixedWindows(60)],
)
def test_durations_are_taken_as_meant(refresh: Any) -> None:
    for made in (
        ReleaseMeans(SETTINGS, refresh=refresh),
        CollaborateAgents(**AGENTS, refresh=refresh),
    ):  # type: ignore[arg-type]
        assert made._windows.refresh == 60.0
    assert AgentWindows(refresh=refresh, lateness="5s") == AgentWindows(refresh=60.0, lateness=5.0)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("window", "expected"),
    [
        ("60s", "1m"),
        (FixedWindows(60), "1m"),
        (SlidingWindows(120, 60), "2m,1m"),
        (Sessions(1800), "session:30m"),
    ],
)
def test_windows_are_taken_as_meant(window: Any, expected: str) -> None:
    budget = 2.0 if isinstance(window, SlidingWindows) else None
    whole = {**ROUNDS, "window": as_window(window), "estimator": "one_shot", "user_budget": budget}
    made = RunRounds(RoundsSettings(**whole), shards="8")  # type: ignore[arg-type]
    assert (made._settings.window, made._shards) == (expected, 8)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ReleaseMeans(SETTINGS, refresh="soon"), "refresh must be a duration such as 90s"),
        (lambda: ReleaseMeans(SETTINGS, refresh=True), "refresh must be a number, got True"),
        (
            lambda: ReleaseMeans(SETTINGS, refresh=[60]),
            "refresh must be a number of seconds or a duration such as",
        ),
        (
            lambda: ReleaseMeans(SETTINGS, refresh=FixedWindows(60, 5)),
            "refresh must begin at the epoch, without an offset",
        ),
        (lambda: AgentWindows(refresh="soon"), "refresh must be a duration such as 90s"),
        (lambda: AgentWindows(refresh=60, lateness=-1), "lateness must be at least 0, got -1"),
        (
            lambda: ReleaseMeans(SETTINGS, EngineOptions(max_future="soon")),
            "max_future must be a number, got 'soon'",
        ),
        (
            lambda: ReleaseMeans(SETTINGS, secret=b"hunter2"),
            "secret must be of type SecretLocation, got bytes$",
        ),
        (
            lambda: ReleaseMeans(SETTINGS, EngineOptions(final_release="yes")),
            "final_release must be true or false, got 'yes'",
        ),
        (lambda: ReleaseMeans({"lower": 0}), "settings must be of type AgentsSettings, got dict"),
        (lambda: SnapshotReleases(SETTINGS, shards="many"), "shards must be a number, got 'many'"),
        (
            lambda: SnapshotReleases({"lower": 0}),
            "settings must be of type AgentsSettings, got dict",
        ),
        (
            lambda: CollaboratePairwise(SETTINGS),
            "settings must be of type PairwiseStreamSettings, got AgentsSettings",
        ),
        (
            lambda: CollaborateAgents(SETTINGS, EngineOptions(level="high")),
            "level must be a number, got 'high'",
        ),
        (
            lambda: CollaborateAgents(SETTINGS, EngineOptions(stddev="wide")),
            "stddev must be a number, got 'wide'",
        ),
        (
            lambda: CollaborateAgents(SETTINGS, EngineOptions(stddev=True)),
            "stddev must be a number, got True",
        ),
        (lambda: EngineOptions(level=None), "level must be a number, got None"),
        (lambda: SingleEvents(3), "settings must be of type AgentsSettings, got int"),
        (lambda: ReportRounds({"lower": 0}), "settings must be of type RoundsSettings, got dict"),
        (
            lambda: AnswerReports(SETTINGS),
            "settings must be of type RoundsSettings, got AgentsSettings",
        ),
        (
            lambda: ReportRounds(rounds_settings(), shards="many"),
            "shards must be a number, got 'many'",
        ),
        (lambda: ReleaseMeans(SETTINGS, shards="many"), "shards must be a number, got 'many'"),
        (lambda: ReleaseMeans(SETTINGS, shards=2.5), "shards must be a whole number, got 2.5"),
        (lambda: CollaborateAgents(**AGENTS, shards=0), r"shards must be in 1\.\.32768, got 0"),
        (
            lambda: CollaborateAgents(SETTINGS, epsilon=1.0),
            "settings must be given once, got 'epsilon'",
        ),
        (
            lambda: CollaborateAgents(name="a", lower=0, upper=1, delta=1e-6),
            "epsilon must be given, alone or within",
        ),
        (
            lambda: CollaborateAgents({"lower": 0}),
            "settings must be those of the transform, got dict",
        ),
        (
            lambda: RunRounds("dame", **{**ROUNDS, "window": GlobalWindows()}),
            "window must be a text such as '7d', or",
        ),
        (
            lambda: RunRounds("dame", **{**ROUNDS, "window": 60}),
            "window must be a text such as '7d', or",
        ),
        (
            lambda: RunRounds("dame", **{**ROUNDS, "window": FixedWindows(60, 5)}),
            "window must begin at the epoch",
        ),
        (
            lambda: RunRounds(rounds_settings(), window="1d"),
            "settings must be given once, got 'window'",
        ),
    ],
)
def test_what_is_not_meant_is_one_line(make: Callable[[], Any], message: str) -> None:
    with pytest.raises(ValueError, match=message) as refused:
        make()
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    "transform", [CollaborateAgents, RunRounds, ReleaseMeans, ReportRounds, CollaboratePairwise]
)
def test_a_transform_takes_records_and_few_parameters_by_name(transform: Any) -> None:
    parameters = inspect.signature(transform.__init__).parameters
    assert len(parameters.keys() - {"self"}) <= 12
    assert not [one for one in parameters.values() if one.kind is inspect.Parameter.VAR_KEYWORD]
    documented = re.split(r"\W+", str(transform.__doc__))
    assert parameters.keys() - {"self"} <= set(documented)


def test_what_a_runner_shows_is_the_settings() -> None:
    agents = (
        CollaborateAgents(**AGENTS, refresh="60s"),
        ReleaseMeans(SETTINGS),
        SnapshotReleases(SETTINGS),
    )  # type: ignore[arg-type]
    for made in (*agents, RunRounds("one_shot", **ROUNDS)):  # type: ignore[arg-type]
        shown = {item.key: item.value for item in DisplayData.create_from(made).items}
        assert shown["epsilon"] == 1.0
        assert shown["name"] == "test"
        assert not [name for name in shown if "secret" in name]


def test_spark_is_refused_where_timers_are_needed() -> None:
    pipeline = beam.Pipeline(runner=SparkRunner())
    unbounded = pipeline | Stream().advance_watermark_to_infinity()
    unbounded.is_bounded = False
    with pytest.raises(
        ValueError,
        match="runner must have timers in streaming, as Flink's and Dataflow's, got 'Spark",
    ):
        _ = unbounded | ReleaseMeans(SETTINGS, refresh=60)


def test_types_are_checked_at_run_time() -> None:
    transform = CollaborateAgents(SETTINGS, refresh="20h", shards=2)
    found, _ = run_pipeline(
        lambda pipeline: (
            (pipeline | beam.Create(samples(60), reshuffle=False) | transform).estimates
        ),
        options=["--performance_runtime_type_check"],
    )
    assert sum(len(batch.lines) for batch in found) > 20


@pytest.mark.parametrize(
    ("make", "known", "typo", "meant"),
    [
        (CollaborateAgents, AGENTS, "epsilom", "epsilon"),
        (CollaborateAgents, AGENTS, "feilds", "fields"),
        (RunRounds, ROUNDS | {"estimator": "one_shot"}, "windw", "window"),
        (ReportRounds, {"settings": None}, "field", "fields"),
        (ReleaseMeans, {"settings": SETTINGS}, "shard", "shards"),
    ],
)
def test_an_unknown_keyword_names_the_nearest(
    make: Any, known: dict[str, Any], typo: str, meant: str
) -> None:
    said = f"{make.__name__}() got an unexpected argument {typo!r}; did you mean {meant!r}?"
    with pytest.raises(TypeError, match=re.escape(said)):
        make(**known, **{typo: 1})


def test_a_transform_keeps_its_signature() -> None:
    assert {"name", "lower", "fields"} <= set(inspect.signature(CollaborateAgents).parameters)

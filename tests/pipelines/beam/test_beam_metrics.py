"""What pipelines count: what the engine counts on the same input, by its names, and nothing that is
not public."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import apache_beam as beam
import numpy as np
import pytest

from meanstream.operators.agents.agents import AgentsSettings
from meanstream.pipelines.beam.agents import agents_from_files as file
from meanstream.pipelines.beam.agents import answer_agents as answer
from meanstream.pipelines.beam.agents import release_agents as release
from meanstream.pipelines.beam.agents.agent_transforms import ReleaseMeans, agent_batch
from meanstream.pipelines.beam.agents.agents_coders import pack_for_coder
from meanstream.pipelines.beam.agents.agents_from_files import run_agents_file
from meanstream.pipelines.beam.beam_runners import runner_arguments
from meanstream.pipelines.beam.element_types.beam_source import SourceLocation
from meanstream.pipelines.beam.input import beam_intake as intake
from meanstream.pipelines.beam.rounds import answer_rounds
from meanstream.pipelines.beam.rounds import budget_of_users as budget
from meanstream.pipelines.beam.rounds import rounds_from_files as read
from meanstream.pipelines.beam.rounds import summaries_on_beam as summarize
from meanstream.pipelines.beam.rounds.rounds_from_files import run_rounds_file
from meanstream.pipelines.beam.worker import beam_metrics as metrics
from meanstream.pipelines.beam.worker.beam_metrics import (
    COUNTERS,
    DISTRIBUTIONS,
    NAMESPACE,
    PRIVATE_NAMESPACE,
    DistributionOf,
    Figure,
    metric_counter,
    metric_counters,
)
from meanstream.pipelines.beam.worker.worker_secret import SecretLocation
from meanstream.streaming.engine.engine_options import EngineOptions
from meanstream.streaming.engine.engine_stats import EngineStats
from meanstream.streaming.metrics.engine_metrics import COUNTERS as ENGINE_COUNTERS
from meanstream.streaming.metrics.engine_metrics import DURATIONS, GAUGES
from meanstream.streaming.metrics.rounds_metrics import RoundsMetrics
from meanstream.streaming.open_source import open_source
from meanstream.streaming.rounds.rounds_settings import RoundsSettings
from meanstream.streaming.sources.mapping import ColumnMapping
from meanstream.streaming.store.secret_source import key_derived_from_secret
from tests.pipelines.beam.agents.test_agents_idempotent import (
    fresh_state,
    life,
    lose_agents,
    samples_of,
)
from tests.pipelines.beam.rounds.test_equal_to_engine import flawed_file as flawed_rounds
from tests.pipelines.beam.support.agents_world import (
    HOUR,
    MAPPING,
    SETTINGS,
    engine_on_file,
    flawed_file,
)
from tests.pipelines.beam.support.collecting import run_pipeline
from tests.servers.support.flink_cluster import FlinkCluster
from tests.streaming.support.rounds_world import DAY, SECRET, RoundsWorld, rounds_settings

ROOT = Path(__file__).parents[3]
STEPS = (answer, answer_rounds, budget, intake, metrics, release, summarize)
OPERATIONS = ROOT / "docs" / "project" / "benchmarks.md"
OPTIONS = EngineOptions(refresh=None, batch_size=64, allowed_lateness=4 * HOUR)
USERS = ColumnMapping(agent="user", value="value", time="time", id="id")


class CountsOnce:
    """A known-bad twin of a counter: however many there were, it counts one."""

    def __init__(self, counter: Any) -> None:
        self._counter = counter

    def inc(self, n: int = 1) -> None:
        self._counter.inc(min(n, 1))


@pytest.fixture(params=["sorted", "as it stands", "bad twin"])
def given(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> tuple[bool, bool]:
    """Whether a file is sorted, and whether the counters are wrong."""
    spoiled = request.param == "bad twin"
    for step in STEPS if spoiled else ():
        monkeypatch.setattr(
            step,
            "metric_counter",
            lambda *named, **more: CountsOnce(metric_counter(*named, **more)),
        )
    return request.param == "sorted", spoiled


def test_agents_of_a_file_are_counted_as_by_the_engine(
    given: tuple[bool, bool], tmp_path: Path
) -> None:
    sort, spoiled = given
    settings = replace(SETTINGS, horizon=3)
    path = flawed_file(tmp_path)
    world = engine_on_file(tmp_path / "engine", settings, OPTIONS, path, sort=sort)
    stats = world.stats  # type: ignore[attr-defined]
    counted = agents_of(tmp_path, settings, path, sort=sort)
    expected = figures_of(stats)
    assert stats.exhausted > 0
    assert expected["rejected_duplicate" if sort else "rejected_late"] > 1
    assert expected["refusals"] == 0
    assert (counted == expected) is not spoiled


def figures_of(stats: EngineStats) -> dict[str, int]:
    names = (
        "events",
        "accepted",
        "agents",
        "releases",
        "refusals",
        "exhausted",
        "drifts",
        "drift_warnings",
        "estimates",
    )
    return {name: getattr(stats, name) for name in names} | {
        f"rejected_{r}": n for r, n in stats.rejected.items()
    }


def agents_of(
    folder: Path,
    settings: AgentsSettings,
    path: Path,
    *,
    sort: bool = True,
    runner: str = "FnApiRunner",
    given: Any = (),
) -> dict[str, int]:
    (folder / "secret").write_text(SECRET)
    return run_agents_file(
        settings,
        SourceLocation(location=str(path), mapping=MAPPING, sort=sort),
        {"estimates": folder / "estimates.jsonl"},
        secret=SecretLocation(file=str(folder / "secret")),
        engine_options=OPTIONS,
        runner=runner,
        arguments=runner_arguments(runner, given),
    )


def test_flink_counts_the_same(flink: FlinkCluster, tmp_path: Path) -> None:
    path = flawed_file(tmp_path)
    stats = engine_on_file(tmp_path / "engine", SETTINGS, OPTIONS, path, sort=False).stats  # type: ignore[attr-defined]
    found = agents_of(
        tmp_path, SETTINGS, path, sort=False, runner="FlinkRunner", given=flink.arguments()
    )
    assert found == figures_of(stats)


ROUNDS: dict[str, dict[str, Any]] = {
    "two stages": {"user_budget": 6.0},
    "trusted curator": {"user_budget": 6.0, "estimator": "cummings.ratio"},
}


@pytest.mark.parametrize("case", ROUNDS)
def test_rounds_of_a_file_are_counted_as_by_the_engine(
    case: str, given: tuple[bool, bool], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sort, spoiled = given
    settings, path = (
        rounds_settings(**ROUNDS[case], allowed_lateness=0.25 * DAY),
        flawed_rounds(tmp_path),
    )
    world = RoundsWorld(tmp_path / "engine", settings)
    stats = world.run(
        open_source(
            str(path),
            USERS,
            sort=sort,
            id_key=key_derived_from_secret(SECRET.encode(), "sample ids"),
        )
    )
    with monkeypatch.context() as patch:
        patch.setattr(
            metrics,
            "metric_counters",
            lambda result: metric_counters(result) | metric_counters(result, PRIVATE_NAMESPACE),
        )
        counted = Counter(rounds_of(tmp_path, settings, path, sort=sort))
    expected = {
        name: getattr(stats, name)
        for name in ("events", "accepted", "agents", "rounds", "over_budget")
    }
    expected |= {f"rejected_{reason}": n for reason, n in stats.rejected.items()}
    stages = [name for name in counted if name.startswith("rounds_reports_")]
    reports = sum(counted.pop(name) for name in stages)
    assert len(stages) == (2 if case == "two stages" else 1)
    assert stats.over_budget > 1
    assert "late" not in stats.rejected
    assert ((counted, reports) == (expected, stats.releases)) is not spoiled


def rounds_of(
    folder: Path, settings: RoundsSettings, path: Path, *, sort: bool = True
) -> dict[str, int]:
    return run_rounds_file(
        settings,
        SourceLocation(location=str(path), mapping=USERS, sort=sort),
        folder / "means.jsonl",
        secret=SecretLocation(),
        engine_options=EngineOptions(batch_size=50),
    )


# -- counters without a file ------------------------------------------------------------------------------------------


class Told:
    """Stands in for the counters of a step, outside of a pipeline."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, step: Any) -> None:
        self.counts: Counter[str] = Counter()
        monkeypatch.setattr(
            step,
            "metric_counter",
            lambda *n, **more: _Cell(self.counts, metric_counter(*n, **more).metric_name.name),
        )


class _Cell:
    def __init__(self, counts: Counter[str], name: str) -> None:
        self._counts, self._name = counts, name

    def inc(self, n: int = 1) -> None:
        self._counts[self._name] += n


def test_refusals_and_late_samples_of_a_shard_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    told, state, part = Told(monkeypatch, release), fresh_state(), samples_of(0)
    life(state, part, 0)
    first = told.counts["releases"]
    assert first > 20
    assert told.counts["refusals"] == told.counts["rejected_late"] == 0
    lose_agents(state)  # while the ledger was kept
    life(state, replace(part, point=part.point[::-1].copy()), 0)
    refused = told.counts["refusals"]
    assert refused > first // 2
    assert told.counts["releases"] + refused == 2 * first
    state["waiting"].add(pack_for_coder(part).encoded)
    life(state, samples_of(1), 1)
    assert told.counts["rejected_late"] == len(part)


def test_samples_that_a_pipeline_was_given_are_counted() -> None:
    batch = agent_batch(
        ["a", "b", "a", "b"],
        [1.0, np.nan, 1.0, 2.0],
        [0.0, 1.0, 2.0, 3.0],
        ids=["1", "2", "1", "4"],
    )
    transform = ReleaseMeans(SETTINGS)
    _, counted = run_pipeline(lambda p: (p | beam.Create([batch], reshuffle=False) | transform).own)
    assert counted["samples"] == 4
    assert (counted["rejected_not_finite"], counted["rejected_duplicate"], counted["agents"]) == (
        1,
        1,
        2,
    )
    assert (counted["batch_samples_sum"], counted["batch_samples_count"]) == (4, 1)
    assert counted["batch_milliseconds_count"] == counted["release_lag_milliseconds_count"] >= 1
    assert counted["release_lag_milliseconds_sum"] > 1.6e12  # these samples are from 1970


# -- privacy ----------------------------------------------------------------------------------------------------------


def all_metrics(build: Callable[[], Any], monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Every counter and distribution, public or not, but those of durations, by name."""
    seen: list[Any] = []
    totals = metrics.metric_counters

    def look(result: Any) -> dict[str, int]:
        ours = beam.metrics.MetricsFilter().with_namespaces([NAMESPACE, PRIVATE_NAMESPACE])
        found = result.metrics().query(ours)
        seen.extend((*found["counters"], *found["distributions"]))
        return totals(result)

    with monkeypatch.context() as patch:
        patch.setattr(metrics, "metric_counters", look)
        build()
    told = sorted((one.key.metric.name, str(one.key.step), str(one.committed)) for one in seen)
    return {f"{step} {name}": value for name, step, value in told if "milliseconds" not in name}


def of_other_values(path: Path) -> Path:
    """The same file, every second good value beyond the bounds and the others mirrored."""
    head, *rows = path.read_text().splitlines()
    changed = []
    for place, row in enumerate(rows):
        who, value, *rest = row.split(",")
        if value not in {"", "nan"}:
            value = "77.5" if place % 2 else repr(10 - float(value))
        changed.append(",".join([who, value, *rest]))
    other = path.with_name("other.csv")
    other.write_text("\n".join([head, *changed]) + "\n")
    return other


@pytest.mark.parametrize("shows_clipped", [False, True])
@pytest.mark.parametrize("kind", ["agents", "rounds"])
def test_streams_that_differ_in_values_alone_have_the_same_metrics(
    kind: str, shows_clipped: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if shows_clipped:  # a known-bad twin
        monkeypatch.setitem(COUNTERS, "clipped", Figure("clipped", "Values that were clipped."))
        for module in (file, read):
            monkeypatch.setattr(module, "_COUNTED", (*module._COUNTED, "clipped"))  # type: ignore[attr-defined]
    agents, rounds = kind == "agents", rounds_settings(user_budget=6.0)
    path = flawed_file(tmp_path) if agents else flawed_rounds(tmp_path)
    found = [
        all_metrics(
            lambda: (
                agents_of(tmp_path, SETTINGS, one) if agents else rounds_of(tmp_path, rounds, one)  # noqa: B023
            ),
            monkeypatch,
        )
        for one in (path, of_other_values(path))
    ]
    assert len(found[0]) >= 10
    assert agents or any("_sum" in name for name in found[0])
    assert (found[0] == found[1]) is not shows_clipped


# -- the table --------------------------------------------------------------------------------------------------------


def test_every_step_takes_its_counters_from_the_table() -> None:
    direct = [
        path.relative_to(ROOT).as_posix()
        for path in sorted((ROOT / "pipelines").rglob("*.py"))
        if _makes_metrics(path.read_text())
    ]
    assert direct == ["pipelines/beam/worker/beam_metrics.py"]
    assert _makes_metrics(
        'from apache_beam.metrics import Metrics\nMetrics.counter("meanstream", "values")'
    )


def _makes_metrics(text: str) -> bool:
    made = [node.value for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Attribute)]
    return any(isinstance(node, ast.Name) and node.id == "Metrics" for node in made)


def test_a_name_that_is_not_in_the_table_is_refused() -> None:
    for make in (lambda: metric_counter("values"), lambda: DistributionOf("values")):
        with pytest.raises(KeyError):
            make()
    for named in (("releases", "of agent 1"), ("rejected_",)):
        with pytest.raises(ValueError, match="counter must have a value where its row has a label"):
            metric_counter(*named)


OWN = {"batch_samples", "reading_turns", "release_lag_seconds", "sent", "windows_overtaken"}
"""Families that the engine does not have."""
ENGINES = {"letters_unwritten"}
"""Of `--max-dead-letters`, which is refused with a runner: dead letters of a pipeline go where it
says, all of them."""


def test_names_are_those_of_the_engine() -> None:
    counted = {*ENGINE_COUNTERS, "rejects", *RoundsMetrics.families.counters}
    engine = {*counted, *GAUGES, *DURATIONS, *RoundsMetrics.families.gauges}
    here = {figure.family for figure in (*COUNTERS.values(), *DISTRIBUTIONS.values())}
    assert here - engine == OWN
    assert counted - here == ENGINES, "what the engine counts and a pipeline does not"


def test_the_documentation_has_the_table() -> None:
    rows = re.findall(
        r"(?m)^\| `(\w+)` \| `meanstream_(\w+?)(?:_total|_sum)?(?:{(\w+)})?`.* \| (.+) \|$",
        OPERATIONS.read_text(),
    )
    expected = [
        (f"{name}{f.label.upper()}", f.family, f.label, f.text) for name, f in COUNTERS.items()
    ]
    expected += [(name, f.family, "", f.text) for name, f in DISTRIBUTIONS.items()]
    assert rows == expected

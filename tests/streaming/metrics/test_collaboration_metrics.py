"""What `run collaborate` shows: what it counts, its topic's health, and on its page each agent's
own history."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from prometheus_client.parser import text_string_to_metric_families

from meanstream.pipelines.page.page_figures import page_figures
from meanstream.streaming.agents.collaborating_site import Collaborator
from meanstream.streaming.agents.collaboration_stats import CollaborationStats, collaboration_stats
from meanstream.streaming.agents.saved_agents import own_settings
from meanstream.streaming.engine.engine_health import EngineHealth
from meanstream.streaming.engine.engine_stats import EngineStats
from meanstream.streaming.metrics.collaboration_metrics import (
    CollaborationMetrics,
    CollaborationTelemetry,
    PrivateCollaborationMetrics,
)
from meanstream.streaming.metrics.engine_metrics import Metrics
from meanstream.streaming.sinks.sink_protocol import Sinks, Trust
from meanstream.streaming.sources.releases_file import ReleasesFile
from tests.streaming.support.scripted_source import MemorySink, ScriptedSource, SettableClock

AGENTS = 12


def samples(agents: range) -> list[Any]:
    rng = np.random.default_rng(3)
    rows = [(a, t) for t in range(60) for a in range(AGENTS)]
    values = rng.normal(np.where(np.array([a for a, _ in rows]) % 2, 3.0, 7.0), 1.0)
    return [
        (f"agent {a}", float(v), float(t))
        for (a, t), v in zip(rows, values, strict=True)
        if a in agents
    ]


class WatchedFile(ReleasesFile):
    """A file whose connection a test cuts, as that of a topic."""

    client, watched, problem = "releases", True, None

    def connection_problem(self) -> str | None:
        return self.problem


class Watching:
    """A collaboration of two organizations' releases, watched as `run collaborate` is."""

    def __init__(self, world: Any, path: Path) -> None:
        store = world.folder / "s.db"
        self.clock, self.health, self.feed = (
            SettableClock(1000.0),
            EngineHealth(),
            WatchedFile(path),
        )
        shared = {
            "settings": own_settings(store),
            "health": self.health,
            "store": store,
            "clock": self.clock,
        }
        self.metrics, self.private = (
            CollaborationMetrics(**shared),
            PrivateCollaborationMetrics(**shared),
        )
        self.telemetry = CollaborationTelemetry(settings=shared["settings"])
        self.collaborator = Collaborator(
            releases=self.feed,
            store=store,
            settings=shared["settings"],
            options=world.options,
            sinks=Sinks(
                estimates=MemorySink(trust=Trust.PRIVATE), population=MemorySink(trust=Trust.PUBLIC)
            ),
            every=10.0,
            clock=self.clock,
            health=self.health,
            on_turn=self.observe,
        )

    def observe(self, stats: CollaborationStats) -> None:
        for watcher in (self.metrics, self.private, self.telemetry):
            watcher.observe(stats)

    def page(self) -> dict[str, Any]:
        return page_figures(
            self.telemetry.view(), kind=self.telemetry.kind, horizon=5, bounds=(0.0, 10.0)
        )


@pytest.fixture
def released(new_world: Callable[[str], Any], tmp_path: Path) -> tuple[Any, Path]:
    """The world of one of two organizations, and a file of both's releases with a line that is
    none."""
    left, right = new_world("left"), new_world("right")
    for world, agents in ((left, range(5)), (right, range(5, AGENTS))):
        world.run(ScriptedSource(samples(agents)), roles=("releases",))
    lines = b"".join((world.folder / "releases.jsonl").read_bytes() for world in (right, left))
    (tmp_path / "both.jsonl").write_bytes(lines + b"no json\n")
    return left, tmp_path / "both.jsonl"


def shown(metrics: Metrics) -> dict[str, float]:
    """All samples by name, those of connections and reasons with it."""
    found = {}
    for family in text_string_to_metric_families(metrics.exposition().decode()):
        for sample in family.samples:
            label = (
                sample.labels.get("reason")
                or sample.labels.get("client")
                or sample.labels.get("le")
            )
            found[sample.name if label is None else f"{sample.name}:{label}"] = sample.value
    return found


def test_metrics_and_page_are_what_was_counted(released: tuple[Any, Path]) -> None:
    seen = Watching(*released)
    stats = seen.collaborator.run(until_end=True)
    figures = shown(seen.metrics)
    assert stats.population is not None
    half_width, class_size = stats.population.precision()
    answer = stats.population.answers()
    assert np.array_equal(
        2 * half_width, np.clip(answer.upper, 0, 10) - np.clip(answer.lower, 0, 10)
    )
    expected = {
        "events_total": stats.releases + 1,
        "received_releases_total": len(released[1].read_bytes().splitlines()) - 1,
        "rejects_total:malformed": 1,
        "estimates_total": 5,
        "refreshes_total": 1,
        "agents": 5,
        "releasing_agents": AGENTS,
        "kafka_connected:releases": 1,
        "released_half_width_median": np.median(half_width),
        "released_class_size_median": np.median(class_size),
        "released_half_width_gcount": AGENTS,
    }
    assert {name: figures[f"meanstream_{name}"] for name in expected} == expected
    private = shown(seen.private)
    assert stats.answers is not None
    widths = np.diff(stats.answers.interval)[:, 0] / 2
    assert private["meanstream_estimate_half_width_median"] == pytest.approx(
        np.median(widths), rel=1e-12
    )
    assert not {name for name in figures if "estimate_" in name or "clipped" in name}
    page = seen.page()
    assert (page["counts"]["own_agents"], page["counts"]["agents"], page["budget"]) == (
        5,
        AGENTS,
        None,
    )
    assert page["rejects"] == {"malformed": 1}
    assert page["convergence"]["answered"] == 5


def test_health_is_that_of_the_topic(released: tuple[Any, Path]) -> None:
    seen = Watching(*released)
    told: list[tuple[str | None, float, float]] = []

    def stop() -> bool:
        figures = shown(seen.metrics)
        ready, connected = (
            figures["meanstream_ready"],
            figures["meanstream_kafka_connected:releases"],
        )
        told.append((seen.health.not_ready(), ready, connected))
        seen.feed.problem = "shared:9092 (no answer)" if len(told) == 2 else None
        return len(told) > 3

    seen.collaborator.run(stop)
    assert [(why, ready, connected) for why, ready, connected in told] == [
        ("state is being restored", 0, 1),
        (None, 1, 1),
        ("releases cannot be reached: shared:9092 (no answer)", 0, 0),
        (None, 1, 1),
    ]
    assert seen.health.not_ready() == "stopping"


def test_releases_that_are_not_read_yet_are_no_readiness(released: tuple[Any, Path]) -> None:
    seen = Watching(*released)
    told: list[str | None] = []
    poll = seen.feed.poll

    def slowly() -> Any:
        found = poll()
        seen.feed.caught_up = len(told) > 1
        return found

    seen.feed.poll = slowly  # type: ignore[method-assign]
    seen.collaborator.run(lambda: bool(told.append(seen.health.not_ready()) or len(told) > 3))
    assert told == ["state is being restored", "releases are being read", None, None]


def test_an_agent_keeps_its_history_when_others_release_before_it(
    released: tuple[Any, Path],
) -> None:
    """Who has released nothing is numbered after all others, whose number grows."""
    world, path = released
    lines = path.read_bytes().splitlines(keepends=True)
    mine = [line for line in lines if b'"agent":"agent 4"' not in line]
    path.write_bytes(mine[0])
    seen = Watching(world, path)
    turns = 0

    def stop() -> bool:
        nonlocal turns
        turns += 1
        if turns == 150:
            path.write_bytes(b"".join(mine))
        return turns > 300

    stats = seen.collaborator.run(stop)
    assert stats.refreshes == 2
    for agent in range(5):
        history = seen.telemetry.history(f"agent {agent}")
        assert len({row["local"] for row in history}) == 1
        assert len(history) == 2
    assert seen.page()["convergence"]["answered"] == 5


def test_figures_of_an_engine_are_not_taken_for_these() -> None:
    with pytest.raises(TypeError, match="figures must be of a collaboration, got EngineStats"):
        collaboration_stats(EngineStats())

"""`--members`: an agent learns the members of its class, and nobody learns those of another's."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from meanstream.lab.papers.colme.same_mean_tests import SameMeanTests
from meanstream.operators.agents.agents_settings import AgentsSettings
from meanstream.operators.records import OwnMeans, ReleaseColumns
from meanstream.pipelines.page.page_figures import page_figures
from meanstream.streaming.agents.public_population import AnsweredAgents
from meanstream.streaming.engine.engine_health import EngineHealth
from meanstream.streaming.engine.engine_stats import EngineStats
from meanstream.streaming.metrics.engine_metrics import Metrics
from meanstream.streaming.metrics.private_answers import PrivateMetrics
from meanstream.streaming.metrics.telemetry import AgentsTelemetry
from tests.pipelines.command_line import SECRET, run_agents

SETTINGS = AgentsSettings(lower=0, upper=1, epsilon=1, delta=1e-6)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MEANSTREAM_SECRET", SECRET)
    rng = np.random.default_rng(2)
    rows = [
        f"N{a},{(100 if a % 2 else -20) + rng.uniform(-5, 5):.3f},{3600 * t}"
        for t in range(400)
        for a in range(6)
    ]
    (tmp_path / "flights.csv").write_text("\n".join(["tailnum,dep_delay,time_hour", *rows]) + "\n")
    return tmp_path


def estimates(folder: Path) -> dict[str, dict[str, Any]]:
    lines = (folder / "estimates.jsonl").read_bytes().splitlines()
    return {one["agent"]: one for one in map(json.loads, lines)}


def test_each_agent_is_told_the_members_of_its_own_class(folder: Path) -> None:
    ran = run_agents(folder, collaboration="tests", members=True, epsilon=30)
    assert ran.code == 0, ran.err
    for name, found in estimates(folder).items():
        assert found["members"] == [
            f"N{a}" for a in range(int(name[1:]) % 2, 6, 2) if f"N{a}" != name
        ]
        assert found["class_size"] == 3.0
    assert b"members" not in (folder / "releases.jsonl").read_bytes()


def test_without_the_option_no_estimate_names_anyone(folder: Path) -> None:
    assert run_agents(folder, collaboration="tests").code == 0
    assert not any("members" in one for one in estimates(folder).values())


def test_members_are_the_agents_that_the_class_size_counts() -> None:
    rng = np.random.default_rng(4)
    n = 40
    ones = np.ones(n, np.int64)
    mean = rng.normal(0, 1, n)
    noise = rng.choice([0.1, 0.2], n)
    releases = ReleaseColumns(
        agent=np.arange(n), index=ones, count=50 * ones, total=ones, mean=mean + rng.normal(0, 0.3, n),
        noise_variance=noise,
    )  # fmt: skip
    own = OwnMeans(agent=np.arange(n), count=50 * ones, mean=mean, variance=np.full(n, 0.02))
    fitted = SameMeanTests().fit(releases, noise + 0.02)
    answer, members = fitted.estimate(own), fitted.members(own)
    assert [1.0 + len(one) for one in members] == answer.class_size.tolist()
    assert not any(agent in found for agent, found in enumerate(members))
    assert 1 < answer.class_size.min() < answer.class_size.max() < n


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({}, "members must come with collaboration tests or a pairwise schedule, got True"),
        (
            {"collaboration": "tests", "max_agents": 20_000},
            "max_agents must be at most 10000 with --members, got 20000",
        ),
    ],
)
def test_members_of_no_class_and_of_too_many_agents_are_refused(
    changes: dict[str, Any], message: str, folder: Path
) -> None:
    assert message in run_agents(folder, members=True, **changes).message


def of_classes(size: list[float]) -> AnsweredAgents:
    n = len(size)
    reach = np.tile([0.4, 0.6], (n, 1))
    return AnsweredAgents(
        time=0.0, names=tuple(f"a{i}" for i in range(n)), agent=np.arange(n), count=np.full(n, 3),
        value=np.full(n, 0.5), interval=reach, local=np.full(n, 0.5), local_interval=reach,
        effective_class_size=np.ones(n), class_size=np.array(size),
    )  # fmt: skip


def test_the_number_of_classes_and_their_sizes_are_the_operators() -> None:
    """Two classes of two and of three agents, and one agent alone: three classes."""
    answers = of_classes([2.0, 2.0, 3.0, 3.0, 3.0, 1.0])
    private, public = (
        kind(settings=SETTINGS, health=EngineHealth(), store=None)
        for kind in (PrivateMetrics, Metrics)
    )
    for metrics in (private, public):
        metrics.observe(EngineStats(answers=answers))
    shown = {s.name: s.value for family in private.collect() for s in family.samples}
    assert shown["meanstream_classes"] == pytest.approx(3)
    assert shown["meanstream_class_agents_median"] == 2.5
    assert shown["meanstream_class_agents_largest"] == 3
    assert not [
        s.name
        for family in public.collect()
        for s in family.samples
        if "class" in s.name and s.value > 0
    ]
    telemetry = AgentsTelemetry(settings=SETTINGS)
    telemetry.observe(EngineStats(answers=answers, agents=6))
    figure = page_figures(telemetry.view(), kind="agents", horizon=40, bounds=(0.0, 1.0))[
        "convergence"
    ]
    assert (round(figure["classes"], 6), figure["class_agents"]) == (3.0, 2.5)


def test_values_that_an_agent_has_not_released_change_no_other_class(folder: Path) -> None:
    """Two worlds: after its only release the last agent's values differ, and with them its own
    class alone."""
    worlds, own = [], []
    text = (folder / "flights.csv").read_text().splitlines()
    for world, value in (("w1", -20.0), ("w2", 110.0)):
        place = folder / world
        place.mkdir()
        rows = [f"N4,{value},{row.split(',')[2]}" if row.startswith("N4,") and at > 600 else row
                for at, row in enumerate(text)]  # fmt: skip
        (place / "flights.csv").write_text("\n".join(rows) + "\n")
        ran = run_agents(place, collaboration="tests", members=True, epsilon=30, horizon=1, final_release=False,
                         population=place / "population.jsonl", refresh="50h")  # fmt: skip
        assert ran.code == 0, ran.err
        lines = (place / "estimates.jsonl").read_bytes().splitlines()
        others = [line for line in lines if not line.startswith(b'{"agent":"N4"')]
        public = [(place / f"{name}.jsonl").read_bytes() for name in ("releases", "population")]
        worlds.append((others, public, ran.out, ran.err.replace(world.encode(), b"")))
        own.append([line for line in lines if line.startswith(b'{"agent":"N4"')])
    assert worlds[0] == worlds[1]
    assert own[0] != own[1]
    assert len(worlds[0][0]) == 5 * 9

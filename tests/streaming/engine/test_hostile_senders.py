"""One clock that is wrong, and names without end: the others' results are those of a run without
them."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from meanstream.operators.limits import QUORUM
from meanstream.pipelines.commands.run.run_agents import agents_summary_line
from tests.streaming.support.scripted_source import ScriptedSource

HONEST = [(f"agent {i % 5}", float(i % 11), 60.0 * i) for i in range(300)]


def releases(world: Any, *, without: str = "") -> list[bytes]:
    return sorted(
        line for line in world.lines("releases") if not without or without.encode() not in line
    )


@pytest.mark.parametrize("fast", [7200.0, 100 * 365.25 * 86400])
@pytest.mark.parametrize("batch_size", [7, 10_000])
def test_one_fast_clock_changes_nobody_elses_releases(
    fast: float, batch_size: int, new_world: Callable[[str], Any]
) -> None:
    spoiled = [
        event
        for i, (who, value, at) in enumerate(HONEST)
        for event in ((who, value, at), *((("fast", 1.0, at + fast),) if i % 10 == 0 else ()))
    ]
    seen = {}
    for name, events in (("honest", HONEST), ("spoiled", spoiled)):
        world = new_world(name)
        assert world.options.quorum == QUORUM  # of whoever says nothing else
        world.options = replace(
            world.options, allowed_lateness=3600.0, batch_size=batch_size, final_release=False
        )
        stats = world.run(ScriptedSource(events))
        seen[name] = releases(world, without="fast")
        assert stats.rejected["late"] == 0
    assert seen["spoiled"] == seen["honest"]


@pytest.mark.parametrize("batch_size", [1, 7, 10_000])
def test_names_without_end_are_refused_by_number(
    batch_size: int, new_world: Callable[[str], Any]
) -> None:
    events = HONEST[: 100 * batch_size]  # each batch costs a turn
    junk = [(f"junk {i}", 1.0, at) for i, (_, _, at) in enumerate(events[5:])]
    flood = [*events[:5], *(event for pair in zip(events[5:], junk, strict=True) for event in pair)]
    world = new_world("flooded")
    world.options = replace(world.options, max_agents=8, batch_size=batch_size)
    stats = world.run(ScriptedSource(flood))
    honest = new_world("honest")
    honest.options = replace(honest.options, batch_size=batch_size)
    honest.run(ScriptedSource(events))
    assert (stats.agents, stats.rejected) == (8, Counter(too_many_agents=len(junk) - 3))
    assert releases(world, without="junk") == releases(honest) != []


def test_names_that_are_full_are_told_once_with_the_option(
    new_world: Callable[[str], Any], caplog: pytest.LogCaptureFixture
) -> None:
    world = new_world("full")
    world.options = replace(world.options, max_agents=2, batch_size=3)
    with caplog.at_level(logging.WARNING, "meanstream.engine"):
        stats = world.run(ScriptedSource([(f"agent {i % 5}", 1.0, 100.0 + i) for i in range(40)]))
    (record,) = caplog.records
    assert (vars(record)["max_agents"], stats.full, stats.agents) == (2, True, 2)
    assert "--max-agents" in agents_summary_line(stats)
    assert not new_world("empty").run(ScriptedSource(HONEST)).full

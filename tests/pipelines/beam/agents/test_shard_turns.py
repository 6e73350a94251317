"""Many windows in one turn: few steps, few batches of releases, and what turns of each window would
give."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meanstream.operators.agents.agents import AgentsSettings
from meanstream.operators.noise.keyed import keyed_owner_words
from meanstream.operators.records import ReleaseColumns
from meanstream.pipelines.beam.agents import agents_shard, shard_turns
from meanstream.pipelines.beam.agents.agents_elements import Tick
from meanstream.pipelines.beam.agents.agents_shard import AgentShard, Turn
from meanstream.pipelines.beam.agents.shard_turns import steps_by_agent, steps_by_window
from tests.pipelines.beam.agents.test_shard_changes import EACH, KINDS, shard_of, window
from tests.pipelines.beam.support.agents_world import SETTINGS

AGENTS, WINDOWS = 30, 12
ROWS = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 4)), max_size=40)


@settings(max_examples=60, deadline=None)
@given(ROWS)
def test_a_step_has_one_window_of_an_agent_and_each_agent_its_samples_in_order(
    rows: list[tuple[int, int]],
) -> None:
    agent = np.array([who for who, _ in rows], np.uint8)
    part = np.sort(np.array([number for _, number in rows], np.int64))
    steps = list(steps_by_agent(agent, part, 6))
    assert sorted(place for step in steps for place in step.tolist()) == list(range(len(rows)))
    for who in range(6):
        told = [step[agent[step] == who] for step in steps]
        assert np.concatenate([*told, []]).tolist() == np.flatnonzero(agent == who).tolist()
        assert all(len(set(part[one].tolist())) <= 1 for one in told)
    assert len(steps) == max((len(set(part[agent == who].tolist())) for who in range(6)), default=0)
    assert [part[step].tolist() for step in steps_by_window(part)] == [
        [number] * int((part == number).sum()) for number in np.unique(part).tolist()
    ]


def turn(shard: AgentShard, numbers: list[int]) -> Turn:
    samples = [window(number, AGENTS, 20) for number in numbers]
    if shard.agents.settings.per_person is None:
        samples = [replace(part, person=np.zeros(0, np.uint64)) for part in samples]
    ticks = [Tick(number, part.time.max()) for number, part in zip(numbers, samples, strict=True)]
    return shard.turn(samples, keyed_owner_words, ticks, EACH, final_release=False)


def both(given: AgentsSettings) -> tuple[AgentShard, AgentShard, Turn, list[Turn]]:
    """Let a shard take all windows in one turn, and another each in its own."""
    backlog, on_time = shard_of(given), shard_of(given)
    return (
        backlog,
        on_time,
        turn(backlog, list(range(WINDOWS))),
        [turn(on_time, [one]) for one in range(WINDOWS)],
    )


def told(turns: list[Turn]) -> tuple[list[Any], list[Any]]:
    """Give releases with their times and versions, and what each agent knew at the end of each
    window."""
    columns = [
        (*row, time, version)
        for one in turns
        for batch in one.released
        for *row, time, version in zip(
            *shown(batch.releases), batch.time, batch.version, strict=True
        )
    ]
    own = [
        (part, agent, count, mean, tuple(energies))
        for one in turns
        for part, agent, count, mean, energies in zip(
            one.part, one.own.agent, one.own.count, one.own.mean, one.own.energies, strict=True
        )
    ]
    return sorted(columns), sorted(own)


def shown(releases: ReleaseColumns) -> list[Any]:
    return [
        releases.agent,
        releases.index,
        releases.count,
        releases.total,
        map(tuple, releases.votes),
    ]


@pytest.mark.parametrize("together", [1, 7, shard_turns.TOGETHER])
@pytest.mark.parametrize("kind", KINDS)
def test_a_backlog_gives_what_turns_of_each_window_would(
    kind: str, together: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shard_turns, "TOGETHER", together)
    backlog, on_time, once, each = both(KINDS[kind])
    equal = told([once]) == told(each)
    assert equal
    equal = backlog.to_bytes() == on_time.to_bytes()
    assert equal
    assert together <= 7 or len(once.released) == 1


def test_steps_that_mix_windows_of_an_agent_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        agents_shard, "steps_by_agent", lambda agent, *_: iter([np.arange(len(agent))])
    )
    _, _, once, each = both(SETTINGS)
    assert told([once]) != told(each)

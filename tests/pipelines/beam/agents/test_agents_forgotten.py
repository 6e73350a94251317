"""A `ForgetAgent` among the samples: the bytes of a job's state no longer hold what was private of
the agent."""

from __future__ import annotations

from typing import Any

import apache_beam as beam
import numpy as np
import pyarrow as pa

from meanstream.beam import CollaborateAgents, ForgetAgent
from meanstream.pipelines.beam.agents.agent_transforms import SingleEvents
from meanstream.pipelines.beam.agents.agents_coders import ForShardCoder, pack_for_coder
from meanstream.pipelines.beam.agents.agents_elements import AgentSamples, ForShard
from meanstream.pipelines.beam.agents.agents_parts import agents_part_state
from meanstream.pipelines.beam.agents.release_agents import ReleaseShard
from meanstream.pipelines.beam.keyed_state.beam_state import StateOwner
from meanstream.pipelines.beam.worker.worker_secret import SecretLocation
from tests.pipelines.beam.agents.test_agents_idempotent import (
    WINDOWS,
    fresh_state,
    life,
    public,
)
from tests.pipelines.beam.support.agents_world import HOUR, SETTINGS
from tests.pipelines.beam.support.collecting import run
from tests.pipelines.beam.support.keyed_cells import take

POINTS = {"released": [123_457, 234_567, 345_679], "shy": [456_789], "other": [1, 2, 3]}
MARKS = {name: sum(points).to_bytes(3, "little") for name, points in POINTS.items()}


def part(window: int, points: dict[str, list[int]] = POINTS) -> AgentSamples:
    agent = np.repeat(np.arange(len(points)), [len(one) for one in points.values()])
    return AgentSamples(
        names=pa.array(points, pa.large_string()),
        agent=agent,
        point=np.array([point for one in points.values() for point in one], np.int64),
        time=WINDOWS.refresh * window + np.arange(len(agent), dtype=np.float64),
        key=np.zeros(len(agent), np.uint64),
        position=np.arange(len(agent)),
    )


def send(state: dict[str, Any], element: ForShard) -> None:
    """Give a shard of a worker that was just started one element."""
    owner = StateOwner(settings=agents_part_state(SETTINGS, WINDOWS, 1), secret=SecretLocation())
    shard = ReleaseShard(SETTINGS, WINDOWS, SecretLocation(), owner, final_release=False)
    shard.setup()
    take(shard, ForShardCoder().decode(ForShardCoder().encode(element)), state)


def bytes_of(state: dict[str, Any], *names: str) -> bytes:
    kept = [
        one.values if hasattr(one, "values") else [one.value or b""]
        for one in map(state.__getitem__, names)
    ]
    return b"".join(part for one in kept for part in one)


def test_nothing_private_of_an_agent_is_left_in_the_bytes_and_what_it_spent_stays() -> None:
    state = fresh_state()
    first = public(life(state, part(0), 0))
    assert {b'"released"' in line for line in first} == {True, False}
    assert not any(b'"shy"' in line for line in first)
    send(state, pack_for_coder(part(1)))
    held = bytes_of(state, *state)
    assert all(mark in held for mark in (MARKS["released"], MARKS["shy"], b"released", b"shy"))
    ledger = bytes_of(state, "ledger")
    for name in ("released", "shy", "nobody"):
        send(state, ForgetAgent(name))
    left = bytes_of(state, *state)
    assert MARKS["released"] not in left
    assert MARKS["shy"] not in left
    assert b"shy" not in left
    assert MARKS["other"] in left
    assert b"released" not in bytes_of(state, "waiting")
    assert bytes_of(state, "ledger") == ledger
    after = public(life(state, part(1), 1))
    assert not any(b'"released"' in line for line in after), (
        "it has spent, and can send nothing more"
    )
    assert any(b'"other"' in line for line in after)


def test_an_agent_that_has_the_name_of_a_forgotten_one_keeps_its_own_releases() -> None:
    """Names are chosen by whoever sends: one may be what a shard writes in place of an erased
    name."""
    points = {"released": POINTS["released"], "shy": POINTS["shy"], "forgotten-1": POINTS["other"]}
    lines = []
    for forgets in (False, True):
        state = fresh_state()
        made = public(life(state, part(0, points), 0))
        if forgets:
            send(state, ForgetAgent("shy"))
        made += public(life(state, part(1, points), 1))
        lines.append([line for line in made if b'"forgotten-1"' in line])
    assert len(lines[0]) > 1
    assert lines[0] == lines[1]


class Estimates(beam.PTransform):  # type: ignore[misc]
    def expand(self, pcoll: Any) -> Any:
        return (
            pcoll | CollaborateAgents(SETTINGS, refresh=HOUR, shards=2)
        ).estimates | SingleEvents(SETTINGS)


def test_a_pipeline_forgets_on_the_way_and_answers_the_others() -> None:
    stream = [(f"agent {i % 3}", float(i % 7), 30.0 * i) for i in range(60)]
    found, counters = run([*stream, ForgetAgent("agent 1")], Estimates())
    assert {one.agent for one in found} == {"agent 0", "agent 2"}
    assert counters["samples"] == 60

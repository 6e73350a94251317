"""Agents in a store: whole chunks and the rows that changed since, together what the engine had."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from meanstream.operators.agents.agents import Agents, AgentsSettings
from meanstream.operators.noise.keyed import KeyedNoise
from meanstream.streaming.agents.forget_agent import forget_agent
from meanstream.streaming.agents.saved_agents import (
    CHANGED,
    MOST_PIECES,
    SavedAgents,
    agents_at_rest,
    saved_sample_counts,
)
from meanstream.streaming.crash import CrashPoint, Moment
from meanstream.streaming.store.state_store import Store
from tests.streaming.store.conftest import open_store
from tests.streaming.support.dying import DieAt, Died
from tests.streaming.support.scripted_source import ScriptedSource

SETTINGS = AgentsSettings(
    lower=0, upper=1, epsilon=1, delta=1e-6, schedule="geometric:4,2", horizon=8
)
NOISE = KeyedNoise(
    bytes.fromhex("9b1f6c04d2a85e73bb40c9f1e6a7250d"), deployment="test", purpose="agents"
)


def pieces(store: Store) -> int:
    return sum(1 for _ in store.chunks(CHANGED))


def same(one: Agents, other: Agents) -> None:
    everyone = np.arange(one.n_agents)
    rows, found = one.rows(everyone), other.rows(everyone)
    assert rows.keys() == found.keys()
    for name, column in rows.items():
        np.testing.assert_array_equal(found[name], column)


def commits(store: Store, sizes: list[int], agents: int) -> Iterator[Agents]:
    """Save after each batch of samples, of that many agents; new agents come all the time."""
    rng, own, saved, now = np.random.default_rng(8), Agents(SETTINGS, NOISE), SavedAgents(), 0.0
    for size in sizes:
        fresh = [f"agent {own.n_agents + i}" for i in range(agents if not own.n_agents else 1)]
        who = rng.choice(own.n_agents + len(fresh), size, replace=False)
        with store.transaction():
            store.add_agents(own.n_agents, fresh)
            own.add_agents(fresh)
            own.update(who, rng.uniform(0, 1, size), now + np.arange(size))
            saved.save(store, own)
        own.mark_clean()
        now += size
        yield own


def test_what_is_read_is_what_was_saved(tmp_path: Path) -> None:
    """Few changed agents are written alone, many with their chunks, and whatever was written first
    is put aside."""
    store, seen = open_store(tmp_path), []
    sizes = [2500, *[3] * 5, 2000, *[100] * 16, *[2] * (MOST_PIECES + 3)]
    for own in commits(store, sizes, 2500):
        read, again = Agents(SETTINGS, NOISE), SavedAgents()
        read.add_agents(store.agents())
        again.restore(store, read)
        same(own, read)
        assert saved_sample_counts(store).tolist() == own.counts().tolist()
        seen.append(pieces(store))
    assert seen[:7] == [0, 1, 2, 3, 4, 5, 0]
    assert max(seen[7:23]) < 16
    assert min(seen[7:23]) == 0  # half of all had changed
    assert max(seen[23:]) == MOST_PIECES
    assert seen[-1] < MOST_PIECES
    store.close()


def test_a_restart_goes_on_after_the_pieces_that_are_there(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    *_, own = commits(store, [2500, 3, 4], 2500)
    read, saved = Agents(SETTINGS, NOISE), SavedAgents()
    read.add_agents(store.agents())
    saved.restore(store, read)
    read.mark_clean()
    for size in (5, 2000):
        for agents in (own, read):
            agents.update(np.arange(size), np.full(size, 0.25), np.full(size, 1e6))
        with store.transaction():
            saved.save(store, read)
        read.mark_clean()
        found = Agents(SETTINGS, NOISE)
        found.add_agents(store.agents())
        SavedAgents().restore(store, found)
        same(own, found)
        assert pieces(store) == (3 if size == 5 else 0)
    store.close()


def script() -> ScriptedSource:
    """Forty agents at once, then one after the other, for twenty samples each."""
    who = [*range(40), *(i // 20 for i in range(800))]
    values = np.random.default_rng(2).uniform(0, 10, len(who)).tolist()
    return ScriptedSource(
        [(f"agent {a}", v, float(t)) for t, (a, v) in enumerate(zip(who, values, strict=True))]
    )


@pytest.fixture
def world_of(new_world: Callable[[str], Any]) -> Callable[[str], Any]:
    def make(name: str) -> Any:
        world = new_world(name)
        world.options = replace(world.options, batch_size=40, refresh=None, allowed_lateness=0.0)
        return world

    return make


def test_killed_among_pieces_it_goes_on_as_if_it_had_not_been(
    world_of: Callable[[str], Any],
) -> None:
    whole, seen = world_of("whole"), []

    def look(point: CrashPoint, moment: Moment) -> None:
        if (point, moment) == (CrashPoint.COMMIT, Moment.AFTER):
            seen.append(pieces(whole.engine._store))

    whole.run(script(), crash=look)
    assert max(seen) > 2
    for visit in (3, 5, 9):
        for point in (CrashPoint.SAVE_SNAPSHOT, CrashPoint.COMMIT):
            world = world_of(f"{point}-{visit}")
            with suppress(Died):
                world.run(script(), crash=DieAt(point, Moment.AFTER, visit))
            world.run(script())
            assert world.files() == whole.files()


def test_an_agent_that_is_forgotten_leaves_nothing_in_pieces(
    world_of: Callable[[str], Any],
) -> None:
    world = world_of("forgotten")
    world.options = replace(world.options, final_release=False)
    with suppress(Died):
        world.run(script(), crash=DieAt(CrashPoint.COMMIT, Moment.AFTER, 6))
    with closing(Store.amend(world.folder / "s.db")) as store:
        before = agents_at_rest(store, world.settings)[0]
        number = int(np.argmax(before.counts()))
        assert pieces(store) > 0
        told = before.rows(np.array([number]))["squares_low"].tobytes()
        forget_agent(store, before.names[number])
        assert pieces(store) == 0
        after = agents_at_rest(store, world.settings)[0]
        assert after.counts()[number] == 0
        others = np.delete(np.arange(after.n_agents), number)
        np.testing.assert_array_equal(after.counts()[others], before.counts()[others])
    assert told not in (world.folder / "s.db").read_bytes()

"""A window among many agents writes what it changes; a shard made of the whole and its changes is
the shard it was."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meanstream.operators.agents.agents import AgentsSettings
from meanstream.operators.noise.keyed import keyed_owner_words
from meanstream.pipelines.beam.agents import agents_shard as shard_module
from meanstream.pipelines.beam.agents.agents_elements import AgentReleases, AgentSamples, Tick
from meanstream.pipelines.beam.agents.agents_shard import AgentShard
from meanstream.pipelines.beam.agents.agents_windows import AgentWindows
from meanstream.pipelines.beam.agents.latest_by_agent import LatestOfShard
from meanstream.pipelines.beam.element_types.beam_samples import RememberedWords
from meanstream.pipelines.beam.element_types.columns_coder import ColumnsCoder
from meanstream.pipelines.beam.element_types.events import DamagedBytesError
from meanstream.pipelines.beam.keyed_state.journal import PART, StateJournal
from meanstream.streaming.store.secret_source import noise_from_secret
from tests.pipelines.beam.agents.test_agents_idempotent import (
    charged,
    fresh_state,
    life,
    lose_agents,
    samples_of,
)
from tests.pipelines.beam.support.agents_world import SETTINGS
from tests.pipelines.beam.support.keyed_cells import Bag, Cell
from tests.streaming.support.rounds_world import SECRET

EACH = AgentWindows(refresh=60.0)
FEW = 12
"""Samples of a window."""


def cells() -> tuple[Any, Any, Any]:
    return Cell(), Bag(), Cell()


def window(number: int, agents: int, samples: int) -> AgentSamples:
    """Samples of all agents, or of some and of one that nobody has heard of."""
    rng = np.random.default_rng(number)
    some = rng.integers(0, agents, samples - 1)
    who = np.arange(samples) % agents if samples >= agents else np.append(some, agents + number)
    names, agent = np.unique(who, return_inverse=True)
    return AgentSamples(
        names=pa.array([f"agent {name}" for name in names.tolist()], pa.large_string()),
        agent=agent,
        point=SETTINGS.grid.encode(rng.normal(5, 2, len(who))),
        time=60.0 * number + np.arange(len(who)) * (60 / len(who)),
        key=np.zeros(0, np.uint64),
        position=np.arange(len(who)),
        person=rng.integers(1, 4, len(who)).astype(np.uint64),
    )


def shard_of(given: AgentsSettings, journal: StateJournal | None = None) -> AgentShard:
    noise = noise_from_secret(SECRET.encode(), given.name)
    return (
        AgentShard(given, noise) if journal is None else AgentShard(given, noise, *journal.read())
    )


def turn(shard: AgentShard, number: int, agents: int) -> list[tuple[int, int, int]]:
    part = window(number, agents, FEW if number else agents)
    if shard.agents.settings.per_person is None:
        part = replace(part, person=np.zeros(0, np.uint64))
    made = shard.turn(
        [part], keyed_owner_words, [Tick(number, part.time.max())], EACH, final_release=False
    )
    found = []
    for batch in made.released:
        shard.spend.charge(np.unique(batch.releases.agent))
        columns = batch.releases
        found += list(
            zip(columns.agent.tolist(), columns.index.tolist(), columns.total.tolist(), strict=True)
        )
    return found


KINDS = {
    "schedule": SETTINGS,
    "by time": replace(SETTINGS, schedule="every:90s"),
    "forgets": AgentsSettings(
        name="test", lower=0, upper=10, epsilon=1, delta=1e-6, memory="half-life:4"
    ),
    "window": AgentsSettings(
        name="test", lower=0, upper=10, epsilon=1, delta=1e-6, memory="window:20"
    ),
    "window by time": AgentsSettings(
        name="test",
        lower=0,
        upper=10,
        epsilon=1,
        delta=1e-6,
        memory="window:6m",
        schedule="every:90s",
    ),
    "persons": replace(SETTINGS, per_person=2, spread_share=0.0),
    "histograms": replace(SETTINGS, histogram_share=0.2),
}


def check_whole_and_changes(given: AgentsSettings) -> None:
    """At each window: what its state makes is what the shard is, to the byte, and releases the
    same.

    Compared before it is asserted: pytest would look for minutes where two long values differ.
    """
    state, warm = cells(), shard_of(given)
    added = 0
    for number in range(9):
        cold = shard_of(given, StateJournal(*state))
        equal = turn(cold, number, 600) == turn(warm, number, 600)
        assert equal
        cold.save(StateJournal(*state))
        state[1].values.reverse()  # a bag has no order
        again = shard_of(given, StateJournal(*state))
        equal = again.to_bytes() == cold.to_bytes() == warm.to_bytes()
        assert equal
        added = max(added, len(state[1].values))
    assert added > 2


@pytest.mark.parametrize("kind", KINDS)
def test_a_shard_of_a_whole_and_changes_is_the_shard_that_it_was(kind: str) -> None:
    check_whole_and_changes(KINDS[kind])


def test_an_agent_that_releases_without_a_sample_is_among_the_changes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The known-bad twin writes the agents that have sent something, and no others."""
    save = AgentShard.save

    def forgetful(self: AgentShard, journal: StateJournal) -> None:
        self._touched = self._touched[:1]
        save(self, journal)

    monkeypatch.setattr(AgentShard, "save", forgetful)
    with pytest.raises(AssertionError):
        check_whole_and_changes(KINDS["by time"])


def test_persons_that_are_not_among_the_changes_would_count_anew(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    take = shard_module.Agents.put_rows

    def forgetful(self: Any, agents: Any, rows: Any) -> None:
        take(self, agents, rows)
        if self.persons is not None:
            self.persons.take = lambda *_: None

    monkeypatch.setattr(shard_module.Agents, "put_rows", forgetful)
    with pytest.raises((AssertionError, TypeError)):
        check_whole_and_changes(KINDS["persons"])


def written_in_a_window(agents: int) -> tuple[int, int]:
    """Bytes that a window of few samples writes on average, the wholes that come due among them;
    and a whole."""
    given, state, total = SETTINGS, cells(), 0
    shard = shard_of(given)
    for number in range(60):
        turn(shard, number, agents)
        shard.save(StateJournal(*state))
        if number:
            total += len(state[1].values[-1]) if state[1].values else len(state[0].value)
    return total // 59, len(state[0].value)


def test_a_small_window_writes_little_among_however_many() -> None:
    few, small = written_in_a_window(500)
    many, large = written_in_a_window(5000)
    assert large > 6 * small
    assert many < 2 * few  # it was `large`


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 40), st.booleans()), max_size=30), st.randoms())
def test_a_journal_gives_what_was_saved(saves: list[tuple[int, bool]], random: Any) -> None:
    state: tuple[Any, Any, Any] = cells()
    expected: list[bytes] = []
    marks = set()
    for number, (size, asked) in enumerate(saves):
        change, journal = bytes([number]) * (size + 1), StateJournal(*state)
        before = list(expected)
        journal.save(change if asked else None, lambda: b"whole" * 100 + bytes([number]) * 16)  # noqa: B023 - at once
        expected = (
            [*before, change] if state[1].values and asked and before != [*before, change] else []
        )
        random.shuffle(state[1].values)
        whole, changes = StateJournal(*state).read()
        assert whole.startswith(b"whole")
        assert changes == expected == ([] if not state[1].values else changes)
        assert PART * sum(map(len, changes)) <= len(whole)
        assert StateJournal(*state).mark == journal.mark not in marks
        marks.add(journal.mark)


@pytest.fixture(name="saved")
def _saved() -> tuple[Any, Any, Any]:
    state = cells()
    for number in range(4):
        StateJournal(*state).save(bytes([number]) * 9, lambda: b"w" * 500)
    assert len(state[1].values) == 3
    return state


@pytest.mark.parametrize("what", ["lost", "changed", "twice", "whole"])
def test_state_that_is_not_what_was_written_last_is_refused(
    saved: tuple[Any, Any, Any], what: str
) -> None:
    whole, changes, _ = saved
    if what == "lost":
        changes.values.pop()
    elif what == "changed":
        changes.values[1] = changes.values[1][:-1] + b"x"
    elif what == "twice":
        changes.values.append(changes.values[0])
    else:
        whole.value = whole.value[:-1] + b"x"
    with pytest.raises(
        DamagedBytesError, match=r"^state must be the whole and the changes that its head names"
    ):
        StateJournal(*saved).read()


def test_a_head_of_another_version_is_refused(saved: tuple[Any, Any, Any]) -> None:
    saved[2].value = b"\x02" + saved[2].value[1:]
    with pytest.raises(
        DamagedBytesError, match=r"^head of a state must be of version 1, got another$"
    ):
        StateJournal(*saved)


def test_what_lost_agents_were_charged_stays_charged() -> None:
    """Of those who have not come back as well, by whatever worker the state is read again."""
    state = fresh_state()
    life(state, samples_of(0), 0)
    before = {
        name: count for name, count in zip(names_of(state), charged(state), strict=True) if count
    }
    lose_agents(state)
    part = samples_of(1)
    one = part.take(part.agent == part.agent[0])
    life(
        state, replace(one, names=one.names.take(pa.array([one.agent[0]])), agent=one.agent * 0), 1
    )
    assert len(names_of(state)) == 1
    life(state, samples_of(2), 2)
    after = dict(zip(names_of(state), charged(state), strict=True))
    assert len(before.keys() & after.keys()) > 10
    assert all(after[name] >= before[name] for name in before.keys() & after.keys())


def names_of(state: dict[str, Any]) -> list[str]:
    noise = noise_from_secret(SECRET.encode(), SETTINGS.name)
    return AgentShard(SETTINGS, noise, state["agents"].value, state["changes"].values).agents.names


def with_hashes(batches: list[AgentReleases], shard: AgentShard) -> list[AgentReleases]:
    """As they come from the shard that has made them."""
    coder = ColumnsCoder(AgentReleases)
    return [coder.decode(coder.encode(replace(batch, words=shard.words))) for batch in batches]


def not_asked(names: list[str]) -> Any:
    raise AssertionError(f"{len(names)} names were hashed again")


def test_newest_releases_of_a_whole_and_changes_are_those_of_all() -> None:
    """What a shard tells of a window is what it would tell if it looked at all of its agents.

    And releases that bring the hashes of their names are those that do not.
    """
    rng, words = np.random.default_rng(1), RememberedWords().of
    shard, state, warm = shard_of(SETTINGS), cells(), LatestOfShard(SETTINGS)
    added = 0
    for number in range(40):
        part = window(number, 2000, FEW if number else 6000)
        part = replace(part, person=np.zeros(0, np.uint64))
        made = shard.turn(
            [part], keyed_owner_words, [Tick(number, part.time.max())], EACH, final_release=False
        )
        batches = [
            AgentReleases(
                names=pa.array(shard.agents.names, pa.large_string()),
                number=number,
                releases=b.releases,
                time=b.time,
            )
            for b in made.released
        ]
        if number % 3 == 0:
            batches += batches[: int(rng.integers(0, 2))]  # told twice
        journal = StateJournal(*state)
        cold = LatestOfShard(SETTINGS, *journal.read())
        everybody = LatestOfShard(SETTINGS, cold.to_bytes())
        before = everybody.combined()
        everybody.observe(batches, words)
        told, same = (
            cold.changed(batches, words),
            warm.changed(with_hashes(batches, shard), not_asked),
        )
        if told is not None:
            assert same is not None
            assert told[1].mean.tobytes() == same[1].mean.tobytes()
            cold.save(journal)
            if number > 0:
                place = np.isin(before.agent, told[0].agent)
                assert before.take(place).mean.tobytes() == told[0].mean.tobytes()
        assert everybody.combined().mean.tobytes() == cold.combined().mean.tobytes()
        assert everybody.pool.snapshot() == cold.pool.snapshot()
        assert (
            cold.to_bytes()
            == warm.to_bytes()
            == LatestOfShard(SETTINGS, *StateJournal(*state).read()).to_bytes()
        )
        added = max(added, len(state[1].values))
    assert added > 2

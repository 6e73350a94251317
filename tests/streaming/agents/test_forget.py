"""An agent that is forgotten leaves nothing private in the file; its releases and its spent budget
stay."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import closing
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from meanstream.operators.agents.agents import Agents
from meanstream.operators.agents.agents_settings import AgentsSettings
from meanstream.operators.noise.keyed import KeyedNoise
from meanstream.streaming.agents.forget_agent import forget_agent
from meanstream.streaming.agents.move_agents import put_departed_agents
from meanstream.streaming.agents.saved_agents import agents_at_rest
from meanstream.streaming.agents.store_answers import StoreAnswers
from meanstream.streaming.engine.engine_loop import HISTORY
from meanstream.streaming.store.state_store import Store, StoreError
from meanstream.streaming.store.store_audit import audit_ledger, back_up_store
from tests.streaming.support.scripted_source import ScriptedSource

SHY = "shy-of-every-release"
LAST = 200.0


def samples(since: float = 0.0) -> list[tuple[str, float, float]]:
    """Return samples of two agents that release, and in the beginning one of an agent that does
    not."""
    rng = np.random.default_rng(7)
    both = [
        (name, float(rng.uniform(0, 10)), since + 5.0 * i + at)
        for i in range(41)
        for name, at in (("ann", 0.0), ("bob", 1.0))
    ]
    return [*both, (SHY, 3.14159265, since + LAST + 2)]


@pytest.fixture
def begun(world: Any) -> Any:
    """A store that has stopped with samples which wait."""
    world.options = replace(
        world.options, drain=False, final_release=False, collaboration="none", refresh=None
    )
    world.run(ScriptedSource(samples()))
    with closing(Store.amend(world.folder / "s.db")) as store, store.transaction():
        store.put_state(HISTORY, {"precision": [], "flow": [], "newest": "0badf00d" * 4})
    return world


def at_rest(world: Any) -> Agents:
    with closing(Store.read(world.folder / "s.db")) as store:
        return agents_at_rest(store, world.settings)[0]


def secrets_of(world: Any) -> Iterator[bytes]:
    """Yield what is private of the agents that are forgotten, as the file holds it."""
    agents = at_rest(world)
    rows = agents.rows(np.array([agents.names.index("ann")]))
    for name in ("total", "squares_low"):
        yield struct.pack("<q", int(rows[name][0]))[:4]  # of integers of four or eight bytes
    waiting = {name: value for name, value, time in samples() if name != "bob" and time >= LAST}
    assert set(waiting) == {"ann", SHY}
    yield from (struct.pack("<d", value) for value in waiting.values())
    yield from (SHY.encode(), b"0badf00d")


def files(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in sorted(folder.glob("s.db*")))


def test_nothing_private_is_left_in_the_file_nor_in_later_backups(
    begun: Any, tmp_path: Path
) -> None:
    place, needles = begun.folder / "s.db", list(secrets_of(begun))
    assert all(needle in files(begun.folder) for needle in needles), "the control: it was there"
    before, agents = audit_ledger(place), at_rest(begun)
    with closing(Store.amend(place)) as store:
        spent = store.ledger.spent()
        ann, shy = forget_agent(store, "ann"), forget_agent(store, SHY)
        assert not [needle for needle in needles if needle in files(begun.folder)], (
            "while the store is open"
        )
        assert np.array_equal(store.ledger.spent(), spent)
    assert (ann.releases, ann.samples_waiting, ann.name_kept) == (int(spent[0]), 1, True)
    assert ann.releases > 0
    assert (shy.releases, shy.samples_waiting, shy.name_kept) == (0, 1, False)
    back_up_store(place, tmp_path / "later.db")
    later = (tmp_path / "later.db").read_bytes()
    assert not [needle for needle in needles if needle in files(begun.folder) + later]
    assert audit_ledger(place) == before
    other, now, was = np.array([1]), at_rest(begun), agents
    assert all(
        np.array_equal(now.rows(other)[name], column) for name, column in was.rows(other).items()
    )
    assert np.array_equal(now.latest().total, was.latest().total), "releases are public, and stay"


def test_every_column_that_no_release_has_shown_is_as_of_a_new_agent(begun: Any) -> None:
    agents = at_rest(begun)
    for column in agents.columns.values():  # also those that this schedule leaves empty
        column[0] = 1
    agents.forget(np.array([0]))
    fresh = at_rest(begun)
    fresh.add_agents(["new"])
    new = fresh.rows(np.array([fresh.n_agents - 1]))
    rows = agents.rows(np.array([0]))
    for column in agents.table:
        assert np.array_equal(rows[column.name], new[column.name]) != column.kept, column


def test_its_later_samples_are_rejected_and_it_gets_no_estimate(begun: Any) -> None:
    place = begun.folder / "s.db"
    with closing(Store.amend(place)) as store:
        releases = forget_agent(store, "ann").releases
        forget_agent(store, SHY)
    begun.options = replace(begun.options, drain=True, final_release=True)
    written = len(begun.lines("estimates"))
    stats = begun.run(ScriptedSource([*samples(), *samples(since=500.0)]))
    assert stats.rejected["forgotten"] == sum(one[0] == "ann" for one in samples())
    assert {event["agent"] for event in begun.events("estimates")[written:]} == {"bob", SHY}
    charged = [event for event in begun.events("releases") if event["agent"] == "ann"]
    assert len(charged) == releases
    assert at_rest(begun).names[-1] == SHY, "it had no name any more, and begins anew"
    answers = StoreAnswers(place)
    assert answers.answer("ann") is None
    assert answers.answer("bob") is not None


def test_a_reader_keeps_the_old_pages_and_the_command_says_so_and_can_be_run_again(
    begun: Any,
) -> None:
    place = begun.folder / "s.db"
    with closing(Store.amend(place)) as store:
        store._database.execute("PRAGMA busy_timeout = 0")
        with (
            closing(Store.read(place)),
            pytest.raises(StoreError, match="must have no reader while deleted pages"),
        ):
            forget_agent(store, "ann")
        assert forget_agent(store, "ann").samples_waiting == 0


def test_who_is_not_there_or_lives_elsewhere_is_refused(begun: Any) -> None:
    with closing(Store.amend(begun.folder / "s.db")) as store:
        with pytest.raises(
            StoreError, match="agent must be one that the store has samples of, got 'dee'"
        ):
            forget_agent(store, "dee")
        with store.transaction():
            put_departed_agents(store, np.array([False, True, False]))
        with pytest.raises(StoreError, match="agent must live in this store, got 'bob'"):
            forget_agent(store, "bob")


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"memory": "half-life:20", "horizon": None},
        {"memory": "window:5", "horizon": None},
        {"histogram_share": 0.1, "exceeds": (5.0,)},
        {"schedule": "every:50s"},
    ],
)
def test_releases_stay_and_none_follows_whatever_is_counted(more: dict[str, Any]) -> None:
    given = {
        "lower": 0,
        "upper": 10,
        "epsilon": 1,
        "delta": 1e-6,
        "horizon": 12,
        "schedule": "preferred:5",
    }
    settings = AgentsSettings(**{**given, **more})
    agents = Agents(
        settings,
        KeyedNoise(
            bytes.fromhex("9b1f6c04d2a85e73bb40c9f1e6a7250d"), deployment="test", purpose="agents"
        ),
    )
    agents.add_agents(["ann", "bob"])
    rows = [one for one in samples() if one[0] != SHY]
    agents.update(
        np.array([one[0] == "bob" for one in rows], int), *np.array([one[1:] for one in rows]).T
    )
    agents.release_now(LAST)
    before, bob = agents.latest(), agents.own(np.array([1]))
    assert len(before) == 2
    agents.forget(np.array([0]))
    after = agents.latest()
    assert all(
        np.array_equal(getattr(before, f.name), getattr(after, f.name)) for f in fields(before)
    )
    assert agents.own().count.tolist() == [0, bob.count[0]]
    assert np.array_equal(agents.own(np.array([1])).mean, bob.mean)
    assert not len(agents.release_now(LAST + 1).releases)
    assert not len(agents.advance(LAST + 1e6).releases)

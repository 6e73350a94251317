"""A feature of an engine is a keeper in its list: what it writes is in the transaction of the commit,
and nothing of it outlives one that fails."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import pytest

from meanstream.streaming.agents import agents_engine
from meanstream.streaming.engine.keepers import Commit, Keeper, PiecesKeeper
from meanstream.streaming.events.encode import EventLines
from meanstream.streaming.store.state_store import Store
from tests.streaming.support.scripted_source import ScriptedSource

SAMPLES = [(f"agent {i % 3}", float(i % 10), float(i)) for i in range(60)]


class Counter(Keeper[Any]):
    """Counts commits, in the state and in a chunk, and notes in which order it is asked."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.commits = 0
        self.charged_at_post: list[bool] = []
        self.fails = False
        self.store: Store | None = None

    def restore(self, store: Store, state: Mapping[str, Any]) -> None:
        self.calls.append("restore")
        self.commits = state["counted"]
        assert dict(store.chunks("counted"))[0]["commits"].tolist() == [self.commits]

    def begin(self) -> dict[str, Any]:
        self.calls.append("begin")
        return {}

    def note(self, store: Store, commit: Commit[Any]) -> dict[str, Any]:
        self.calls.append("note")
        self.store = store
        return {"counted": self.commits + 1}

    def save(self, store: Store) -> None:
        self.calls.append("save")
        store.put_chunk("counted", 0, {"commits": np.array([self.commits + 1])})

    def post(self, commit: Commit[Any]) -> Iterable[EventLines]:
        self.calls.append("post")
        assert self.store is not None
        self.charged_at_post.append(self.store.ledger.rows() >= len(commit.rows) > 0)
        if self.fails:
            raise RuntimeError("a defect")
        return ()

    def count(self, commit: Commit[Any]) -> None:
        self.calls.append("count")
        self.commits += 1


def with_keeper(monkeypatch: pytest.MonkeyPatch, keeper: Keeper[Any]) -> None:
    made = agents_engine.Engine._make_keepers
    monkeypatch.setattr(
        agents_engine.Engine, "_make_keepers", lambda engine: [*made(engine), keeper]
    )


def test_a_keeper_is_asked_in_order_and_goes_on_after_a_restart(
    world: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    keeper = Counter()
    with_keeper(monkeypatch, keeper)
    commits = world.run(ScriptedSource(SAMPLES)).commits
    assert commits > 1
    assert keeper.calls == ["begin", *["note", "save", "post", "count"] * commits]
    assert keeper.commits == commits
    assert any(keeper.charged_at_post)

    # Another life begins with what the last commit said.
    again = Counter()
    with_keeper(monkeypatch, again)
    more = world.run(ScriptedSource(SAMPLES)).commits
    assert again.calls[:2] == ["restore", "begin"]
    assert again.commits == commits + more


def test_a_keeper_that_fails_takes_the_whole_commit_back(
    world: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    keeper = Counter()
    keeper.fails = True
    with_keeper(monkeypatch, keeper)
    with pytest.raises(RuntimeError, match="a defect"):
        world.run(ScriptedSource(SAMPLES))
    assert keeper.calls == ["begin", "note", "save", "post"]

    # Neither position nor charge nor chunk of it was kept, and nothing has left.
    store = Store.read(world.folder / "s.db")
    assert store.state("engine") is None
    assert store.ledger.rows() == 0
    assert not list(store.chunks("counted"))
    store.close()
    assert not any(world.files().values())


def test_pieces_are_written_once_and_put_back(world: Any) -> None:
    class Pieces:
        def __init__(self) -> None:
            self.kept: dict[int, list[int]] = {}
            self.new: dict[int, dict[str, np.ndarray]] = {}
            self.dropped: list[int] = []

        def restore(self, number: int, columns: dict[str, np.ndarray]) -> None:
            self.kept[number] = columns["n"].tolist()

        def changes(self) -> tuple[dict[int, dict[str, np.ndarray]], list[int]]:
            new, self.new = self.new, {}
            dropped, self.dropped = self.dropped, []
            return new, dropped

    world.run(ScriptedSource(SAMPLES))
    store = Store.amend(world.folder / "s.db")
    first = Pieces()
    first.new = {0: {"n": np.array([1])}, 1: {"n": np.array([2, 3])}}
    keeper = PiecesKeeper("pieces", first)
    with store.transaction():
        keeper.save(store)
    first.dropped = [0]
    with store.transaction():
        keeper.save(store)

    again = Pieces()
    PiecesKeeper("pieces", again).restore(store, {})
    store.close()
    assert again.kept == {1: [2, 3]}

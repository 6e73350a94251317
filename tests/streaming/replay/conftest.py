"""A deployment with records that could not be used at first."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from meanstream.streaming.agents.agents_engine import Engine
from meanstream.streaming.crash import CrashHook, no_crash
from meanstream.streaming.engine.engine_stats import EngineStats
from meanstream.streaming.open_source import open_source
from meanstream.streaming.replay.dead_letters import (
    DeadLetters,
    dead_letters_still_unused,
    read_dead_letters,
)
from meanstream.streaming.replay.reopen import reopening
from meanstream.streaming.replay.replay_letters import Replay, prepare_replay
from meanstream.streaming.sinks.jsonl_sink import JsonlSink
from meanstream.streaming.sinks.sink_protocol import Sinks, Trust
from meanstream.streaming.sources.mapping import ColumnMapping
from meanstream.streaming.store.deployment_store import open_deployment
from meanstream.streaming.store.state_store import Store
from tests.streaming.support.stored_rows import stored_rows

FIRST = ColumnMapping(id="id")
MENDED = ColumnMapping(value="amount", time="when", id="id")
BAD_TIME, BAD_VALUE, LATE, TWICE = 20, 40, 60, 80
"""Lines of the file that are not good under the first mapping; the last one is a copy under any."""


def row(i: int, *, value: object = None, time: object = None, copy_of: object = None) -> str:
    """Write the record of line i: a value and a time that may be bad, and once more what they
    should be."""
    now = 1000 + i
    v, t = (i % 7 if value is None else value), (now if time is None else time)
    return f"agent {i % 3},{v},{t},id {i if copy_of is None else copy_of},{i % 7},{now}"


def write(path: Path, lines: Iterable[str]) -> Path:
    path.write_text("agent,value,time,id,amount,when\n" + "\n".join(lines) + "\n")
    return path


def spoiled_lines(rows: int = 120) -> list[str]:
    lines = {i: row(i) for i in range(2, rows + 2)}
    lines[BAD_TIME] = row(BAD_TIME, time="soon")
    lines[BAD_VALUE] = row(BAD_VALUE, value="7.0314159x")
    lines[LATE] = row(LATE, time=1010)
    lines[TWICE] = row(TWICE, copy_of=TWICE - 3)
    return list(lines.values())


def all_bad_times(rows: int = 100) -> list[str]:
    return [row(i, time="soon") for i in range(2, rows + 2)]


@dataclass
class Deployment:
    """A file, and a store that was filled from it."""

    world: Any
    path: Path

    def first_run(
        self, mapping: ColumnMapping = FIRST, *, sort: bool = False, **more: Any
    ) -> EngineStats:
        stats: EngineStats = self.world.run(open_source(str(self.path), mapping, sort=sort), **more)
        return stats

    def letters(self, *reasons: str) -> DeadLetters:
        return read_dead_letters(str(self.world.folder / "dead_letters.jsonl")).of(reasons=reasons)

    def replay(
        self,
        letters: DeadLetters | None = None,
        *,
        mapping: ColumnMapping = MENDED,
        crash: CrashHook = no_crash,
        max_future: float = 86_400.0,
        lateness: float = 3.0,
        batch_size: int = 16,
    ) -> tuple[EngineStats, Replay]:
        """One life of a process that replays."""
        world = self.world
        found = open_deployment(
            world.folder / "s.db", world.settings, environment={"MEANSTREAM_SECRET": world.secret}
        )
        roles = {"releases", "dead_letters", "notices", "population"}
        sinks = Sinks(
            estimates=JsonlSink(world.folder / "estimates.jsonl", trust=Trust.PRIVATE),
            **{
                role: JsonlSink(world.folder / f"{role}.jsonl", trust=Trust.PUBLIC)
                for role in roles
            },
        )
        try:
            replayed = prepare_replay(
                found.store,
                self.path.name,
                reopening(str(self.path), mapping, id_key=found.id_key),
                self.letters() if letters is None else letters,
            )
            engine = Engine(
                source=replayed.source,
                settings=world.settings,
                noise=found.noise,
                store=found.store,
                sinks=sinks,
                options=replace(
                    world.options,
                    late="accept",
                    max_future=max_future,
                    allowed_lateness=lateness,
                    batch_size=batch_size,
                ),
                unused=replayed.records,
                clock=world.clock,
                crash=crash,
            )
            return engine.run(replayed.done), replayed
        finally:
            sinks.close()
            found.store.close()

    def unused(self) -> list[int]:
        store = Store.read(self.world.folder / "s.db")
        try:
            return dead_letters_still_unused(self.letters(), store).position.tolist()
        finally:
            store.close()

    def totals(self) -> dict[str, tuple[int, float]]:
        """Each agent's number and mean of samples, as its newest estimate tells."""
        return {e["agent"]: (e["n"], round(e["local"], 9)) for e in self.world.events("estimates")}

    def ledger(self) -> list[Any]:
        rows = stored_rows(self.world.folder / "s.db")
        return [
            (agent, index, version, output) for _, agent, index, version, _, _, output, _ in rows
        ]


def stopping_after(turns: int) -> Callable[[], bool]:
    left = iter([False] * turns)
    return lambda: next(left, True)


@pytest.fixture
def spoiled(new_world: Callable[[str], Any], tmp_path: Path) -> Deployment:
    deployment = Deployment(new_world("spoiled"), write(tmp_path / "x.csv", spoiled_lines()))
    stats = deployment.first_run()
    assert stats.rejected == Counter(bad_time=1, bad_value=1, late=1, duplicate=1)
    return deployment


@pytest.fixture
def whole(new_world: Callable[[str], Any], spoiled: Deployment) -> Deployment:
    """A run where the records had been good."""
    deployment = Deployment(new_world("whole"), spoiled.path)
    assert deployment.first_run(MENDED).rejected == Counter(duplicate=1)
    return deployment

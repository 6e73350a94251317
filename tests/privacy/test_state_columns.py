"""What each column of the agents' state is declared to be, it is: two worlds differ in the values of
one agent and release the same; every public column is equal to the byte, and every private one
differs in some pair of worlds."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import fields, replace
from functools import cache
from typing import Any

import numpy as np
import pytest

from meanstream.lab.evidence.counters_audit import counter_columns
from meanstream.operators.agents.agents import Agents
from meanstream.operators.agents.agents_settings import AgentsSettings
from meanstream.operators.agents.own_histogram import SampleHistogram
from meanstream.operators.agents.state import COUNT, SUMS, AgentRows, agents_table
from meanstream.operators.agents.state_columns import PRIVATE, PUBLIC, Column
from meanstream.operators.agents.vote_of_spread import SpreadVote
from meanstream.operators.noise.keyed import KeyedNoise

LAW = {"lower": 0, "upper": 10, "epsilon": 2, "delta": 1e-6, "name": "columns"}
HOW: dict[str, dict[str, Any]] = {
    "pm1": {"noise": "laplace", "counter": "pm1"},
    "two_level": {"noise": "staircase", "counter": "two_level"},
    "pm2": {"noise": "gaussian", "counter": "pm2", "horizon": 12},
    "toeplitz": {"noise": "gaussian", "counter": "toeplitz", "histogram_share": 0.1},
    "optimal": {"noise": "gaussian", "counter": "optimal", "mode": "paper"},
    "time": {"noise": "gaussian", "schedule": "every:25s"},
    "half-life": {"memory": "half-life:60"},
    "long half-life": {"memory": "half-life:2000"},
    "half-life of time": {"memory": "half-life:2m", "schedule": "every:10s"},
    "window": {"memory": "window:80"},
    "window of time": {"memory": "window:3m", "schedule": "every:10s"},
}
MOVED, FEW, OTHER = range(3)
"""An agent whose mean changes in one world, one with two samples, one that is the same everywhere."""
SAMPLES = 601
Told = dict[Any, Any]


@contextmanager
def releases_as(told: Told) -> Iterator[None]:
    """The first world releases as it does, and the others the same: their draws are moved by `C x`.

    That is the proof of the counters: releases are a function of `C x + fresh`, where `x` are the
    increments of a stream. Votes and histograms have draws of their own, moved by their counts.
    """
    noised, vote, histogram = Agents._noised, SpreadVote.cast, SampleHistogram.cast
    totals: Told = {}

    def forced(self: Agents, agent: Any, index: Any, now: Any, fresh: Any) -> Any:
        fresh = np.array(fresh, np.float64)
        for i, (a, k) in enumerate(zip(agent.tolist(), index.tolist(), strict=True)):
            totals[a, k] = int(now.total[i])
            fresh[i], _ = told.setdefault(("mean", a, k), (fresh[i], totals[a, k]))
            apart = [told["mean", a, j][1] - totals[a, j] for j in range(1, k + 1)]
            strategy = columns_of(self.settings.mechanism, k)[k - 1]
            fresh[i] += strategy @ np.diff(apart, prepend=0)
        return noised(self, agent, index, now, fresh)

    def forced_vote(self: SpreadVote, pairs: Any, since: Any, ids: Any, noise: Any) -> Any:
        made = vote(self, pairs, since, ids, noise)
        for i, owner in enumerate(ids.owner):
            made[i] = told.setdefault(("vote", owner.tobytes(), int(ids.index[i])), made[i].copy())
        return made

    def forced_histogram(self: SampleHistogram, rows: Any, agent: Any, *how: Any) -> None:
        histogram(self, rows, agent, *how)
        ids = how[1]
        said = rows["histogram_noised"]
        for a, index in zip(agent.tolist(), ids.index.tolist(), strict=True):
            said[a] = told.setdefault(("histogram", a, index), said[a].copy())

    with pytest.MonkeyPatch.context() as changes:
        changes.setattr(Agents, "_noised", forced)
        changes.setattr(SpreadVote, "cast", forced_vote)
        changes.setattr(SampleHistogram, "cast", forced_histogram)
        yield


@cache
def columns_of(counter: Any, n: int) -> np.ndarray:
    """`C`, as `step` applies the noise."""
    return counter_columns(counter, n)


def world(settings: AgentsSettings, differs: int | None, told: Told) -> tuple[list[bytes], Agents]:
    """A stream of three agents, one of whose values may differ: what it releases, and its state."""
    key = KeyedNoise(
        bytes.fromhex("9b1f6c04d2a85e73bb40c9f1e6a7250d"), deployment="columns", purpose="agents"
    )
    agents = Agents(settings, key)
    agents.add_agents(["moved", "few", "other"])

    # Next to the words' ends: a square more carries over.
    for name in ("squares_low", "pair_squares_low"):
        if name in agents.columns:
            agents.columns[name][FEW] = 2**62 - 1

    rng, middle = np.random.default_rng(3), settings.grid.span // 2
    time = np.arange(SAMPLES, dtype=np.float64)
    values = np.clip(rng.normal(2, 0.5, (2, SAMPLES)), 0, 10)
    few = np.array([middle, middle])
    if differs == MOVED:
        values[0] += np.where((time < 200) | (time >= 520), 0.1, 6.0)
    if differs == FEW:
        few = np.array([middle + 9, middle])

    out = []
    with releases_as(told):
        for start in range(0, SAMPLES, 37):
            part = slice(start, start + 37)
            points = [settings.grid.encode(values[row, part]) for row in (0, 1)]
            who = [np.full(len(points[0]), name) for name in (MOVED, OTHER)]
            times = [time[part], time[part]]
            if start == 0:
                points, who, times = [*points, few], [*who, np.full(2, FEW)], [*times, time[:2]]
            order = np.argsort(np.concatenate(times), kind="stable")
            batch = agents.update_points(
                *(np.concatenate(one)[order] for one in (who, points, times))
            )
            columns = [getattr(batch.releases, one.name) for one in fields(batch.releases)]
            columns += [batch.time, batch.exhausted, batch.drift, batch.since]
            out.append(b"".join(np.ascontiguousarray(column).tobytes() for column in columns))
    return out, agents


@cache
def differing(how: str) -> frozenset[str]:
    """Columns in which two worlds differ that release the same."""
    settings, told, names = AgentsSettings(**{**LAW, **HOW[how]}), {}, set()
    released, plain = world(settings, None, told)
    assert sum(map(len, released)) > 500
    for agent in (MOVED, FEW):
        again, other = world(settings, agent, told)
        assert again == released
        rows, others = (one.rows(np.arange(3)) for one in (plain, other))
        names |= {name for name in rows if rows[name].tobytes() != others[name].tobytes()}
    return frozenset(names)


def table(how: str) -> tuple[Column[Any], ...]:
    return agents_table(AgentsSettings(**{**LAW, **HOW[how]}))


def wrong(tables: dict[str, tuple[Column[Any], ...]]) -> list[str]:
    """Columns that are declared public and differ somewhere, and private ones that never do."""
    shown = {
        column.name
        for how, columns in tables.items()
        for column in columns
        if column.privacy is PUBLIC and column.name in differing(how)
    }
    private = {one.name for columns in tables.values() for one in columns if one.privacy is PRIVATE}
    moved = {name for how in tables for name in differing(how)}
    return sorted(shown | (private - moved))


@pytest.mark.parametrize("how", HOW)
def test_public_columns_are_the_same_in_worlds_that_release_the_same(how: str) -> None:
    assert not [c for c in table(how) if c.privacy is PUBLIC and c.name in differing(how)]
    assert {"total", "squares_low", "squares_high"} <= differing(how)


def test_every_private_column_differs_in_some_world() -> None:
    assert wrong({how: table(how) for how in HOW}) == []


NAMES = sorted({column.name for how in HOW for column in table(how)})


@pytest.mark.parametrize("name", NAMES)
def test_twins_with_one_wrong_declaration_are_caught(name: str) -> None:
    def turned(column: Column[Any]) -> Column[Any]:
        if column.name != name:
            return column
        return replace(column, privacy=PRIVATE if column.privacy is PUBLIC else PUBLIC, kept=False)

    assert wrong({how: tuple(map(turned, table(how))) for how in HOW}) == [name]


def early(self: AgentRows, agents: Any) -> None:
    """Known bad: when an agent is due depends on its sum."""
    self._dirty[agents] = True
    self.columns["block_log"][agents] ^= self.columns["total"][agents].astype(np.uint8)


def test_a_twin_that_puts_a_value_into_a_public_column_is_caught(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(AgentRows, "touch", early)
    how: Callable[[str], frozenset[str]] = differing.__wrapped__  # type: ignore[attr-defined]
    assert "block_log" in how("time")


def test_only_public_columns_are_kept() -> None:
    for how in HOW:
        assert all(column.privacy is PUBLIC for column in table(how) if column.kept)
    with pytest.raises(ValueError, match="column total must be public to be kept, got 'PRIVATE'"):
        replace(SUMS[0], kept=True)


@pytest.mark.parametrize(
    "change",
    [
        {"count": np.zeros(3)},
        {"count": np.zeros((3, 1), np.int64)},
        {"seen": np.zeros(2)},
        {"block_log": np.zeros(3, np.int64)},
        {"counter_draws": np.zeros((3, 41))},
        {"counter_draws": np.zeros(3)},
    ],
    ids=[
        "floats",
        "a dimension more",
        "an agent less",
        "a wider type",
        "beyond the horizon",
        "flat",
    ],
)
def test_rows_of_another_type_or_shape_are_refused_before_any_is_put_back(
    change: dict[str, np.ndarray],
) -> None:
    settings = AgentsSettings(**{**LAW, "noise": "gaussian"})
    _, agents = world(settings, None, {})
    before = agents.snapshot_chunk(0)
    taker = Agents(settings, agents._noise)
    taker.add_agents(agents.names)
    (name,) = change
    with pytest.raises(ValueError, match=f"snapshot column {name} must be 3 of"):
        taker.restore_chunk(0, before | change)
    with pytest.raises(ValueError, match=f"snapshot column {name} must be 3 of"):
        taker.put_rows(np.arange(3), before | change)
    assert not taker.counts().any()


def test_whole_numbers_may_come_back_in_a_narrower_type() -> None:
    settings = AgentsSettings(**{**LAW, "noise": "gaussian"})
    _, agents = world(settings, None, {})
    taker = Agents(settings, agents._noise)
    taker.add_agents(agents.names)
    narrow = agents.counts().astype(np.int16)
    taker.restore_chunk(0, agents.snapshot_chunk(0) | {COUNT.name: narrow})
    assert taker.counts().tolist() == [SAMPLES, 2, SAMPLES]

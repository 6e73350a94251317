"""Blocks that are not tested: a test of each of them finds nothing, in any batches, and no column
differs by a bit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from meanstream.operators.agents import change_tests as own_changes
from meanstream.operators.agents.agents import Agents, ReleaseBatch
from meanstream.operators.agents.agents_settings import AgentsSettings
from meanstream.operators.agents.change_tests import OwnChanges
from meanstream.operators.agents.own_moments import OwnMoment
from meanstream.operators.agents.state_columns import empty_columns
from meanstream.operators.noise.keyed import KeyedNoise
from meanstream.operators.records import Bools, Ints

KEY = bytes.fromhex("9b1f6c04d2a85e73bb40c9f1e6a7250d")
KNOWN: dict[str, Any] = {"lower": -2.0, "upper": 6.0, "epsilon": 1.0, "delta": 1e-6}
MEMORIES = [
    {"memory": "half-life:300", "schedule": "preferred:3"},
    {"memory": "window:400", "schedule": "preferred:3"},
    {"memory": "auto"},
    {"memory": "half-life:60s", "schedule": "every:10s"},
    {"memory": "window:60s", "schedule": "every:10s"},
]
LAWS = {
    "normal": lambda rng, mean: rng.normal(mean, 0.5),
    "rare": lambda rng, mean: (rng.random(len(mean)) < 0.02 * mean) * 6.0,
    "constant": lambda rng, mean: mean,
    "steps of the grid": lambda rng, mean: (
        5.9 + mean * 2.0**-17 + 2.0**-17 * (rng.random(len(mean)) < 0.1)
    ),
}
AGENTS = 60


def everywhere(rows: Any, agent: Ints, now: OwnMoment, middle: int) -> Bools:
    return np.ones(now.number.shape, np.bool_)


def batches(law: str, seed: int) -> list[tuple[Ints, np.ndarray, np.ndarray]]:
    """One sample, many of one agent, one of each, many of all, at times with ties; a third of the
    means move once."""
    rng, found = np.random.default_rng(seed), []
    for turn in range(25):
        n = (1, 1500, AGENTS, 3000, 40)[turn % 5]
        agent = rng.integers(0, AGENTS, n)
        if turn % 5 == 1:
            agent[:] = agent[0] % 4
        elif turn % 5 == 2:
            agent = rng.permutation(AGENTS)
        mean = np.where((agent % 3 == 0) & (turn > 10), 2.0, 1.0)
        found.append(
            (agent, LAWS[law](rng, mean), np.sort(np.round(8.0 * turn + rng.uniform(0, 8, n))))
        )
    return found


def told(batch: ReleaseBatch, agents: Agents) -> list[bytes]:
    releases, own = batch.releases, agents.own()
    columns = [
        getattr(releases, name)
        for name in ("agent", "index", "count", "total", "noise_variance", "votes")
    ]
    columns += [batch.version, batch.time, batch.drift, batch.since]
    columns += [getattr(own, name) for name in ("count", "mean", "squared_deviations", "ahead")]
    return [np.ascontiguousarray(column).tobytes() for column in columns]


def run(law: str, how: dict[str, Any]) -> tuple[list[list[bytes]], dict[str, np.ndarray]]:
    noise = KeyedNoise(KEY, deployment="test", purpose="agents")
    agents = Agents(AgentsSettings(**KNOWN, **how), noise)
    agents.add_agents([f"agent {i}" for i in range(AGENTS)])
    found = [told(agents.update(*batch), agents) for batch in batches(law, 12)]
    return found, agents.rows(np.arange(AGENTS))


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("how", MEMORIES, ids=lambda how: how["memory"])
def test_a_test_of_every_block_finds_the_same(
    law: str, how: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    tests = {"few": 0, "all": 0}
    test = OwnChanges.test

    def counting(self: OwnChanges, rows: Any, agent: Ints, now: OwnMoment) -> Any:
        tests[which] += len(agent)
        return test(self, rows, agent, now)

    monkeypatch.setattr(OwnChanges, "test", counting)
    which = "few"
    found, rows = run(law, how)
    monkeypatch.setattr(own_changes, "own_doubts", everywhere)
    which = "all"
    expected, rows_expected = run(law, how)
    assert found == expected
    assert [name for name in rows if rows[name].tobytes() != rows_expected[name].tobytes()] == []
    assert (rows["own_start_number"][::3] > 0).mean() > 0.8 or law == "rare"
    assert 0 < tests["few"] < 0.6 * tests["all"]


@pytest.mark.parametrize("spread", [0.0, 0.3, 1000.0])
def test_large_numbers_far_from_the_middle_are_doubted(spread: float) -> None:
    """Sums of up to 1e11 samples near the upper bound; changes so small that a third of them are
    found."""
    n, grid_middle, rng = 4000, 2**19, np.random.default_rng(3)
    changes = OwnChanges(grid_middle)
    rows, agent = empty_columns(changes.columns, n), np.arange(n)
    size = 16 * rng.integers(1, 10 ** rng.integers(1, 9, (n, 1)), (n, 31))
    number = np.cumsum(size, axis=1)
    at = rng.integers(2, 28, (n, 1))
    variance = max(spread**2, 1 / 12)
    before, whole = (
        np.take_along_axis(number, at, axis=1).astype(float),
        number[:, -1:].astype(float),
    )
    step = rng.uniform(0, 9, (n, 1)) * np.sqrt(variance * whole / (before * (whole - before)))
    mean = 2**19 - 7 + np.where(np.arange(31) > at, step, 0.0)
    sums = np.rint(size * mean + spread * np.sqrt(size) * rng.normal(size=size.shape)).astype(
        np.int64
    )
    squares = size * (spread**2 + (sums / size) ** 2)
    total, square = np.cumsum(sums + size * grid_middle, axis=1), np.cumsum(squares, axis=1)
    for name, values in zip(OwnMoment._fields, (number, total, square), strict=True):
        rows[f"own_past_{name}"][:] = values[:, :-1]
    now = OwnMoment(number[:, -1], total[:, -1], square[:, -1])
    found, _ = changes._changed(rows, agent, now)
    doubts = changes.doubts(rows, agent, now.take((slice(None), np.newaxis)))[:, 0]
    assert doubts[found].all()
    assert len(found) > 200
    assert not doubts.all()

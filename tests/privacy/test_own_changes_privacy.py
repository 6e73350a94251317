"""An agent's own change is private data: whether, when, and where it is found moves no release, no
time, no charge."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import numpy as np
import pytest

from meanstream.operators.agents import change_tests as own_changes
from meanstream.operators.agents.agents import Agents
from meanstream.operators.agents.agents_settings import AgentsSettings
from meanstream.operators.agents.change_tests import OwnChanges
from meanstream.operators.agents.change_tests import Tested as Found
from meanstream.operators.agents.half_life_memory import KeptSums
from meanstream.operators.agents.own_moments import OwnMoment
from meanstream.operators.agents.state_columns import PUBLIC
from meanstream.operators.noise.keyed import KeyedNoise
from meanstream.operators.records import Bools, Ints

AGENTS, SAMPLES = 40, 600
FOUND = OwnChanges.test


def never(self: OwnChanges, rows: Any, agent: Ints, now: OwnMoment) -> Found:
    before = {
        name: rows[name].copy() for name in rows if name.startswith(("own_start", "own_origin"))
    }
    tested = FOUND(self, rows, agent, now)
    for name, column in before.items():
        rows[name][:] = column
    nobody = np.zeros(0, np.int64)
    return Found(nobody, nobody, tested.since.take(nobody))


def always(self: OwnChanges, rows: Any, agent: Ints, now: OwnMoment) -> Found:
    """At the end of every block, where the block began."""
    FOUND(self, rows, agent, now)
    OwnMoment.of(rows, "marked", agent).put(rows, "start", agent)
    return Found(np.zeros(0, np.int64), np.arange(len(agent)), OwnMoment.of(rows, "marked", agent))


def everywhere(rows: Any, agent: Ints, now: OwnMoment, middle: int) -> Bools:
    """Test after every block, whether or not something could be found."""
    return np.ones(now.number.shape, np.bool_)


def stream(**how: Any) -> tuple[list[bytes], dict[str, np.ndarray], list[float]]:
    """Everything that a stream of moving agents releases, call by call; what is left of it; own
    means at the end."""
    given = {"lower": 0, "upper": 1, "epsilon": 3, "delta": 1e-6, "name": "moving", **how}
    key = KeyedNoise(
        bytes.fromhex("9b1f6c04d2a85e73bb40c9f1e6a7250d"), deployment="moving", purpose="agents"
    )
    agents = Agents(AgentsSettings(**given), key)
    agents.add_agents([f"a{i}" for i in range(AGENTS)])
    rng, told = np.random.default_rng(4), []
    for start in range(0, SAMPLES, 37):
        time = np.arange(start, min(start + 37, SAMPLES))
        mean = np.where((time // 150) % 2 == 0, 0.2, 0.8)
        values = np.clip(rng.normal(mean[:, None], 0.05, (len(time), AGENTS)), 0, 1)
        who = np.tile(np.arange(AGENTS), len(time))
        batch = agents.update(who, values.ravel(), np.repeat(time.astype(float), AGENTS))
        columns = [
            getattr(part, one.name)
            for part in (batch.releases, batch.before)
            for one in fields(part)
        ]
        columns += [batch.version, batch.time, batch.drift, batch.exhausted]
        told.append(b"".join(np.ascontiguousarray(column).tobytes() for column in columns))
    rows = agents.rows(np.arange(AGENTS))
    # The noise is private, and the same in all worlds here.
    same = [c.name for c in agents.table if c.privacy is PUBLIC or c.of == "noise"]
    public = {name: rows[name] for name in same}
    return [*told, agents.spent().tobytes()], public, agents.own().mean.tolist()


HOW = [
    {"memory": "half-life:100"},
    {"memory": "half-life:2m", "schedule": "every:10s"},
    {"memory": "window:200"},
    {"memory": "window:4m", "schedule": "every:10s"},
]


@pytest.mark.parametrize("how", HOW, ids=["samples", "time", "window of samples", "window of time"])
@pytest.mark.parametrize("answer", [never, always])
def test_whatever_is_found_no_release_differs(
    answer: Any, how: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    told, public, own = stream(**how)
    monkeypatch.setattr(OwnChanges, "test", answer)
    monkeypatch.setattr(own_changes, "own_doubts", everywhere)
    again, public_again, own_again = stream(**how)
    assert again == told
    assert sum(map(len, told)) > 10_000
    assert [name for name in public if public[name].tobytes() != public_again[name].tobytes()] == []
    assert np.abs(np.array(own) - own_again).max() > 0.01  # the agent's own answer is what it moves


def released_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Known bad: an agent that has changed releases with its next sample."""
    test = KeptSums.test

    def early(self: KeptSums, rows: Any, agent: Ints, now: Any) -> None:
        before = rows["own_weight"][agent].copy()
        test(self, rows, agent, now)
        changed = agent[rows["own_weight"][agent] != before]
        rows["due"][changed] = now.number[np.isin(agent, changed)] + 1

    monkeypatch.setattr(KeptSums, "test", early)


def forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """Known bad: what is released of an agent that has changed begins anew, too."""
    test = KeptSums.test

    def anew(self: KeptSums, rows: Any, agent: Ints, now: Any) -> None:
        before = rows["own_weight"][agent].copy()
        test(self, rows, agent, now)
        rows["sums_noised"][agent[rows["own_weight"][agent] != before]] = 0

    monkeypatch.setattr(KeptSums, "test", anew)


def marked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Known bad: the sum of a release begins where the agent's own change lies."""
    test = KeptSums.test

    def since(self: KeptSums, rows: Any, agent: Ints, now: Any) -> None:
        before = rows["own_weight"][agent].copy()
        test(self, rows, agent, now)
        changed = agent[rows["own_weight"][agent] != before]
        rows["marked_total"][changed] = rows["own_start_total"][changed]

    monkeypatch.setattr(KeptSums, "test", since)


@pytest.mark.parametrize("twin", [released_at_once, forgotten, marked])
def test_twins_are_caught(twin: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    twin(monkeypatch)
    told = stream(**HOW[0])[0]
    monkeypatch.setattr(OwnChanges, "test", never)
    assert stream(**HOW[0])[0] != told

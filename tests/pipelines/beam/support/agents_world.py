"""Streams of agents, and what the engine makes of them: the oracle of agents on Beam."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from meanstream.operators.agents.agents import AgentsSettings
from meanstream.streaming.engine.engine_options import EngineOptions
from meanstream.streaming.open_source import open_source
from meanstream.streaming.sources.mapping import ColumnMapping
from meanstream.streaming.store.secret_source import key_derived_from_secret
from tests.streaming.conftest import World
from tests.streaming.support.rounds_world import SECRET
from tests.streaming.support.scripted_source import ScriptedSource

MAPPING = ColumnMapping(agent="agent", value="value", time="time", id="id")
SETTINGS = AgentsSettings(
    name="test",
    lower=0,
    upper=10,
    epsilon=1,
    delta=1e-6,
    schedule="geometric:2,1.5",
    horizon=12,
    spread_share=0.2,
)
HOUR = 3600.0
ROUNDS_GIVEN = {
    "user": "agent", "lower": 0, "upper": 10, "epsilon": 2, "window": "1d", "estimator": "one_shot", "name": "test",
}  # fmt: skip
"""What a round over the same samples is given, on every host."""


def samples(n: int = 600, agents: int = 25, seed: int = 5) -> list[tuple[str, float, float]]:
    """Samples of two classes of agents over a hundred hours, in the order of event time, no two at
    one time."""
    rng = np.random.default_rng(seed)
    who, time = rng.integers(0, agents, n), np.sort(rng.uniform(0, 100 * HOUR, n))
    value = np.where(who % 2 == 0, 3.0, 7.0) + rng.normal(0, 2, n)
    return [(f"agent {a}", float(v), float(t)) for a, v, t in zip(who, value, time, strict=True)]


def flawed_file(folder: Path, n: int = 600) -> Path:
    """Samples out of order, some of them twice, late, in the future, or unreadable."""
    rng = np.random.default_rng(3)
    stream = samples(n)
    rows = [f"{agent},{value!r},{time!r},id{i}" for i, (agent, value, time) in enumerate(stream)]
    arrival = np.array([time for _, _, time in stream]) + rng.exponential(2 * HOUR, n)
    rows = [rows[place] for place in np.argsort(arrival).tolist()]
    rows[100:100] = [
        rows[95],
        rows[98],
        "agent 1,3.5,5000000000,soon",
        "agent 2,,1000,none",
        "agent 3,nan,1000,nan",
    ]
    path = folder / "samples.csv"
    path.write_text("\n".join(["agent,value,time,id", *rows]) + "\n")
    return path


def engine_on_file(
    folder: Path, settings: AgentsSettings, options: EngineOptions, path: Path, *, sort: bool
) -> World:
    """Let the engine read a file."""
    world = World(folder, settings, options, secret=SECRET)
    id_key = key_derived_from_secret(SECRET.encode(), "sample ids")
    world.stats = world.run(open_source(str(path), MAPPING, sort=sort, id_key=id_key))  # type: ignore[attr-defined]
    return world


def engine_on(
    folder: Path,
    stream: Sequence[tuple[str, float, float]],
    settings: AgentsSettings = SETTINGS,
    *,
    ids: Sequence[int] | None = None,
    **options: Any,
) -> World:
    """Let the engine take samples in; everybody is answered at the end."""
    host = replace(EngineOptions(refresh=None), **options)
    world = World(folder, settings, host, secret=SECRET)
    world.run(ScriptedSource(stream, ids=ids))
    return world


def release_lines(batches: Iterable[Any], settings: AgentsSettings = SETTINGS) -> list[bytes]:
    """Lines of all releases that were let out, in a fixed order."""
    return sorted(line for batch in batches for line in batch.lines(settings).lines)


def by_agent(lines: Iterable[bytes]) -> dict[str, Any]:
    """Each agent's newest estimate."""
    return {event["agent"]: event for event in map(json.loads, lines)}


OF_VALUES = ("value", "interval", "local", "half_width")
"""Fields in the unit of the values."""


def assert_same_estimates(
    found: Iterable[bytes], expected: Iterable[bytes], settings: AgentsSettings
) -> None:
    """Equal to 1e-12: numbers in the value's unit relative to the width of the bounds, ratios to
    themselves.

    A population that is fitted to releases in another order differs by rounding, and by nothing
    else. Quantiles and exceedances do not: their prior is fitted to histograms in one order.
    """
    here, there = by_agent(found), by_agent(expected)
    assert here.keys() == there.keys()
    assert here
    for agent, event in there.items():
        assert here[agent].keys() == event.keys()
        for name, value in event.items():
            if not isinstance(value, (float, list)) or name in {"quantiles", "exceeds"}:
                assert here[agent][name] == value, (agent, name)
                continue
            unit = (
                settings.upper - settings.lower if any(part in name for part in OF_VALUES) else 1.0
            )
            error = np.abs(np.array(here[agent][name]) - value) / np.maximum(np.abs(value), unit)
            assert error.max() <= 1e-12, (agent, name, error.max())

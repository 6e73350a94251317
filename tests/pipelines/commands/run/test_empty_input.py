"""An input without one good sample ends like any other: its event time was never anywhere."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from meanstream.operators.agents.agents import Agents, AgentsSettings
from meanstream.operators.noise.keyed import KeyedNoise
from tests.pipelines.command_line import SECRET, meanstream

INPUTS = {
    "no record": "",
    "bad records": "a,x,1\nb,1,never\n",
    "a time in the future": "a,1,2098-01-01\n",
}
MEMORIES = ["forever", "half-life:30d", "window:30d"]


@pytest.mark.parametrize(
    ("memory", "text"), list(zip(MEMORIES, INPUTS.values(), strict=True)), ids=INPUTS
)
def test_a_run_on_nothing_ends_well_twice(memory: str, text: str, tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("agent,value,time\n" + text)
    schedule = ("--schedule", "every:1d", "--memory", memory)
    options = (
        "--lower",
        "0",
        "--upper",
        "1",
        "--epsilon",
        "1",
        "--delta",
        "1e-6",
        *schedule,
        "--quiet",
        "--json",
    )
    places = ("--store", str(tmp_path / "s.db"), "--sink", str(tmp_path / "e.jsonl"), "--no-sort")
    for _ in range(2):
        source = ("--source", str(tmp_path / "x.csv"))
        ran = meanstream(
            "run", "agents", *source, *options, *places, environment={"MEANSTREAM_SECRET": SECRET}
        )
        assert (ran.code, ran.err) == (0, b"")
        assert (ran.json["accepted"], ran.json["releases"]) == (0, 0)


@pytest.mark.parametrize("memory", MEMORIES)
def test_event_time_may_be_before_and_after_all_times(memory: str) -> None:
    settings = AgentsSettings(
        lower=0, upper=1, epsilon=1, delta=1e-6, schedule="every:1d", memory=memory
    )
    agents = Agents(
        settings, KeyedNoise(bytes.fromhex(SECRET), deployment="test", purpose="agents")
    )
    agents.add_agents(["a"])
    for nowhere in (-np.inf, np.nextafter(-np.inf, 0.0), np.nan):
        assert not len(agents.advance(nowhere).releases.agent)
    agents.update(np.array([0]), np.array([0.5]), np.array([1e9]))
    assert not len(agents.advance(-np.inf).releases.agent)
    assert agents.advance(np.inf).releases.agent.tolist() == [0]

"""State of a shard of a Beam job, as bytes, and what the job releases from it; called by
`make_kept_store`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from meanstream.operators.agents.agents import AgentsSettings
from meanstream.operators.noise.keyed import keyed_owner_words
from meanstream.pipelines.beam.agents.agents_elements import AgentSamples, Tick
from meanstream.pipelines.beam.agents.agents_shard import AgentShard
from meanstream.pipelines.beam.agents.agents_windows import AgentWindows
from meanstream.pipelines.beam.keyed_state.beam_state import StateMark
from meanstream.streaming.store.secret_source import noise_from_secret
from tests.pipelines.command_line import SECRET

SETTINGS = AgentsSettings(
    name="kept beam",
    lower=-30,
    upper=120,
    epsilon=1,
    delta=1e-6,
    counter="pm1",
    schedule="geometric:2,1.5",
    horizon=12,
    spread_share=0.1,
)
IDENTITY = {"name": "kept beam", "shards": 8, "epsilon": 1.0}
AGENTS = ("N14228", "tail 7", "\u017caneta")
HOURS = 3600.0
KEPT_WINDOWS = 3
"""Windows before the state is kept; the releases of as many after it are kept with it."""

Releases = list[tuple[str, int, int]]


class Cell:
    """A cell of state."""

    def __init__(self, value: bytes = b"") -> None:
        self.value = value

    def read(self) -> bytes:
        return self.value

    def write(self, value: bytes) -> None:
        self.value = value


def shard_of(*encoded: bytes) -> AgentShard:
    """A new shard, or one from its bytes."""
    return AgentShard(SETTINGS, noise_from_secret(SECRET.encode(), SETTINGS.name), *encoded)


def release_window(shard: AgentShard, number: int) -> Releases:
    """Give a shard the samples of an hour; give agent, index and sum of what it releases."""
    who = np.arange(12) % len(AGENTS)
    samples = AgentSamples(
        names=pa.array(AGENTS, pa.large_string()),
        agent=who,
        point=SETTINGS.grid.encode((37.0 * np.arange(12) + 11 * number) % 150 - 30),
        time=number * HOURS + 300.0 * np.arange(12),
        key=np.zeros(12, np.uint64),
        position=np.arange(12),
    )
    tick = Tick(number, float(samples.time.max()))
    turn = shard.turn(
        [samples], keyed_owner_words, [tick], AgentWindows(refresh=HOURS), final_release=False
    )

    released: Releases = []
    for batch in turn.released:
        shard.spend.charge(np.unique(batch.releases.agent))
        columns: Any = batch.releases
        names = [shard.agents.names[agent] for agent in columns.agent.tolist()]
        released += zip(names, columns.index.tolist(), columns.total.tolist(), strict=True)
    return released


def make_beam_state(folder: Path) -> None:
    """Write the state after some windows, its mark, and what the next windows release."""
    folder.mkdir()
    shard = shard_of()
    before = [release_window(shard, number) for number in range(KEPT_WINDOWS)]
    (folder / "shard.bin").write_bytes(shard.to_bytes())

    mark = Cell()
    StateMark(IDENTITY, SECRET.encode()).claim(mark)
    (folder / "made.json").write_bytes(mark.value)

    after = [release_window(shard, KEPT_WINDOWS + number) for number in range(KEPT_WINDOWS)]
    releases = {"before": before, "after": after}
    (folder / "releases.json").write_text(json.dumps(releases, ensure_ascii=False) + "\n")

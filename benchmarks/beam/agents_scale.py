"""A snapshot of many agents, and what one shard costs: parts of the pipeline without a runner."""

from __future__ import annotations

import resource
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
from apache_beam.pvalue import TaggedOutput
from apache_beam.utils.timestamp import MAX_TIMESTAMP

from benchmarks.beam.agents_work import BEGIN, SETTINGS
from meanstream.operators.agents.agents import Agents, AgentsSettings
from meanstream.operators.noise.keyed import KeyedNoise, keyed_owner_words
from meanstream.pipelines.beam.agents.agents_coders import (
    ForShardCoder,
)
from meanstream.pipelines.beam.agents.agents_elements import (
    AgentReleases,
    Packed,
    PartialReleases,
    Tick,
)
from meanstream.pipelines.beam.agents.agents_parts import agents_part_state
from meanstream.pipelines.beam.agents.agents_windows import AgentWindows
from meanstream.pipelines.beam.agents.fit_population import FitReleases
from meanstream.pipelines.beam.agents.gather_releases import GatherShard
from meanstream.pipelines.beam.agents.release_agents import ReleaseShard
from meanstream.pipelines.beam.agents.split_agents import AgentDirectory, split_columns
from meanstream.pipelines.beam.element_types.beam_samples import BATCH
from meanstream.pipelines.beam.element_types.columns_coder import ColumnsCoder
from meanstream.pipelines.beam.keyed_state.beam_state import StateOwner
from meanstream.pipelines.beam.worker.worker_secret import SecretLocation
from meanstream.streaming.engine.engine_options import EngineOptions

SHARDS = 8
OPTIONS = EngineOptions(refresh=None)
WINDOWS = AgentWindows(refresh=None)
TICK = Tick(0, BEGIN + 1e9)


class Cell:
    """State of one key as a runner gives it.

    A bag, and the cell that is read, changed and written.
    """

    def __init__(self, *values: bytes) -> None:
        self.values = list(values)

    def add(self, value: bytes) -> None:
        """Put one more in."""
        self.values.append(value)

    def clear(self) -> None:
        """Take all out."""
        self.values.clear()

    def write(self, value: bytes) -> None:
        """Replace what is there."""
        self.values = [value]


class Bag(Cell):
    """Many values."""

    def read(self) -> list[bytes]:
        """Give all."""
        return list(self.values)


class One(Cell):
    """One value, or none."""

    def read(self) -> bytes | None:
        """Give it."""
        return self.values[0] if self.values else None


def snapshot(agents: int) -> dict[str, float]:
    """Measure everybody's newest release.

    Kept per shard, joined, fitted; releases were made before.
    """
    batches = [_releases(shard, agents // SHARDS) for shard in range(SHARDS)]
    before = _peak()
    partials, gathering = _timed(
        lambda: [_gathered(shard, batch) for shard, batch in enumerate(batches)]
    )
    joined, joining = _timed(lambda: _joined(partials))
    fitted, fitting = _timed(lambda: [_fit().fit(joined, [TICK])])

    return {
        "agents": fitted[0].agents,
        "gather_cpu_seconds": gathering,
        "join_cpu_seconds": joining,
        "fit_cpu_seconds": fitting,
        "cpu_seconds": gathering + joining + fitting,
        "kibibytes_of_a_partial": max(map(len, partials)) / 2**10,
        "peak_mebibytes_before": before,
        "peak_mebibytes": _peak(),
    }


def scaling(agents: int, samples: int) -> dict[str, float]:
    """Measure one shard, and what all shards wait for.

    Compute from it how 1, 2, 4, 8 would do with as much work each.

    The speed-up is arithmetic on processor times, not a run on as many machines: it leaves the
    network out.
    """
    shards = [_shard(number, agents, samples) for number in range(SHARDS)]
    own = float(np.median([seconds for _, seconds in shards]))
    found = {"shard_cpu_seconds": own}
    alone = None

    for count in (1, 2, 4, 8):
        partials = [partial for partial, _ in shards[:count]]
        common = min(_common(partials) for _ in range(3))
        took = own + common
        alone = took if alone is None else alone
        found[f"join_and_fit_cpu_seconds_{count}"] = common
        found[f"computed_speed_up_{count}"] = count * alone / took

    return found


def state(agents: int, samples: int, histogram_share: float) -> dict[str, float]:
    """Measure what one shard keeps when a window has ended, and what waits in it before.

    Nothing of it is a mean.
    """
    settings = replace(SETTINGS, histogram_share=histogram_share)
    packed = _split(0, agents, samples)
    waiting, kept, made = _released(0, packed, settings)
    latest = One()
    _gathered(0, [ColumnsCoder(AgentReleases).encode(batch) for batch in made], latest, settings)
    found = {"waiting": waiting, **kept, "latest releases": latest}
    mebibytes = {
        f"{name}_mebibytes": sum(map(len, cell.values)) / 2**20 for name, cell in found.items()
    }

    return {"agents": agents, "samples": samples, "releases": sum(map(len, made)), **mebibytes}


def _shard(number: int, agents: int, samples: int) -> tuple[bytes, float]:
    """Let one shard do all of its work.

    Split its samples off, release, keep the newest; give its summary and time.
    """

    def work() -> bytes:
        _, _, made = _released(number, _split(number, agents, samples))
        return _gathered(number, [ColumnsCoder(AgentReleases).encode(batch) for batch in made])

    return _timed(work)


def _split(number: int, agents: int, samples: int) -> list[Packed]:
    """Make samples, and split them off as they travel to their shard."""
    rng = np.random.default_rng(number)
    names = [f"agent {number} {i}" for i in range(agents)]
    who = rng.integers(0, agents, samples)
    value = rng.normal(10.0, 20.0, samples)
    time_ = BEGIN + np.arange(samples) * 0.01
    position = np.arange(samples)
    directory = AgentDirectory(1)
    packed = []

    for start in range(0, samples, BATCH):
        part = slice(start, start + BATCH)
        columns = {
            "point": SETTINGS.grid.encode(value[part]),
            "time": time_[part],
            "position": position[part],
        }
        packed += [
            out.value[1]
            for out in split_columns(names, who[part], columns, directory, MAX_TIMESTAMP)
        ]

    return packed


def _released(
    number: int, packed: list[Packed], settings: AgentsSettings = SETTINGS
) -> tuple[Bag, dict[str, Cell], list[AgentReleases]]:
    """Give what waited, what is kept, and the releases."""
    shard = ReleaseShard(settings, WINDOWS, SecretLocation(), _owner(settings), final_release=True)
    shard.setup()
    waited = Bag(*(one.encoded for one in packed))
    kept: dict[str, Cell] = {"agents": One(), "changes": Bag(), "head": One(), "ledger": Bag()}
    ticks = Bag(ForShardCoder().encode(TICK))
    given = {"waiting": Bag(*waited.values), "ticks": ticks, "target": One(), **kept}
    made = shard.due(key=number, time=MAX_TIMESTAMP, made=_made(settings), timer=One(), **given)

    return waited, kept, [out.value for out in made if not isinstance(out, TaggedOutput)]


def _owner(settings: AgentsSettings) -> StateOwner:
    return StateOwner(settings=agents_part_state(settings, WINDOWS, 1))


def _made(settings: AgentsSettings) -> One:
    """Give the cell of a shard that was begun with these settings."""
    cell = One()
    _owner(settings).mark().claim(cell)
    return cell


def _gathered(
    number: int,
    batches: list[bytes],
    latest: Cell | None = None,
    settings: AgentsSettings = SETTINGS,
) -> bytes:
    """Keep a shard's newest releases; give the bytes of their summary."""
    gather = GatherShard(settings, OPTIONS, WINDOWS, _owner(settings))
    gather.setup()
    ticks = Bag(ForShardCoder().encode(TICK))
    given = {"waiting": Bag(*batches), "ticks": ticks, "target": One(), "changes": Bag()}
    given |= {"latest": latest or One(), "head": One(), "made": _made(settings)}
    (out,) = gather.due(key=number, time=MAX_TIMESTAMP, timer=One(), **given)

    return bytes(out.value[1].encoded)


def _common(partials: list[bytes]) -> float:
    """Tell what the join and the fit take, for which all shards wait."""
    return _timed(lambda: _fit().fit(_joined(partials), [TICK]))[1]


def _joined(partials: list[bytes]) -> Any:
    whole = _fit().empty()
    whole.take(map(ColumnsCoder(PartialReleases).decode, partials))
    return whole


def _fit() -> FitReleases:
    fit = FitReleases(SETTINGS, OPTIONS, WINDOWS, _owner(SETTINGS))
    fit.setup()
    return fit


def _releases(shard: int, agents: int) -> list[bytes]:
    """Make two releases of each agent, after 10 and 15 samples."""
    rng = np.random.default_rng(shard)
    state = Agents(
        SETTINGS,
        KeyedNoise(b"6dc4c01b6b494373b7fb165cabd569fc", deployment="benchmark", purpose="agents"),
    )
    state.add_agents([f"agent {shard} {i}" for i in range(agents)])
    center = rng.choice([0.0, 20.0], agents)
    made = []

    for turn in range(15):
        value = rng.normal(center, 20.0)
        made.append(
            state.update(np.arange(agents), value, BEGIN + turn + np.arange(agents) / agents)
        )

    names = pa.array(state.names, pa.large_string())
    words = keyed_owner_words(state.names)
    encode = ColumnsCoder(AgentReleases).encode
    return [
        encode(
            AgentReleases(
                names=names, number=0, releases=batch.releases, time=batch.time, words=words
            )
        )
        for batch in made
        if len(batch.releases)
    ]


def _timed(work: Callable[[], Any]) -> tuple[Any, float]:
    began = time.process_time()
    made = work()
    return made, time.process_time() - began


def _peak() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10

"""All that an engine publishes is a function of its noised totals, however agents collaborate.

Two streams differ in one sample of every agent, and the noise makes their totals equal: every
public byte is equal.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

import numpy as np
import pytest

from meanstream.lab.audits.audited_run import Observer
from meanstream.operators.agents.agents import AgentsSettings
from meanstream.operators.collaboration.registry import COLLABORATIONS
from meanstream.operators.noise.keyed import GaussianNoise, KeyedNoise
from meanstream.operators.records import Floats, Ints, Words
from meanstream.streaming.agents.agents_engine import Engine
from meanstream.streaming.engine.engine_options import EngineOptions
from meanstream.streaming.events.event_columns import Batch, Position, Rejects, SampleColumns
from meanstream.streaming.sinks.sink_protocol import Sinks, Trust
from meanstream.streaming.store.deployment_store import open_deployment
from tests.pipelines.command_line import SECRET
from tests.streaming.support.scripted_source import MemorySink, SettableClock

N, RELEASES = 400, 4
SETTINGS = AgentsSettings(
    name="test",
    lower=0,
    upper=1,
    epsilon=1.0,
    delta=0.05,
    counter="pm1",
    schedule="geometric:2,1.5",
    horizon=RELEASES,
    spread_share=0,
)
VALUES = [0.5, 0.25, 0.75, 0.5, 0.0, 1.0, 0.5]
"""Of everybody; releases are at 2, 3, 5 and 7."""


class Rounds:
    """A source in which every agent gives one sample per second; `values[k]` is everybody's
    k-th."""

    name = "rounds"
    bounded = True

    def __init__(self, values: list[float]) -> None:
        self._values, self._at = values, 0

    def next_batch(self, max_samples: int) -> Batch:
        took, time = self._values[self._at : self._at + 1], self._at
        n, names = N * len(took), [f"agent {i}" for i in range(N)]
        number = np.arange(n)
        value = np.full(n, took[0] if took else 0.0)
        columns = SampleColumns(
            names, number, value, np.full(n, float(time)), None, number + time * N + 1
        )
        self._at += len(took)
        return Batch(columns, Rejects(), {"at": self._at}, exhausted=not took)

    def restore(self, position: Position) -> None:
        self._at = int(position["at"])

    def close(self) -> None:
        """Nothing is open."""


class VersionlessNoise(KeyedNoise):
    """Noise of the release id only: the streams differ, and their noise must not."""

    def version_of(self, count: Ints, total: Ints) -> Words:
        return np.zeros(len(count), np.uint64)


@dataclass(frozen=True)
class ShiftedNoise(GaussianNoise):
    """Noise of one counter `pm1` whose first draw hides that the first sample is 1 and not 0."""

    shifts: list[float] = field(default_factory=list)

    def sample(self, bits: Words) -> Floats:
        return super().sample(bits) - (self.shifts.pop(0) if self.shifts else 0.0)


class Shifted(AgentsSettings):
    """The same releases from another stream: all that the totals of the two streams differ by is
    taken off."""

    @cached_property
    def fresh(self) -> GaussianNoise:
        good = super().fresh
        assert isinstance(good, GaussianNoise)
        return ShiftedNoise(good.stddev, shifts=[float(self.grid.span)])


def run(
    folder: Path, first: float, settings: AgentsSettings, collaboration: str
) -> tuple[list[list[bytes]], list[bytes]]:
    """Give what everybody reads of an engine, and what agents read of it."""
    folder.mkdir()
    public = {name: Observer() for name in ("releases", "population", "dead_letters", "notices")}
    estimates = MemorySink(trust=Trust.PRIVATE)
    store = open_deployment(
        folder / "s.db", SETTINGS, environment={"MEANSTREAM_SECRET": SECRET}
    ).store
    try:
        Engine(
            source=Rounds([first, *VALUES[1:]]),
            settings=settings,
            noise=VersionlessNoise.of_judged_key(
                SECRET.encode(), deployment="audit", purpose="agents"
            ),
            store=store,
            sinks=Sinks(estimates=estimates, **public),
            options=EngineOptions(refresh=1.0, collaboration=collaboration),
            clock=SettableClock(1e9),
        ).run()
    finally:
        store.close()
    return [sink.seen for sink in public.values()], estimates.lines


@pytest.mark.parametrize("hidden", [True, False])
@pytest.mark.parametrize("collaboration", sorted(COLLABORATIONS))
def test_all_that_is_public_is_a_function_of_the_totals(
    collaboration: str, hidden: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.fsync", lambda _: None)
    fields = {name: getattr(SETTINGS, name) for name in SETTINGS.__dataclass_fields__}
    low, own_low = run(tmp_path / "low", 0.0, replace(SETTINGS), collaboration)
    high, own_high = run(
        tmp_path / "high", 1.0, Shifted(**fields) if hidden else replace(SETTINGS), collaboration
    )
    assert (low == high) == hidden  # where it is not hidden it shows
    assert len(low[0]) == N * RELEASES
    assert len(low[1]) >= RELEASES
    assert own_low != own_high  # the private side does depend on the sample

"""Public: which windows have something in them, told to every shard."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import apache_beam as beam
from apache_beam import typehints

from meanstream.pipelines.beam.agents.records import ForShard, Tick
from meanstream.pipelines.beam.agents.windows import AgentWindows, CarryNotes
from meanstream.pipelines.beam.state import MADE, StateOwner
from meanstream.pipelines.beam.steps import Step, discreet_step
from meanstream.pipelines.beam.windows import ForGood

KEYED, NOTE = typehints.Tuple[int, ForShard], typehints.Tuple[int, float]
_ONE_KEY = typehints.Tuple[int, NOTE]


class TickShards(beam.PTransform):  # type: ignore[misc]
    """Public: notes of windows with samples, `(number, newest event time)`, to one tick per window for every shard.

    Whatever a shard gives, it gives at a tick. All ticks pass one state, which says what made the shards: a shard that
    is empty cannot know that its agents, under another number of shards, had releases in another.
    """

    def __init__(self, windows: AgentWindows, shards: int, owner: StateOwner, *, step: int = 0) -> None:
        super().__init__()
        self._owner = owner
        self._step = step
        self._windows = windows
        self._shards = shards

    def expand(self, pcoll: beam.PCollection) -> beam.PCollection:
        """Take the newest of each window."""
        return (
            pcoll
            | "Carry" >> CarryNotes(self._windows, self._step)
            | "Newest" >> beam.GroupByKey()
            | "For good" >> ForGood()
            | "One key" >> beam.Map(_one_key).with_output_types(_ONE_KEY)
            | "To all" >> beam.ParDo(_ToAll(self._owner, self._shards)).with_output_types(KEYED)
        )


class _ToAll(Step):
    """Public: a tick to every shard, as long as the shards are those that the state knows."""

    MADE = MADE

    def __init__(self, owner: StateOwner, shards: int) -> None:
        self._owner = owner
        self._shards = shards

    def setup(self) -> None:
        """Make the mark."""
        self._mark = self._owner.mark()

    def process(
        self, element: tuple[int, tuple[int, float]], made: Any = beam.DoFn.StateParam(MADE)
    ) -> Iterator[tuple[int, ForShard]]:
        """Copy one."""
        self._mark.claim(made)
        tick = Tick(*element[1])
        for shard in range(self._shards):
            yield shard, tick


@discreet_step
def _one_key(notes: tuple[int, Iterable[float]]) -> tuple[int, tuple[int, float]]:
    return 0, (notes[0], max(notes[1]))

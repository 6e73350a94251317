"""Public: which windows have something in them, told to every shard."""

from __future__ import annotations

from collections.abc import Iterable

import apache_beam as beam
from apache_beam import typehints

from pipelines.beam.agents.records import ForShard, Tick
from pipelines.beam.agents.windows import AgentWindows, CarryNotes
from pipelines.beam.windows import ForGood

KEYED, NOTE = typehints.Tuple[int, ForShard], typehints.Tuple[int, float]


class TickShards(beam.PTransform):  # type: ignore[misc]
    """Public: notes of windows with samples, `(number, newest event time)`, to one tick per window for every shard."""

    def __init__(self, windows: AgentWindows, shards: int, *, step: int = 0) -> None:
        super().__init__()
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
            | "To all" >> beam.FlatMap(_to_all, self._shards).with_output_types(KEYED)
        )


def _to_all(notes: tuple[int, Iterable[float]], shards: int) -> list[tuple[int, Tick]]:
    tick = Tick(notes[0], max(notes[1]))
    return [(shard, tick) for shard in range(shards)]

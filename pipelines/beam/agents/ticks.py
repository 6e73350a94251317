"""Public: which windows have something in them, told to every shard."""

from __future__ import annotations

import apache_beam as beam
from apache_beam import typehints

from pipelines.beam.agents.records import ForShard, Tick
from pipelines.beam.agents.windows import AgentWindows, CarryNotes
from pipelines.beam.windows import ForGood

KEYED, NOTE = typehints.Tuple[int, ForShard], typehints.Tuple[int, float]


class TickShards(beam.PTransform):  # type: ignore[misc]
    """Public: notes of windows with samples, `(number, newest event time)`, to one tick per window for every shard."""

    def __init__(self, windows: AgentWindows, shards: int) -> None:
        super().__init__()
        self._windows = windows
        self._shards = shards

    def expand(self, pcoll: beam.PCollection) -> beam.PCollection:
        """Take the newest of each window."""
        shards = self._shards
        return (
            pcoll
            | "Carry" >> CarryNotes(self._windows)
            | "Newest" >> beam.CombineGlobally(max).without_defaults().with_output_types(tuple[int, float])
            | "For good" >> ForGood()
            | "To all" >> beam.FlatMap(_to_all, shards).with_output_types(KEYED)
        )


def _to_all(newest: tuple[int, float], shards: int) -> list[tuple[int, Tick]]:
    return [(shard, Tick(*newest)) for shard in range(shards)]

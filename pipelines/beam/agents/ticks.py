"""Public: which windows have something in them, told to the shards that have it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Any

import apache_beam as beam
import numpy as np
from apache_beam import typehints
from apache_beam.transforms.window import TimestampedValue
from apache_beam.utils.timestamp import Timestamp

from meanstream.pipelines.beam.agents.agents_elements import ForShard, Tick, Ticks
from meanstream.pipelines.beam.agents.agents_windows import AgentWindows, CarryNotes
from meanstream.pipelines.beam.input.beam_intake import intake_in_global_window
from meanstream.pipelines.beam.keyed_state.beam_state import StateOwner
from meanstream.pipelines.beam.keyed_state.keyed_steps import Cells, KeyedStep
from meanstream.pipelines.beam.worker.beam_steps import Step, discreet_step
from meanstream.pipelines.beam.worker.beam_windows import ForGood

KEYED = typehints.Tuple[int, ForShard]
NOTE = typehints.Tuple[int, typehints.Tuple[float, bytes]]
_ONE_KEY = typehints.Tuple[int, typehints.Tuple[int, float, bytes]]


class TickShards(beam.PTransform):  # type: ignore[misc]
    """Public: notes of windows with samples, `(number, (newest event time, shards))`, to ticks of those shards.

    Whatever a shard gives, it gives at a tick. All ticks pass one state, which says what made the
    shards: a shard that is empty cannot know that its agents, under another number of shards, had
    releases in another. One tick more for each window has the number of shards as its key and names
    them: it is for what waits for all of them.

    Parameters
    ----------
    everyone : bool
        Whether every shard has a tick of every window: where event time alone makes a release due.
    """

    def __init__(
        self,
        windows: AgentWindows,
        shards: int,
        owner: StateOwner,
        *,
        step: int = 0,
        everybody: bool = False,
    ) -> None:
        super().__init__()
        self._owner = owner
        self._step = step
        self._windows = windows
        self._shards = shards
        self._everybody = everybody

    def expand(self, pcoll: beam.PCollection) -> beam.PCollection:
        """Take the newest of each window."""
        tell = _ToShards(self._owner, self._shards, everybody=self._everybody)
        return (
            pcoll
            | "Carry" >> CarryNotes(self._windows, self._step)
            | "Newest" >> beam.GroupByKey()
            | "For good" >> ForGood()
            | "One key" >> beam.Map(_one_key).with_output_types(_ONE_KEY)
            | "To shards" >> beam.ParDo(tell).with_output_types(KEYED)
        )


class TicksOf(beam.PTransform):  # type: ignore[misc]
    """Public: the ticks of single shards, or, `whole`, of all of them together, under the key 0."""

    def __init__(self, shards: int, *, whole: bool = False) -> None:
        super().__init__()
        self._shards = shards
        self._whole = whole

    def expand(self, pcoll: beam.PCollection) -> beam.PCollection:
        """Leave the others out."""
        return pcoll | "Some" >> beam.ParDo(
            _Some(self._shards, whole=self._whole)
        ).with_output_types(KEYED)


class _ToShards(KeyedStep):
    """Public: ticks to shards, as long as they are those that the state knows."""

    def __init__(self, owner: StateOwner, shards: int, *, everybody: bool = False) -> None:
        super().__init__(owner)
        self._shards = shards
        self._everybody = everybody

    def start_bundle(self) -> None:
        """Begin without ticks."""
        self._ticks: dict[int, list[Tick]] = defaultdict(list)
        self._first: Timestamp | None = None

    def take(
        self,
        element: tuple[int, float, bytes],
        cells: Cells,
    ) -> Iterator[tuple[int, ForShard]]:
        """Tell the shards of a window; of a bundle, each shard once."""
        number, newest, noted = element
        shards = list(range(self._shards)) if self._everybody else tick_shards(noted)
        for shard in shards:
            self._ticks[shard].append(Tick(number, newest))

        self._first = cells.time if self._first is None else min(cells.time, self._first)
        yield self._shards, Tick(number, newest, tick_bits(np.array(shards, np.int64)))

    def finish_bundle(self) -> Iterator[Any]:
        """Tell them."""
        for shard, ticks in self._ticks.items():
            one = ticks[0] if len(ticks) == 1 else Ticks(tuple(ticks))
            yield intake_in_global_window(TimestampedValue((shard, one), self._first))

        self.start_bundle()


class _Some(Step):
    def __init__(self, shards: int, *, whole: bool) -> None:
        self._shards = shards
        self._whole = whole

    def process(self, element: tuple[int, ForShard]) -> Iterator[tuple[int, ForShard]]:
        """Hand on what is requested."""
        if (element[0] == self._shards) is self._whole:
            yield (0, element[1]) if self._whole else element


def tick_bits(shards: np.ndarray) -> bytes:
    """Write a set of shards.

    Examples
    --------
    >>> tick_shards(tick_bits(np.array([9, 2, 2])))
    [2, 9]
    """
    flags = np.zeros(int(shards.max()) + 1 if len(shards) else 0, np.bool_)
    flags[shards] = True
    return np.packbits(flags, bitorder="little").tobytes()


def tick_shards(bits: bytes) -> list[int]:
    """Read what `tick_bits` wrote."""
    return np.flatnonzero(np.unpackbits(np.frombuffer(bits, np.uint8), bitorder="little")).tolist()


def ticks_noted(time: np.ndarray, shard: np.ndarray, windows: AgentWindows) -> Iterator[Tick]:
    """Public: the windows in which there are samples, the newest event time in each, and their shards."""
    if not len(time):
        return
    newest = time.max()
    oldest_number, newest_number = windows.number(np.array([time.min(), newest])).tolist()

    if oldest_number == newest_number:
        yield Tick(newest_number, float(newest), tick_bits(shard))
        return

    number = windows.number(time)
    order = np.argsort(number, kind="stable")
    for part in np.split(order, np.flatnonzero(np.diff(number[order])) + 1):
        yield Tick(int(number[part[0]]), float(time[part].max()), tick_bits(shard[part]))


def tick_note(tick: Tick) -> tuple[int, tuple[float, bytes]]:
    """Public: a tick as the note that it is made of."""
    return tick.number, (tick.newest, tick.shards)


@discreet_step
def _one_key(
    notes: tuple[int, Iterable[tuple[float, bytes]]],
) -> tuple[int, tuple[int, float, bytes]]:
    told = list(notes[1])
    shards = sorted({shard for _, bits in told for shard in tick_shards(bits)})
    return 0, (notes[0], max(newest for newest, _ in told), tick_bits(np.array(shards, np.int64)))

"""When shards of agents answer.

At the end of every window in which someone has sent a sample, or once, at the end.

Up to four things happen at the end of a window, one after the other, and event time keeps them
apart by a millisecond each: shards release; shards of releases tell what has changed; groups of
many shards join that; the population is fitted. Samples themselves are never put into windows:
which window a sample belongs to is arithmetic on arrays.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import apache_beam as beam
import numpy as np
from apache_beam import typehints
from apache_beam.transforms.trigger import AccumulationMode, DefaultTrigger
from apache_beam.transforms.window import (
    FixedWindows,
    GlobalWindow,
    GlobalWindows,
    TimestampCombiner,
    TimestampedValue,
)
from apache_beam.utils.timestamp import Duration, Timestamp

from meanstream.operators.records import Floats, Ints
from meanstream.operators.validation import require
from meanstream.pipelines.beam.agents.agents_elements import ForShard, Tick, Ticks
from meanstream.pipelines.beam.input.beam_intake import intake_in_global_window
from meanstream.pipelines.beam.keyed_state.beam_state import StateOwner
from meanstream.pipelines.beam.keyed_state.keyed_steps import Cells, KeyedStep
from meanstream.pipelines.beam.worker.beam_steps import ForGood, Step, discreet_step
from meanstream.pipelines.beam.worker.transform_arguments import as_seconds

MILLI = 1000
LEAST_REFRESH = 1.0
STEPS = 4
"""Milliseconds from the end of a window, all lateness passed, within which its population is
fitted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentWindows:
    """Windows of event time.

    Parameters
    ----------
    refresh : float or None
        Seconds of a window; None: one window for all of a bounded input.
    lateness : float
        Seconds that a window waits for late samples.

    Examples
    --------
    >>> windows = AgentWindows(refresh=60.0, lateness=5.0)
    >>> windows.number(np.array([0.0, 59.9, 60.0])).tolist(), windows.released(0).micros
    ([0, 0, 1], 65000000)
    """

    refresh: float | None
    lateness: float = 0.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "lateness", as_seconds("lateness", self.lateness))
        require(self.lateness >= 0, "lateness", "be at least 0", self.lateness)

        if self.refresh is not None:
            object.__setattr__(self, "refresh", as_seconds("refresh", self.refresh))
            require(
                self.refresh >= LEAST_REFRESH,
                "refresh",
                f"be at least {LEAST_REFRESH:g} s on Beam",
                self.refresh,
            )

    def number(self, time: Floats) -> Ints:
        """Tell which window each event time belongs to."""
        if self.refresh is None:
            return np.zeros(len(time), np.int64)
        return np.floor_divide(time, self.refresh).astype(np.int64)

    def end(self, number: int) -> float | None:
        """Give the event time that a window is before; None for the one of a bounded input."""
        if self.refresh is None:
            return None
        return (number + 1) * self.refresh

    def noted(self, number: int) -> Timestamp | None:
        """Give the time that carries a note of a window's samples.

        None: the time that the samples came with.
        """
        if self.refresh is None:
            return None
        return self._after(number, -1)

    def released(self, number: int) -> Timestamp:
        """Give the time at which the releases of a window are made."""
        return self._after(number, 0)

    def gathered(self, number: int) -> Timestamp:
        """Give the time at which everyone's newest release is read."""
        return self._after(number, 1)

    def joined(self, number: int) -> Timestamp:
        """Give the time at which groups of shards join what has changed in each."""
        return self._after(number, 2)

    def fitted(self, number: int) -> Timestamp:
        """Give the time at which the population of a window is fitted."""
        return self._after(number, 3)

    def _after(self, number: int, step: int) -> Timestamp:
        if self.refresh is None:
            # Whole seconds: so near to the end of time runners round.
            return Timestamp(
                micros=GlobalWindow().max_timestamp().micros - (STEPS - step) * 1_000_000
            )

        end = round((number + 1) * self.refresh * 1e6) + round(self.lateness * 1e6)
        return Timestamp(micros=(-(-end // MILLI) + step) * MILLI)

    def carrier(self, step: int) -> FixedWindows | GlobalWindows:
        """Give windows that each hold what belongs to one of these, up to a step after its end."""
        if self.refresh is None:
            return GlobalWindows()
        size = round(self.refresh * 1e6)
        return FixedWindows(
            Duration(micros=size), offset=Timestamp(micros=self._after(-1, step).micros % size)
        )


class CarryNotes(beam.PTransform):  # type: ignore[misc]
    """Notes of samples, or, a step later, of releases, into the window that carries theirs."""

    def __init__(self, windows: AgentWindows, step: int = 0) -> None:
        super().__init__()
        self._windows = windows
        self._step = step

    def expand(self, pcoll: beam.PCollection) -> beam.PCollection:
        """Put them there; of a bounded input the time stays that of the samples."""
        return pcoll | "Window" >> _window_into(
            self._windows.carrier(self._step), TimestampCombiner.OUTPUT_AT_LATEST
        )


def _window_into(window_fn: Any, combiner: Any) -> beam.WindowInto:
    return beam.WindowInto(
        window_fn,
        trigger=DefaultTrigger(),
        accumulation_mode=AccumulationMode.DISCARDING,
        timestamp_combiner=combiner,
        allowed_lateness=Duration(0),
    )


KEYED = typehints.Tuple[int, ForShard]
NOTE = typehints.Tuple[int, typehints.Tuple[float, bytes]]
_ONE_KEY = typehints.Tuple[int, typehints.Tuple[int, float, bytes]]


class TickShards(beam.PTransform):  # type: ignore[misc]
    """Public: notes `(number, (newest event time, shards))` of windows to ticks of those shards.

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
    """Public: the windows with samples, the newest event time in each, and their shards."""
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

"""Private: samples to the shards of their agents, a batch at a time.

And public notes of the windows they are in.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import apache_beam as beam
import numpy as np
import numpy.typing as npt
import pyarrow as pa
from apache_beam.pvalue import TaggedOutput
from apache_beam.utils.timestamp import Timestamp

from meanstream.operators.noise.fixed_point import FixedPoint
from meanstream.operators.records import Ints
from meanstream.pipelines.beam.agents.agents_coders import pack_for_coder
from meanstream.pipelines.beam.agents.agents_elements import AgentSamples, ForgetAgent
from meanstream.pipelines.beam.agents.agents_windows import AgentWindows, tick_note, ticks_noted
from meanstream.pipelines.beam.element_types.beam_samples import RememberedWords
from meanstream.pipelines.beam.element_types.packed import pack_narrow
from meanstream.pipelines.beam.input.beam_intake import (
    SampleIntake,
    SampleReader,
    intake_in_global_window,
    intake_rejected,
)
from meanstream.pipelines.beam.worker.beam_steps import Step, with_window_time
from meanstream.streaming.events.event_columns import SampleColumns, numbered_columns_together

NOTES = "notes"


class SplitByShard(Step):
    """Private: samples, one by one or in batches, to the shards of their agents, many at a time.

    A note of each window that occurs, with the newest event time in it, goes to `NOTES`; what is no
    sample goes, with its reason, to `REJECTED`. Both are public.
    """

    def __init__(
        self, grid: FixedPoint, windows: AgentWindows, shards: int, intake: SampleIntake
    ) -> None:
        self._grid = grid
        self._windows = windows
        self._shards = shards
        self._intake = intake

    def setup(self) -> None:
        """Begin without agents."""
        self._directory = AgentDirectory(self._shards)
        self._words = RememberedWords()
        self._reader = SampleReader(self._intake)

    def start_bundle(self) -> None:
        """Begin without samples."""
        self._reader.start()

    def process(self, element: Any, time: Any = beam.DoFn.TimestampParam) -> Iterable[Any]:
        """Take a sample, or a batch of them; send on whom to forget."""
        if isinstance(element, ForgetAgent):
            shard = int(self._words.of([element.agent])[0, 1] % np.uint64(self._shards))
            return [*self._split(), (shard, element)]  # what came before it goes before it

        if self._reader.add(element, time):
            return self._split()
        return ()

    def finish_bundle(self) -> Iterator[Any]:
        """Split the rest."""
        return map(intake_in_global_window, self._split())

    def _split(self) -> Iterator[Any]:
        first = self._reader.first
        parts, rejects = self._reader.read()

        if first is None:
            return
        yield from intake_rejected(rejects, first, "sample")

        if not parts:
            return
        names, agent, columns = self._columns(parts)
        columns["point"] = pack_narrow(self._grid.encode(columns.pop("value")))
        yield from split_columns(names, agent, columns, self._directory, first)
        shard = self._directory.of(names, agent)[1][agent]

        for note in ticks_noted(columns["time"], shard, self._windows):
            yield TaggedOutput(
                NOTES, with_window_time(self._windows.noted(note.number) or first, tick_note(note))
            )

    def _columns(self, parts: list[SampleColumns]) -> tuple[list[str], Ints, dict[str, np.ndarray]]:
        """Join parts that may have directories of their own.

        Where one has ids, those of the others are 0.
        """
        own = [
            name
            for name in ("key", "person")
            if any(getattr(part, name) is not None for part in parts)
        ]

        if not self._intake.persons:
            own = [name for name in own if name != "person"]

        if len(parts) == 1:
            (part,) = parts
            return (
                part.names,
                part.agent,
                {name: getattr(part, name) for name in ("value", "time", "position", *own)},
            )

        columns = {
            name: np.concatenate([getattr(part, name) for part in parts])
            for name in ("value", "time", "position")
        }

        for name in own:
            hashes = ((getattr(part, name), len(part)) for part in parts)
            columns[name] = np.concatenate(
                [np.zeros(n, np.uint64) if key is None else key for key, n in hashes]
            )

        return *numbered_columns_together(parts), columns


class AgentDirectory:
    """To which shards agents go: looked up once for each, as long as batches share their directory.

    Parameters
    ----------
    shards : int
        Into how many parts the agents are split by hash.
    """

    def __init__(self, shards: int) -> None:
        self.shards = shards
        self._words = RememberedWords()
        self._open([])

    def _open(self, names: list[str]) -> None:
        self._names = names
        self._text = pa.array(names, pa.large_string())
        self._given: dict[int, tuple[Ints, pa.Array]] = {}
        self._shard = np.full(len(names), -1, np.int16)

    def of(self, names: list[str], agent: Ints) -> tuple[Ints, npt.NDArray[np.int16]]:
        """Give the agents that occur, and everyone's shard; -1 for agents that never occurred."""
        if names is not self._names or len(names) < len(self._shard):
            self._open(names)
        elif len(names) > len(self._shard):
            known = self._shard
            self._open(names)
            self._shard[: len(known)] = known

        used = np.zeros(len(names), np.bool_)
        used[agent] = True
        occur = np.flatnonzero(used)
        fresh = occur[self._shard[occur] < 0]

        if len(fresh):
            words = self._words.of(self._text.take(pa.array(fresh)).to_pylist())
            self._shard[fresh] = words[:, 1] % np.uint64(self.shards)

        return occur, self._shard

    def text(self, shard: int, places: Ints) -> pa.Array:
        """Give names of a shard; where all of it send in turn, they are those that it gave last."""
        known = self._given.get(shard)
        if known is None or not np.array_equal(known[0], places):
            known = self._given[shard] = places, self._text.take(pa.array(places))

        return known[1]


def split_columns(
    names: list[str],
    agent: Ints,
    columns: dict[str, np.ndarray],
    directory: AgentDirectory,
    time: Timestamp,
) -> Iterator[Any]:
    """Private: give samples to the shards of their agents, at the time of the earliest of them.

    Columns are those of `AgentSamples`, apart from the agent; without a key where no sample has an
    id, without a person where persons are not distinguished.
    """
    occur, shard_of = directory.of(names, agent)
    who = occur[np.argsort(shard_of[occur], kind="stable")]  # shard by shard
    many = np.bincount(shard_of[who], minlength=directory.shards)
    first = np.cumsum(many) - many
    canonical_location = np.zeros(len(names), np.int64)
    canonical_location[who] = np.arange(len(who)) - np.repeat(first, many)
    # Few shards fit into bytes, which are sorted by radix in one pass.
    shard = shard_of.astype(np.uint8 if directory.shards <= 2**8 else np.uint16).take(agent)
    order = np.argsort(shard, kind="stable")
    edges = np.cumsum(np.bincount(shard, minlength=directory.shards)).tolist()

    none = np.zeros(0, np.uint64)
    taken = {
        "key": none,
        "person": none,
        **columns,
        "agent": pack_narrow(canonical_location).take(agent),
    }
    taken = {name: column.take(order) if len(column) else column for name, column in taken.items()}

    for number in np.flatnonzero(many).tolist():
        part = slice(edges[number - 1] if number else 0, edges[number])
        mine = {name: column[part] for name, column in taken.items()}
        samples = AgentSamples(
            names=directory.text(number, who[first[number] : first[number] + many[number]]), **mine
        )
        yield with_window_time(time, (number, pack_for_coder(samples)))

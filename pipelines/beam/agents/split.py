"""Private: samples to the shards of their agents, a batch at a time; and public notes of the windows they are in."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import apache_beam as beam
import numpy as np
import numpy.typing as npt
import pyarrow as pa
from apache_beam.pvalue import TaggedOutput
from apache_beam.transforms.window import GlobalWindow
from apache_beam.utils.timestamp import Timestamp
from apache_beam.utils.windowed_value import WindowedValue

from operators.fixed_point import FixedPoint
from operators.records import Ints
from pipelines.beam.agents.bytes import narrow
from pipelines.beam.agents.coders import pack_samples
from pipelines.beam.agents.records import AgentSamples, Tick
from pipelines.beam.agents.windows import AgentWindows, at
from pipelines.beam.metrics import DistributionOf, counter
from pipelines.beam.samples import BATCH, RememberedWords, sample_batch
from streaming.columns import SampleColumns

NOTES = "notes"


class SplitByShard(beam.DoFn):  # type: ignore[misc]
    """Private: samples, one by one or in batches, to the shards of their agents, many at a time.

    A note of each window that occurs, with the newest event time in it, goes to `NOTES`; it is public.
    """

    def __init__(self, grid: FixedPoint, windows: AgentWindows, shards: int) -> None:
        self._grid = grid
        self._windows = windows
        self._shards = shards

    def setup(self) -> None:
        """Begin without agents."""
        self._directory = Directory(self._shards)
        self._samples, self._bad = counter("samples"), counter("rejected_", "not_finite")
        self._together = DistributionOf("batch_samples")

    def start_bundle(self) -> None:
        """Begin without samples."""
        self._rows: list[Any] = []
        self._parts: list[SampleColumns] = []
        self._waiting = 0
        self._first: Timestamp | None = None

    def process(self, element: Any, time: Any = beam.DoFn.TimestampParam) -> Iterable[Any] | None:
        """Take a sample, or a batch of them."""
        if self._first is None or time.micros < self._first.micros:
            self._first = time
        if isinstance(element, SampleColumns):
            self._parts.append(element)
        else:
            self._rows.append(element)
        self._waiting += len(element) if isinstance(element, SampleColumns) else 1
        return self._split() if self._waiting >= BATCH else None

    def finish_bundle(self) -> Iterator[Any]:
        """Split the rest."""
        for out in self._split():
            yield _in_global_window(out)

    def _split(self) -> Iterator[Any]:
        parts, first = self._parts, self._first
        if self._rows:
            parts = [*parts, sample_batch(*zip(*self._rows, strict=True))]
        self.start_bundle()
        if not parts:
            return
        columns = {
            name: np.concatenate([getattr(part, name) for part in parts]) for name in ("value", "time", "position")
        }
        if any(part.key is not None for part in parts):
            columns["key"] = np.concatenate([np.zeros(len(p), np.uint64) if p.key is None else p.key for p in parts])
        names, agent = together(parts)
        self._samples.inc(len(agent))
        self._together.update(len(agent))
        finite = np.isfinite(columns["value"]) & np.isfinite(columns["time"])
        if not finite.all():
            self._bad.inc(int(np.count_nonzero(~finite)))
            agent, columns = agent[finite], {name: column[finite] for name, column in columns.items()}
        assert first is not None  # noqa: S101 - there are parts
        columns["point"] = narrow(self._grid.encode(columns.pop("value")))
        yield from split_columns(names, agent, columns, self._directory, first)
        for note in notes_of(columns["time"], self._windows):
            yield TaggedOutput(NOTES, at(self._windows.noted(note.number) or first, (note.number, note.newest)))


class Directory:
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
        self._names, self._text = names, pa.array(names, pa.large_string())
        self._shard = np.full(len(names), -1, np.int16)

    def of(self, names: list[str], agent: Ints) -> tuple[Ints, npt.NDArray[np.int16]]:
        """Give the agents that occur, and the shard of everybody in the directory; -1 for who never occurred."""
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

    def text(self, places: Ints) -> pa.Array:
        """Give names."""
        return self._text.take(pa.array(places))


def split_columns(
    names: list[str], agent: Ints, columns: dict[str, np.ndarray], directory: Directory, time: Timestamp
) -> Iterator[Any]:
    """Private: give samples to the shards of their agents, each as early as the earliest of them came.

    Columns are those of `AgentSamples`, apart from the agent; without a key where no sample has an id.
    """
    occur, shard_of = directory.of(names, agent)
    who = occur[np.argsort(shard_of[occur], kind="stable")]  # shard by shard
    many = np.bincount(shard_of[who], minlength=directory.shards)
    first = np.cumsum(many) - many
    place_of = np.zeros(len(names), np.int64)
    place_of[who] = np.arange(len(who)) - np.repeat(first, many)
    # Few shards fit into bytes, which are sorted by radix in one pass.
    shard = shard_of.astype(np.uint8 if directory.shards <= 2**8 else np.uint16).take(agent)
    order = np.argsort(shard, kind="stable")
    edges = np.cumsum(np.bincount(shard, minlength=directory.shards)).tolist()
    taken = {"key": np.zeros(0, np.uint64), **columns, "agent": narrow(place_of).take(agent)}
    taken = {name: column.take(order) if len(column) else column for name, column in taken.items()}
    for number in np.flatnonzero(many).tolist():
        part = slice(edges[number - 1] if number else 0, edges[number])
        mine = {name: column[part] for name, column in taken.items()}
        samples = AgentSamples(names=directory.text(who[first[number] : first[number] + many[number]]), **mine)
        yield at(time, (number, pack_samples(samples)))


def together(parts: list[SampleColumns]) -> tuple[list[str], Ints]:
    """Give the agents of batches, of one directory or of several, numbers: the same name has the same number."""
    if all(part.names is parts[0].names for part in parts):
        return parts[-1].names, np.concatenate([part.agent for part in parts])
    place: dict[str, int] = {}
    agents: list[Ints] = []
    seen: dict[int, tuple[int, Ints]] = {}
    for part in parts:
        if id(part.names) not in seen or seen[id(part.names)][0] < len(part.names):
            table = np.fromiter((place.setdefault(name, len(place)) for name in part.names), np.int64, len(part.names))
            seen[id(part.names)] = len(part.names), table
        agents.append(seen[id(part.names)][1][part.agent])
    return list(place), np.concatenate(agents)


def notes_of(time: np.ndarray, windows: AgentWindows) -> Iterator[Tick]:
    """Public: the windows in which there are samples, and the newest event time in each."""
    if not len(time):
        return
    newest = time.max()
    oldest_number, newest_number = windows.number(np.array([time.min(), newest])).tolist()
    if oldest_number == newest_number:
        yield Tick(newest_number, float(newest))
        return
    number = windows.number(time)
    for window in np.unique(number).tolist():
        yield Tick(window, float(time[number == window].max()))


def _in_global_window(out: Any) -> Any:
    tagged = isinstance(out, TaggedOutput)
    stamped = out.value if tagged else out
    value = WindowedValue(stamped.value, stamped.timestamp, (GlobalWindow(),))
    return TaggedOutput(out.tag, value) if tagged else value

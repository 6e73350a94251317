"""Private: samples to the shards of their agents, a batch at a time; and public notes of the windows they are in."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import apache_beam as beam
import numpy as np
import pyarrow as pa
from apache_beam.pvalue import TaggedOutput
from apache_beam.transforms.window import GlobalWindow
from apache_beam.utils.timestamp import Timestamp
from apache_beam.utils.windowed_value import WindowedValue

from operators.records import Ints, Words
from pipelines.beam.agents.coders import pack_samples
from pipelines.beam.agents.records import AgentSamples, Tick
from pipelines.beam.agents.windows import AgentWindows, at
from pipelines.beam.metrics import DistributionOf, counter
from pipelines.beam.samples import BATCH, RememberedWords, by_shard, sample_batch
from streaming.columns import SampleColumns

NOTES = "notes"


class SplitByShard(beam.DoFn):  # type: ignore[misc]
    """Private: samples, one by one or in batches, to the shards of their agents, many at a time.

    A note of each window that occurs, with the newest event time in it, goes to `NOTES`; it is public.
    """

    def __init__(self, windows: AgentWindows, shards: int) -> None:
        self._windows = windows
        self._shards = shards

    def setup(self) -> None:
        """Begin without agents."""
        self._words = RememberedWords()
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
        self._first = time if self._first is None or time < self._first else self._first
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
        columns: dict[str, np.ndarray] = {
            name: np.concatenate([getattr(part, name) for part in parts]) for name in ("value", "time")
        }
        columns["position"] = np.concatenate([part.position for part in parts])
        columns["key"] = np.concatenate([np.zeros(len(p), np.uint64) if p.key is None else p.key for p in parts])
        names, agent = together(parts)
        self._samples.inc(len(agent))
        self._together.update(len(agent))
        finite = np.isfinite(columns["value"]) & np.isfinite(columns["time"])
        if not finite.all():
            self._bad.inc(int(np.count_nonzero(~finite)))
            agent, columns = agent[finite], {name: column[finite] for name, column in columns.items()}
        assert first is not None  # noqa: S101 - there are parts
        yield from split_columns(names, agent, columns, self._words.of, self._shards, first)
        for note in notes_of(columns["time"], self._windows):
            yield TaggedOutput(NOTES, at(self._windows.noted(note.number) or first, (note.number, note.newest)))


def split_columns(  # noqa: PLR0917 - one batch, and where it goes
    names: list[str],
    agent: Ints,
    columns: dict[str, np.ndarray],
    words: Callable[[list[str]], Words],
    shards: int,
    time: Timestamp,
) -> Iterator[Any]:
    """Private: give samples to the shards of their agents, each as early as the earliest of them came."""
    used = np.zeros(len(names), np.bool_)
    used[agent] = True
    known = np.flatnonzero(used)
    text = pa.array([names[place] for place in known.tolist()], pa.large_string())
    hashes = words(text.to_pylist())
    shard_of, place_of = np.zeros(len(names), np.int16), np.zeros(len(names), np.int64)
    places = dict(by_shard(hashes, shards))
    for number, mine in places.items():
        shard_of[known[mine]], place_of[known[mine]] = number, np.arange(len(mine))
    shard, place = shard_of[agent], place_of[agent]
    order = np.argsort(shard, kind="stable")
    edges = np.searchsorted(shard[order], np.arange(shards + 1)).tolist()
    # Most have no ids, and a place among equal times matters only where there are such.
    given = {name for name in columns if name != "key" or columns["key"].any()}
    for number, mine in places.items():
        part = order[edges[number] : edges[number + 1]]
        taken = {name: column[part] if name in given else column[:0] for name, column in columns.items()}
        samples = AgentSamples(names=text.take(pa.array(mine)), agent=place[part], **taken)
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
    number = windows.number(time)
    if len(number) and number[0] == number[-1] and np.all(number == number[0]):
        yield Tick(int(number[0]), float(time.max()))
        return
    for window in np.unique(number).tolist():
        yield Tick(window, float(time[number == window].max()))


def _in_global_window(out: Any) -> Any:
    tagged = isinstance(out, TaggedOutput)
    stamped = out.value if tagged else out
    value = WindowedValue(stamped.value, stamped.timestamp, (GlobalWindow(),))
    return TaggedOutput(out.tag, value) if tagged else value

"""A file of samples, read by a worker as the engine reads it; a file of answers, written as the engine writes it."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import apache_beam as beam
from apache_beam.metrics import Metrics

from pipelines.beam_secret import SecretPlace
from pipelines.beam_summarize import NAMESPACE, RememberedWords, keyed_by_shard
from streaming.events import WindowEstimate
from streaming.kafka.location import KafkaLocation, is_kafka
from streaming.mapping import ColumnMapping
from streaming.options import EngineOptions
from streaming.rounds.intake import RoundsIntake
from streaming.rounds.open_windows import OpenWindows
from streaming.rounds.settings import RoundsSettings
from streaming.rounds.stats import RoundsStats
from streaming.rounds.summarize import sum_entries
from streaming.secret import derived_key
from streaming.sources.open import open_source
from streaming.sources.source import Source

_COUNTED = ("events", "accepted", "clipped")


@dataclass(frozen=True, slots=True, kw_only=True)
class SourcePlace:
    """A file, or ranges of a topic, that a worker can read: what the engine takes, it takes.

    Parameters
    ----------
    location : str
        As for `streaming.sources.open.open_source`.
    mapping : ColumnMapping
        Which column means what.
    sort : bool
        Whether to replay a file in event-time order; a topic is read as it stands.
    ranges : tuple of (int, int, int)
        Of a topic: partition, first offset, and the offset after the last one.
    """

    location: str
    mapping: ColumnMapping
    sort: bool = True
    ranges: tuple[tuple[int, int, int], ...] = ()

    def open(self, id_key: bytes) -> Source:
        """Open it, on a worker."""
        if not is_kafka(self.location):
            return open_source(self.location, self.mapping, sort=self.sort, id_key=id_key)
        from streaming.kafka.ranges import RangeSource

        return RangeSource(KafkaLocation.parse(self.location), self.mapping, self.ranges, id_key=id_key)


class ReadSums(beam.DoFn):  # type: ignore[misc]
    """Private: a file to users' sums per window, batch by batch, keyed by shard.

    Which samples count is decided by the engine's own intake, in the order of the file: plausible times, duplicates,
    lateness. So a file, or a topic, is read by one worker, from its beginning; a pipeline of one's own that reads
    partitions in parallel has `pipelines.beam_kafka_source.ReadKafka`.
    """

    def __init__(self, settings: RoundsSettings, options: EngineOptions, secret: SecretPlace, shards: int) -> None:
        self._settings = settings
        self._options = options
        self._secret = secret
        self._shards = shards

    def process(self, element: SourcePlace) -> Iterator[Any]:
        """Read it whole."""
        stats = RoundsStats()
        id_key = derived_key(self._secret.load(), "sample ids")
        source = element.open(id_key)
        intake = RoundsIntake(self._settings, self._options, source.name, stats)
        hashes, nothing = RememberedWords(), OpenWindows(self._settings.windows)
        with closing(source):
            while not (batch := source.next_batch(self._options.batch_size)).exhausted:
                entries = intake.admit_to_windows(batch.samples, batch.rejects, time.time())
                intake.closed(nothing, batch.active, ended=False)
                stats.rejected.update(batch.rejects.reason)
                parts = sum_entries(self._settings.windows, entries, self._settings.grid)
                if parts:
                    names = intake.names
                    yield from keyed_by_shard(self._settings, parts, names, hashes.of(names), self._shards)
        for name in _COUNTED:
            Metrics.counter(NAMESPACE, name).inc(getattr(stats, name))
        for reason, count in stats.rejected.items():
            Metrics.counter(NAMESPACE, f"rejected_{reason}").inc(count)


class WriteLines(beam.DoFn):  # type: ignore[misc]
    """Public: all answers to one JSONL file, in the order of time, whole or not at all; again the same on a retry."""

    def __init__(self, path: str) -> None:
        self._path = path

    def process(self, element: tuple[None, Iterable[WindowEstimate]]) -> None:
        """Write and rename."""
        estimates = sorted(element[1], key=lambda estimate: (estimate.end, estimate.start))
        text = b"".join(estimate.model_dump_json().encode() + b"\n" for estimate in estimates)
        path = Path(self._path)
        part = path.with_name(f".{path.name}.{os.getpid()}")
        part.write_bytes(text)
        part.replace(path)

"""A file or a topic of samples, read by a worker as the engine reads it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import apache_beam as beam

import pipelines.beam.source_coder as _coder  # noqa: F401 - it registers itself
from pipelines.beam.metrics import count_intake
from pipelines.beam.rounds.summarize import keyed_by_shard
from pipelines.beam.samples import RememberedWords
from pipelines.beam.secret import SecretPlace
from pipelines.beam.source import SourcePlace
from streaming.options import EngineOptions
from streaming.rounds.intake import RoundsIntake
from streaming.rounds.open_windows import OpenWindows
from streaming.rounds.settings import RoundsSettings
from streaming.rounds.stats import RoundsStats
from streaming.rounds.summarize import sum_entries
from streaming.secret import derived_key

_COUNTED = ("events", "accepted", "agents")


class ReadSums(beam.DoFn):  # type: ignore[misc]
    """Private: a file or a topic to users' sums per window, batch by batch, keyed by shard.

    Which samples count is decided by the engine's own intake, in the order of the file: plausible times, duplicates,
    lateness. So a file, or a topic, is read by one worker, from its beginning; a pipeline of one's own that reads
    partitions in parallel has `pipelines.beam.kafka.source.ReadKafka`.
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
        count_intake(_COUNTED, stats)

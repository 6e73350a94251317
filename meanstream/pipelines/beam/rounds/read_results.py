"""A file or a topic of samples, read by a worker as the engine reads it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import meanstream.pipelines.beam.element_types.source_coder as _coder  # noqa: F401 - it registers itself
from meanstream.pipelines.beam.element_types.beam_samples import RememberedWords
from meanstream.pipelines.beam.element_types.beam_source import SourcePlace
from meanstream.pipelines.beam.rounds.summaries_on_beam import summarize_by_shard
from meanstream.pipelines.beam.worker.beam_metrics import count_intake_metrics
from meanstream.pipelines.beam.worker.beam_steps import Step
from meanstream.pipelines.beam.worker.worker_secret import SecretPlace
from meanstream.streaming.engine.engine_options import EngineOptions
from meanstream.streaming.rounds.open_windows import OpenWindows
from meanstream.streaming.rounds.rounds_intake import RoundsIntake
from meanstream.streaming.rounds.rounds_settings import RoundsSettings
from meanstream.streaming.rounds.rounds_stats import RoundsStats
from meanstream.streaming.rounds.summarize_users import summarize_entries
from meanstream.streaming.rounds.user_places import places_key
from meanstream.streaming.store.secret_source import key_derived_from_secret

_COUNTED = ("events", "accepted", "agents")


class ReadSums(Step):
    """Private: a file or a topic to users' sums per window, keyed by shard, when the windows close.

    Which samples count, and who takes part, is decided by the engine's own intake: plausible times, duplicates, places
    of users. So a file, or a topic, is read by one worker, from its beginning, which holds the sums of open windows; a
    pipeline of one's own that reads partitions in parallel has `beam_kafka_source.ReadKafka`.
    """

    def __init__(self, settings: RoundsSettings, options: EngineOptions, secret: SecretPlace, shards: int) -> None:
        self._settings = settings
        self._options = options
        self._secret = secret
        self._shards = shards

    def process(self, element: SourcePlace) -> Iterator[Any]:
        """Read it whole."""
        stats, secret = RoundsStats(), self._secret.load()
        source = element.open(key_derived_from_secret(secret, "sample ids"))
        intake = RoundsIntake(self._settings, self._options, source, stats, places_key(secret))
        hashes, waiting, ended = RememberedWords(), OpenWindows(self._settings.windows, intake.places), False
        with closing(source):
            while not ended:
                batch, now = source.next_batch(self._options.batch_size), time.time()
                ended = batch.exhausted
                entries = intake.admit_to_windows(batch.samples, batch.rejects, now)
                stats.rejected.update(batch.rejects.reason)
                waiting.add(summarize_entries(self._settings.windows, entries, self._settings.grid))
                reached = intake.closed(waiting, now, ended=ended)
                while (one := waiting.first_ended(reached)) is not None:
                    parts, names = {one[0]: intake.places.enter(*one, now)}, intake.names
                    yield from summarize_by_shard(self._settings, parts, names, hashes.of(names), self._shards)
        if refused := intake.places.take_refused():
            stats.rejected["too_many_agents"] += refused
        count_intake_metrics(_COUNTED, stats, private=True)

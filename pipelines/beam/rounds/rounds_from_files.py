"""A file or a topic of samples to a file or a topic of answers, on a runner of Beam."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import apache_beam as beam

from meanstream.pipelines.beam.beam_runners import run_on_runner
from meanstream.pipelines.beam.beam_sinks import WriteEvents
from meanstream.pipelines.beam.element_types.beam_samples import SHARDS, RememberedWords
from meanstream.pipelines.beam.element_types.beam_source import SourceLocation
from meanstream.pipelines.beam.rounds.budget_of_users import JoinUsers
from meanstream.pipelines.beam.rounds.round_transforms import RunStages
from meanstream.pipelines.beam.rounds.rounds_elements import UserBatch
from meanstream.pipelines.beam.rounds.summaries_on_beam import summarize_by_shard
from meanstream.pipelines.beam.worker.beam_metrics import count_intake_metrics
from meanstream.pipelines.beam.worker.beam_steps import Step
from meanstream.pipelines.beam.worker.worker_secret import SecretLocation
from meanstream.streaming.engine.engine_options import EngineOptions
from meanstream.streaming.events.encode import EventLines, encode_lines
from meanstream.streaming.rounds.open_windows import OpenWindows
from meanstream.streaming.rounds.rounds_intake import RoundsIntake
from meanstream.streaming.rounds.rounds_settings import RoundsSettings
from meanstream.streaming.rounds.rounds_stats import RoundsStats
from meanstream.streaming.rounds.summarize_users import summarize_entries
from meanstream.streaming.rounds.user_places import slot_key
from meanstream.streaming.store.secret_source import key_derived_from_secret


def run_rounds_file(
    settings: RoundsSettings,
    source: SourceLocation,
    sink: Path | str,
    *,
    secret: SecretLocation,
    engine_options: EngineOptions,
    runner: str = "FnApiRunner",
    arguments: Sequence[str] = (),
    shards: int = SHARDS,
) -> dict[str, int]:
    """Read a file or a topic, run its rounds, write one line per window.

    Return the pipeline's counters.
    """

    def build(pipeline: beam.Pipeline) -> None:
        write_rounds_file(
            pipeline | AnswerRoundsSource(settings, source, engine_options, secret, shards=shards),
            sink,
        )

    return run_on_runner(runner, arguments, build)


class AnswerRoundsSource(beam.PTransform):  # type: ignore[misc]
    """A file or a topic to one `WindowEstimate` per window; parameters as above."""

    def __init__(
        self,
        settings: RoundsSettings,
        source: SourceLocation,
        options: EngineOptions,
        secret: SecretLocation,
        *,
        shards: int,
    ) -> None:
        super().__init__()
        self._settings = settings
        self._source = source
        self._read = ReadSums(settings, options, secret, shards)
        self._secret = secret
        self._shards = shards

    def expand(self, pbegin: Any) -> beam.PCollection:
        """Read, join, run the rounds."""
        return (
            pbegin
            | "Source" >> beam.Create([self._source], reshuffle=False)
            | "Read" >> beam.ParDo(self._read).with_output_types(tuple[int, UserBatch])
            | "Join users" >> JoinUsers(self._settings, self._secret, shards=self._shards)
            | "Rounds" >> RunStages(self._settings, self._secret)
        )


def write_rounds_file(answers: beam.PCollection, sink: Path | str) -> None:
    """Write one line per window."""
    _ = answers | "Write means" >> WriteEvents(sink, _window)


def _window(estimate: Any) -> EventLines:
    return encode_lines(type(estimate), [estimate])


_COUNTED = ("events", "accepted", "agents")


class ReadSums(Step):
    """Private: a file or a topic to users' sums per window, keyed by shard, when the windows close.

    Which samples count, and who takes part, is decided by the engine's own intake: plausible times,
    duplicates, places of users. So a file, or a topic, is read by one worker, from its beginning,
    which holds the sums of open windows; a pipeline of one's own that reads partitions in parallel
    has `beam_kafka_source.ReadKafka`.
    """

    def __init__(
        self, settings: RoundsSettings, options: EngineOptions, secret: SecretLocation, shards: int
    ) -> None:
        self._settings = settings
        self._options = options
        self._secret = secret
        self._shards = shards

    def process(self, element: SourceLocation) -> Iterator[Any]:
        """Read it whole."""
        stats = RoundsStats()
        secret = self._secret.load()
        source = element.open(key_derived_from_secret(secret, "sample ids"))
        intake = RoundsIntake(self._settings, self._options, source, stats, slot_key(secret))
        hashes = RememberedWords()
        waiting = OpenWindows(self._settings.windows, intake.places)
        ended = False

        with closing(source):
            while not ended:
                batch = source.next_batch(self._options.batch_size)
                now = time.time()
                ended = batch.exhausted
                entries = intake.admit_to_windows(batch.samples, batch.rejects, now)
                stats.rejected.update(batch.rejects.reason)
                waiting.add(summarize_entries(self._settings.windows, entries, self._settings.grid))
                reached = intake.closed(waiting, now, ended=ended)

                while (one := waiting.first_ended(reached)) is not None:
                    parts = {one[0]: intake.places.enter(*one, now)}
                    names = intake.names
                    yield from summarize_by_shard(
                        self._settings, parts, names, hashes.of(names), self._shards
                    )

        if refused := intake.places.take_refused():
            stats.rejected["too_many_agents"] += refused

        count_intake_metrics(_COUNTED, stats, private=True)

"""A file or a topic of samples to a file or a topic of answers, on a runner of Beam."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import apache_beam as beam

from meanstream.pipelines.beam.beam_runners import run_on_runner
from meanstream.pipelines.beam.beam_sinks import WriteEvents
from meanstream.pipelines.beam.element_types.beam_samples import SHARDS
from meanstream.pipelines.beam.element_types.beam_source import SourcePlace
from meanstream.pipelines.beam.rounds.join_results import JoinUsers
from meanstream.pipelines.beam.rounds.read_results import ReadSums
from meanstream.pipelines.beam.rounds.rounds_elements import UserBatch
from meanstream.pipelines.beam.rounds.rounds_parts import RunStages
from meanstream.pipelines.beam.worker.worker_secret import SecretPlace
from meanstream.streaming.engine.engine_options import EngineOptions
from meanstream.streaming.events.encode import EventLines, encode_lines
from meanstream.streaming.rounds.rounds_settings import RoundsSettings


def run_rounds_file(
    settings: RoundsSettings,
    source: SourcePlace,
    sink: Path | str,
    *,
    secret: SecretPlace,
    engine_options: EngineOptions,
    runner: str = "FnApiRunner",
    arguments: Sequence[str] = (),
    shards: int = SHARDS,
) -> dict[str, int]:
    """Read a file or a topic, run its rounds, write one line per window; return the pipeline's counters.

    Parameters
    ----------
    settings : RoundsSettings
        What the parties agreed on.
    source : SourcePlace
        A file or a topic that the workers can read.
    sink : Path or str
        A file that the workers can write, which is replaced; or `kafka://...`, which each window is added to, see
        `meanstream.pipelines.beam.kafka.write_kafka.WriteKafka`.
    secret : SecretPlace
        Where workers find the secret.
    engine_options : EngineOptions
        Batches and plausible times.
    runner : str
        One of `meanstream.pipelines.beam.beam_runners.RUNNERS`.
    arguments : sequence of str
        Options of the runner, from `meanstream.pipelines.beam.beam_runners.runner_arguments`.
    shards : int
        As for `SummarizeUsers`.
    """

    def build(pipeline: beam.Pipeline) -> None:
        write_rounds_file(pipeline | AnswerRoundsSource(settings, source, engine_options, secret, shards=shards), sink)

    return run_on_runner(runner, arguments, build)


class AnswerRoundsSource(beam.PTransform):  # type: ignore[misc]
    """A file or a topic to one `WindowEstimate` per window; parameters as above."""

    def __init__(
        self, settings: RoundsSettings, source: SourcePlace, options: EngineOptions, secret: SecretPlace, *, shards: int
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
            | "Rounds" >> RunStages(self._settings, self._secret, shards=self._shards)
        )


def write_rounds_file(answers: beam.PCollection, sink: Path | str) -> None:
    """Write one line per window."""
    _ = answers | "Write means" >> WriteEvents(sink, _window)


def _window(estimate: Any) -> EventLines:
    return encode_lines(type(estimate), [estimate])

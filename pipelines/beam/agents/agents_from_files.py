"""A file or a topic of samples to files or topics of estimates and releases, on Beam."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import apache_beam as beam
import numpy as np
from apache_beam.pvalue import TaggedOutput
from apache_beam.utils.timestamp import MIN_TIMESTAMP

import meanstream.pipelines.beam.beam_sinks as _coder  # noqa: F401 - it registers itself
from meanstream.operators.agents.agents import AgentsSettings
from meanstream.operators.records import Ints
from meanstream.pipelines.beam.agents.agents_parts import (
    agents_part_outputs,
    agents_part_release,
    agents_part_split,
)
from meanstream.pipelines.beam.agents.agents_windows import AgentWindows, tick_note, ticks_noted
from meanstream.pipelines.beam.agents.snapshot_releases import Collaborated, collaborated
from meanstream.pipelines.beam.agents.split_agents import NOTES, AgentDirectory, split_columns
from meanstream.pipelines.beam.beam_runners import run_on_runner
from meanstream.pipelines.beam.beam_sinks import WriteEvents
from meanstream.pipelines.beam.element_types.beam_samples import AGENT_SHARDS
from meanstream.pipelines.beam.element_types.beam_source import SourceLocation
from meanstream.pipelines.beam.input.beam_intake import REJECTED
from meanstream.pipelines.beam.input.parse_lines import dead_letters_of_parse
from meanstream.pipelines.beam.worker.beam_metrics import count_intake_metrics
from meanstream.pipelines.beam.worker.beam_steps import Step, discreet_step
from meanstream.pipelines.beam.worker.worker_secret import SecretLocation
from meanstream.streaming.engine.engine_intake import Intake
from meanstream.streaming.engine.engine_options import EngineOptions
from meanstream.streaming.engine.engine_stats import EngineStats
from meanstream.streaming.engine.sample_buffer import Due
from meanstream.streaming.events.encode import EventLines, encode_lines
from meanstream.streaming.events.wire import PersonalEstimate
from meanstream.streaming.sinks.sink_protocol import Trust
from meanstream.streaming.store.secret_source import key_derived_from_secret

WINDOWS = AgentWindows(refresh=None)
_COUNTED = ("events", "accepted")


def run_agents_file(
    settings: AgentsSettings,
    source: SourceLocation,
    sinks: Mapping[str, Path | str],
    *,
    secret: SecretLocation,
    engine_options: EngineOptions,
    runner: str = "FnApiRunner",
    arguments: Sequence[str] = (),
    shards: int = AGENT_SHARDS,
) -> dict[str, int]:
    """Read a file or a topic, release, answer everyone once at its end.

    Return the pipeline's counters.
    """

    def build(pipeline: beam.Pipeline) -> None:
        answers = pipeline | AnswerAgentsSource(
            settings, source, engine_options, secret, shards=shards
        )
        write_agents_file(answers, settings, sinks)

    counters = run_on_runner(runner, arguments, build)
    for place in sinks.values():
        if isinstance(place, Path):
            place.touch()

    return counters


class AnswerAgentsSource(beam.PTransform):  # type: ignore[misc]
    """A file or a topic to `Collaborated`.

    Releases, and everyone's answer at its end; parameters as above.
    """

    def __init__(
        self,
        settings: AgentsSettings,
        source: SourceLocation,
        options: EngineOptions,
        secret: SecretLocation,
        *,
        shards: int,
    ) -> None:
        super().__init__()
        self._settings = settings
        self._source = source
        self._options = options
        self._secret = secret
        self._shards = shards

    def expand(self, pbegin: Any) -> Collaborated:
        """Read, release, answer."""
        settings = self._settings
        options = self._options
        secret = self._secret
        shards = self._shards
        read = agents_part_outputs(ReadAgents(settings, options, secret, shards))
        split = agents_part_split(
            pbegin | "Source" >> beam.Create([self._source], reshuffle=False) | "Read" >> read
        )

        final = options.final_release
        most = options.max_agents  # of all shards together: the intake has counted them already
        made = agents_part_release(
            split, settings, WINDOWS, secret, final_release=final, shards=shards, most=most
        )

        return collaborated(made, settings, options, WINDOWS, shards=shards)


def write_agents_file(
    answers: Collaborated, settings: AgentsSettings, sinks: Mapping[str, Path | str]
) -> None:
    """Write what each role's file or topic is for."""
    notices = (
        answers.notices | "Notice lines" >> beam.Map(_notice).with_output_types(EventLines),
        answers.refusals | "Refusal lines" >> beam.Map(_notice).with_output_types(EventLines),
        answers.drifts | "Drift lines" >> beam.Map(_notice).with_output_types(EventLines),
    ) | "Notices" >> beam.Flatten()
    outputs: dict[str, tuple[beam.PCollection, Callable[[Any], EventLines]]] = {
        "estimates": (answers.estimates, _estimates),
        "releases": (answers.releases, partial(_releases, settings=settings)),
        "population": (answers.population, _population),
        "notices": (notices, _as_they_are),
    }

    for role, place in sinks.items():
        events, in_lines = outputs[role]
        trust = Trust.PRIVATE if role == "estimates" else Trust.PUBLIC
        option = {"estimates": "sink"}.get(role, role)
        _ = events | f"Write {role}" >> WriteEvents(place, in_lines, role=option, trust=trust)


class ReadAgents(Step):
    """Private: a file or a topic to samples of the shards, in the engine's order.

    Which samples count is decided by the engine's own intake, in the order of the source: plausible
    times, duplicates, lateness. So a file, or a topic, is read by one worker, from its beginning; a
    pipeline of one's own that reads partitions in parallel has
    `meanstream.pipelines.beam.kafka.beam_kafka_source.ReadKafka`.
    """

    def __init__(
        self, settings: AgentsSettings, options: EngineOptions, secret: SecretLocation, shards: int
    ) -> None:
        self._settings = settings
        self._options = options
        self._secret = secret
        self._shards = shards

    def process(self, element: SourceLocation) -> Iterator[Any]:
        """Read it whole."""
        stats = EngineStats()
        directory = AgentDirectory(self._shards)
        id_key = key_derived_from_secret(self._secret.load(), "sample ids")
        source = element.open(id_key)
        intake = Intake(self._settings.grid, self._options, source.name, stats)
        given = 0
        ended = False

        with closing(source):
            while not ended:
                batch = source.next_batch(self._options.batch_size)
                ended = batch.exhausted
                intake.admit(batch.samples, batch.rejects, time.time())
                due = intake.due(batch.active, ended=ended and self._options.drain)
                stats.rejected.update(batch.rejects.reason)
                yield from (
                    TaggedOutput(REJECTED, letter)
                    for letter in dead_letters_of_parse(batch.rejects, source.name, "sample")
                )

                if due.person is not None:  # the shards decide which of them count
                    stats.accepted += len(due.time)

                if len(due.time):
                    yield from self._split(due, given, intake.names, directory)
                    given += len(due.time)

        count_intake_metrics(_COUNTED, stats)

    def _split(
        self, due: Due, given: int, names: list[str], directory: AgentDirectory
    ) -> Iterator[Any]:
        n = len(due.time)
        position: Ints = np.arange(given + 1, given + 1 + n)  # the engine has put them in order
        columns = {
            "point": self._settings.grid.encode(due.value),
            "time": due.time,
            "position": position,
        }

        if due.person is not None:
            columns["person"] = due.person

        yield from split_columns(names, due.agent, columns, directory, MIN_TIMESTAMP)
        for note in ticks_noted(due.time, directory.of(names, due.agent)[1][due.agent], WINDOWS):
            yield TaggedOutput(NOTES, tick_note(note))


def _estimates(batch: Any) -> EventLines:
    return EventLines(PersonalEstimate, batch.lines)


def _releases(batch: Any, settings: AgentsSettings) -> EventLines:
    return batch.lines(settings)  # type: ignore[no-any-return]


def _population(event: Any) -> EventLines:
    return encode_lines(type(event), [event])


def _as_they_are(lines: Any) -> EventLines:
    return lines  # type: ignore[no-any-return]


@discreet_step
def _notice(event: Any) -> EventLines:
    """Write numbers as the engine does."""
    plain = event.model_dump(mode="json")
    return EventLines(
        type(event), [json.dumps(plain, separators=(",", ":"), ensure_ascii=False).encode()]
    )

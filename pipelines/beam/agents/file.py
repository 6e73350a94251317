"""A file of samples to files of estimates and releases, on a runner of Beam."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from datetime import datetime
from pathlib import Path
from typing import Any

import apache_beam as beam
import numpy as np
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.pvalue import TaggedOutput
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from apache_beam.transforms.trigger import DefaultTrigger
from apache_beam.utils.timestamp import MIN_TIMESTAMP

from operators.agents import AgentsSettings
from operators.records import Ints
from pipelines.agents import collaborated
from pipelines.beam.agents.parts import KEYED, NOTE, release_shards
from pipelines.beam.agents.split import NOTES, notes_of, split_columns
from pipelines.beam.agents.windows import AgentWindows
from pipelines.beam.metrics import counter, counters_of
from pipelines.beam.samples import SHARDS, RememberedWords
from pipelines.beam.secret import SecretPlace
from pipelines.beam.source import SourcePlace
from streaming.buffer import Due
from streaming.intake import Intake
from streaming.options import EngineOptions
from streaming.secret import derived_key
from streaming.sources.open import open_source
from streaming.stats import EngineStats

WINDOWS = AgentWindows(refresh=None)
_COUNTED = ("events", "accepted")


def run_agents_file(
    settings: AgentsSettings,
    source: SourcePlace,
    sinks: Mapping[str, Path],
    *,
    secret: SecretPlace,
    engine_options: EngineOptions,
    runner: str = "FnApiRunner",
    arguments: Sequence[str] = (),
    shards: int = SHARDS,
) -> dict[str, int]:
    """Read a file, release, answer everybody once at its end; return the pipeline's counters.

    Parameters
    ----------
    settings : AgentsSettings
        How agents release.
    source : SourcePlace
        A file that the workers can read.
    sinks : mapping of role to path
        Of "estimates" (private), "releases", "population", "notices": files that the workers can write; replaced.
    secret : SecretPlace
        Where workers find the secret.
    engine_options : EngineOptions
        Intake, collaboration, level; `refresh` must be None.
    runner : str
        One of `pipelines.beam.runners.RUNNERS`.
    arguments : sequence of str
        Options of the runner, from `pipelines.beam.runners.arguments_of`.
    shards : int
        As for `ReleaseMeans`.
    """
    named = FnApiRunner() if runner == "FnApiRunner" else runner
    pipeline = beam.Pipeline(runner=named, options=PipelineOptions(list(arguments)))
    read = ReadAgents(settings, engine_options, secret, shards)
    split = (
        pipeline
        | "Source" >> beam.Create([source], reshuffle=False)
        | "Read" >> beam.ParDo(read).with_outputs(NOTES, main="samples")
    )
    samples, notes = split.samples, split[NOTES]
    samples.element_type, notes.element_type = KEYED, NOTE
    made = release_shards(
        samples,
        notes,
        settings,
        WINDOWS,
        secret,
        final_release=engine_options.final_release,
        shards=shards,
    )
    answers = collaborated(made, settings, engine_options, WINDOWS, shards=shards)
    notices = (answers.notices, answers.refusals) | "Notices" >> beam.Flatten()
    outputs: dict[str, tuple[beam.PCollection, Callable[[Any], list[bytes]]]] = {
        "estimates": (answers.estimates, _estimates),
        "releases": (answers.releases, lambda batch: list(batch.lines(settings).lines)),
        "population": (answers.population, _event),
        "notices": (notices, _notice),
    }
    for role, path in sinks.items():
        events, lines_of = outputs[role]
        _ = events | f"Write {role}" >> WriteEvents(path, lines_of)
    result = pipeline.run()
    result.wait_until_finish()
    for path in sinks.values():
        path.touch()
    return counters_of(result)


class ReadAgents(beam.DoFn):  # type: ignore[misc]
    """Private: a file to samples of the shards, in the engine's order.

    Which samples count is decided by the engine's own intake, in the order of the file: plausible times, duplicates,
    lateness. So a file is read by one worker, from its beginning.
    """

    def __init__(self, settings: AgentsSettings, options: EngineOptions, secret: SecretPlace, shards: int) -> None:
        self._settings = settings
        self._options = options
        self._secret = secret
        self._shards = shards

    def process(self, element: SourcePlace) -> Iterator[Any]:
        """Read it whole."""
        stats, words = EngineStats(), RememberedWords()
        id_key = derived_key(self._secret.load(), "sample ids")
        source = open_source(element.location, element.mapping, sort=element.sort, id_key=id_key)
        intake = Intake(self._settings, self._options, source.name, stats)
        given, ended = 0, False
        with closing(source):
            while not ended:
                batch = source.next_batch(self._options.batch_size)
                ended = batch.exhausted
                intake.admit(batch.samples, batch.rejects, time.time())
                due = intake.due(batch.active, ended=ended and self._options.drain)
                stats.rejected.update(batch.rejects.reason)
                if len(due.time):
                    yield from self._split(due, given, intake.names, words)
                    given += len(due.time)
        for name in _COUNTED:
            counter(name).inc(getattr(stats, name))
        for reason, count in stats.rejected.items():
            counter("rejected_", reason).inc(count)

    def _split(self, due: Due, given: int, names: list[str], words: RememberedWords) -> Iterator[Any]:
        n = len(due.time)
        position: Ints = np.arange(given + 1, given + 1 + n)  # the engine has put them in order
        columns = {"value": due.value, "time": due.time, "key": np.zeros(n, np.uint64), "position": position}
        yield from split_columns(names, due.agent, columns, words.of, self._shards, MIN_TIMESTAMP)
        for note in notes_of(due.time, WINDOWS):
            yield TaggedOutput(NOTES, (note.number, note.newest))


class WriteEvents(beam.PTransform):  # type: ignore[misc]
    """Events to one JSONL file, in the order of time, whole or not at all; again the same on a retry."""

    def __init__(self, path: Path, lines_of: Callable[[Any], list[bytes]]) -> None:
        super().__init__()
        self._path = path
        self._lines_of = lines_of

    def expand(self, pcoll: beam.PCollection) -> beam.PCollection:
        """Gather and write."""
        lines_of = self._lines_of
        return (
            pcoll
            | "Lines" >> beam.Map(lambda event: (0, b"\n".join(lines_of(event)))).with_output_types(tuple[int, bytes])
            | "For good" >> beam.WindowInto(beam.window.GlobalWindows(), trigger=DefaultTrigger())
            | "Gather" >> beam.GroupByKey()
            | "Write" >> beam.ParDo(_WriteFile(str(self._path)))
        )


class _WriteFile(beam.DoFn):  # type: ignore[misc]
    def __init__(self, path: str) -> None:
        self._path = path

    def process(self, element: tuple[int, Iterable[bytes]]) -> None:
        lines = sorted((line for some in element[1] for line in some.split(b"\n") if line), key=_order)
        path = Path(self._path)
        part = path.with_name(f".{path.name}.{os.getpid()}")
        part.write_bytes(b"".join(line + b"\n" for line in lines))
        part.replace(path)


def _order(line: bytes) -> tuple[datetime, str, int]:
    event = json.loads(line)
    return datetime.fromisoformat(event["time"]), event.get("agent", ""), event.get("index", 0)


def _estimates(batch: Any) -> list[bytes]:
    return list(batch.lines)


def _notice(event: Any) -> list[bytes]:
    """Write numbers as the engine does."""
    plain = event.model_dump(mode="json")
    return [json.dumps(plain, separators=(",", ":"), ensure_ascii=False).encode()]


def _event(event: Any) -> list[bytes]:
    return [event.model_dump_json().encode()]

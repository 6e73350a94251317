"""`meanstream run rounds --runner`: the same answers as the engine's, from a runner of Beam that is named."""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.runners.portability.fn_api_runner import FnApiRunner

from operators.validation import require
from pipelines.beam_parts import SHARDS, JoinUsers, RunStages
from pipelines.beam_records import UserBatch
from pipelines.beam_secret import SecretPlace
from pipelines.beam_source import ReadSums, SourcePlace, WriteLines
from pipelines.beam_summarize import NAMESPACE
from pipelines.commands.options import print_json, refusing
from streaming.options import EngineOptions
from streaming.rounds.settings import RoundsSettings
from streaming.secret import SECRET_FILE_VARIABLE, SECRET_VARIABLE, load_secret, secret_path

if TYPE_CHECKING:
    from pipelines.commands.rounds_options import RoundsOptions

RUNNERS = ("FnApiRunner", "PrismRunner", "FlinkRunner", "DataflowRunner")
ELSEWHERE = ("reports", "stages", "dead_letters", "notices", "reports_only", "from_reports")
"""Options of the engine alone; a pipeline of one's own takes `ReportRounds` and `AnswerReports`."""


def run_on_beam(options: RoundsOptions, runner: str, runner_args: Sequence[str] = ()) -> None:
    """Run rounds over a file on a runner of Beam, and say what was done.

    The same source, settings and secret give the same bytes as the engine. Nothing is kept in the store: the budget
    of a user is enforced over the windows of this file.

    Raises
    ------
    BadOption
        Before any data is read: an unknown runner, an option that a pipeline does not have, a sink that is there.
    """
    with refusing():
        pipeline_options = options_of(runner, runner_args)
        settings, source, sink = _checked(options)
        secret = _secret_place(options)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "means.jsonl") if sink is None else sink
        counters = run_file(
            settings,
            source,
            path,
            secret=secret,
            engine_options=options.engine_options(),
            runner=runner,
            pipeline_options=pipeline_options,
        )
        if sink is None and path.exists():
            sys.stdout.buffer.write(path.read_bytes())
            sys.stdout.flush()
    if options.json:
        print_json({"runner": runner, **counters})
    elif not options.quiet:
        sys.stderr.write(", ".join(f"{count:,} {name.replace('_', ' ')}" for name, count in counters.items()) + "\n")


def run_file(
    settings: RoundsSettings,
    source: SourcePlace,
    sink: Path,
    *,
    secret: SecretPlace,
    engine_options: EngineOptions,
    runner: str = "FnApiRunner",
    pipeline_options: PipelineOptions | None = None,
    shards: int = SHARDS,
) -> dict[str, int]:
    """Read a file, run its rounds, write one line per window; return the pipeline's counters.

    Parameters
    ----------
    settings : RoundsSettings
        What the parties agreed on.
    source : SourcePlace
        A file that the workers can read.
    sink : Path
        A file that the workers can write; it is replaced.
    secret : SecretPlace
        Where workers find the secret.
    engine_options : EngineOptions
        Batches and plausible times.
    runner : str
        One of `RUNNERS`.
    pipeline_options : PipelineOptions, optional
        From `options_of`.
    shards : int
        As for `SummarizeUsers`.
    """
    read = ReadSums(settings, engine_options, secret, shards)
    pipeline = beam.Pipeline(runner=_runner(runner), options=pipeline_options or options_of(runner, ()))
    _ = (
        pipeline
        | "Source" >> beam.Create([source], reshuffle=False)
        | "Read" >> beam.ParDo(read).with_output_types(tuple[int, UserBatch])
        | "Join users" >> JoinUsers(settings, shards=shards)
        | "Rounds" >> RunStages(settings, secret)
        | "One file" >> beam.Map(_one_key)
        | "For good" >> beam.WindowInto(beam.window.GlobalWindows(), trigger=beam.transforms.trigger.DefaultTrigger())
        | "Gather" >> beam.GroupByKey()
        | "Write" >> beam.ParDo(WriteLines(str(sink)))
    )
    result = pipeline.run()
    result.wait_until_finish()
    counters = result.metrics().query(beam.metrics.MetricsFilter().with_namespace(NAMESPACE))["counters"]
    totals: dict[str, int] = {}
    for counter in counters:
        name = counter.key.metric.name
        totals[name] = totals.get(name, 0) + (counter.result or 0)
    return dict(sorted(totals.items()))


def options_of(runner: str, arguments: Sequence[str]) -> PipelineOptions:
    """Check a runner's name and its options, and add where Prism is, if it is where `make servers` puts it.

    Raises
    ------
    ValueError
        If the runner is none of `RUNNERS`, or cannot be used here, with the reason.

    Examples
    --------
    >>> options_of("DirectRunner", ())
    Traceback (most recent call last):
    ValueError: runner must be one of FnApiRunner, PrismRunner, FlinkRunner, DataflowRunner, got 'DirectRunner' (it \
may run a pipeline again on another runner without saying so)
    """
    if runner == "DirectRunner":
        why = "(it may run a pipeline again on another runner without saying so)"
        raise ValueError(f"runner must be one of {', '.join(RUNNERS)}, got {runner!r} {why}")
    require(runner in RUNNERS, "runner", f"be one of {', '.join(RUNNERS)}", runner)
    given = list(arguments)
    if runner == "PrismRunner" and not any(a.startswith("--prism_location") for a in given):
        binary = prism_binary()
        require(binary is not None, "prism_location", "be the Prism binary (make servers builds it)", None)
        given.append(f"--prism_location={binary}")
    if runner == "FlinkRunner":
        there = any(a.startswith("--flink_master") for a in given)
        require(there, "flink_master", "be given with FlinkRunner, as HOST:PORT", None)
    if runner == "DataflowRunner":
        there = importlib.util.find_spec("google.cloud.dataflow_v1beta3") is not None if _has_google() else False
        require(there, "runner", "be installed (apache-beam[gcp])", runner)
    return PipelineOptions(given)


def prism_binary() -> Path | None:
    """Find Prism: on the path, or where `make servers` puts it."""
    servers = Path(os.environ.get("MEANSTREAM_SERVERS") or Path.home() / ".cache" / "meanstream-servers")
    found = shutil.which("prism", path=os.pathsep.join([str(servers / "prism"), os.environ.get("PATH", "")]))
    return Path(found) if found else None


def _runner(name: str) -> Any:
    return FnApiRunner() if name == "FnApiRunner" else name


def _has_google() -> bool:
    try:
        return importlib.util.find_spec("google.cloud") is not None
    except ModuleNotFoundError:
        return False


def _one_key(estimate: Any) -> tuple[None, Any]:
    return None, estimate


def _checked(options: RoundsOptions) -> tuple[RoundsSettings, SourcePlace, Path | None]:
    """Refuse what a pipeline over a file does not have."""
    from pipelines.commands.run_rounds import column_mapping
    from streaming.kafka.location import is_kafka

    for name in ELSEWHERE:
        given = getattr(options, name)
        require(given is None, name, "be left out with --runner", None if given is None else str(given))
    require(options.source is not None and not is_kafka(options.source), "source", "be a file", options.source)
    sink = None if options.sink == "-" else Path(options.sink)
    if sink is not None:
        rule = "be a .jsonl file in an existing folder, or '-', with --runner"
        require(sink.suffix == ".jsonl" and sink.parent.is_dir(), "sink", rule, options.sink)
        require(not sink.exists() or not sink.stat().st_size, "sink", "be a new file with --runner", options.sink)
    place = str(Path(str(options.source)).resolve())
    source = SourcePlace(location=place, mapping=column_mapping(options), sort=options.sort)
    return options.settings(), source, None if sink is None else sink.resolve()


def _secret_place(options: RoundsOptions) -> SecretPlace:
    """Find the secret as the engine does, or make it; tell workers the place."""
    from pipelines.commands.run_rounds import environment_of

    environment = environment_of(options)
    load_secret(options.store, environment=environment)
    if environment.get(SECRET_VARIABLE):
        return SecretPlace(variable=SECRET_VARIABLE)
    named = environment.get(SECRET_FILE_VARIABLE)
    return SecretPlace(file=str((Path(named) if named else secret_path(options.store)).resolve()))

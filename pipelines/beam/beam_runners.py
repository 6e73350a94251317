"""Runners by name, their options, and what every pipeline of the command line needs.

A secret and silence.
"""

from __future__ import annotations

import importlib.util
import logging
import os
import re
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from meanstream.operators.validation import require
from meanstream.pipelines.beam.worker.worker_secret import SecretLocation
from meanstream.streaming.kafka.connection.kafka_location import KafkaLocation
from meanstream.streaming.store.secret_source import (
    SECRET_FILE_VARIABLE,
    SECRET_VARIABLE,
    load_secret,
    secret_path,
)

if TYPE_CHECKING:
    from apache_beam import Pipeline
    from apache_beam.options.pipeline_options import PipelineOptions

RUNNERS = ("FnApiRunner", "PrismRunner", "FlinkRunner", "DataflowRunner")


def runner_arguments(runner: str, arguments: Sequence[str]) -> list[str]:
    """Check a runner's name and its options, and add where Prism is, if it is where `make servers` puts it.

    Examples
    --------
    >>> runner_arguments("DirectRunner", ())
    Traceback (most recent call last):
    ValueError: runner must be one of FnApiRunner, PrismRunner, FlinkRunner, DataflowRunner, got 'DirectRunner' (it \
may run a pipeline again on another runner without saying so)
    """
    if runner not in RUNNERS:
        why = (
            " (it may run a pipeline again on another runner without saying so)"
            if runner == "DirectRunner"
            else ""
        )
        raise ValueError(f"runner must be one of {', '.join(RUNNERS)}, got {runner!r}{why}")

    given = list(arguments)
    if runner == "PrismRunner" and not any(a.startswith("--prism_location") for a in given):
        binary = prism_runner_binary()
        require(
            binary is not None,
            "prism_location",
            "be the Prism binary (make servers builds it)",
            None,
        )
        given.append(f"--prism_location={binary}")

    if runner == "FlinkRunner":
        there = any(a.startswith("--flink_master") for a in given)
        require(there, "flink_master", "be given with FlinkRunner, as HOST:PORT", None)

    if runner == "DataflowRunner":
        require(
            _has("google.cloud.dataflow_v1beta3"),
            "runner",
            "be installed (apache-beam[gcp])",
            runner,
        )

    return given


def require_beam_of_runners() -> None:
    """Refuse where Beam is not there, naming the extra."""
    if importlib.util.find_spec("apache_beam") is None:
        raise ValueError("runner needs apache-beam: pip install 'meanstream[beam]'")


def prism_runner_binary() -> Path | None:
    """Find Prism: on the path, or where `make servers` puts it."""
    servers = Path(
        os.environ.get("MEANSTREAM_SERVERS") or Path.home() / ".cache" / "meanstream-servers"
    )
    found = shutil.which(
        "prism", path=os.pathsep.join([str(servers / "prism"), os.environ.get("PATH", "")])
    )

    if found:
        return Path(found)
    return None


def _has(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:
        return False


@contextmanager
def quiet_runner() -> Iterator[None]:
    """Beam tells on the root logger, as it is loaded, what it could do with more packages.

    Keep it to errors.
    """
    # As the process ends, too: that a runner of its own was stopped is no warning.
    logging.getLogger("apache_beam.utils.subprocess_server").setLevel(logging.ERROR)
    logging.disable(logging.WARNING)

    try:
        yield
    finally:
        logging.disable(logging.NOTSET)


def runner_offset_ranges(typed: str) -> dict[int, tuple[int, int]]:
    """Read `PARTITION:FIRST-STOP,...`: offsets from the first to before the stop.

    Examples
    --------
    >>> runner_offset_ranges("0:100-250,3:0-80")
    {0: (100, 250), 3: (0, 80)}
    >>> runner_offset_ranges("0:100-50")
    Traceback (most recent call last):
    ValueError: offsets must be PARTITION:FIRST-STOP,... with FIRST up to STOP and each partition once, got '0:100-50'
    """
    found: dict[int, tuple[int, int]] = {}
    for part in str(typed).split(","):
        match = re.fullmatch(r"(\d{1,6}):(\d{1,18})-(\d{1,18})", part.strip())
        partition, first, stop = map(int, match.groups()) if match else (-1, 0, 0)
        rule = "be PARTITION:FIRST-STOP,... with FIRST up to STOP and each partition once"
        require(partition >= 0 and first <= stop and partition not in found, "offsets", rule, typed)
        found[partition] = (first, stop)

    return found


def runner_offsets_held_now(
    location: str, ranges: Mapping[int, tuple[int, int]] | None = None
) -> tuple[tuple[int, int, int], ...]:
    """Ask what a topic holds, or whether it holds what is requested.

    Decided once, for whatever is executed again.
    """
    from meanstream.pipelines.beam.element_types.partition import PartitionReader
    from meanstream.pipelines.beam.kafka.read_kafka import planned_reads

    place = KafkaLocation.parse(location)
    with closing(PartitionReader(place)) as reader:
        return tuple(planned_reads(reader, place, ranges, until_end=True, name="offsets"))


def runner_secret_location(store: Path, environment: Mapping[str, str]) -> SecretLocation:
    """Find the secret as the engine does, or make it; tell workers the place."""
    load_secret(store, environment=environment)
    if SECRET_VARIABLE in environment:
        return SecretLocation(variable=SECRET_VARIABLE)
    named = environment.get(SECRET_FILE_VARIABLE)

    return SecretLocation(file=str((Path(named) if named else secret_path(store)).resolve()))


def new_runner_pipeline(runner: str, options: PipelineOptions) -> Pipeline:
    """Begin a pipeline; FnApiRunner by its class, as Beam knows no name of it."""
    from apache_beam import Pipeline
    from apache_beam.runners.portability.fn_api_runner import FnApiRunner

    return Pipeline(runner=FnApiRunner() if runner == "FnApiRunner" else runner, options=options)


def run_on_runner(
    runner: str, arguments: Sequence[str], build: Callable[[Pipeline], None]
) -> dict[str, int]:
    """Build a pipeline, run it to its end; return its counters."""
    from apache_beam.options.pipeline_options import PipelineOptions

    from meanstream.pipelines.beam.worker.beam_metrics import metric_counters

    pipeline = new_runner_pipeline(runner, PipelineOptions(list(arguments)))
    build(pipeline)
    result = pipeline.run()
    result.wait_until_finish()

    return metric_counters(result)

"""The same pipeline on a real Flink cluster and on FnApiRunner.

Events per second, and processor seconds.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Any

import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.runners.portability.fn_api_runner import FnApiRunner

from benchmarks.beam.agents_work import SETTINGS, batches
from meanstream.pipelines.beam.agents.agent_transforms import ReleaseMeans
from meanstream.streaming.events.event_columns import SampleColumns
from tests.servers.support.flink_cluster import FlinkCluster, missing

PARALLELISM = 2
SOURCES = 8
SMALL = 1000
MEMORY = 6144


def flink(samples: int, agents: int) -> dict[str, float]:
    """Measure both runners on the same samples; what a small job takes is told apart.

    Raises
    ------
    SystemExit
        Where Flink is not there.
    """
    if why := missing():
        raise SystemExit(why)
    found = {}

    for name, many in (("small_", SMALL), ("", samples)):
        cpu = time.process_time()
        began = time.perf_counter()
        _run(FnApiRunner(), [], many, agents)
        found[f"fn_api_{name}seconds"] = time.perf_counter() - began
        found[f"fn_api_{name}cpu_seconds"] = time.process_time() - cpu

    with tempfile.TemporaryDirectory() as folder:
        cluster = FlinkCluster(
            Path(folder) / "flink", slots=PARALLELISM, compiler="", memory=MEMORY
        )

        try:
            cluster.start()
            for name, many in (("small_", SMALL), ("", samples)):
                before = cluster.cpu_seconds()
                began = time.perf_counter()
                _run("FlinkRunner", cluster.arguments(f"--parallelism={PARALLELISM}"), many, agents)
                found[f"flink_{name}seconds"] = time.perf_counter() - began
                after = cluster.cpu_seconds()
                for part in ("taskmanager", "pool"):
                    found[f"flink_{name}{part}_cpu_seconds"] = after[part] - before[part]
        finally:
            cluster.stop()

    for runner in ("fn_api", "flink"):
        found[f"{runner}_events_per_second"] = samples / found[f"{runner}_seconds"]
    used = found["flink_taskmanager_cpu_seconds"] + found["flink_pool_cpu_seconds"]
    found["flink_events_per_cpu_second"] = samples / used
    found["fn_api_events_per_cpu_second"] = samples / found["fn_api_cpu_seconds"]

    return found


def _run(runner: Any, arguments: list[str], samples: int, agents: int) -> None:
    """Let several sources make their parts of the samples inside the workers.

    Release once, at the end.
    """
    pipeline = beam.Pipeline(runner=runner, options=PipelineOptions(arguments))
    parts = [max(samples // SOURCES, 1)] * SOURCES
    _ = (
        pipeline
        | beam.Create(parts)  # on Flink they are dealt out to the workers
        | beam.FlatMap(batches, agents).with_output_types(SampleColumns)
        | ReleaseMeans(SETTINGS)
    )
    pipeline.run().wait_until_finish()

"""What each turn of reading a partition without end costs on Flink: names of states, and bytes of a checkpoint.

Run from the repository after `make servers flink`: `python benchmarks/beam_turns.py --seconds 300`. Turns follow one
another at once here, so that minutes show what days do at a turn in ten seconds. With `--to-the-end` it goes on until
Flink refuses a checkpoint, and tells what becomes of the job. Prints one JSON object.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from typing import Any

import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions
from confluent_kafka.admin import AdminClient, NewTopic

from meanstream.pipelines.beam.kafka.read import TURN_SECONDS
from meanstream.pipelines.beam.kafka.source import ReadKafka
from meanstream.streaming.sources.mapping import ColumnMapping
from tests.servers.support.broker import temporary_broker
from tests.servers.support.flink_cluster import FlinkCluster, missing

OPTIONS = ("--streaming", "--checkpointing_interval=5000", "--parallelism=1", "--finish_bundle_before_checkpointing")
MOST_NAMES = 2**15 - 1
DAY = 86_400


def submit(cluster: FlinkCluster, address: str) -> str:
    """Start a job that does nothing but turns; give its id."""
    admin = AdminClient({"bootstrap.servers": address})
    admin.create_topics([NewTopic("turns", 1, 1)])["turns"].result(30)
    arguments = cluster.arguments(*OPTIONS, "--job_name=turns")
    pipeline = beam.Pipeline(runner="FlinkRunner", options=PipelineOptions(arguments))
    read = ReadKafka(f"kafka://{address}/turns", ColumnMapping(), until_end=False, privacy_unit="sample")
    read._read._turn = 0.0  # type: ignore[attr-defined]  # over before it has begun
    _ = pipeline | read
    pipeline.run()
    return cluster.job_id("turns")


def turns(cluster: FlinkCluster, job: str) -> int:
    """Ask Flink how many turns this run of the job has had."""
    name, found = "meanstream.reading_turns", 0
    for vertex in cluster.get(f"/jobs/{job}")["vertices"]:
        path = f"/jobs/{job}/vertices/{vertex['id']}/subtasks/metrics"
        ids = [one["id"] for one in cluster.get(path) if one["id"].endswith(name)]
        if ids:
            found += sum(int(one["sum"]) for one in cluster.get(f"{path}?get={ids[0]}"))
    return found


def checkpoint(cluster: FlinkCluster, job: str) -> dict[str, int]:
    """Give the size and the duration of the newest checkpoint, and how many have failed."""
    told = cluster.get(f"/jobs/{job}/checkpoints")
    newest = told["latest"]["completed"] or {"state_size": 0, "end_to_end_duration": 0, "id": 0}
    return {
        "bytes": newest["state_size"],
        "milliseconds": newest["end_to_end_duration"],
        "id": newest["id"],
        "failed": told["counts"]["failed"],
    }


def measure(cluster: FlinkCluster, job: str, seconds: float, *, to_the_end: bool) -> dict[str, Any]:
    """Let turns follow one another for so long, or until Flink refuses a checkpoint and somewhat longer."""
    cluster.wait_for_checkpoint(job)
    began, start = time.monotonic(), (turns(cluster, job), checkpoint(cluster, job))
    most, told, last = *start, start[1]
    while time.monotonic() - began < seconds and not (to_the_end and told["failed"]):
        time.sleep(2)
        most, told = max(most, turns(cluster, job)), checkpoint(cluster, job)
        last = told if told["id"] != last["id"] else last
    passed = time.monotonic() - began
    bytes_per_turn = (last["bytes"] - start[1]["bytes"]) / max(1, most - start[0])
    a_day = DAY / TURN_SECONDS
    found: dict[str, Any] = {
        "seconds": round(passed),
        "turns": most,
        "turns_a_second": round((most - start[0]) / passed, 1),
        "checkpoint_bytes": last["bytes"],
        "checkpoint_milliseconds": last["milliseconds"],
        "bytes_a_turn": round(bytes_per_turn),
        "failed_checkpoints": told["failed"],
        "turns_a_day": round(a_day),
        "mebibytes_a_day": round(a_day * bytes_per_turn / 2**20, 1),
        "days_until_the_end": round(MOST_NAMES / a_day, 1),
    }
    return found | (afterwards(cluster, job) if to_the_end else {})


def afterwards(cluster: FlinkCluster, job: str) -> dict[str, Any]:
    """Tell what becomes of a job whose checkpoint was refused."""
    time.sleep(45)
    entries = cluster.get(f"/jobs/{job}/exceptions")["exceptionHistory"]["entries"]
    return {
        "job_afterwards": cluster.status(job),
        "exceptions": sorted({str(entry["stacktrace"])[-300:] for entry in entries})[:3],
        "turns_of_the_next_run": turns(cluster, job),
        "checkpoint_afterwards": checkpoint(cluster, job),
    }


def main() -> None:
    """Start a broker and a cluster, and measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--to-the-end", action="store_true")
    options = parser.parse_args()
    if reason := missing():
        sys.exit(reason)
    with temporary_broker() as broker:
        cluster = FlinkCluster(broker.folder.parent / "flink", slots=1)
        try:
            cluster.start()
            found = measure(cluster, submit(cluster, broker.address), options.seconds, to_the_end=options.to_the_end)
        finally:
            cluster.stop()
    print(json.dumps(found, indent=2))


if __name__ == "__main__":
    main()

"""Speed of two shards of a topic, relative to one engine, in one run.

Prints one JSON object. Run from the repository after `make servers`:
`python benchmarks/speed/speed_of_shards.py --events 1000000`. Both take turns on the same topic. The
figures are processor seconds (user and system, all threads) of each process, less those of the same
kind of process on an empty topic: two free cores need as long as the shard that takes more.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tests.servers.support.broker import temporary_broker

PARTITIONS = 4
SECRET = "7c1e94b05fa3d2681be60c9d37f25a84"  # noqa: S105 - of a benchmark
SETTINGS = "--lower 0 --upper 1 --epsilon 1 --delta 1e-6 --id id --until-end --name b --quiet"


def produce(address: str, topic: str, events: int, agents: int) -> None:
    """Write samples, keyed by agent, in event-time order."""
    admin = AdminClient({"bootstrap.servers": address})
    for made in admin.create_topics([NewTopic(topic, PARTITIONS, 1)]).values():
        made.result(30)

    producer = Producer(
        {"bootstrap.servers": address, "linger.ms": 20, "queue.buffering.max.messages": 2_000_000}
    )
    rng = np.random.default_rng(7)
    agent = rng.integers(0, agents, events).tolist()
    value = rng.uniform(0, 1, events).round(3).tolist()
    for i in range(events):
        record = {"agent": f"a{agent[i]}", "value": value[i], "time": 1.7e9 + i // 100, "id": i}
        producer.produce(topic, json.dumps(record), key=record["agent"])
        if i % 5_000 == 0:
            producer.poll(0)

    producer.flush()


def start(address: str, topic: str, folder: Path, shard: str | None) -> subprocess.Popen[bytes]:
    """Start one engine on a topic, or a shard of it."""
    own = "" if shard is None else "-{shard}"
    words = ["run", "agents", *SETTINGS.split(), "--refresh", "never"]
    words += ["--source", f"kafka://{address}/{topic}?group={folder.name}"]
    words += ["--sink", str(folder / f"estimates{own}.jsonl")]
    words += ["--releases", str(folder / f"releases{own}.jsonl")]
    words += ["--store", str(folder if shard else folder / "one.db")]
    words += [] if shard is None else ["--shards", shard]
    # Another name for each: the owners of partitions are noted under it.
    words[words.index("b")] = folder.name
    return subprocess.Popen(
        [sys.executable, "-m", "meanstream.pipelines.commands.main", *words],
        env={**os.environ, "MEANSTREAM_SECRET": SECRET},
    )


def seconds(processes: list[subprocess.Popen[bytes]]) -> list[float]:
    """Wait for processes; give the processor seconds of each."""
    used = []
    for process in processes:
        _, status, usage = os.wait4(process.pid, 0)
        if status:
            raise RuntimeError(f"an engine must end well, got status {status}")

        used.append(usage.ru_utime + usage.ru_stime)

    return used


def turn(address: str, topic: str, shards: int) -> tuple[list[float], float]:
    """Run one engine, or shards at the same time; give their processor seconds and the clock's."""
    with tempfile.TemporaryDirectory() as place:
        numbers = [None] if shards == 1 else [f"{k}/{shards}" for k in range(shards)]
        began = time.perf_counter()
        used = seconds([start(address, topic, Path(place), number) for number in numbers])
        return used, time.perf_counter() - began


def measure(address: str, options: argparse.Namespace) -> dict[str, Any]:
    """Let both take turns; give each pair."""
    produce(address, "full", options.events, options.agents)
    produce(address, "empty", 0, 1)
    idle, idle_shard = (
        min(max(turn(address, "empty", shards)[0]) for _ in range(options.repeat))
        for shards in (1, 2)
    )
    pairs = []
    for _ in range(options.repeat):
        (one,), clock_of_one = turn(address, "full", 1)
        two, clock_of_two = turn(address, "full", 2)
        pairs.append(
            {
                "one": round(one - idle, 2),
                "shards": [round(used - idle_shard, 2) for used in two],
                "ratio": round((one - idle) / (max(two) - idle_shard), 3),
                "clock": [round(clock_of_one, 1), round(clock_of_two, 1)],
            }
        )

    ratios = np.array([pair["ratio"] for pair in pairs])
    return {
        "events": options.events,
        "agents": options.agents,
        "start": [round(idle, 2), round(idle_shard, 2)],
        "pairs": pairs,
        "times_as_fast": round(float(np.median(ratios)), 2),
        "standard_error": round(float(ratios.std(ddof=1) / np.sqrt(len(ratios))), 3),
    }


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--agents", type=int, default=4_000)
    parser.add_argument("--repeat", type=int, default=3)
    options = parser.parse_args()
    with temporary_broker() as broker:
        print(json.dumps(measure(broker.address, options)))


if __name__ == "__main__":
    main()

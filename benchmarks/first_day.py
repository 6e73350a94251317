"""The first minutes of a new user: until there is an estimate, and until an outage is seen.

Prints one JSON object. Run from the repository after `make servers`:
`python benchmarks/first_day.py --runs 3`. The samples are those of `docker/producer.py`, the engine
is the command of README.md for Kafka, word for word but for the brokers' address, the folder of the
store and the port of the metrics. `first_estimate` is the clock time from the first record of the
samples, as the broker has it, until somebody who reads committed records has an estimate; producer
and engine start together. An outage is a broker that is killed, and one that is stopped and keeps
its connections, until `/readyz` says 503; `seen_again` until it says 200 once the broker is back.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import urlopen

import numpy as np
from confluent_kafka import Consumer, TopicPartition

from tests.servers.support.broker import Broker, free_ports, temporary_broker

ROOT = Path(__file__).parents[1]
WAIT_SECONDS = 180.0


def readme_command(address: str, store: Path, port: int) -> list[str]:
    """Take the command for Kafka of README.md, with places of this machine."""
    text = (ROOT / "README.md").read_text()
    found = re.search(r"```\n(meanstream run agents --source 'kafka:.*?)\n```", text, re.DOTALL)
    if found is None:
        sys.exit("README.md must have a command that reads Kafka")
    words = shlex.split(found[1].replace("\\\n", " "))
    words = [
        word.replace("broker:9092", address).replace("127.0.0.1:9464", f"127.0.0.1:{port}")
        for word in words
    ]

    words[words.index("--store") + 1] = str(store)
    return [sys.executable, "-m", "meanstream.pipelines.commands.main", *words[1:]]


def first(address: str, topic: str) -> tuple[float, float]:
    """Wait for the first committed record of a topic.

    The broker's time of it, and the time at which it was read.
    """
    settings = {
        "bootstrap.servers": address,
        "group.id": "watcher",
        "isolation.level": "read_committed",
    }
    consumer = Consumer(
        {**settings, "auto.offset.reset": "earliest", "topic.metadata.refresh.interval.ms": 500}
    )
    end = time.monotonic() + WAIT_SECONDS

    try:
        while topic not in (topics := consumer.list_topics(timeout=10).topics):
            time.sleep(0.05)
        consumer.assign(
            [TopicPartition(topic, partition, 0) for partition in topics[topic].partitions]
        )

        while time.monotonic() < end:
            message = consumer.poll(0.2)
            if message is not None and message.error() is None:
                return message.timestamp()[1] / 1000, time.time()
    finally:
        consumer.close()

    sys.exit(f"nothing came to {topic!r} in {WAIT_SECONDS:g} s")


def status(port: int) -> int:
    """Ask whether the engine is ready; 0 where nobody answers."""
    try:
        with urlopen(f"http://127.0.0.1:{port}/readyz", timeout=5) as answer:
            return int(answer.status)
    except HTTPError as error:
        return int(error.code)
    except OSError:
        return 0


def until(port: int, wanted: int, began: float | None = None) -> float:
    """Wait until the engine says so; give the seconds that it took."""
    began = time.monotonic() if began is None else began
    while status(port) != wanted:
        if time.monotonic() - began > WAIT_SECONDS:
            sys.exit(f"/readyz did not say {wanted} in {WAIT_SECONDS:g} s")
        time.sleep(0.05)

    return time.monotonic() - began


def one_day(broker: Broker, folder: Path) -> dict[str, float]:
    """Start producer and engine; measure until the first estimate, then two outages."""
    (port,) = free_ports(1)
    folder.mkdir()
    topic = f"kafka://{broker.address}/samples?create=4"
    producer = [sys.executable, str(ROOT / "docker" / "producer.py"), topic]
    subprocess.run([*producer, "--topic-only"], check=True)
    environment = {**os.environ, "MEANSTREAM_SECRET": "7c1e94b05fa3d2681be60c9d37f25a84"}
    engine = readme_command(broker.address, folder / "state.db", port)

    with (folder / "log").open("w") as log:
        running = [
            subprocess.Popen(producer),
            subprocess.Popen(engine, env=environment, stderr=log),
        ]

        try:
            came, _ = first(broker.address, "samples")
            _, seen = first(broker.address, "estimates")
            until(port, 200)
            killed = outage(port, broker.kill, broker.start)
            paused = outage(port, broker.pause, broker.resume)
        finally:
            for process in running:
                process.terminate()
            for process in running:
                process.wait(60)

    return {
        "first_estimate": seen - came,
        "killed_seen": killed[0],
        "killed_seen_again": killed[1],
        "stopped_seen": paused[0],
        "stopped_seen_again": paused[1],
    }


def outage(port: int, away: Callable[[], Any], back: Callable[[], Any]) -> tuple[float, float]:
    """Take a broker away, and bring it back."""
    began = time.monotonic()
    away()
    seen = until(port, 503, began)
    back()

    return seen, until(port, 200)


def main() -> None:
    """Measure several first days, each on a broker of its own, and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=3)
    options = parser.parse_args()
    days = []
    for _ in range(options.runs):
        with temporary_broker() as broker:
            days.append(one_day(broker, broker.folder.parent / "engine"))

    median = {name: round(float(np.median([day[name] for day in days])), 1) for name in days[0]}
    most = {f"{name}_max": round(max(day[name] for day in days), 1) for name in days[0]}
    print(json.dumps({"runs": options.runs, **median, **most}, indent=2))


if __name__ == "__main__":
    main()

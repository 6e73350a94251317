"""From a sample on a Kafka topic to the estimate that includes it.

Median and 99th percentile at a steady rate.

Prints one JSON object. Run from the repository after `make servers`:
`python benchmarks/latency.py --rate 10000 --seconds 30`. The engine is the command, with estimates
at every commit into a Kafka topic; latency is the clock time between producing an agent's n-th
sample and reading, with committed isolation, the first estimate of that agent which says that it
includes n samples. It holds the engine's lateness of event time, which is 0 here.
"""

from __future__ import annotations

import argparse
import json
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from threading import Event, Thread
from typing import Any
from urllib.request import urlopen

import numpy as np
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.servers.support.broker import free_ports, temporary_broker

TICK = 0.005
WARM_SECONDS = 5.0
READY_SECONDS = 60.0


def produce(address: str, rate: int, seconds: float, agents: int) -> np.ndarray:
    """Produce at a steady rate, the agents in turn; return when each sample was produced."""
    producer = Producer({"bootstrap.servers": address, "linger.ms": 5})
    produced = np.zeros(int(rate * seconds))
    began = time.time()
    sent = 0

    while sent < len(produced):
        due = min(int((time.time() - began) * rate), len(produced))
        for i in range(sent, due):
            now = produced[i] = time.time()
            producer.produce(
                "samples",
                f'{{"agent":"a{i % agents}","value":0.5,"time":{now}}}',
                key=f"a{i % agents}",
            )

        sent = due
        producer.poll(0)
        time.sleep(TICK)

    producer.flush()
    return produced


def watch(address: str, done: Event, arrivals: list[tuple[int, int, float]]) -> None:
    """Note when each estimate was read: agent, samples that it includes, time."""
    consumer = Consumer(
        {
            "bootstrap.servers": address,
            "group.id": "watcher",
            "isolation.level": "read_committed",
            "fetch.wait.max.ms": 5,
        }
    )
    consumer.assign([TopicPartition("estimates", 0, 0)])

    while not done.is_set():
        messages = consumer.consume(1000, 0.02)
        now = time.time()
        for message in messages:
            if message.error() is None:
                estimate = json.loads(message.value())
                arrivals.append((int(estimate["agent"][1:]), estimate["n"], now))

    consumer.close()


def wait_until_ready(port: int) -> None:
    """Wait for the engine, whose start is no part of a latency."""
    end = time.monotonic() + READY_SECONDS
    while time.monotonic() < end:
        with suppress(OSError), urlopen(f"http://127.0.0.1:{port}/readyz", timeout=5):
            return
        time.sleep(0.1)

    sys.exit(f"the engine was not ready in {READY_SECONDS:g} s")


def latencies(
    produced: np.ndarray, arrivals: list[tuple[int, int, float]], agents: int
) -> np.ndarray:
    """Seconds from each sample to the first estimate of its agent that includes it.

    Samples of the warm-up apart.
    """
    waits = []
    for agent in range(agents):
        times = produced[agent::agents]
        seen = sorted((when, n) for a, n, when in arrivals if a == agent)
        reached = np.maximum.accumulate([n for _, n in seen])
        first = np.searchsorted(reached, np.arange(1, len(times) + 1))
        known = first < len(seen)
        waits.append(np.array([when for when, _ in seen])[first[known]] - times[known])
        waits[-1] = waits[-1][times[known] > produced[0] + WARM_SECONDS]

    return np.concatenate(waits)


def measure(address: str, folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    """Run the engine on a live stream; give percentiles."""
    admin = AdminClient({"bootstrap.servers": address})
    for future in admin.create_topics(
        [NewTopic("samples", 4, 1), NewTopic("estimates", 1, 1)]
    ).values():
        future.result(30)

    command = [
        sys.executable,
        "-m",
        "meanstream.pipelines.commands.main",
        "run",
        "agents",
        "--quiet",
    ]
    command += ["--source", f"kafka://{address}/samples", "--sink", f"kafka://{address}/estimates"]

    command += [
        "--releases",
        f"kafka://{address}/releases?create=4",
        "--store",
        str(folder / "state.db"),
    ]
    command += ["--lower", "0", "--upper", "1", "--epsilon", "1", "--delta", "1e-6"]
    (port,) = free_ports(1)
    command += ["--lateness", "0s", "--refresh", "0s", "--metrics", f"127.0.0.1:{port}"]

    arrivals: list[tuple[int, int, float]] = []
    done = Event()
    watcher = Thread(target=watch, args=(address, done, arrivals))
    process = subprocess.Popen(command)
    watcher.start()

    try:
        wait_until_ready(port)
        produced = produce(address, options.rate, options.seconds, options.agents)
        time.sleep(3.0)
        process.send_signal(signal.SIGTERM)
        process.wait(60)
    finally:
        process.kill()
        done.set()
        watcher.join()

    waits = latencies(produced, arrivals, options.agents)
    if not len(waits):
        sys.exit(f"no estimate came in {options.seconds:g} s: give more --seconds")
    return {
        "rate": options.rate,
        "seconds": options.seconds,
        "agents": options.agents,
        "samples_with_an_estimate": len(waits),
        "latency_p50": round(float(np.quantile(waits, 0.5)), 3),
        "latency_p99": round(float(np.quantile(waits, 0.99)), 3),
        "latency_max": round(float(waits.max()), 3),
    }


def main() -> None:
    """Start a broker, measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rate", type=int, default=10_000, help="samples per second")
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--agents", type=int, default=100)
    options = parser.parse_args()
    with temporary_broker() as broker:
        print(json.dumps(measure(broker.address, broker.folder.parent, options), indent=2))


if __name__ == "__main__":
    main()

"""Price of an event on a steady stream, next to that of a backlog and to a bare loop on the same stream.

    OMP_NUM_THREADS=1 python benchmarks/speed/speed_of_stream.py --rate 10000 --seconds 60

The engine and a bare loop (`peer_programs.BARE_LOOP`'s decoder, which keeps a mean for each key)
read one live topic at the same time; then the engine reads the same records again, as a backlog.
Prints processor microseconds per event of each, all threads, and how far answers are behind the
clock. Ends with code 1 where a goal is missed. Needs `make servers`.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from datetime import datetime
from pathlib import Path
from threading import Event, Thread
from typing import NamedTuple
from urllib.request import urlopen

import numpy as np
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from benchmarks.latency import wait_until_ready
from benchmarks.peers import BOUNDS, seconds
from tests.servers.support.broker import free_ports, temporary_broker

AGENTS = 4_000
LATENESS = 10.0
WARM_SECONDS = 15.0
GOAL_MICROSECONDS = 6.0
GOAL_BEHIND = 1.0

PRODUCER = """
import sys, time, random
from confluent_kafka import Producer
address, rate, agents = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
producer = Producer({"bootstrap.servers": address, "linger.ms": 5, "queue.buffering.max.messages": 1_000_000})
began, sent = time.time(), 0
while True:
    for i in range(sent, sent := int((time.time() - began) * rate)):
        agent = f"a{random.randrange(agents)}"
        line = f'{{"agent":"{agent}","value":{random.random():.3f},"time":{time.time():.3f},"id":"{i:x}"}}'
        producer.produce("samples", line, key=agent)
    producer.poll(0)
    time.sleep(0.005)
"""

LIVE_LOOP = """
import sys
import msgspec
from confluent_kafka import Consumer, TopicPartition
class Sample(msgspec.Struct):
    agent: str
    value: float
    time: float
    id: str
decode, sums, seen = msgspec.json.Decoder(Sample).decode, {}, set()
consumer = Consumer({"bootstrap.servers": sys.argv[1], "group.id": "bare", "fetch.queue.backoff.ms": 10})
consumer.assign([TopicPartition("samples", partition, 0) for partition in range(4)])
while True:
    for message in consumer.consume(500, 1.0):
        sample = decode(message.value())
        if sample.id in seen:
            continue
        seen.add(sample.id)
        n, total = sums.get(sample.agent, (0, 0.0))
        sums[sample.agent] = n + 1, total + sample.value
"""


class Price(NamedTuple):
    """Processor seconds and records of a program at one moment."""

    processor: float
    events: int


def main() -> None:
    """Measure, print, judge."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rate", type=int, default=10_000)
    parser.add_argument("--seconds", type=float, default=60.0)
    options = parser.parse_args()

    with temporary_broker() as broker, tempfile.TemporaryDirectory() as folder:
        admin = AdminClient({"bootstrap.servers": broker.address})
        topics = [NewTopic(name, 4, 1) for name in ("samples", "answers", "releases")]
        for made in admin.create_topics(topics).values():
            made.result(30)

        live, bare, behind = _measure_stream(broker.address, Path(folder), options)
        backlog = _measure_backlog(broker.address, Path(folder))

    p50, p99 = np.percentile(behind, [50, 99])
    print("| program | us per event |\n|---|---|")
    print(f"| engine, {options.rate:,} events/s | {live:.2f} |")
    print(f"| bare loop, the same stream | {bare:.2f} |")
    print(f"| engine, the same records as a backlog | {backlog:.2f} |")
    print(f"\nsteady / backlog {live / backlog:.2f}, steady / bare loop {live / bare:.2f}")
    print(f"answers behind the clock: p50 {p50:.2f} s, p99 {p99:.2f} s, {len(behind)} answers")
    sys.exit(int(live > GOAL_MICROSECONDS or p99 > LATENESS + GOAL_BEHIND))


def _engine(source: str, folder: Path, name: str, more: list[str]) -> list[str]:
    command = [sys.executable, "-m", "meanstream.pipelines.commands.main", "run", "agents"]
    bounds = [option for option in BOUNDS if option != "--until-end"]
    place = ["--source", source, "--id", "id", "--name", name]
    return [*command, *place, *bounds, "--store", str(folder / f"{name}.db"), *more]


def _measure_stream(
    address: str, folder: Path, options: argparse.Namespace
) -> tuple[float, float, list[float]]:
    """Processor microseconds per event of the engine and of the loop, and how far answers are behind."""
    (port,) = free_ports(1)
    sinks = ["--sink", f"kafka://{address}/answers", "--releases", f"kafka://{address}/releases"]
    source = f"kafka://{address}/samples?group=live"
    command = _engine(source, folder, "live", [*sinks, "--metrics", f"127.0.0.1:{port}"])
    producer = [sys.executable, "-c", PRODUCER, address, str(options.rate), str(AGENTS)]
    done = Event()
    behind: list[float] = []

    with (
        subprocess.Popen(command) as engine,
        subprocess.Popen([sys.executable, "-c", LIVE_LOOP, address]) as bare,
    ):
        wait_until_ready(port)
        with subprocess.Popen(producer) as producing:
            time.sleep(WARM_SECONDS)
            watching = Thread(target=_watch, args=(address, done, behind))
            watching.start()
            before = _price(engine, port), _price(bare, port)
            time.sleep(options.seconds)
            after = _price(engine, port), _price(bare, port)
            done.set()
            watching.join()
            producing.kill()

        bare.kill()
        engine.send_signal(signal.SIGTERM)

    events = after[0].events - before[0].events
    return (
        (after[0].processor - before[0].processor) / events * 1e6,
        (after[1].processor - before[1].processor) / events * 1e6,
        behind,
    )


def _price(process: subprocess.Popen[bytes], port: int) -> Price:
    """Processor seconds that a process has taken, and records that the engine has."""
    with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        lines = answer.read().decode().splitlines()

    line = next(line for line in lines if line.startswith("meanstream_events_total"))
    words = Path(f"/proc/{process.pid}/stat").read_text(encoding="utf-8").rsplit(")", 1)[1].split()
    ticks = int(words[11]) + int(words[12])
    return Price(ticks / os.sysconf("SC_CLK_TCK"), int(float(line.split()[-1])))


def _watch(address: str, done: Event, behind: list[float]) -> None:
    """Note how far the event time of new answers is behind the clock."""
    consumer = Consumer(
        {
            "bootstrap.servers": address,
            "group.id": "watcher",
            "isolation.level": "read_committed",
            "fetch.wait.max.ms": 10,
        }
    )
    ends = [TopicPartition("answers", partition, -1) for partition in range(4)]
    consumer.assign(ends)

    while not done.is_set():
        messages = consumer.consume(5_000, 0.05)
        now = time.time()
        for message in messages:
            if message.error() is None:
                answered = datetime.fromisoformat(json.loads(message.value())["time"])
                behind.append(now - answered.timestamp())

    consumer.close()


def _measure_backlog(address: str, folder: Path) -> float:
    """Processor microseconds per event, net of the start, of the same topic read to its end."""
    consumer = Consumer({"bootstrap.servers": address, "group.id": "count"})
    parts = [TopicPartition("samples", partition) for partition in range(4)]
    events = sum(consumer.get_watermark_offsets(part, timeout=10)[1] for part in parts)
    consumer.close()

    admin = AdminClient({"bootstrap.servers": address})
    admin.create_topics([NewTopic("none", 4, 1)])["none"].result(30)
    took = []
    for topic in ("none", "samples"):
        name = f"backlog-{topic}"
        sinks = ["--sink", str(folder / f"{name}.jsonl"), "--until-end"]
        source = f"kafka://{address}/{topic}?group={name}"
        took.append(seconds(_engine(source, folder, name, sinks)))

    return (took[1] - took[0]) / events * 1e6


if __name__ == "__main__":
    main()

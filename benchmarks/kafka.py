"""Speed of the engine on a Kafka topic, against a bare loop over it and against quixstreams with one mean per key.

Prints one JSON object. Run from the repository after `make servers`: `python benchmarks/kafka.py --events 1000000`.
Each contender is a process of its own, on the same topic and the same broker, in turn; the figures are
events per processor second (of all its threads), the best of the repetitions. quixstreams gets a virtual environment of
its own (`--quixstreams FOLDER`, made there once); without it that comparison is left out.
"""

from __future__ import annotations

import argparse
import importlib
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from meanstream.pipelines.commands.run.run_agents import run_agents_engine
from meanstream.pipelines.options.agents_options import AgentsOptions
from meanstream.streaming.events.times import iso_times
from tests.servers.support.broker import temporary_broker

TOPIC = "samples"
PARTITIONS = 4
LATE_IMPORTS = (
    "meanstream.streaming.agents.agents_engine",
    "meanstream.streaming.kafka.reading.kafka_source",
    "meanstream.streaming.open_source",
    "meanstream.streaming.store.store_deployment",
)
"""Imported where they are used, which takes a second: before the clock starts."""


def produce(address: str, events: int, agents: int) -> None:
    """Write samples of 118 bytes, keyed by agent, in event-time order."""
    admin = AdminClient({"bootstrap.servers": address})
    admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)])[TOPIC].result(30)
    producer = Producer({"bootstrap.servers": address, "linger.ms": 20, "queue.buffering.max.messages": 1_000_000})
    rng = np.random.default_rng(7)
    rows = zip(
        rng.integers(0, agents, events).tolist(),
        rng.uniform(0, 1, events).round(3).tolist(),
        iso_times(1.7e9 + np.arange(events) // 100),
        strict=True,
    )
    for i, (agent, value, when) in enumerate(rows):
        line = f'{{"schema_version":1,"id":"{i:032x}","agent":"a{agent}","time":"{when}","value":{value}}}'
        producer.produce(TOPIC, line, key=f"a{agent}")
        if i % 10_000 == 0:
            producer.poll(0)
    producer.flush()


class Sample(msgspec.Struct):
    """A sample as the bare loop decodes it."""

    agent: str
    value: float
    time: str
    id: str


def bare_loop(address: str, events: int) -> None:
    """Consume and decode every event, and do nothing with it."""
    decode = msgspec.json.Decoder(Sample).decode
    consumer = Consumer({"bootstrap.servers": address, "group.id": "bare", "fetch.queue.backoff.ms": 10})
    consumer.assign([TopicPartition(TOPIC, partition, 0) for partition in range(PARTITIONS)])
    left = events
    while left:
        messages = consumer.consume(1000, 1.0)
        for message in messages:
            decode(message.value())
        left -= len(messages)


def engine(address: str, events: int, *, ids: bool = False) -> None:
    """Run the whole engine: decoding, sums, ledger, store; releases to a file; estimates at the end."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        stats = run_agents_engine(
            AgentsOptions(
                source=f"kafka://{address}/{TOPIC}?group={place.name}",
                id="id" if ids else None,
                until_end=True,
                lower=0,
                upper=1,
                epsilon=1,
                delta=1e-6,
                store=place / "state.db",
                sink=str(place / "estimates.jsonl"),
                releases=str(place / "releases.jsonl"),
                quiet=True,
            )
        )
    if stats.accepted != events:
        raise RuntimeError(f"events must all be accepted, got {stats.accepted} of {events}")


def engine_with_ids(address: str, events: int) -> None:
    """Run the same engine, which also drops duplicates by their ids."""
    engine(address, events, ids=True)


QUIX = """
import resource, sys
from quixstreams import Application
address, events = sys.argv[1], int(sys.argv[2])
app = Application(broker_address=address, consumer_group="quix", auto_offset_reset="earliest", state_dir=sys.argv[3],
                  loglevel="ERROR", consumer_extra_config={"fetch.queue.backoff.ms": 10})
def mean(row, state):
    n, m = state.get("mean", default=(0, 0.0))
    n += 1
    state.set("mean", (n, m + (row["value"] - m) / n))
stream = app.dataframe(app.topic("samples", value_deserializer="json"))
stream.update(mean, stateful=True)
app.run(count=events, timeout=60)
use = resource.getrusage(resource.RUSAGE_SELF)
print(use.ru_utime + use.ru_stime)
"""


def quixstreams(address: str, events: int, folder: Path) -> float:
    """Keep one running mean per key in its state, as its documentation shows; return its processor seconds."""
    python = folder / "bin" / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
        subprocess.run([str(python), "-m", "pip", "install", "-q", "quixstreams==3.28.1"], check=True)
    with tempfile.TemporaryDirectory() as state:
        ran = subprocess.run(
            [str(python), "-c", QUIX, address, str(events), state], check=True, capture_output=True, text=True
        )
    return float(ran.stdout.split()[-1])


CONTENDERS: dict[str, Callable[[str, int], None]] = {
    "bare_loop": bare_loop,
    "engine": engine,
    "engine_with_ids": engine_with_ids,
}


def run_alone(name: str, address: str, events: int) -> None:
    """Run one contender in this process; print its processor seconds, without imports and connections."""
    for module in LATE_IMPORTS:
        importlib.import_module(module)
    before, began = time.process_time(), time.perf_counter()
    CONTENDERS[name](address, events)
    used, took = time.process_time() - before, time.perf_counter() - began
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(json.dumps({"processor": used, "wall": took, "peak_megabytes": peak / 1024}))


def measure(address: str, options: argparse.Namespace) -> dict[str, Any]:
    """Run every contender several times; give its best figures."""
    result: dict[str, Any] = {"events": options.events, "agents": options.agents}
    rates: dict[str, float] = {}
    by_name: dict[str, list[dict[str, float]]] = {name: [] for name in CONTENDERS}
    for name in [*CONTENDERS] * options.repeat:  # in turn: a busy spell of the machine is for all of them
        command = [sys.executable, __file__, "--alone", name, "--address", address, "--events", str(options.events)]
        by_name[name].append(json.loads(subprocess.run(command, check=True, capture_output=True).stdout))
    for name, runs in by_name.items():
        rates[name] = options.events / min(run["processor"] for run in runs)
        result[name] = {
            "events_per_processor_second": round(rates[name]),
            "events_per_second": round(options.events / min(run["wall"] for run in runs)),
            "peak_megabytes": round(max(run["peak_megabytes"] for run in runs)),
        }
    if options.quixstreams is not None:
        rates["quixstreams"] = options.events / quixstreams(address, options.events, options.quixstreams)
        result["quixstreams"] = {"events_per_processor_second": round(rates["quixstreams"])}
    for name in ("engine", "engine_with_ids"):
        result[f"{name}_to"] = {o: round(rates[name] / rates[o], 2) for o in rates if not o.startswith("engine")}
    return result


def main() -> None:
    """Start a broker, fill a topic, measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--agents", type=int, default=100)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--quixstreams", type=Path, help="folder of its virtual environment")
    parser.add_argument("--alone", choices=CONTENDERS, help=argparse.SUPPRESS)
    parser.add_argument("--address", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.alone:
        run_alone(options.alone, options.address, options.events)
        return
    with temporary_broker() as broker:
        produce(broker.address, options.events, options.agents)
        print(json.dumps(measure(broker.address, options), indent=2))


if __name__ == "__main__":
    main()

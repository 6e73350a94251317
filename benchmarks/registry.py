"""Speed of the engine on Avro and JSON Schema by a Schema Registry, relative to raw JSON, in one run.

Prints one JSON object. Run from the repository after `make servers`:
`python benchmarks/registry.py --events 500000`. The same samples are in three topics of one broker;
the contenders take turns, each in a process of its own; the figures are events per processor second
(of all its threads), the best of the repetitions.
"""

from __future__ import annotations

import argparse
import io
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import fastavro
import numpy as np
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from meanstream.pipelines.commands.run.run_agents import run_agents_engine
from meanstream.pipelines.options.agents_options import AgentsOptions
from meanstream.streaming.events.times import iso_times
from meanstream.streaming.kafka.connection.registered import wire_head
from tests.servers.support.apicurio import register, running_registry
from tests.servers.support.broker import temporary_broker

PARTITIONS = 4
SCHEMA = {
    "type": "record",
    "name": "Sample",
    "fields": [
        {"name": "schema_version", "type": "int"},
        {"name": "id", "type": "string"},
        {"name": "agent", "type": "string"},
        {"name": "time", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {"name": "value", "type": ["null", "double"]},
    ],
}
TOPICS = ("json", "avro", "json_schema")


def produce(address: str, registry: str, events: int, agents: int) -> None:
    """Write the same samples to each topic, keyed by agent, in event-time order."""
    admin = AdminClient({"bootstrap.servers": address})
    for made in admin.create_topics([NewTopic(topic, PARTITIONS, 1) for topic in TOPICS]).values():
        made.result(30)
    loose = {"$schema": "http://json-schema.org/draft-07/schema#", "type": "object"}
    avro = wire_head(register(registry, "avro-value", SCHEMA))
    text = wire_head(register(registry, "json_schema-value", loose, "JSON"))
    producer = Producer(
        {"bootstrap.servers": address, "linger.ms": 20, "queue.buffering.max.messages": 2_000_000}
    )

    rng = np.random.default_rng(7)
    parsed = fastavro.parse_schema(SCHEMA)
    seconds = 1.7e9 + np.arange(events) // 100
    rows = zip(
        rng.integers(0, agents, events).tolist(),
        rng.uniform(0, 1, events).round(3).tolist(),
        seconds.tolist(),
        iso_times(seconds),
        strict=True,
    )

    for i, (agent, value, second, when) in enumerate(rows):
        record = {
            "schema_version": 1,
            "id": f"{i:032x}",
            "agent": f"a{agent}",
            "time": when,
            "value": value,
        }
        line = json.dumps(record, separators=(",", ":")).encode()
        out = io.BytesIO()

        fastavro.schemaless_writer(out, parsed, {**record, "time": round(second * 1e6)})
        for topic, sent in zip(TOPICS, (line, avro + out.getvalue(), text + line), strict=True):
            producer.produce(topic, sent, key=f"a{agent}")
        if i % 5_000 == 0:
            producer.poll(0)

    producer.flush()


def run_alone(topic: str, address: str, registry: str, events: int) -> None:
    """Run the whole engine on a topic; print its processor seconds."""
    options = "" if topic == "json" else f"&registry={registry}"
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        before = time.process_time()
        stats = run_agents_engine(
            AgentsOptions(
                source=f"kafka://{address}/{topic}?group={place.name}{options}",
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

        used = time.process_time() - before

    if stats.accepted != events:
        raise RuntimeError(f"events must all be accepted, got {stats.accepted} of {events}")
    print(json.dumps({"processor": used}))


def measure(address: str, registry: str, options: argparse.Namespace) -> dict[str, Any]:
    """Let the contenders take turns; give their best figures."""
    seconds: dict[str, list[float]] = {topic: [] for topic in TOPICS}
    for _ in range(options.repeat):
        for topic in TOPICS:
            command = [
                sys.executable,
                __file__,
                "--alone",
                topic,
                "--address",
                address,
                "--registry",
                registry,
            ]

            command += ["--events", str(options.events)]
            ran = subprocess.run(command, check=True, capture_output=True)
            seconds[topic].append(json.loads(ran.stdout)["processor"])

    rates = {topic: options.events / min(several) for topic, several in seconds.items()}
    return {
        "events": options.events,
        "events_per_processor_second": {topic: round(rate) for topic, rate in rates.items()},
        "to_raw_json": {topic: round(rate / rates["json"], 2) for topic, rate in rates.items()},
    }


def main() -> None:
    """Start a broker and a registry, fill the topics, measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=500_000)
    parser.add_argument("--agents", type=int, default=100)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--alone", choices=TOPICS, help=argparse.SUPPRESS)
    parser.add_argument("--address", help=argparse.SUPPRESS)
    parser.add_argument("--registry", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.alone:
        run_alone(options.alone, options.address, options.registry, options.events)
        return

    with (
        tempfile.TemporaryDirectory() as folder,
        running_registry(Path(folder) / "log") as registry,
        temporary_broker() as broker,
    ):
        produce(broker.address, registry, options.events, options.agents)
        print(json.dumps(measure(broker.address, registry, options), indent=2))


if __name__ == "__main__":
    main()

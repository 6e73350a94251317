"""How soon an engine on Kafka delivers again after `kill -9`.

From the start of the process, on a live stream.

Prints one JSON object. Run from the repository after `make servers`:
`python benchmarks/recovery.py --kills 30`. The engine is the command, killed at random times while
it works; `resumed` is when it has its state back, `delivered` when somebody who reads committed
records has the first new one. What was in an open transaction has to be taken back first. The first
engine, which is not counted, leaves the bytecode of all modules, as an installation does.
`processor` is how long the engine had a processor until it had resumed: what a machine needs that
does nothing else.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event, Thread
from typing import Any

import numpy as np
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.servers.support.broker import temporary_broker

OUTPUTS = ("releases", "estimates", "dead-letters")
BAD_EVERY = 100
"""One record of so many cannot be read: there is something to deliver at every turn."""
LIFE_SECONDS = (0.5, 2.0)
"""After its first delivery an engine lives for so long."""
SILENT_SECONDS = 0.5
WAIT_SECONDS = 120.0


def produce(address: str, rate: int, agents: int) -> None:
    """Produce at a steady rate, without end."""
    producer = Producer(
        {
            "bootstrap.servers": address,
            "linger.ms": 5,
            "log_level": 2,
            "queue.buffering.max.messages": 10_000_000,
        }
    )
    rng = np.random.default_rng(3)

    began = time.time()
    sent = 0
    while True:
        due = int((time.time() - began) * rate)
        for number in rng.integers(0, agents, due - sent).tolist():
            sent += 1
            value = (
                f'{{"agent":"a{number}","value":0.5,"time":{time.time()}}}'
                if sent % BAD_EVERY
                else "{"
            )
            producer.produce("samples", value, key=f"a{number}")

        producer.poll(0)
        time.sleep(0.005)


@dataclass
class Watcher:
    """Reads committed records of the outputs, and notes when the last one came."""

    address: str
    count: int = 0
    last: float = 0.0
    done: Event = field(default_factory=Event)

    def run(self) -> None:
        """Read until it is done."""
        settings = {
            "bootstrap.servers": self.address,
            "group.id": "watcher",
            "isolation.level": "read_committed",
        }
        consumer = Consumer({**settings, "fetch.wait.max.ms": 5})
        consumer.assign([TopicPartition(topic, 0, 0) for topic in OUTPUTS])

        while not self.done.is_set():
            messages = consumer.consume(1000, 0.005)
            if messages:
                self.last = time.monotonic()
                self.count += sum(message.error() is None for message in messages)

        consumer.close()

    def wait_for_more(self) -> float:
        """Give the time at which the next record came."""
        before = self.count
        end = time.monotonic() + WAIT_SECONDS
        while self.count == before:
            if time.monotonic() > end:
                sys.exit("nothing was delivered in time")
            time.sleep(0.001)

        return self.last

    def wait_for_silence(self) -> None:
        """Wait until all that was committed has come."""
        while time.monotonic() - self.last < SILENT_SECONDS:
            time.sleep(0.01)


def command(address: str, store: Path) -> list[str]:
    """Give the command of the engine."""
    places = {"--sink": "estimates", "--releases": "releases", "--dead-letters": "dead-letters"}
    typed = [
        sys.executable,
        "-m",
        "meanstream.pipelines.commands.main",
        "run",
        "agents",
        "--log-format",
        "json",
    ]

    typed += [
        "--source",
        f"kafka://{address}/samples",
        "--store",
        str(store),
        "--lateness",
        "1s",
        "--refresh",
        "10s",
    ]

    typed += ["--lower", "0", "--upper", "1", "--epsilon", "1", "--delta", "1e-6"]
    return typed + [
        word for option, topic in places.items() for word in (option, f"kafka://{address}/{topic}")
    ]


def installed(bytecode: Path) -> dict[str, str]:
    """Give an environment in which modules are compiled once, as they are where pip or an image has installed them."""
    given = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return given | {"PYTHONPYCACHEPREFIX": str(bytecode)}


def processor_seconds(pid: int) -> float:
    """Tell how long a process has had a processor."""
    user, system = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


def live(address: str, store: Path, watcher: Watcher, seconds: float) -> tuple[float, float, float]:
    """Start an engine and kill it so long after its first delivery.

    Seconds until it had resumed and delivered, and of the processor until it had resumed.
    """
    watcher.wait_for_silence()
    began = time.monotonic()
    process = subprocess.Popen(
        command(address, store),
        stderr=subprocess.PIPE,
        text=True,
        env=installed(store.with_name("bytecode")),
    )
    assert process.stderr is not None  # noqa: S101 - for the type checker

    resumed: list[float] = []

    def listen() -> None:
        for line in process.stderr or ():
            if json.loads(line)["event"] in ("started", "resumed"):
                resumed.extend((time.monotonic(), processor_seconds(process.pid)))

    listener = Thread(target=listen)
    listener.start()
    try:
        delivered = watcher.wait_for_more()
        time.sleep(seconds)
    finally:
        process.kill()
        process.wait()
        listener.join()

    return resumed[0] - began, delivered - began, resumed[1]


def measure(address: str, folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    """Kill so often; give percentiles."""
    admin = AdminClient({"bootstrap.servers": address})
    topics = [NewTopic("samples", 4, 1), *(NewTopic(topic, 1, 1) for topic in OUTPUTS)]
    for made in admin.create_topics(topics).values():
        made.result(30)
    producing = multiprocessing.get_context("spawn").Process(
        target=produce, args=(address, options.rate, options.agents), daemon=True
    )
    producing.start()
    watcher = Watcher(address)

    watching = Thread(target=watcher.run)
    watching.start()
    rng = np.random.default_rng(options.seed)

    try:
        live(
            address, folder / "state.db", watcher, options.warm_seconds
        )  # everybody is known, nothing to resume from
        spans = [
            live(address, folder / "state.db", watcher, rng.uniform(*LIFE_SECONDS))
            for _ in range(options.kills)
        ]
    finally:
        producing.kill()
        watcher.done.set()
        watching.join()

    resumed, delivered, processor = np.array(spans).T
    return {
        "kills": options.kills,
        "rate": options.rate,
        "agents": options.agents,
        "store_mib": round((folder / "state.db").stat().st_size / 2**20, 1),
        "processor_p50": round(float(np.median(processor)), 2),
        **{
            f"resumed_{name}": round(float(of(resumed)), 2)
            for name, of in (("p50", np.median), ("max", np.max))
        },
        **{
            f"delivered_{name}": round(float(of(delivered)), 2)
            for name, of in (("p50", np.median), ("max", np.max))
        },
    }


def main() -> None:
    """Start a broker, measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kills", type=int, default=30)
    parser.add_argument("--rate", type=int, default=10_000, help="samples per second")
    parser.add_argument("--agents", type=int, default=10_000)
    parser.add_argument("--warm-seconds", type=float, default=20.0, help="life of the first engine")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()

    with temporary_broker() as broker:
        print(json.dumps(measure(broker.address, broker.folder.parent, options), indent=2))


if __name__ == "__main__":
    main()

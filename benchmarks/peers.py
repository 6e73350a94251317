"""Speed of the engine beside Pathway, Bytewax, quixstreams and a bare loop on one Kafka topic, and beside bare reads.

    OMP_NUM_THREADS=1 python benchmarks/peers.py

Each contender is a process of its own. Its processor seconds (all threads), less those of the same
process on one event, are measured in turn in one run; the best of `--repeat` counts. Each keeps a
mean for each key. Only the engine keeps a ledger and a store, adds noise, gives estimates with
intervals, and drops duplicate ids (as does the bare loop). The bare loop writes each key's mean to a topic, as
the engine does. Prints the tables of the docs, and ends
with code 1 where a goal is missed. Needs `make servers`. The peers are not dependencies of this
project: each needs a virtual environment in `--environments`; the commands that make a missing one
are printed. `--small` runs a twentieth of the events, mostly to see whether all programs run: it
judges no goal.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from pyarrow import csv, parquet

from benchmarks.goals.peer_programs import BARE_LOOP, PEERS, READS
from benchmarks.speed.speed_of_engine import write_events
from meanstream.streaming.events.times import iso_times
from tests.servers.support.broker import temporary_broker

PARTITIONS = 4
MANY = 200_000
BOUNDS = [
    "--lower",
    "0",
    "--upper",
    "1",
    "--epsilon",
    "1",
    "--delta",
    "1e-6",
    "--until-end",
    "--quiet",
]
PROGRAM = "from meanstream.pipelines.commands.program import main; main()"
WITHOUT_C = "import sys; sys.modules['meanstream.streaming.sources.compiled_records'] = None; "
"""Before it: the engine as it is installed where there is no compiler."""
SLOW_SHARE = 10
"""quixstreams reads one of so many events: it takes some 50 microseconds for each."""


class Shape(NamedTuple):
    """A topic, and what the engine must reach on it.

    Times the bare loop (None: no goal), times Pathway.
    """

    events: int
    agents: int
    ids: bool
    bare: float | None
    pathway: float


SHAPES = (
    Shape(1_000_000, 4_000, ids=False, bare=0.8, pathway=2.5),
    Shape(300_000, 40_000, ids=False, bare=0.8, pathway=1.5),
    Shape(1_000_000, 100, ids=True, bare=None, pathway=1.0),
)


class Goals:
    """The table's rows of goals; `missed` of them."""

    def __init__(self) -> None:
        self.rows: list[str] = []
        self.missed = 0

    def judge(self, what: str, value: float, goal: float, *, most: bool = False) -> None:
        """Note a figure that must reach a goal, or stay below it."""
        missed = value > goal if most else value < goal
        self.missed += missed
        word = "at most" if most else "at least"
        self.rows.append(f"| {what} | {value:.3g} | {word} {goal:g}{', missed' * missed} |")


def main() -> None:
    """Measure, print, judge."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--environments", type=Path, default=Path.home() / ".cache" / "meanstream-peers"
    )
    parser.add_argument("--repeat", type=int, default=2)
    parser.add_argument("--small", action="store_true")
    options = parser.parse_args()

    share = 20 if options.small else 1
    goals = Goals()
    peers = [name for name in PEERS if _installed(options.environments, name)]

    with temporary_broker() as broker, tempfile.TemporaryDirectory() as folder:
        print(
            "| events, keys | "
            + " | ".join(["engine", "engine without C", "bare loop", *peers])
            + " |"
        )
        print("|---" * (4 + len(peers)) + "|")
        topics = Topics(broker.address, peers, options.environments, options.repeat, Path(folder))

        for number, shape in enumerate(SHAPES):
            small = shape._replace(events=shape.events // share)
            _topic(broker.address, f"one{number}", small._replace(events=1))
            _topic(broker.address, f"all{number}", small)
            topics.measure(number, small, goals)

        print("\nMillions of events per processor second, net of a run on one event.\n")
        print("| file | engine | bare read |\n|---|---|---|")
        _measure_files(Path(folder), share, options.repeat, goals)

    print("\n| figure | measured | goal |\n|---|---|---|\n" + "\n".join(goals.rows))
    sys.exit(1 if goals.missed and not options.small else 0)


def _installed(environments: Path, name: str) -> bool:
    place = environments / name.lower()
    if (place / "bin" / "python").exists():
        return True
    packages = PEERS[name][0]
    print(
        f"left out {name}: uv venv {place} && uv pip install -p {place}/bin/python {packages}",
        file=sys.stderr,
    )

    return False


def _topic(address: str, topic: str, shape: Shape) -> None:
    """Write samples of 118 bytes, keyed by agent, in event-time order."""
    admin = AdminClient({"bootstrap.servers": address})
    admin.create_topics([NewTopic(topic, PARTITIONS, 1)])[topic].result(30)
    producer = Producer(
        {"bootstrap.servers": address, "linger.ms": 20, "queue.buffering.max.messages": 1_000_000}
    )
    rng = np.random.default_rng(7)
    rows = zip(
        rng.integers(0, shape.agents, shape.events).tolist(),
        rng.uniform(0, 1, shape.events).round(3).tolist(),
        iso_times(1.7e9 + np.arange(shape.events) // 100),
        strict=True,
    )

    for i, (agent, value, when) in enumerate(rows):
        line = f'{{"schema_version":1,"id":"{i:032x}","agent":"a{agent}","time":"{when}","value":{value}}}'
        producer.produce(topic, line, key=f"a{agent}")
        if i % 10_000 == 0:
            producer.poll(0)

    producer.flush()


class Topics(NamedTuple):
    """What measures topics.

    Where they are, who reads them besides the engine, how often, and where outputs go.
    """

    address: str
    peers: list[str]
    environments: Path
    repeat: int
    folder: Path

    def measure(self, number: int, shape: Shape, goals: Goals) -> None:
        """Print the row of a topic, in millions of events per processor second."""
        names = ["engine", "engine without C", "bare loop", *self.peers]
        most = in_turn(names, lambda name: self._run(name, f"all{number}", shape), self.repeat)
        one = shape._replace(events=1)
        least = in_turn(names, lambda name: self._run(name, f"one{number}", one), self.repeat)
        rates = {name: shape.events / (most[name] - least[name]) / 1e6 for name in names}
        what = f"{shape.events:,}, {shape.agents:,}{', ids' * shape.ids}"
        print(
            f"| {what} | " + " | ".join(f"{rates[name]:.3g}" for name in names) + " |", flush=True
        )

        if shape.bare is not None:
            goals.judge(
                f"{what}: engine / bare loop", rates["engine"] / rates["bare loop"], shape.bare
            )

        for name in self.peers:
            goal = shape.pathway if name == "Pathway" else 1
            goals.judge(f"{what}: engine / {name}", rates["engine"] / rates[name], goal)

    def _run(self, name: str, topic: str, shape: Shape) -> float:
        with tempfile.TemporaryDirectory(dir=self.folder) as place:
            means = Path(place).name
            self._make_topics(means, f"{means}-releases")
            if name.startswith("engine"):
                source = f"kafka://{self.address}/{topic}?group={means}"
                more = ["--id", "id"] if shape.ids else []
                sink = f"kafka://{self.address}/{means}"
                return engine(source, Path(place), more, sink, compiled=name == "engine")

            slow = SLOW_SHARE if name == "quixstreams" else 1
            python = sys.executable
            program = BARE_LOOP
            output = means
            if name in PEERS:
                output = f"{place}/out"
                python = str(self.environments / name.lower() / "bin" / "python")
                program = PEERS[name][1]

            read = str(max(shape.events // slow, 1))
            kind = "ids" if shape.ids else "no ids"
            return slow * seconds([python, "-c", program, self.address, topic, read, kind, output])

    def _make_topics(self, *names: str) -> None:
        admin = AdminClient({"bootstrap.servers": self.address})
        topics = [NewTopic(name, PARTITIONS, 1) for name in names]
        for made in admin.create_topics(topics).values():
            made.result(30)


class File(NamedTuple):
    """Samples in a file, the same file with one sample, and who reads them."""

    path: Path
    events: int
    agents: int
    repeat: int

    @property
    def what(self) -> str:
        """Its row in the tables."""
        return f"{self.path.suffix[1:]}, {self.events:,} samples, {self.agents:,} agents"

    def write(self) -> None:
        """Make the files, as CSV and as Parquet."""
        for path, events in ((self.path, self.events), (self._one, 1)):
            write_events(path.with_suffix(".csv"), events, self.agents)
            if path.suffix == ".parquet":
                parquet.write_table(csv.read_csv(path.with_suffix(".csv")), path)

    @property
    def _one(self) -> Path:
        return self.path.with_stem(f"one{self.agents}")

    def measure(self, goals: Goals) -> float:
        """Print the row of the file; give the engine's millions of samples per processor second."""
        bytes_of_store = []

        def run(name: str, path: Path) -> float:
            if name == "bare":
                return seconds([sys.executable, "-c", READS[path.suffix], str(path)])
            with tempfile.TemporaryDirectory(dir=path.parent) as place:
                took = engine(str(path), Path(place), ["--no-sort"])
                bytes_of_store.append((Path(place) / "state.db").stat().st_size)
                return took

        least = in_turn(["engine", "bare"], lambda name: run(name, self._one), self.repeat)
        most = in_turn(["engine", "bare"], lambda name: run(name, self.path), self.repeat)
        own, bare = (most[name] - least[name] for name in ("engine", "bare"))
        print(
            f"| {self.what} | {self.events / own / 1e6:.3g} | {self.events / bare / 1e6:.3g} |",
            flush=True,
        )

        if self.path.suffix == ".csv":
            goals.judge(
                f"{self.what}: engine / bare read", bare / own, 0.5 if self.agents < MANY else 0.08
            )

        if self.agents >= MANY:
            goals.judge(
                f"{self.what}: microseconds per agent", own / self.agents * 1e6, 8, most=True
            )
            goals.judge(
                f"{self.what}: bytes of the store per agent",
                bytes_of_store[-1] / self.agents,
                400,
                most=True,
            )

        return self.events / own / 1e6


def _measure_files(folder: Path, share: int, repeat: int, goals: Goals) -> None:
    """Print the rows of files, in millions of samples per processor second."""
    for events, agents in ((4_000_000, 1_000), (1_000_000, MANY)):
        rates = {}
        for suffix in READS:
            file = File(folder / f"all{agents}{suffix}", events // share, agents, repeat)
            file.write()
            rates[suffix] = file.measure(goals)

        if agents < MANY:
            goals.judge(
                f"{agents:,} agents: parquet / csv, engine", rates[".parquet"] / rates[".csv"], 2
            )


def engine(
    source: str, folder: Path, more: list[str], sink: str = "", *, compiled: bool = True
) -> float:
    """Run the whole engine from its command line.

    Store, ledger, releases, and estimates at the end, to topics or to files.
    """
    estimates = sink or str(folder / "estimates.jsonl")
    releases = f"{sink}-releases" if sink else str(folder / "releases.jsonl")
    outputs = ["--store", str(folder / "state.db"), "--sink", estimates, "--releases", releases]
    command = [sys.executable, "-c", PROGRAM if compiled else WITHOUT_C + PROGRAM]
    return seconds([*command, "run", "agents", "--source", source, *BOUNDS, *outputs, *more])


def in_turn(names: list[str], run: Callable[[str], float], repeat: int) -> dict[str, float]:
    """Least processor seconds of each of several runs, in turn.

    A busy spell of the machine is for all of them.
    """
    took: dict[str, list[float]] = {name: [] for name in names}
    for _ in range(repeat):
        for name in names:
            took[name].append(run(name))

    return {name: min(seconds) for name, seconds in took.items()}


def seconds(words: list[str]) -> float:
    """Processor seconds of all threads of a process."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    ran = subprocess.run(words, capture_output=True, text=True, check=False)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if ran.returncode:
        raise SystemExit(f"{words[0]} ended with code {ran.returncode}: {ran.stderr[-2000:]}")

    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


if __name__ == "__main__":
    main()

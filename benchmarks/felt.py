"""Speed where users feel it: files, plans, the help, estimates, the simulator.

Prints one JSON object.

    OMP_NUM_THREADS=1 python benchmarks/felt.py

Processor seconds of all threads (of commands: of their process), the best of `--repeat`. A file's
ratio is the time of a bare pyarrow read of the same file over that of the whole engine, with its
store, ledger and releases; a command's is its time over that of a Python that imports NumPy and
nothing else, in the same run.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np
from pyarrow import csv, parquet

from benchmarks.speed.speed_of_engine import run_engine, write_events
from meanstream.lab.simulation.config import SimulationConfig
from meanstream.lab.simulation.simulated_pairwise import simulate_pairwise
from meanstream.streaming.events.encode import encode_columns_as_lines
from meanstream.streaming.events.wire import PersonalEstimate

COMMANDS = {
    "help": "--help",
    "explain_rounds": "explain rounds --users 4043 --lower -30 --upper 120 --epsilon 1 --window 7d",
    "plan_agents_from_csv": "plan agents --agents 999 --sizes {csv}:tailnum --lower 0 --upper 9 --spread 1 --epsilon 2",
    "plan_rounds_from_csv": "plan rounds --users 4043 --sizes {csv}:tailnum --lower -30 --upper 120 --epsilon 1",
}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--events", type=int, default=4_000_000)
    parser.add_argument("--agents", type=int, default=1000)
    parser.add_argument("--estimates", type=int, default=300_000)
    parser.add_argument("--repeat", type=int, default=3)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        found = {**files(Path(folder), options), **commands(Path(folder), options.repeat)}

    found["estimates_as_json_per_second"] = options.estimates / best(
        estimates(options.estimates), options.repeat
    )
    # As many runs at once as Figure 2 has.
    config = SimulationConfig.from_options(mode="paper", steps=2000, runs=20, checkpoints=(2000,))
    steps = config.agents * config.steps * config.runs
    found["agent_steps_per_second"] = steps / best(
        lambda: simulate_pairwise(config), options.repeat
    )
    json.dump({name: float(f"{value:.3g}") for name, value in found.items()}, sys.stdout, indent=2)

    print()


def best(work: Callable[[], object], repeat: int) -> float:
    """Least processor seconds of several runs."""
    took = []
    for _ in range(repeat):
        began = process_time()
        work()
        took.append(process_time() - began)

    return min(took)


def files(folder: Path, options: argparse.Namespace) -> dict[str, float]:
    """Time the engine on a CSV and a Parquet file, and bare reads of both."""
    place = folder / "events.csv"
    other = folder / "events.parquet"
    write_events(place, options.events, options.agents)
    parquet.write_table(csv.read_csv(place), other)
    reads: dict[Path, Callable[[Path], Any]] = {place: csv.read_csv, other: parquet.read_table}
    found = {}

    for path, read in reads.items():
        bare = []
        engine = []
        for _ in range(options.repeat):  # in turn: other programs on the machine slow both
            bare.append(best(partial(read, path), 1))
            engine.append(best(partial(run_engine, path, sort=False, estimates=False), 1))

        kind = path.suffix[1:]
        found[f"{kind}_engine_to_pyarrow_read"] = min(bare) / min(engine)
        found[f"{kind}_engine_events_per_second"] = options.events / min(engine)

    return found


def commands(folder: Path, repeat: int) -> dict[str, float]:
    """Time the command line, and a Python that imports NumPy."""
    program = [sys.executable, "-m", "meanstream.pipelines.commands.main"]
    flights = folder / "flights.csv"
    subprocess.run(
        [*program, "demo", "flights", str(flights)], check=True, stdout=subprocess.DEVNULL
    )
    asked = {name: [*program, *line.format(csv=flights).split()] for name, line in COMMANDS.items()}
    asked["numpy_import"] = [sys.executable, "-c", "import numpy"]
    took = {name: min(child_seconds(words) for _ in range(repeat)) for name, words in asked.items()}
    ratios = {f"{name}_to_numpy_import": took[name] / took["numpy_import"] for name in COMMANDS}

    return {f"{name}_seconds": seconds for name, seconds in took.items()} | ratios


def child_seconds(words: list[str]) -> float:
    """Processor seconds of a process."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(words, check=True, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def estimates(n: int) -> Callable[[], object]:
    """Encode the columns of estimates as a file has them."""
    rng = np.random.default_rng(1)
    value = rng.normal(10, 5, n)
    columns: dict[str, Any] = {
        "agent": [f"agent-{i:06d}" for i in range(n)],
        "n": rng.integers(1, 1000, n),
        "value": value,
        "interval": np.stack([value - 1, value + 1], axis=1),
        "noise_half_width": np.abs(value) / 10,
        "local": value + 0.1,
        "local_interval": np.stack([value - 2, value + 2], axis=1),
        "effective_class_size": np.abs(value) + 1,
        "class_size": np.abs(value) + 2,
        "component": np.zeros(n, np.int64),
        "membership": np.ones(n),
    }

    constants = {
        "time": "2026-01-01T00:00:00Z",
        "level": 0.95,
        "method": "learned_prior",
        "epsilon": 1.0,
        "delta": 1e-6,
        "mode": "tuned",
        "schema_version": 1,
    }

    plain = {
        name: column if isinstance(column, list) else column.tolist()
        for name, column in columns.items()
    }

    return lambda: list(encode_columns_as_lines(PersonalEstimate, plain, constants).blocks())


if __name__ == "__main__":
    main()

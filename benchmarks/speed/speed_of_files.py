"""Speed of the engine on files, beside DuckDB, which writes a mean and a count per agent.

    OMP_NUM_THREADS=1 python -m benchmarks.speed.speed_of_files --shapes 2000000:20000

A shape is samples:agents, in any order. Processor seconds of each process, less those of the same process on one
sample, are measured in turn; the least of `--repeat` counts. The engine also keeps store and ledger, and writes
releases and estimates with intervals. `--other TREE` measures the engine of another tree of this project, too, which
must release and estimate the same bytes.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyarrow import compute, csv, parquet

from benchmarks.peers import BOUNDS, PROGRAM, in_turn, seconds
from meanstream.streaming.store.secret_source import make_secret

DUCKDB = """
import sys, duckdb
source, output = sys.argv[1:]
table = f"read_csv('{source}', types={{'agent': 'VARCHAR'}})" if source.endswith("csv") else f"'{source}'"
database = duckdb.connect()
database.execute("set threads=1")
database.execute(
    f"copy (select agent, avg(value) as mean, count(*) as n from {table} group by agent) to '{output}' (format json)"
)
"""


def write_samples(path: Path, samples: int, agents: int) -> None:
    """Write samples of agents that are alike, each with one sample or more, in event-time order."""
    rng = np.random.default_rng(7)
    extra = rng.integers(0, agents, samples - agents)
    agent = rng.permutation(np.concatenate([np.arange(agents), extra]))
    times = pa.array(1_735_689_600_000 + np.arange(samples) * 10, pa.timestamp("ms", "UTC"))
    columns = {
        "agent": pa.array(agent).cast(pa.string()),
        "value": np.clip(rng.normal(0.5, 0.2, samples), 0, 1).round(4),
        "time": times,
    }

    if path.suffix == ".parquet":
        parquet.write_table(pa.table(columns), path)
    else:
        columns["time"] = compute.strftime(times, "%Y-%m-%dT%H:%M:%SZ")
        csv.write_csv(pa.table(columns), path)


def outputs_of(folder: Path) -> bytes:
    """Give what the engine has released and estimated."""
    return b"".join((folder / name).read_bytes() for name in ("releases.jsonl", "estimates.jsonl"))


def run_engine(tree: Path, source: Path, key: Path, folder: Path) -> float:
    """Run the engine of a tree from its command line."""
    outputs = {"store": "state.db", "sink": "estimates.jsonl", "releases": "releases.jsonl"}
    options = [word for name, file in outputs.items() for word in (f"--{name}", str(folder / file))]
    named = ["--secret-file", str(key), "--name", "files"]
    python = ["env", f"PYTHONPATH={tree}", sys.executable, "-P", "-c", PROGRAM]
    return seconds([*python, "run", "agents", "--source", str(source), *BOUNDS, *named, *options])


class Contest:
    """Contenders on the files of a folder."""

    def __init__(self, trees: dict[str, Path], folder: Path, repeat: int) -> None:
        self._trees = trees
        self._folder = folder
        self._repeat = repeat
        self._key = folder / "key"
        make_secret(self._key)

    def measure(self, samples: int, agents: int, suffix: str) -> str:
        """Give the row of a file."""
        one = self._folder / f"one{suffix}"
        whole = self._folder / f"{samples}-{agents}{suffix}"
        write_samples(one, 1, 1)
        write_samples(whole, samples, agents)

        names = [*self._trees, "DuckDB"]
        least = in_turn(names, lambda name: self._run(name, one), self._repeat)
        most = in_turn(names, lambda name: self._run(name, whole), self._repeat)
        net = {name: most[name] - least[name] for name in names}
        cells = [f"{net[name]:.2f}" for name in names]
        for name in self._trees:
            cells += [f"{net['DuckDB'] / net[name]:.2f}", f"{net[name] / agents * 1e6:.1f}"]

        return f"| {suffix[1:]}, {samples:,}, {agents:,} | " + " | ".join(cells) + " |"

    def _run(self, name: str, source: Path) -> float:
        with tempfile.TemporaryDirectory(dir=self._folder) as place:
            if name == "DuckDB":
                return seconds([sys.executable, "-c", DUCKDB, str(source), f"{place}/out.json"])
            took = run_engine(self._trees[name], source, self._key, Path(place))
            self._compare(source, outputs_of(Path(place)))
            return took

    def _compare(self, source: Path, outputs: bytes) -> None:
        """Stop where two runs on one file have written different bytes."""
        before = source.with_suffix(".outputs")
        if before.exists() and before.read_bytes() != outputs:
            raise SystemExit(f"outputs differ for {source.name}")
        before.write_bytes(outputs)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--shapes", nargs="+", default=["2000000:1000", "2000000:20000"])
    parser.add_argument("--formats", nargs="+", default=["csv", "parquet"])
    parser.add_argument("--other", type=Path)
    parser.add_argument("--repeat", type=int, default=2)
    options = parser.parse_args()

    here = Path(__file__).resolve().parents[2]
    other = {} if options.other is None else {"engine of the other tree": options.other}
    trees = {"engine": here, **other}
    ratios = [f"DuckDB / {name} | {name}, µs per agent" for name in trees]
    print("| file, samples, agents | " + " | ".join([*trees, "DuckDB", *ratios]) + " |")
    print("|---" * (2 + 3 * len(trees)) + "|")

    with tempfile.TemporaryDirectory() as folder:
        contest = Contest(trees, Path(folder), options.repeat)
        for shape in options.shapes:
            samples, agents = map(int, shape.split(":"))
            for suffix in options.formats:
                print(contest.measure(samples, agents, f".{suffix}"), flush=True)

    print(f"\nProcessor seconds, net of one sample; load {os.getloadavg()[0]:.0f}.")


if __name__ == "__main__":
    main()

"""Speed and memory of `meanstream run rounds` on one core.

A file of samples to one window's reports and answer.

    python benchmarks/speed/speed_of_rounds.py --samples 10000000 --users 1000000

Prints one JSON object: wall-clock and processor seconds, the greatest resident memory, a digest of
everything public that was written (equal digests: equal bytes), and the seconds that reading the
file alone takes.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from pyarrow import csv as arrow_csv

from meanstream.streaming.events.times import iso_times

SECRET = hashlib.sha256(b"of a benchmark").hexdigest()
CHUNK = 500_000


def write_samples(path: Path, samples: int, users: int) -> None:
    """Write samples of users within one day, every user among them, in the order of time."""
    rng = np.random.default_rng(11)
    with path.open("w", encoding="ascii", newline="") as file:
        file.write("user,value,time\n")
        for begin in range(0, samples, CHUNK):
            number = np.arange(begin, min(begin + CHUNK, samples))
            user = np.where(number < users, number, rng.integers(0, users, len(number)))
            value = rng.normal(0.5, 0.1, len(number)).clip(0.0, 1.0).round(4)
            when = iso_times(1_699_920_000 + number * (80_000.0 / samples))
            rows = zip(user.tolist(), value.tolist(), when, strict=True)
            file.writelines(f"user-{u:07d},{v},{t}\n" for u, v, t in rows)


def run(source: Path, folder: Path, options: list[str]) -> dict[str, object]:
    """Run the command pinned to one core, in a process of its own."""
    folder.mkdir()
    typed = [sys.executable, "-m", "meanstream.pipelines.commands.main", "run", "rounds", "--source", str(source),
             "--lower", "0", "--upper", "1", "--epsilon", "1", "--window", "1d", "--name", "speed", "--estimator",
             "one_shot", "--store", "s.db", "--sink", "means.jsonl", *options]  # fmt: skip
    environment = os.environ | {
        "MEANSTREAM_SECRET": SECRET,
        "OMP_NUM_THREADS": "1",
        "ARROW_NUM_THREADS": "1",
    }

    core = min(os.sched_getaffinity(0))
    began = time.perf_counter()
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(
        typed,
        cwd=folder,
        env=environment,
        check=True,
        preexec_fn=lambda: os.sched_setaffinity(0, {core}),
    )

    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    digest = hashlib.sha256()
    for name in sorted(path.name for path in folder.glob("*.jsonl")):
        digest.update(name.encode() + (folder / name).read_bytes())

    return {
        "seconds": round(time.perf_counter() - began, 2),
        "processor_seconds": round(
            after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, 2
        ),
        "max_resident_gb": round(after.ru_maxrss / 2**20, 3),
        "public_sha256": digest.hexdigest(),
    }


def main() -> None:
    """Measure."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--samples", type=int, default=10_000_000)
    parser.add_argument("--users", type=int, default=1_000_000)
    parser.add_argument("--reports", action="store_true", help="write the reports, too")
    parser.add_argument(
        "--file", type=Path, help="keep the samples here, and use them if they are there"
    )

    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        source = options.file or folder / "samples.csv"
        if not source.exists():
            write_samples(source, options.samples, options.users)
        more = ["--reports", "reports.jsonl"] if options.reports else []
        measured = run(source, folder / "run", more)
        began = time.process_time()
        for _ in arrow_csv.open_csv(source, read_options=arrow_csv.ReadOptions(use_threads=False)):
            pass

        reading = time.process_time() - began

    print(
        json.dumps(
            {"samples": options.samples, "users": options.users}
            | measured
            | {"reading": round(reading, 2)}
        )
    )


if __name__ == "__main__":
    main()

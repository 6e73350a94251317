"""What a memory costs a run.

Processor time of `meanstream run agents` on a CSV file, as times that of `forever`.

Run from the repository: `python benchmarks/speed/speed_of_memory_engine.py`. Each cell is the least
of several turns, less what a run of one sample takes. The runs of a turn alternate, so that what
else the machine does meets all of them.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

AGENTS = (4_000, 40_000)
MEMORIES = {
    "preferred:10": ("forever", "auto"),
    "every:1h": ("forever", "auto", "half-life:8h", "window:8h"),
}
OPTIONS = "--lower 0 --upper 1 --epsilon 1 --delta 1e-6"


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--samples", type=int, default=1_000_000)
    parser.add_argument("--repeat", type=int, default=3)
    options = parser.parse_args()
    print(f"{'agents':>7} {'schedule':<13} {'memory':<13} {'seconds':>8} {'x forever':>10}")

    with tempfile.TemporaryDirectory() as folder:
        one = write(Path(folder) / "one.csv", agents=1, samples=1)
        for agents in AGENTS:
            source = write(Path(folder) / f"{agents}.csv", agents=agents, samples=options.samples)
            for schedule, memories in MEMORIES.items():
                turns = [
                    [run(place, schedule, memory) for memory in memories for place in (source, one)]
                    for _ in range(options.repeat)
                ]
                least = np.min(turns, axis=0)
                net = least[::2] - least[1::2]

                for memory, seconds in zip(memories, net, strict=True):
                    print(
                        f"{agents:>7} {schedule:<13} {memory:<13} {seconds:8.2f} {seconds / net[0]:10.2f}",
                        flush=True,
                    )


def write(place: Path, *, agents: int, samples: int) -> Path:
    """Write samples of a day and a half, each of an agent at random."""
    rng = np.random.default_rng(1)
    agent = rng.integers(0, agents, samples)
    value = rng.normal(0.5, 0.1, samples)
    time = 1.7e9 + np.sort(rng.random(samples)) * 1.5 * 86_400
    rows = zip(agent.tolist(), value.tolist(), time.tolist(), strict=True)
    place.write_text("agent,value,time\n" + "".join(f"a{a},{v:.5f},{t:.3f}\n" for a, v, t in rows))

    return place


def run(source: Path, schedule: str, memory: str) -> float:
    """Processor seconds of a run from nothing to its end."""
    with tempfile.TemporaryDirectory() as folder:
        outputs = f"--store {folder}/state.db --sink {folder}/estimates.jsonl --releases {folder}/releases.jsonl"
        command = [
            sys.executable,
            "-m",
            "meanstream.pipelines.commands.main",
            "run",
            "agents",
            "--source",
            str(source),
        ]

        more = f"{OPTIONS} --schedule {schedule} --memory {memory} {outputs}".split()
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([*command, *more], check=True, capture_output=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)

    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


if __name__ == "__main__":
    main()

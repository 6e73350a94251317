"""CPU time of releases on Beam's FnApiRunner, against a plain `Map` and the stateful DoFn that one writes first.

    python benchmarks/beam/beam_shards.py            per event: ReleaseMeans, Map, one running mean per key
    python benchmarks/beam/beam_shards.py --large    100,000 agents and 10 million samples: time and peak memory
    python benchmarks/beam/beam_shards.py --million  a million names and samples at once
    python benchmarks/beam/beam_shards.py --snapshot  a million agents' newest releases: kept, joined, fitted
    python benchmarks/beam/beam_shards.py --state  what 62,500 agents keep: of a million in 16, of ten in 160
                                     --state --histogram-share 0.1    with a histogram of each
    python benchmarks/beam/beam_shards.py --scaling  one shard, and what waits for all
    python benchmarks/beam/beam_shards.py --flink  the same on a Flink cluster with parallelism 2 (`make flink`)

All samples are made inside the worker, in event-time order, in arrays of 1000 as a source gives
them. `ReleaseMeans` and `Map` are given the same batches; the per-element DoFn is given the same
samples one by one.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import time
from collections.abc import Callable

from benchmarks.beam.agents_flink import flink
from benchmarks.beam.agents_scale import scaling, snapshot, state
from benchmarks.beam.agents_work import (
    collaborated,
    cpu_seconds,
    mapped,
    per_element,
    released,
    summed,
)

GOALS = {"map_ratio": 3.0, "element_ratio": 0.1}
ROUNDS = 5


def compare(samples: int, agents: int) -> dict[str, float]:
    """Measure all cases in one run, in turns, each at its best.

    The start of a pipeline is told apart as well.
    """
    cases = {"map": mapped, "sums": summed, "release": released, "collaborate": collaborated}
    for build in cases.values():
        cpu_seconds(1000, build(10))  # warm
    found: dict[str, list[float]] = {}

    for _ in range(ROUNDS):
        for name, build in cases.items():
            found.setdefault(f"{name}_idle", []).append(cpu_seconds(1, build(agents)))
            found.setdefault(name, []).append(cpu_seconds(samples, build(agents)))

    best = {name: min(seconds) for name, seconds in found.items()}
    part = max(samples // 10, 1)
    best["element"] = cpu_seconds(part, per_element(agents)) * samples / part
    micros = {f"{name}_microseconds": seconds / samples * 1e6 for name, seconds in best.items()}

    return {
        **micros,
        "map_ratio": best["release"] / best["map"],
        "map_ratio_without_start": (best["release"] - best["release_idle"])
        / (best["map"] - best["map_idle"]),
        "sums_ratio": best["release"] / best["sums"],
        "element_ratio": best["release"] / best["element"],
    }


def large(samples: int, agents: int) -> dict[str, float]:
    """Measure many agents: releases and answers."""
    began = time.perf_counter()
    seconds = cpu_seconds(samples, collaborated(agents))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10
    return {"cpu_seconds": seconds, "seconds": time.perf_counter() - began, "peak_mebibytes": peak}


MODES: dict[str, Callable[[argparse.Namespace], dict[str, float]]] = {
    "large": lambda _: large(10_000_000, 100_000),
    "million": lambda _: large(1_000_000, 1_000_000),
    "snapshot": lambda _: snapshot(1_000_000),
    "state": lambda options: state(62_500, 625_000, options.histogram_share),
    "scaling": lambda _: scaling(12_500, 1_250_000),
    "flink": lambda _: flink(20_000_000, 1000),
}


def main() -> None:
    """Measure, print, fail where a goal is missed."""
    os.environ.setdefault("MEANSTREAM_SECRET", "6dc4c01b6b494373b7fb165cabd569fc")
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--samples", type=int, default=4_000_000)
    parser.add_argument("--agents", type=int, default=1000)
    for name in MODES:
        parser.add_argument(f"--{name}", action="store_true")
    parser.add_argument("--histogram-share", type=float, default=0.0)

    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    chosen = next((measure for name, measure in MODES.items() if getattr(options, name)), None)
    found = compare(options.samples, options.agents) if chosen is None else chosen(options)

    if options.json:
        print(json.dumps(found))
    else:
        for name, value in found.items():
            goal = f"  (goal: at most {GOALS[name]})" if name in GOALS else ""
            print(f"{name:36} {value:14.3f}{goal}")

    missed = [name for name, goal in GOALS.items() if found.get(name, 0.0) > goal]
    if missed:
        raise SystemExit(f"missed: {', '.join(missed)}")


if __name__ == "__main__":
    main()

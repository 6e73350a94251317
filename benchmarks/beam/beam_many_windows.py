"""CPU time of many windows on Beam's FnApiRunner: per sample, as windows wait, and as agents grow.

    python benchmarks/beam/beam_many_windows.py  100 windows of 600 samples, and 1,000 that wait; with baselines
    python benchmarks/beam/beam_many_windows.py --shards 8    the hundred windows, of arrays, with so many shards
    python benchmarks/beam/beam_many_windows.py --agents  a window of 1,000 samples among 10,000 and a million agents
    python benchmarks/beam/beam_many_windows.py --everybody   a million agents at once: time and peak memory
    python benchmarks/beam/beam_many_windows.py --prism FILE  one and a hundred windows on Prism (FILE is its program)

Baselines are pipelines over the same samples in the same run, each at the best of the same number
of runs: a stateless `Map` on the arrays, and what one writes first, `FixedWindows` and
`CombinePerKey(mean)` on single samples.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import apache_beam as beam
import numpy as np
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.transforms.combiners import MeanCombineFn
from apache_beam.transforms.window import FixedWindows, TimestampedValue
from apache_beam.utils.subprocess_server import SubprocessServer

from benchmarks.beam.agents_work import BEGIN, SETTINGS, cpu_seconds
from meanstream.pipelines.beam.agents import waiting_samples as waiting
from meanstream.pipelines.beam.agents.agent_transforms import CollaborateAgents
from meanstream.streaming.events.event_columns import SampleColumns

REFRESH = 60.0
PER_WINDOW = 600
AGENTS = 100
ROUNDS = 3
SMALL = 5
GOALS = {
    "arrays_microseconds": 10.0,
    "ten_times_waiting_ratio": 1.2,
    "agents_ratio": 2.0,
    "everybody_cpu_seconds": 8.0,
    "everybody_peak_mebibytes": 1024.0,
}


def window(number: int, samples: int, agents: int, *, everybody: bool = False) -> SampleColumns:
    """Make the samples of a window, of random agents or of each."""
    rng = np.random.default_rng(number)
    names = [f"agent {n}" for n in range(agents)]
    agent = np.resize(np.arange(agents), samples) if everybody else rng.integers(0, agents, samples)
    time = BEGIN // REFRESH * REFRESH + REFRESH * number + np.arange(samples) * (REFRESH / samples)
    value = rng.normal(10.0, 20.0, samples)

    return SampleColumns(names, agent, value, time, None, np.arange(samples, dtype=np.int64))


def arrays(start: Any, agents: int = AGENTS) -> Any:
    """Build the samples of so many windows, an array for each."""
    made = beam.FlatMap(lambda n: (window(number, PER_WINDOW, agents) for number in range(n)))
    return start | made.with_output_types(SampleColumns)


def elements(start: Any) -> Any:
    """Build the same, one by one."""

    def single(windows: int) -> Iterator[Any]:
        for number in range(windows):
            one = window(number, PER_WINDOW, AGENTS)
            names = map(one.names.__getitem__, one.agent.tolist())
            yield from zip(names, one.value.tolist(), one.time.tolist(), strict=True)

    return start | beam.FlatMap(single).with_output_types(tuple[str, float, float])


def means(start: Any) -> Any:
    """Build what one writes first."""
    return (
        elements(start)
        | beam.Map(lambda one: TimestampedValue((one[0], one[1]), one[2])).with_output_types(
            tuple[str, float]
        )
        | beam.WindowInto(FixedWindows(REFRESH))
        | beam.CombinePerKey(MeanCombineFn())
    )


CASES: dict[str, Callable[[Any], Any]] = {
    "map": lambda start: (
        arrays(start) | beam.Map(lambda one: float(np.clip(one.value, -30, 120).sum()))
    ),
    "means": means,
    "arrays": lambda start: arrays(start) | CollaborateAgents(SETTINGS, refresh=REFRESH),
    "elements": lambda start: elements(start) | CollaborateAgents(SETTINGS, refresh=REFRESH),
}


def sharded(shards: int) -> dict[str, float]:
    """Measure a hundred windows of arrays with so many shards."""

    def build(start: Any) -> Any:
        return arrays(start) | CollaborateAgents(SETTINGS, refresh=REFRESH, shards=shards)

    cpu_seconds(1, build)  # warm
    idle = min(cpu_seconds(1, build) for _ in range(ROUNDS))
    best = min(cpu_seconds(100, build) for _ in range(ROUNDS))
    return {
        "arrays_microseconds": best / (100 * PER_WINDOW) * 1e6,
        "arrays_one_window_seconds": idle,
    }


def prism(program: str) -> dict[str, float]:
    """Measure windows of arrays on Prism.

    This process, whose threads are the workers, and the server.
    """

    def spent() -> float:
        used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
        return sum(one.ru_utime + one.ru_stime for one in used)

    def seconds(number: int) -> float:
        begun = spent()
        options = PipelineOptions(["--runner=PrismRunner", f"--prism_location={program}"])
        with (
            SubprocessServer.cache_subprocesses(),
            beam.Pipeline(options=options) as pipeline,
        ):  # the server ends with it
            _ = CASES["arrays"](pipeline | beam.Create([number], reshuffle=False))

        return spent() - begun

    seconds(1)  # warm
    one = seconds(1)
    hundred = seconds(100)
    return {
        "prism_microseconds": hundred / (100 * PER_WINDOW) * 1e6,
        "prism_one_window_seconds": one,
    }


def windows() -> dict[str, float]:
    """Measure a hundred windows, and a thousand that wait for the end of the input."""
    for build in CASES.values():
        cpu_seconds(1, build)  # warm
    samples = 100 * PER_WINDOW
    found = {}

    for name, build in CASES.items():
        idle = min(cpu_seconds(1, build) for _ in range(ROUNDS))
        best = min(cpu_seconds(100, build) for _ in range(ROUNDS))
        found[f"{name}_microseconds"] = best / samples * 1e6
        found[f"{name}_one_window_seconds"] = idle

    thousand = cpu_seconds(1000, CASES["arrays"])
    found["thousand_waiting_seconds"] = thousand
    found["ten_times_waiting_ratio"] = thousand / (
        10 * found["arrays_microseconds"] * samples * 1e-6
    )

    return found


def among(agents: int) -> float:
    """Measure a window of 1,000 samples among agents who were all heard before.

    Each has its turn, as on a stream.
    """

    def build(small: int) -> Callable[[Any], Any]:
        def made(_: int) -> Iterator[SampleColumns]:
            yield window(0, agents, agents, everybody=True)
            for number in range(1, small + 1):
                part = window(number, 1000, agents)
                names, agent = np.unique(part.agent, return_inverse=True)
                part.names[:] = [f"agent {n}" for n in names.tolist()]
                yield SampleColumns(part.names, agent, part.value, part.time, None, part.position)

        source = beam.FlatMap(made).with_output_types(SampleColumns)
        return lambda start: start | source | CollaborateAgents(SETTINGS, refresh=REFRESH)

    with mock.patch.object(waiting, "overtakes", return_value=False):
        one = min(cpu_seconds(1, build(1)) for _ in range(2))
        more = min(cpu_seconds(1, build(1 + SMALL)) for _ in range(2))

    return (more - one) / SMALL


def agents() -> dict[str, float]:
    """Measure small windows among few and many agents."""
    few = among(10_000)
    many = among(1_000_000)
    return {"among_1e4_seconds": few, "among_1e6_seconds": many, "agents_ratio": many / few}


def everybody() -> dict[str, float]:
    """Measure a million agents with ten samples each, at once."""

    def made(n: int) -> Iterator[SampleColumns]:
        names = [f"agent {number}" for number in range(n)]
        for turn in range(10):
            rng = np.random.default_rng(turn)
            time = BEGIN + turn + np.arange(n) * 1e-7
            yield SampleColumns(
                names,
                np.arange(n),
                rng.normal(10.0, 20.0, n),
                time,
                None,
                np.arange(n, dtype=np.int64),
            )

    source = beam.FlatMap(made).with_output_types(SampleColumns)
    seconds = cpu_seconds(1_000_000, lambda start: start | source | CollaborateAgents(SETTINGS))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10
    return {"everybody_cpu_seconds": seconds, "everybody_peak_mebibytes": peak}


def main() -> None:
    """Measure, print, fail where a goal is missed."""
    os.environ.setdefault("MEANSTREAM_SECRET", "6dc4c01b6b494373b7fb165cabd569fc")
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    modes = {"agents": agents, "everybody": everybody}
    for name in modes:
        parser.add_argument(f"--{name}", action="store_true")
    parser.add_argument("--shards", type=int)
    parser.add_argument("--prism")

    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    if options.shards is not None:
        found = sharded(options.shards)
    elif options.prism is not None:
        found = prism(options.prism)
    else:
        found = next(
            (measure for name, measure in modes.items() if getattr(options, name)), windows
        )()

    if options.json:
        print(json.dumps(found))
    else:
        for name, value in found.items():
            goal = f"  (goal: at most {GOALS[name]:g})" if name in GOALS else ""
            print(f"{name:36} {value:14.3f}{goal}")

    missed = [name for name, goal in GOALS.items() if found.get(name, 0.0) > goal]
    if missed:
        raise SystemExit(f"missed: {', '.join(missed)}")


if __name__ == "__main__":
    main()

"""CPU time of releases on Beam's FnApiRunner, against a plain `Map` and the stateful DoFn that one writes first.

    python benchmarks/beam_agents.py            per event: ReleaseMeans, Map, one running mean per key
    python benchmarks/beam_agents.py --large    100,000 agents and 10 million samples: time and peak memory

All samples are made inside the worker, in event-time order, in arrays of 1000 as a source gives them. `ReleaseMeans`
and `Map` are given the same batches; the per-element DoFn is given the same samples one by one.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import time
from collections.abc import Callable, Iterator
from typing import Any

import apache_beam as beam
import numpy as np
from apache_beam.coders import FloatCoder, TupleCoder, VarIntCoder
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from apache_beam.transforms.userstate import ReadModifyWriteStateSpec

from operators.agents import AgentsSettings
from pipelines.agents import CollaborateAgents, ReleaseMeans
from streaming.columns import SampleColumns

BATCH = 1000
GOALS = {"map_ratio": 3.0, "element_ratio": 0.1}
SETTINGS = AgentsSettings(lower=-30, upper=120, epsilon=1.0, delta=1e-6)


def batches(samples: int, agents: int) -> Iterator[SampleColumns]:
    """Make samples of random agents, as time goes by."""
    names = [f"agent {number}" for number in range(agents)]
    rng = np.random.default_rng(1)
    for start in range(0, samples, BATCH):
        n = min(BATCH, samples - start)
        agent, value = rng.integers(0, agents, n), rng.normal(10.0, 20.0, n)
        yield SampleColumns(
            names, agent, value, 1.7e9 + np.arange(start, start + n) * 0.01, None, np.arange(start, start + n)
        )


def elements(samples: int, agents: int) -> Iterator[tuple[str, float]]:
    """Make the same, one by one."""
    for batch in batches(samples, agents):
        yield from zip(map(batch.names.__getitem__, batch.agent.tolist()), batch.value.tolist(), strict=True)


class RunningMean(beam.DoFn):  # type: ignore[misc]
    """What a user of Beam writes: one running mean per key, an element at a time."""

    STATE = ReadModifyWriteStateSpec("mean", TupleCoder((VarIntCoder(), FloatCoder())))

    def process(
        self,
        element: tuple[str, float],
        state: Any = beam.DoFn.StateParam(STATE),  # noqa: B008 - how Beam asks for state
    ) -> Iterator[tuple[str, float]]:
        """Add one."""
        count, mean = state.read() or (0, 0.0)
        count, mean = count + 1, mean + (element[1] - mean) / (count + 1)
        state.write((count, mean))
        yield element[0], mean


def made(agents: int) -> Callable[[Any], Any]:
    """Build the batches alone."""
    return lambda start: start | beam.FlatMap(lambda n: batches(n, agents)).with_output_types(SampleColumns)


def mapped(agents: int) -> Callable[[Any], Any]:
    """Build a stateless step over the batches: the sum of what is within the bounds."""
    return lambda start: made(agents)(start) | beam.Map(lambda b: float(np.clip(b.value, -30, 120).sum()))


def summed(agents: int) -> Callable[[Any], Any]:
    """Build a stateless step that does a batch's part of the work: each agent's count and sum in it."""

    def sums(batch: SampleColumns) -> tuple[np.ndarray, ...]:
        agent, place = np.unique(batch.agent, return_inverse=True)
        return agent, np.bincount(place), np.bincount(place, np.clip(batch.value, -30, 120))

    return lambda start: made(agents)(start) | beam.Map(sums)


def released(agents: int) -> Callable[[Any], Any]:
    """Build the releases."""
    return lambda start: made(agents)(start) | ReleaseMeans(SETTINGS)


def collaborated(agents: int) -> Callable[[Any], Any]:
    """Build releases and answers."""
    return lambda start: made(agents)(start) | CollaborateAgents(SETTINGS)


def per_element(agents: int) -> Callable[[Any], Any]:
    """Build the DoFn that is written first."""
    source = beam.FlatMap(lambda n: elements(n, agents)).with_output_types(tuple[str, float])
    return lambda start: start | source | beam.ParDo(RunningMean())


def cpu_seconds(samples: int, build: Callable[[Any], Any]) -> float:
    """Run one pipeline and tell its CPU time."""
    began = time.process_time()
    pipeline = beam.Pipeline(runner=FnApiRunner(), options=PipelineOptions([]))
    _ = build(pipeline | beam.Create([samples], reshuffle=False))
    pipeline.run().wait_until_finish()
    return time.process_time() - began


def compare(samples: int, agents: int) -> dict[str, float]:
    """Measure all cases in one run, each at its best of three; what a pipeline costs without samples is taken off."""
    cases = {"map": mapped, "sums": summed, "release": released, "collaborate": collaborated}
    for build in cases.values():
        cpu_seconds(1000, build(10))  # warm
    best: dict[str, float] = {}
    for name, build in cases.items():
        idle = min(cpu_seconds(1, build(agents)) for _ in range(3))
        best[name] = min(cpu_seconds(samples, build(agents)) for _ in range(3))
        best[f"{name}_idle"] = idle
    part = max(samples // 10, 1)
    best["element"] = cpu_seconds(part, per_element(agents)) * samples / part
    micros = {f"{name}_microseconds": seconds / samples * 1e6 for name, seconds in best.items()}
    return {
        **micros,
        "map_ratio": best["release"] / best["map"],
        "map_ratio_without_start": (best["release"] - best["release_idle"]) / (best["map"] - best["map_idle"]),
        "sums_ratio": best["release"] / best["sums"],
        "element_ratio": best["release"] / best["element"],
    }


def large(samples: int, agents: int) -> dict[str, float]:
    """Measure many agents: releases and answers."""
    began = time.perf_counter()
    seconds = cpu_seconds(samples, collaborated(agents))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10
    return {"cpu_seconds": seconds, "seconds": time.perf_counter() - began, "peak_mebibytes": peak}


def main() -> None:
    """Measure, print, fail where a goal is missed."""
    os.environ.setdefault("MEANSTREAM_SECRET", "a benchmark, hence no secret")
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--samples", type=int, default=1_000_000)
    parser.add_argument("--agents", type=int, default=1000)
    parser.add_argument("--large", action="store_true")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    found = large(10_000_000, 100_000) if options.large else compare(options.samples, options.agents)
    if options.json:
        print(json.dumps(found))
    else:
        for name, value in found.items():
            goal = f"  (goal: at most {GOALS[name]})" if name in GOALS else ""
            print(f"{name:28} {value:10.3f}{goal}")
    missed = [name for name, goal in GOALS.items() if found.get(name, 0.0) > goal]
    if missed:
        raise SystemExit(f"missed: {', '.join(missed)}")


if __name__ == "__main__":
    main()

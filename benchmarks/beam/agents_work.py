"""What the benchmarks of agents on Beam run.

One stream of samples, in batches and one by one, under several steps.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import apache_beam as beam
import numpy as np
from apache_beam.coders import FloatCoder, TupleCoder, VarIntCoder
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from apache_beam.transforms.userstate import ReadModifyWriteStateSpec

from meanstream.operators.agents.agents import AgentsSettings
from meanstream.pipelines.beam.agents.agent_transforms import CollaborateAgents, ReleaseMeans
from meanstream.streaming.events.event_columns import SampleColumns

BATCH = 1000
BEGIN = 1.7e9
SETTINGS = AgentsSettings(name="test", lower=-30, upper=120, epsilon=1.0, delta=1e-6)


def batches(samples: int, agents: int) -> Iterator[SampleColumns]:
    """Make samples of random agents, as time goes by."""
    names = [f"agent {number}" for number in range(agents)]
    rng = np.random.default_rng(1)
    for start in range(0, samples, BATCH):
        n = min(BATCH, samples - start)
        agent = rng.integers(0, agents, n)
        value = rng.normal(10.0, 20.0, n)
        yield SampleColumns(
            names,
            agent,
            value,
            BEGIN + np.arange(start, start + n) * 0.01,
            None,
            np.arange(start, start + n),
        )


def elements(samples: int, agents: int) -> Iterator[tuple[str, float]]:
    """Make the same, one by one."""
    for batch in batches(samples, agents):
        yield from zip(
            map(batch.names.__getitem__, batch.agent.tolist()), batch.value.tolist(), strict=True
        )


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
    return lambda start: (
        start | beam.FlatMap(lambda n: batches(n, agents)).with_output_types(SampleColumns)
    )


def mapped(agents: int) -> Callable[[Any], Any]:
    """Build a stateless step over the batches: the sum of what is within the bounds."""
    return lambda start: (
        made(agents)(start) | beam.Map(lambda b: float(np.clip(b.value, -30, 120).sum()))
    )


def summed(agents: int) -> Callable[[Any], Any]:
    """Build a stateless step that does a batch's part of the work.

    Each agent's count and sum in it.
    """

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

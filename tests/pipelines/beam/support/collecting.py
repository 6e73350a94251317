"""Pipelines of tests: run on a runner that is named, collect what comes out, in this process."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.runners.portability.fn_api_runner import FnApiRunner

from meanstream.pipelines.beam.rounds.round_transforms import Answered, Reported, Summarized
from meanstream.pipelines.beam.worker.beam_metrics import NAMESPACE, PRIVATE_NAMESPACE

COLLECTED: dict[int, list[Any]] = defaultdict(list)
_numbers = itertools.count()


class Collect(beam.DoFn):
    """Keeps every element of every execution."""

    def __init__(self, number: int) -> None:
        self._number = number

    def process(self, element: Any) -> Iterable[Any]:
        COLLECTED[self._number].append(element)
        yield element


def collector() -> tuple[beam.ParDo, list[Any]]:
    """A transform that lets everything through, and where it notes it."""
    number = next(_numbers)
    return beam.ParDo(Collect(number)), COLLECTED[number]


def run(
    elements: Sequence[Any], transform: Any, *, runner: Any = None, options: Sequence[str] = ()
) -> tuple[list[Any], dict[str, int]]:
    """What a transform makes of elements, and the pipeline's counters."""
    return run_pipeline(
        lambda pipeline: pipeline | beam.Create(elements, reshuffle=False) | transform,
        runner=runner,
        options=options,
    )


def run_pipeline(
    build: Callable[[beam.Pipeline], Any], *, runner: Any = None, options: Sequence[str] = ()
) -> tuple[list[Any], dict[str, int]]:
    """What a pipeline gives in the end (of several outputs the first), and its counters, public or
    not."""
    collect, found = collector()
    pipeline = beam.Pipeline(runner=runner or FnApiRunner(), options=PipelineOptions(list(options)))
    made = build(pipeline)
    _ = (
        made[0] if isinstance(made, (Answered, Reported, Summarized)) else made
    ) | "Collect" >> collect
    result = pipeline.run()
    result.wait_until_finish()
    counters: dict[str, int] = defaultdict(int)
    for counter in result.metrics().query()["counters"]:
        if counter.key.metric.namespace in (NAMESPACE, PRIVATE_NAMESPACE):
            counters[counter.key.metric.name] += counter.committed or 0
    return found, dict(counters)


def lines(estimates: Sequence[Any]) -> list[bytes]:
    """Estimates as in a sink, in the order of time."""
    ordered = sorted(estimates, key=lambda estimate: (estimate.end, estimate.start))
    return [estimate.model_dump_json().encode() for estimate in ordered]

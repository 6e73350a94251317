"""Agents' means by `CollaborateAgents` and by PipelineDP on Beam's FnApiRunner, on the same records: time and error.

    pip install pipeline-dp==0.3.1
    python benchmarks/beam/pipelinedp.py

100 agents with 600 samples each over a hundred windows, one by one. PipelineDP is told everything
at once and gives each agent's mean once: a trusted curator, Laplace noise, public partitions, each
sample its own privacy id, epsilon 1. Ours releases on schedule as the samples come, at epsilon 1
and delta 1e-6 for all releases together, and answers each agent in every window. Errors are root
mean squares over agents: of what is public from the agent's mean of the samples that it speaks of,
and of the agent's own answer from the mean, the same for all, that samples were drawn with. Prints
JSON.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from typing import Any

import apache_beam as beam
import numpy as np

from benchmarks.beam.agents_work import SETTINGS, cpu_seconds
from benchmarks.beam.beam_many_windows import AGENTS, PER_WINDOW, REFRESH, elements, window
from meanstream.pipelines.beam.agents.agent_transforms import CollaborateAgents, SingleEvents

WINDOWS = 100
ROUNDS = 3
TRUTH = 10.0
"""Mean of the normal distribution that `window` draws from."""


class Keep(beam.DoFn):  # type: ignore[misc]
    """Notes elements; the runner is embedded."""

    kept: list[Any] = []  # noqa: RUF012 - shared with copies of it

    def process(self, element: Any) -> Iterator[Any]:
        """Note one."""
        Keep.kept.append(element)
        yield element


def ours(start: Any) -> Any:
    """Build releases and answers."""
    answers = elements(start) | CollaborateAgents(SETTINGS, refresh=REFRESH)
    _ = (
        answers.releases
        | "Each release" >> SingleEvents(SETTINGS)
        | "Releases" >> beam.ParDo(Keep())
    )

    return (
        answers.estimates
        | "Each estimate" >> SingleEvents(SETTINGS)
        | "Estimates" >> beam.ParDo(Keep())
    )


def theirs(start: Any) -> Any:
    """Build PipelineDP's means."""
    import pipeline_dp  # noqa: PLC0415 - of the environment that compares

    records = elements(start) | beam.Map(
        lambda one: (one[2], one[0], one[1])
    )  # times are all different
    parameters = pipeline_dp.AggregateParams(
        metrics=[pipeline_dp.Metrics.MEAN],
        noise_kind=pipeline_dp.NoiseKind.LAPLACE,
        max_partitions_contributed=1,
        max_contributions_per_partition=1,
        min_value=SETTINGS.lower,
        max_value=SETTINGS.upper,
    )

    extractors = pipeline_dp.DataExtractors(
        privacy_id_extractor=lambda record: record[0],
        partition_extractor=lambda record: record[1],
        value_extractor=lambda record: record[2],
    )
    budget = pipeline_dp.NaiveBudgetAccountant(total_epsilon=SETTINGS.epsilon, total_delta=0.0)
    engine = pipeline_dp.DPEngine(budget, pipeline_dp.BeamBackend())
    names = [f"agent {n}" for n in range(AGENTS)]
    answer = engine.aggregate(records, parameters, extractors, public_partitions=names)

    budget.compute_budgets()
    return answer | "Means" >> beam.ParDo(Keep())


def clipped_means() -> dict[tuple[str, int], float]:
    """Give each agent's mean of its first so many samples, by its name and their number."""
    values: dict[str, list[float]] = {}
    for number in range(WINDOWS):
        one = window(number, PER_WINDOW, AGENTS)
        for agent, value in zip(
            one.agent.tolist(), np.clip(one.value, -30, 120).tolist(), strict=True
        ):
            values.setdefault(one.names[agent], []).append(value)

    return {
        (name, n + 1): mean
        for name, many in values.items()
        for n, mean in enumerate((np.cumsum(many) / np.arange(1, len(many) + 1)).tolist())
    }


def rms(errors: list[float]) -> float:
    """Give the root mean square."""
    return float(np.sqrt(np.mean(np.square(errors))))


def measured(name: str, build: Any) -> dict[str, float]:
    """Tell the time of a pipeline at its best, and keep what the last run has given."""
    cpu_seconds(1, build)
    idle = []
    best = []

    for _ in range(ROUNDS):
        idle.append(cpu_seconds(1, build))
        Keep.kept.clear()
        best.append(cpu_seconds(WINDOWS, build))

    samples = WINDOWS * PER_WINDOW
    return {
        f"{name}_microseconds": min(best) / samples * 1e6,
        f"{name}_one_window_seconds": min(idle),
    }


def main() -> None:
    """Measure both and print."""
    os.environ.setdefault("MEANSTREAM_SECRET", "6dc4c01b6b494373b7fb165cabd569fc")
    means = clipped_means()
    whole = {name: mean for (name, _), mean in means.items()}  # the last one of each stays
    found = measured("pipelinedp", theirs)
    found["pipelinedp_error"] = rms([metrics.mean - whole[name] for name, metrics in Keep.kept])
    found |= measured("meanstream", ours)
    newest = {event.agent: event for event in Keep.kept if hasattr(event, "release_id")}
    answers = {event.agent: event for event in Keep.kept if hasattr(event, "local")}
    found["meanstream_release_error"] = rms(
        [one.mean - means[name, one.n] for name, one in newest.items()]
    )

    found["meanstream_estimate_error"] = rms([one.value - TRUTH for one in answers.values()])
    found["own_mean_error"] = rms([one.local - TRUTH for one in answers.values()])
    print(json.dumps(found, indent=2))


if __name__ == "__main__":
    main()

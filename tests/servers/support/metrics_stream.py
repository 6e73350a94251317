"""A pipeline of agents without end, whose counts are known: what it is given, and what it must have
counted."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.transforms.periodicsequence import PeriodicImpulse
from apache_beam.utils.timestamp import MAX_TIMESTAMP, Timestamp

from meanstream.operators.agents.agents import AgentsSettings
from meanstream.pipelines.beam.agents.agent_transforms import CollaborateAgents, agent_batch
from meanstream.pipelines.beam.element_types.beam_samples import AgentBatch
from meanstream.pipelines.beam.worker.worker_secret import SecretLocation

SETTINGS = AgentsSettings(
    name="test", lower=0, upper=10, epsilon=1, delta=1e-6, schedule="geometric:2,1.5", horizon=4
)
EVERY, REFRESH = 0.5, 2.0
"""Seconds between batches, and of a window."""
BATCHES, AGENTS = 20, 6
BAD, REPEATED, LATE = 3, 4, 5
"""Samples that are not used, of each kind."""

BEFORE = {
    "events": BATCHES * AGENTS + BAD + REPEATED,
    "releases": 4 * AGENTS,
    "refusals": 0,
    "agents": AGENTS,
}
BEFORE |= {"estimates": round(BATCHES * EVERY / REFRESH) * AGENTS, "exhausted": AGENTS}
"""What is counted of the first batches: releases are due after 2, 3, 5 and 8 samples, then the
horizon is reached."""
AFTER = {
    **BEFORE,
    "events": BEFORE["events"] + AGENTS + LATE,
    "estimates": BEFORE["estimates"] + AGENTS,
}
"""What is counted once the late samples came, with one more good sample of every agent."""


def batches_at(second: float, begin: float, late: str) -> Iterator[AgentBatch]:
    """One sample of every agent in each batch, a few of them with faults; then nothing, but event
    time goes on.

    As soon as there is a file `late`, it is removed, and late samples come, once.
    """
    number = round((second - begin) / EVERY)
    rows = []
    if 0 <= number < BATCHES:
        rows = [
            (f"agent {a}", float((a * 7 + number) % 10), second, f"{number}/{a}")
            for a in range(AGENTS)
        ]
        rows += [("agent 0", math.nan, second, f"{number}/bad")] if number < BAD else []
        rows += [rows[0]] if number < REPEATED else []
    elif number >= BATCHES and Path(late).exists():
        Path(late).unlink()
        rows = [(f"agent {a}", 5.0, second, f"{number}/{a}") for a in range(AGENTS)]
        rows += [("agent 1", 1.0, begin, f"late {n}") for n in range(LATE)]
    if rows:
        agent, value, at, ids = zip(*rows, strict=True)
        yield agent_batch(agent, value, at, ids=ids)


def submit(arguments: Sequence[str], secret: SecretLocation, late: Path) -> None:
    """Start it; it runs until it is cancelled."""
    begin = math.ceil(time.time() / REFRESH) * REFRESH
    pipeline = beam.Pipeline(options=PipelineOptions([*arguments, "--runner=PortableRunner"]))
    batches: Any = (
        pipeline
        | "Clock" >> PeriodicImpulse(Timestamp(begin), MAX_TIMESTAMP, EVERY)
        | "Batches" >> beam.FlatMap(batches_at, begin, str(late)).with_output_types(AgentBatch)
    )
    _ = batches | "Agents" >> CollaborateAgents(SETTINGS, secret=secret, refresh=REFRESH)
    pipeline.run()

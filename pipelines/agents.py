"""Agents in a Beam pipeline: samples to releases, which anybody may read, and to each agent's own estimate.

Two lines of a pipeline are enough::

    samples = pipeline | beam.Create([("N14228", 7.0, 1357034400.0), ("N24211", -4.0, 1357037000.0)])
    answers = samples | CollaborateAgents(lower=-30, upper=120, epsilon=1.0, delta=1e-6)

`answers.estimates` is private: each line is for its agent. `answers.releases` and `answers.population` are public.
`CollaborateAgents` is made of parts that can be applied alone: `ReleaseMeans` (private to public), `SnapshotReleases`
(public) and `EstimateAgents` (private). In a federation each party releases and answers its own agents, and reads
everybody's releases from a topic, which is all that it sees of the others::

    made = samples | ReleaseMeans(settings, refresh=3600)
    population = topic | SnapshotReleases(settings, options, AgentWindows(refresh=3600), ticks=made.ticks)
    estimates = made.own | EstimateAgents(settings, options, AgentWindows(refresh=3600), population=population)

Whatever runs them, name the runner: `DirectRunner` may run a pipeline again
on another.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import apache_beam as beam
import numpy as np
import pyarrow as pa

import pipelines.beam.agents.coders as _coders  # noqa: F401 - coders register themselves
from operators.agents import AgentsSettings
from operators.collaboration import make_collaboration
from operators.pairwise_federation import FederationSettings
from operators.validation import require
from pipelines.beam.agents.answer import (
    TellEstimates,
    TellPopulation,
    TellReleases,
)
from pipelines.beam.agents.pairwise import CollaboratePairwise, PairwiseCollaborated
from pipelines.beam.agents.parts import Released, ReleaseMeans
from pipelines.beam.agents.records import (
    AgentBatch,
    AgentReleases,
)
from pipelines.beam.agents.snapshot import EstimateAgents, SnapshotReleases
from pipelines.beam.agents.windows import AgentWindows
from pipelines.beam.samples import SHARDS, sample_batch
from pipelines.beam.secret import SecretPlace
from streaming.events import PersonalEstimate, Population, Release
from streaming.hashing import hash_ids
from streaming.options import EngineOptions

__all__ = [
    "AgentReleases",
    "AgentWindows",
    "AgentsSettings",
    "CollaborateAgents",
    "CollaboratePairwise",
    "Collaborated",
    "EngineOptions",
    "EstimateAgents",
    "FederationSettings",
    "PairwiseCollaborated",
    "ReleaseMeans",
    "Released",
    "SecretPlace",
    "SingleEvents",
    "SnapshotReleases",
    "agent_batch",
]


class Collaborated(NamedTuple):
    """What `CollaborateAgents` gives: batches; `SingleEvents` takes them apart.

    Attributes
    ----------
    estimates : PCollection of EstimateBatch
        Private: each line is addressed to its agent and to nobody else.
    releases, population, notices, refusals : PCollection
        Public: `AgentReleases`, `Population`, `BudgetEvent`, `Refusal`.
    """

    estimates: beam.PCollection
    releases: beam.PCollection
    population: beam.PCollection
    notices: beam.PCollection
    refusals: beam.PCollection


def agent_batch(
    agent: Sequence[str] | np.ndarray | pa.Array, value: Any, time: Any, *, ids: Sequence[str] | None = None
) -> AgentBatch:
    """Make one element of many samples.

    Parameters
    ----------
    agent : sequence of str (n,)
        Whose sample it is.
    value : float array (n,)
        In the unit of the declared bounds.
    time : float array (n,)
        Event time, seconds since the epoch.
    ids : sequence of str (n,), optional
        Identifies a sample: of several with one id the first in event time counts. Samples of one agent that share an
        event time are taken in the order of their ids; give them where a source may give samples in another order.

    Examples
    --------
    >>> batch = agent_batch(["a", "b", "a"], [1.0, 2.0, 3.0], [0.0, 1.0, 2.0], ids=["1", "2", "1"])
    >>> batch.names, bool(batch.key[0] == batch.key[2])
    (['a', 'b'], True)
    """
    batch = sample_batch(agent, value, time)
    key = None
    if ids is not None:
        text = [one.encode() for one in ids]
        require(len(text) == len(batch) and all(text), "ids", f"be {len(batch)} non-empty strings", len(text))
        offsets = np.concatenate([[0], np.cumsum([len(one) for one in text], dtype=np.int64)])
        key = hash_ids(np.frombuffer(b"".join(text), np.uint8), offsets)
    position = np.arange(1, len(batch) + 1)
    return AgentBatch(batch.names, batch.agent, batch.value, batch.time, key, position)


class CollaborateAgents(beam.PTransform):  # type: ignore[misc]
    """Samples to every agent's own estimate, with an interval, and to the releases that others learn from.

    Input as for `ReleaseMeans`; output: `Collaborated`.

    **Privacy.** What leaves is (epsilon, delta)-differentially private with respect to the value of each sample. An
    estimate is for its agent.

    Parameters
    ----------
    settings : AgentsSettings, optional
        Or, instead, its parameters by name: lower, upper, epsilon, delta, schedule, horizon, ...
    secret, refresh, allowed_lateness, final_release, shards
        As for `ReleaseMeans`. With `refresh` the agents with new samples are answered at each multiple, otherwise
        everybody at the end.
    collaboration : str, optional
        "learned_prior", "tests" or "none"; by default that of the mode.
    level : float
        Coverage of the intervals.
    stddev : float, optional
        Standard deviation of one sample, where it is known.

    Examples
    --------
    >>> CollaborateAgents(lower=0, upper=1, epsilon=1.0, delta=1e-6, refresh=0.5)
    Traceback (most recent call last):
    ValueError: refresh must be at least 1 s on Beam, got 0.5
    """

    def __init__(
        self,
        settings: AgentsSettings | None = None,
        *,
        secret: SecretPlace | None = None,
        refresh: float | None = None,
        allowed_lateness: float = 0.0,
        final_release: bool | None = None,
        shards: int = SHARDS,
        collaboration: str | None = None,
        level: float = 0.95,
        stddev: float | None = None,
        **parameters: Any,
    ) -> None:
        super().__init__()
        require(settings is None or not parameters, "settings", "be given once", ", ".join(parameters))
        self._settings = settings or AgentsSettings(**parameters)
        name = collaboration or ("tests" if self._settings.mode == "paper" else "learned_prior")
        make_collaboration(name, lower=self._settings.lower, upper=self._settings.upper)
        self._options = EngineOptions(collaboration=name, level=level, stddev=stddev)
        self._windows = AgentWindows(refresh=refresh, lateness=allowed_lateness)
        self._shards = shards
        self._release = ReleaseMeans(
            self._settings,
            secret=secret,
            refresh=refresh,
            allowed_lateness=allowed_lateness,
            final_release=final_release,
            shards=shards,
        )

    def expand(self, pcoll: beam.PCollection) -> Collaborated:
        """Release, fit, answer."""
        made = pcoll | "Release" >> self._release
        return collaborated(made, self._settings, self._options, self._windows, shards=self._shards)


def collaborated(
    made: Released, settings: AgentsSettings, options: EngineOptions, windows: AgentWindows, *, shards: int
) -> Collaborated:
    """Fit the population to releases, and answer the agents."""
    population = made | "Snapshot" >> SnapshotReleases(settings, options, windows, shards=shards)
    estimates = made.own | "Estimate" >> EstimateAgents(
        settings, options, windows, population=population, shards=shards
    )
    tell = beam.ParDo(TellPopulation(settings, options)).with_output_types(Population)
    return Collaborated(estimates, made.releases, population | "Tell" >> tell, made.notices, made.refusals)


class SingleEvents(beam.PTransform):  # type: ignore[misc]
    """Batches of releases or of estimates to single events, `Release` or `PersonalEstimate`.

    Parameters
    ----------
    settings : AgentsSettings
        How the releases were made.
    """

    def __init__(self, settings: AgentsSettings) -> None:
        super().__init__()
        self._settings = settings

    def expand(self, pcoll: beam.PCollection) -> beam.PCollection:
        """Write them."""
        if pcoll.element_type is AgentReleases:
            return pcoll | beam.ParDo(TellReleases(self._settings)).with_output_types(Release)
        return pcoll | beam.ParDo(TellEstimates()).with_output_types(PersonalEstimate)

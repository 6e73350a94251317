"""Agents in a Beam pipeline: samples to releases, which anybody may read, and to each agent's own estimate.

Two lines of a pipeline are enough::

    samples = pipeline | beam.Create([("N14228", 7.0, 1357034400.0), ("N24211", -4.0, 1357037000.0)])
    answers = samples | CollaborateAgents(name="delays", lower=-30, upper=120, epsilon=1.0, delta=1e-6)

The name tells this deployment's noise from that of every other one under the same secret; a value column of its own, or
a job of its own, takes a name of its own. `answers.estimates` is private: each line is for its agent.
`answers.releases` and `answers.population` are public. `CollaborateAgents` is made of parts that can be applied alone:
`ReleaseMeans` (private to public), `SnapshotReleases` (public) and `EstimateAgents` (private). In a federation each
party releases and answers its own agents, and reads everybody's releases from a topic, which is all that it sees of the
others::

    made = samples | ReleaseMeans(settings, refresh=3600)
    population = topic | SnapshotReleases(settings, options, AgentWindows(refresh=3600), ticks=made.ticks)
    estimates = made.own | EstimateAgents(settings, options, AgentWindows(refresh=3600), population=population)

Whatever runs them, name the runner: `DirectRunner` may run a pipeline again
on another.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import apache_beam as beam
import numpy as np
import pyarrow as pa

import meanstream.pipelines.beam.agents.agents_coders as _coders  # noqa: F401 - coders register themselves
from meanstream.operators.agents.agents import AgentsSettings
from meanstream.operators.agents.usual import usual_histogram
from meanstream.operators.collaboration.covariates.agent_covariates import AgentCovariates
from meanstream.operators.collaboration.registry import make_collaboration
from meanstream.operators.limits import MAX_AGENTS
from meanstream.operators.papers.colme.pairwise_federation import FederationSettings
from meanstream.operators.records import Words
from meanstream.operators.validation import require
from meanstream.pipelines.beam.agents.agents_elements import AgentReleases
from meanstream.pipelines.beam.agents.agents_parts import Released, ReleaseMeans
from meanstream.pipelines.beam.agents.agents_windows import AgentWindows
from meanstream.pipelines.beam.agents.answer_agents import (
    FormatEstimates,
    FormatReleases,
)
from meanstream.pipelines.beam.agents.collaborated import Collaborated, collaborated
from meanstream.pipelines.beam.agents.hashed_covariates import covariates_given
from meanstream.pipelines.beam.agents.pairwise_turns import CollaboratePairwise, PairwiseCollaborated
from meanstream.pipelines.beam.agents.snapshot_releases import EstimateAgents, SnapshotReleases
from meanstream.pipelines.beam.element_types.agent_batch import AgentBatch
from meanstream.pipelines.beam.element_types.beam_samples import AGENT_SHARDS, sample_batch
from meanstream.pipelines.beam.element_types.elements import Part, SampleFields
from meanstream.pipelines.beam.input.parse_messages import Parsed, ParseMessages, SampleRow, SampleRows
from meanstream.pipelines.beam.worker.transform_arguments import (
    as_kind,
    as_seconds,
    as_shards,
    require_told_quantiles,
    settings_given,
    shown_settings,
)
from meanstream.pipelines.beam.worker.worker_secret import SecretPlace
from meanstream.streaming.engine.engine_options import EngineOptions
from meanstream.streaming.events.hashing import MAX_ID_BYTES, PERSONS, hash_ids
from meanstream.streaming.events.wire import PersonalEstimate, Release
from meanstream.streaming.sources.mapping import ColumnMapping

__all__ = [
    "AgentReleases",
    "AgentWindows",
    "AgentsSettings",
    "CollaborateAgents",
    "CollaboratePairwise",
    "Collaborated",
    "ColumnMapping",
    "EngineOptions",
    "EstimateAgents",
    "FederationSettings",
    "PairwiseCollaborated",
    "ParseMessages",
    "Parsed",
    "ReleaseMeans",
    "Released",
    "SampleFields",
    "SampleRow",
    "SampleRows",
    "SecretPlace",
    "SingleEvents",
    "SnapshotReleases",
    "agent_batch",
]


def agent_batch(
    agent: Sequence[str] | np.ndarray | pa.Array,
    value: Any,
    time: Any,
    *,
    ids: Sequence[str] | None = None,
    persons: Sequence[str] | None = None,
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
        Identifies a sample of its agent: of several with one id the first in event time counts. Samples of one agent
        that share an event time are taken in the order of their ids; give them where a source may give samples in
        another order.
    persons : sequence of str (n,), optional
        Whose sample it is within its agent, where `AgentsSettings.per_person` limits a person's samples.

    Examples
    --------
    >>> batch = agent_batch(["a", "b", "a"], [1.0, 2.0, 3.0], [0.0, 1.0, 2.0], ids=["1", "2", "1"])
    >>> batch.names, bool(batch.key[0] == batch.key[2])
    (['a', 'b'], True)
    """
    batch = sample_batch(agent, value, time)
    key = None if ids is None else _hashed("ids", ids, len(batch), b"")
    person = None if persons is None else _hashed("persons", persons, len(batch), PERSONS)
    position = np.arange(1, len(batch) + 1)
    return AgentBatch(batch.names, batch.agent, batch.value, batch.time, key, position, person)


def _hashed(name: str, texts: Sequence[str], n: int, key: bytes) -> Words:
    """Hash ids or persons as a source does."""
    text = [one.encode() for one in texts]
    ok = len(text) == n and all(0 < len(one) <= MAX_ID_BYTES for one in text)
    require(ok, name, f"be {n} strings of 1 to {MAX_ID_BYTES} bytes", len(text))
    offsets = np.concatenate([[0], np.cumsum([len(one) for one in text], dtype=np.int64)])
    return hash_ids(np.frombuffer(b"".join(text), np.uint8), offsets, key)


class CollaborateAgents(beam.PTransform):  # type: ignore[misc]
    """Samples to every agent's own estimate, with an interval, and to the releases that others learn from.

    Input as for `ReleaseMeans`; output: `Collaborated`.

    **Privacy.** What leaves is (epsilon, delta)-differentially private with respect to the value of each sample, or,
    with `settings.per_person`, to all samples of a person within an agent. An estimate is for its agent.

    Parameters
    ----------
    settings : AgentsSettings, optional
        The deployment's `name` must be given.
    name, lower, upper, epsilon, delta, counter, horizon, schedule
        Or, instead, the parameters of `AgentsSettings`.
    noise, calibration, levels, mode, per_person, spread_share, memory, histogram_share, exceeds
        As above; a tenth of the budget goes into the histogram where quantiles or exceedances are asked for and nothing
        else is said.
    secret, refresh, allowed_lateness, final_release, shards, agent, value, time, id, person, max_future, max_agents
        As for `ReleaseMeans`. With `refresh` the agents with new samples are answered at each multiple, otherwise
        everybody at the end.
    collaboration : str, optional
        "learned_prior", "pooled_prior", "james_stein", "tests" or "none"; by default that of the mode.
    level : float
        Coverage of the intervals.
    stddev : float, optional
        Standard deviation of one sample, where it is known.
    quantiles : sequence of float
        Quantiles of its own values that each agent is told; of a histogram.
    covariates : mapping of str to mapping, optional
        Public attributes of the agents, by name and attribute: whoever declares them makes them public. Every worker
        holds all of them.

    Examples
    --------
    >>> CollaborateAgents(name="delays", lower=0, upper=1, epsilon=1.0, delta=1e-6, refresh=0.5)
    Traceback (most recent call last):
    ValueError: refresh must be at least 1 s on Beam, got 0.5
    >>> CollaborateAgents(lower=0, upper=1, epsilon=1.0, delta=1e-6)
    Traceback (most recent call last):
    ValueError: name must be given on Beam: it is part of the key of the noise and of every release's id, got None
    """

    def __init__(
        self,
        settings: AgentsSettings | None = None,
        *,
        secret: SecretPlace | None = None,
        refresh: float | str | None = None,
        allowed_lateness: float | str = 0.0,
        final_release: bool | None = None,
        shards: int = AGENT_SHARDS,
        collaboration: str | None = None,
        level: float = 0.95,
        stddev: float | None = None,
        quantiles: Sequence[float] = (),
        covariates: AgentCovariates | Mapping[str, Mapping[str, Any]] | None = None,
        agent: Part = "agent",
        value: Part = "value",
        time: Part | None = None,
        id: Part | None = None,  # noqa: A002 - what it is called in every source
        person: Part | None = None,
        max_future: float | None = None,
        max_agents: int = MAX_AGENTS,
        name: str | None = None,
        lower: float | None = None,
        upper: float | None = None,
        epsilon: float | None = None,
        delta: float | None = None,
        counter: str | None = None,
        horizon: int | None = None,
        schedule: str | None = None,
        noise: str | None = None,
        calibration: str | None = None,
        levels: int | None = None,
        mode: str | None = None,
        per_person: int | None = None,
        spread_share: float | None = None,
        memory: str | None = None,
        histogram_share: float | None = None,
        exceeds: Sequence[float] | None = None,
    ) -> None:
        super().__init__()
        parameters = {
            "lower": lower, "upper": upper, "epsilon": epsilon, "delta": delta, "counter": counter, "horizon": horizon,
            "schedule": schedule, "noise": noise, "calibration": calibration, "levels": levels, "mode": mode,
            "per_person": per_person, "name": name, "spread_share": spread_share, "memory": memory,
            "histogram_share": histogram_share, "exceeds": exceeds,
        }  # fmt: skip
        given = settings_given(settings, parameters, ("lower", "upper", "epsilon", "delta"))
        if settings is None:
            given |= usual_histogram(quantiles, given.get("exceeds", ()), given)
        self._settings = settings or AgentsSettings(**given)
        refresh = None if refresh is None else as_seconds("refresh", refresh)
        allowed_lateness, shards = as_seconds("allowed_lateness", allowed_lateness), as_shards(shards)
        collaboration = collaboration or ("tests" if self._settings.mode == "paper" else "learned_prior")
        make_collaboration(collaboration, lower=self._settings.lower, upper=self._settings.upper)
        options = EngineOptions(
            collaboration=collaboration,
            level=level,
            stddev=stddev,
            quantiles=tuple(quantiles),
            covariates=covariates_given(covariates),
        )
        self._options = require_told_quantiles(self._settings, options)
        self._windows = AgentWindows(refresh=refresh, lateness=allowed_lateness)
        self._shards = shards
        self._release = ReleaseMeans(
            self._settings,
            secret=secret,
            refresh=refresh,
            allowed_lateness=allowed_lateness,
            final_release=final_release,
            shards=shards,
            agent=agent,
            value=value,
            time=time,
            id=id,
            person=person,
            max_future=max_future,
            max_agents=max_agents,
        )

    def display_data(self) -> dict[str, Any]:
        """Show the settings, which are public."""
        options = self._options
        return shown_settings(
            self._settings, refresh=self._windows.refresh, shards=self._shards, level=options.level,
            collaboration=options.collaboration, quantiles=options.quantiles or None,
        )  # fmt: skip

    def expand(self, pcoll: beam.PCollection) -> Collaborated:
        """Release, fit, answer."""
        made = pcoll | "Release" >> self._release
        return collaborated(made, self._settings, self._options, self._windows, shards=self._shards)


class SingleEvents(beam.PTransform):  # type: ignore[misc]
    """Batches of releases or of estimates to single events, `Release` or `PersonalEstimate`.

    Parameters
    ----------
    settings : AgentsSettings
        How the releases were made.
    """

    def __init__(self, settings: AgentsSettings) -> None:
        super().__init__()
        self._settings = as_kind("settings", settings, AgentsSettings)

    def expand(self, pcoll: beam.PCollection) -> beam.PCollection:
        """Write them."""
        if pcoll.element_type is AgentReleases:
            return pcoll | beam.ParDo(FormatReleases(self._settings)).with_output_types(Release)
        return pcoll | beam.ParDo(FormatEstimates()).with_output_types(PersonalEstimate)

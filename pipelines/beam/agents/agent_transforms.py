"""Agents in a Beam pipeline.

Samples to releases, which anyone may read, and to each agent's own estimate.

Three lines of a pipeline are enough::

    rows = [("N14228", 7.0, 1357034400.0), ("N24211", -4.0, 1357037000.0)]
    learn = CollaborateAgents(name="delays", lower=-30, upper=120, epsilon=1.0)
    answers = pipeline | beam.Create(rows) | learn

The name tells this deployment's noise from that of every other one under the same secret; a value
column of its own, or a job of its own, takes a name of its own. `answers.estimates` is private:
each line is for its agent. `answers.releases` and `answers.population` are public.
`CollaborateAgents` is made of parts that can be applied alone: `ReleaseMeans` (private to public),
`SnapshotReleases` (public) and `EstimateAgents` (private). In a federation each party releases and
answers its own agents, and reads everyone's releases from a topic, which is all that it sees of the
others::

    windows = AgentWindows(refresh=3600)
    made = samples | ReleaseMeans(settings, refresh=3600)
    population = topic | SnapshotReleases(settings, options, windows, ticks=made.ticks)
    estimates = made.own | EstimateAgents(settings, options, windows, population=population)

Whatever runs them, name the runner: `DirectRunner` may run a pipeline again
on another.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any
from unicodedata import is_normalized

import apache_beam as beam
import numpy as np
import pyarrow as pa

from meanstream.lab.papers.colme.pairwise_stream_settings import PairwiseStreamSettings
from meanstream.operators.agents.agents import AgentsSettings
from meanstream.operators.agents.defaults import usual_histogram
from meanstream.operators.collaboration.registry import make_collaboration
from meanstream.operators.records import Words
from meanstream.operators.validation import require
from meanstream.pipelines.beam.agents.agents_coders import require_coded
from meanstream.pipelines.beam.agents.agents_elements import AgentReleases, ForgetAgent
from meanstream.pipelines.beam.agents.agents_parts import Released, ReleaseMeans
from meanstream.pipelines.beam.agents.agents_windows import AgentWindows
from meanstream.pipelines.beam.agents.answer_agents import (
    FormatEstimates,
    FormatReleases,
)
from meanstream.pipelines.beam.agents.fit_population import agent_covariates
from meanstream.pipelines.beam.agents.pairwise_turns import (
    CollaboratePairwise,
    PairwiseCollaborated,
)
from meanstream.pipelines.beam.agents.snapshot_releases import (
    Collaborated,
    EstimateAgents,
    SnapshotReleases,
    collaborated,
)
from meanstream.pipelines.beam.element_types.beam_samples import (
    AGENT_SHARDS,
    AgentBatch,
    sample_batch,
)
from meanstream.pipelines.beam.element_types.elements import SampleFields
from meanstream.pipelines.beam.input.parse_messages import (
    Parsed,
    ParseMessages,
    SampleRow,
    SampleRows,
)
from meanstream.pipelines.beam.worker.transform_arguments import (
    as_kind,
    as_seconds,
    as_shards,
    require_histogram_of_quantiles,
    settings_from_parameters,
    shown_settings,
    suggesting_keywords,
)
from meanstream.pipelines.beam.worker.worker_secret import SecretLocation
from meanstream.streaming.engine.engine_options import EngineOptions
from meanstream.streaming.events.event_columns import MAX_ID_BYTES, PERSONS, hash_ids
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
    "ForgetAgent",
    "PairwiseCollaborated",
    "PairwiseStreamSettings",
    "ParseMessages",
    "Parsed",
    "ReleaseMeans",
    "Released",
    "SampleFields",
    "SampleRow",
    "SampleRows",
    "SecretLocation",
    "SingleEvents",
    "SnapshotReleases",
    "agent_batch",
    "agent_covariates",
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
        Identifies a sample of its agent: of several with one id the first in event time counts.
        Samples of one agent that share an event time are taken in the order of their ids; give them
        where a source may give samples in another order.
    persons : sequence of str (n,), optional
        Whose sample it is within its agent, where `AgentsSettings.per_person` limits a person's
        samples.

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
    spelled = key != PERSONS or all(is_normalized("NFC", one) for one in texts)
    require(spelled, name, "be in Unicode's NFC, so that a person has one spelling", "others")
    offsets = np.concatenate([[0], np.cumsum([len(one) for one in text], dtype=np.int64)])

    return hash_ids(np.frombuffer(b"".join(text), np.uint8), offsets, key)


class CollaborateAgents(beam.PTransform):  # type: ignore[misc]
    """Samples to every agent's own estimate, and to the releases that others learn from.

    Input as for `ReleaseMeans`; output: `Collaborated`.

    **Privacy.** What leaves is (epsilon, delta)-differentially private with respect to the value of
    each sample, or, with `settings.per_person`, to all samples of a person within an agent. An
    estimate is for its agent.

    Parameters
    ----------
    settings : AgentsSettings, optional
        The deployment's `name` must be given.
    options : EngineOptions, optional
        Of answers: collaboration (by default that of the mode), level, stddev, quantiles and
        covariates; further as for `ReleaseMeans`. Every worker holds the covariates: see
        `agent_covariates`.
    secret, refresh, fields, shards
        As for `ReleaseMeans`. With `refresh` the agents with new samples are answered at each
        multiple, otherwise everyone at the end.
    name, lower, upper, epsilon, odds, delta
        Instead of `settings`: those of `AgentsSettings`, whose other parameters are then as usual;
        `epsilon` or `odds`.
        A tenth of the budget goes into the histogram where quantiles are requested.

    Examples
    --------
    >>> CollaborateAgents(name="delays", lower=0, upper=1, epsilon=1.0, delta=1e-6, refresh=0.5)
    Traceback (most recent call last):
    ValueError: refresh must be at least 1 s on Beam, got 0.5
    >>> CollaborateAgents(lower=0, upper=1, epsilon=1.0, delta=1e-6)
    Traceback (most recent call last):
    ValueError: name must be given on Beam: it is part of the key of the noise and of every release's id, got None
    """

    @suggesting_keywords
    def __init__(
        self,
        settings: AgentsSettings | None = None,
        options: EngineOptions | None = None,
        *,
        secret: SecretLocation | None = None,
        refresh: float | str | None = None,
        fields: SampleFields | None = None,
        shards: int = AGENT_SHARDS,
        name: str | None = None,
        lower: float | None = None,
        upper: float | None = None,
        epsilon: float | None = None,
        odds: float | str | None = None,
        delta: float | None = None,
    ) -> None:
        super().__init__()
        parameters = {
            "lower": lower,
            "upper": upper,
            "epsilon": epsilon,
            "odds": odds,
            "delta": delta,
            "name": name,
        }
        given = settings_from_parameters(
            settings, parameters, ("lower", "upper", "epsilon" if odds is None else "odds")
        )

        told = as_kind("options", options or EngineOptions(), EngineOptions)
        self.settings = settings or AgentsSettings(
            **given | usual_histogram(told.quantiles, (), {})
        )

        if options is None and self.settings.mode == "paper":
            told = replace(told, collaboration="tests")

        require_coded(
            make_collaboration(
                told.collaboration, lower=self.settings.lower, upper=self.settings.upper
            )
        )
        self._options = require_histogram_of_quantiles(self.settings, told)

        refresh, shards = (
            None if refresh is None else as_seconds("refresh", refresh),
            as_shards(shards),
        )
        self._windows = AgentWindows(refresh=refresh, lateness=told.allowed_lateness)
        self._shards = shards
        self._release = ReleaseMeans(
            self.settings, told, secret=secret, refresh=refresh, fields=fields, shards=shards
        )

    def display_data(self) -> dict[str, Any]:
        """Show the settings, which are public."""
        options = self._options
        return shown_settings(
            self.settings, refresh=self._windows.refresh, shards=self._shards, level=options.level,
            collaboration=options.collaboration, quantiles=options.quantiles or None,
        )  # fmt: skip

    def expand(self, pcoll: beam.PCollection) -> Collaborated:
        """Release, fit, answer."""
        made = pcoll | "Release" >> self._release
        return collaborated(made, self.settings, self._options, self._windows, shards=self._shards)


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

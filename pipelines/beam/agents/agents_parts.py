"""Private to public: samples to releases, as a transform that can be applied alone.

See `agents`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import apache_beam as beam
from apache_beam.pvalue import DoOutputsTuple

import meanstream.pipelines.beam.agents.agents_coders as _coders  # noqa: F401 - it registers
from meanstream.operators.agents.agents import AgentsSettings
from meanstream.operators.agents.agents_settings import settings_identity
from meanstream.operators.agents.release_times import Every
from meanstream.operators.limits import MAX_AGENTS
from meanstream.operators.validation import require
from meanstream.pipelines.beam.agents.agents_elements import AgentReleases, OwnBatch
from meanstream.pipelines.beam.agents.agents_windows import (
    KEYED,
    NOTE,
    AgentWindows,
    TickShards,
    TicksOf,
)
from meanstream.pipelines.beam.agents.release_agents import (
    DRIFTS,
    NOTICES,
    OWN,
    REFUSALS,
    ReleaseShard,
)
from meanstream.pipelines.beam.agents.split_agents import NOTES, SplitByShard
from meanstream.pipelines.beam.element_types.beam_samples import AGENT_SHARDS
from meanstream.pipelines.beam.element_types.elements import SampleFields
from meanstream.pipelines.beam.input.beam_intake import REJECTED, SampleIntake
from meanstream.pipelines.beam.keyed_state.beam_state import StateOwner
from meanstream.pipelines.beam.worker.beam_steps import ForGood, typed_outputs
from meanstream.pipelines.beam.worker.transform_arguments import (
    as_kind,
    as_seconds,
    as_shards,
    require_timers,
    shown_settings,
    suggesting_keywords,
)
from meanstream.pipelines.beam.worker.worker_secret import SecretLocation, require_beam_secret_named
from meanstream.streaming.engine.engine_options import EngineOptions
from meanstream.streaming.events.wire import BudgetEvent, DeadLetter, DriftEvent, Refusal


class Released(NamedTuple):
    """What `ReleaseMeans` gives.

    Attributes
    ----------
    releases : PCollection of AgentReleases
        Public.
    own : PCollection of OwnBatch
        Private: each agent's own samples, summed up, for its owner.
    notices : PCollection of BudgetEvent
        Public: agents that made the last release of their horizon.
    refusals : PCollection of Refusal
        Public: releases that were refused.
    ticks : PCollection of (int, Tick)
        Public: the windows that have ended, for the shards that have something in them.
    rejected : PCollection of DeadLetter
        Public: elements that were no samples, with the reason and nothing of what they said.
    drifts : PCollection of DriftEvent
        Public: agents whose releases show that their mean has changed, or may have; with a memory
        only.
    """

    releases: beam.PCollection
    own: beam.PCollection
    notices: beam.PCollection
    refusals: beam.PCollection
    ticks: beam.PCollection
    rejected: beam.PCollection
    drifts: beam.PCollection


class ReleaseMeans(beam.PTransform):  # type: ignore[misc]
    """Private to public: samples to releases on schedule, and each agent's own sums for its owner.

    Input: samples in the global window, their parts taken by name (`elements.SampleFields`), or
    batches of them made by `agent_batch`. Output: `Released`. An element that is no sample goes to
    `rejected`, and changes nothing for the others. A `ForgetAgent` among them erases what the state
    holds of an agent: samples of it that come later are counted (`rejected_forgotten`) if it has
    released, and begin a new agent if it has not.

    **Privacy.** Neighboring streams differ in the value of one sample (with `settings.per_person`:
    of all samples of one person within an agent); who produced samples and when is public. All
    releases of an agent are (epsilon, delta)-differentially private for the life of the pipeline's
    state. What is executed again releases the same again.

    Parameters
    ----------
    settings : AgentsSettings
        Bounds, privacy parameters, counter and schedule, and the deployment's name.
    options : EngineOptions, optional
        `allowed_lateness`: seconds that a window waits for samples behind the watermark; later ones
        are counted (`rejected_late`). `final_release`: whether everyone with new samples releases
        once more at the end, which there is without `refresh`. `max_agents`: how many agents are
        taken, each shard its part of them, the first in event time; samples of others are counted
        (`rejected_too_many_agents`), and no one who was taken is displaced. `max_future`: seconds
        that a sample may lie ahead of the clock. The rest of it is not used here.
    secret : SecretLocation, optional
        Where workers find the secret; by default in their environment.
    refresh : float or str, optional
        Seconds of event time, or a duration such as "60s": shards take samples in at each multiple.
        By default once, at the end of a bounded input.
    fields : SampleFields, optional
        Names of fields, or functions of an element. A person is given with `settings.per_person`,
        and only then: at most that many samples of a person count within an agent, the first ones
        in event time; the rest are counted (`rejected_over_person`).
    shards : int
        Into how many parts the agents are split by hash: the most workers that can share them.
    """

    @suggesting_keywords
    def __init__(
        self,
        settings: AgentsSettings,
        options: EngineOptions | None = None,
        *,
        secret: SecretLocation | None = None,
        refresh: float | str | None = None,
        fields: SampleFields | None = None,
        shards: int = AGENT_SHARDS,
    ) -> None:
        super().__init__()
        require_beam_secret_named(as_kind("settings", settings, AgentsSettings))
        told = as_kind("options", options or EngineOptions(), EngineOptions)
        given = fields or SampleFields()
        as_kind("fields", given, SampleFields)
        require(
            given.person is None or settings.per_person is not None,
            "per_person",
            "be given with person",
            None,
        )

        shards = as_shards(shards)
        refresh = None if refresh is None else as_seconds("refresh", refresh)
        require(
            told.max_agents >= shards,
            "max_agents",
            f"be at least the shards, {shards}",
            told.max_agents,
        )

        self._most = -(-told.max_agents // shards)
        self._settings = settings
        self._secret = secret or SecretLocation()
        self._windows = AgentWindows(refresh=refresh, lateness=told.allowed_lateness)
        self._final = refresh is None and told.final_release
        self._shards = shards
        intake = SampleIntake.of(given, SampleFields(), secret=secret, max_future=told.max_future)
        self._intake = replace(intake, persons=settings.per_person is not None)

    def display_data(self) -> dict[str, Any]:
        """Show the settings, which are public."""
        return shown_settings(self._settings, refresh=self._windows.refresh, shards=self._shards)

    def expand(self, pcoll: beam.PCollection) -> Released:
        """Shuffle by shard, wait for the end of a window, release."""
        require_timers(pcoll.pipeline, bounded=pcoll.is_bounded)
        intake = self._intake.taking(pcoll, owner="agent")
        ends = pcoll.is_bounded or self._windows.refresh is not None
        require(ends, "refresh", "be given for an unbounded input", self._windows.refresh)
        split = SplitByShard(self._settings.grid, self._windows, self._shards, intake)

        return agents_part_release(
            agents_part_split(pcoll | "Split" >> agents_part_outputs(split)),
            self._settings,
            self._windows,
            self._secret,
            final_release=self._final,
            shards=self._shards,
            most=self._most,
        )


class SplitSamples(NamedTuple):
    """Samples on the way to their shards.

    Attributes
    ----------
    samples : PCollection of (int, Packed)
        Private.
    notes : PCollection of (int, (float, bytes))
        Public: the windows that they are in, with the newest event time in each, and their shards.
    rejected : PCollection of DeadLetter
        Public: what was no sample.
    """

    samples: beam.PCollection
    notes: beam.PCollection
    rejected: beam.PCollection


def agents_part_outputs(split: beam.DoFn) -> beam.PTransform:
    """Private: apply what gives samples to shards; its outputs go to `agents_part_split`."""
    return beam.ParDo(split).with_outputs(NOTES, REJECTED, main="samples")


def agents_part_split(parts: DoOutputsTuple) -> SplitSamples:
    """Say what the outputs hold."""
    return SplitSamples(
        *typed_outputs(parts, {"samples": KEYED, NOTES: NOTE, REJECTED: DeadLetter})
    )


def agents_part_state(
    settings: AgentsSettings, windows: AgentWindows, shards: int
) -> dict[str, Any]:
    """Give what the state of shards cannot change, by the names of the options."""
    return {
        "state": "agents",
        **settings_identity(settings),
        "refresh": windows.refresh,
        "shards": shards,
    }


def agents_part_release(
    split: SplitSamples,
    settings: AgentsSettings,
    windows: AgentWindows,
    secret: SecretLocation,
    *,
    final_release: bool,
    shards: int,
    most: int = MAX_AGENTS,
) -> Released:
    """Private to public: samples by shard, with notes of windows, to what the shards release."""
    owner = StateOwner(settings=agents_part_state(settings, windows, shards), secret=secret)
    everybody = isinstance(
        settings.times, Every
    )  # releases are due as time goes by, without samples
    ticks = split.notes | "Tick" >> TickShards(windows, shards, owner, everybody=everybody)

    release = ReleaseShard(settings, windows, secret, owner, final_release=final_release, most=most)
    made = (
        (split.samples | "For good" >> ForGood(), ticks | "Ticks" >> TicksOf(shards))
        | "For shards" >> beam.Flatten()
        | "Release"
        >> beam.ParDo(release).with_outputs(OWN, NOTICES, REFUSALS, DRIFTS, main="releases")
    )

    types = {
        "releases": AgentReleases,
        OWN: OwnBatch,
        NOTICES: BudgetEvent,
        REFUSALS: Refusal,
        DRIFTS: DriftEvent,
    }
    releases, own, notices, refusals, drifts = typed_outputs(made, types)

    return Released(releases, own, notices, refusals, ticks, split.rejected, drifts)

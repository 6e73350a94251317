"""Everyone's newest release as one population per window, and agents answered with it.

To be applied alone, too.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import apache_beam as beam
from apache_beam import typehints
from apache_beam.transforms.window import GlobalWindows

import meanstream.pipelines.beam.agents.agents_coders as _coders  # noqa: F401 - it registers
from meanstream.operators.agents.agents import AgentsSettings
from meanstream.operators.agents.release_checks import PossibleReleases
from meanstream.operators.validation import require
from meanstream.pipelines.beam.agents.agents_elements import (
    AgentReleases,
    EstimateBatch,
    FittedReleases,
)
from meanstream.pipelines.beam.agents.agents_parts import Released, agents_part_state
from meanstream.pipelines.beam.agents.agents_windows import (
    KEYED,
    NOTE,
    AgentWindows,
    TickShards,
    TicksOf,
)
from meanstream.pipelines.beam.agents.answer_agents import (
    AnswerAgents,
    FormatPopulation,
    OwnByShard,
    PopulationToShards,
)
from meanstream.pipelines.beam.agents.fit_population import FitReleases
from meanstream.pipelines.beam.agents.gather_releases import (
    GatherShard,
    JoinShards,
    ReceiveReleases,
    ReleasesByShard,
    shard_groups,
)
from meanstream.pipelines.beam.agents.split_agents import NOTES
from meanstream.pipelines.beam.element_types.beam_samples import AGENT_SHARDS
from meanstream.pipelines.beam.keyed_state.beam_state import StateOwner
from meanstream.pipelines.beam.worker.beam_steps import ForGood, typed_outputs
from meanstream.pipelines.beam.worker.transform_arguments import (
    as_kind,
    as_shards,
    require_histogram_of_quantiles,
    require_populations,
    shown_settings,
)
from meanstream.streaming.engine.engine_options import EngineOptions
from meanstream.streaming.events.wire import Population, Release

_TAKEN = (AgentReleases, Release, Any, typehints.Any)
_EITHER = typehints.Tuple[int, bytes]


class SnapshotReleases(beam.PTransform):  # type: ignore[misc]
    """Public: releases to the population that everyone's newest one shows, once per window.

    Input: `Released` of `ReleaseMeans`; or releases from anywhere, `Release` events or batches
    `AgentReleases` in the global window, as those have them who read a topic of releases and
    nothing else. Each counts in the window of its event time and in all later ones, once, however
    often and in whatever order it comes. Output: `FittedReleases`, one for each window with
    releases.

    **Privacy.** Post-processing of releases: it spends nothing.

    Parameters
    ----------
    settings : AgentsSettings
        How the releases were made; the variance of a sample is read off those that were made with
        its epsilon, delta and mode.
    options : EngineOptions, optional
        Collaboration and level; and `stddev`, where the standard deviation of one sample is known.
    windows : AgentWindows, optional
        When it is fitted; by default once, at the end of a bounded input.
    shards : int
        As for `ReleaseMeans`.
    ticks : PCollection of (int, Tick), optional
        Of one's own agents' `Released`, of as many shards: windows in which there are own samples
        have a population too, so that they can be answered. Where the input is `Released` it has
        them.
    max_samples : int, optional
        Of releases from anywhere: that many samples an agent has at most; see `PossibleReleases`.
        What cannot have been made with the settings is left out and counted by reason.

    Examples
    --------
    >>> from apache_beam.runners.portability.fn_api_runner import FnApiRunner
    >>> line = ('{"release_id": "%s:1", "agent": "%s", "index": 1, "time": "2013-01-01T10:00:00Z",'
    ...         '"n": 10, "total": %d, "mean": %f, "noise_variance": 90.0, "epsilon": 1.0,'
    ...         '"delta": 1e-6, "mode": "tuned", "schema_version": 1}')
    >>> events = [Release.model_validate_json(line % (who, who, mean * 10 * 2**16, mean))
    ...           for who, mean in (("ann", 2.0), ("bob", 4.0))]
    >>> settings = AgentsSettings(lower=0, upper=10, epsilon=1, delta=1e-6)
    >>> with beam.Pipeline(runner=FnApiRunner()) as pipeline:
    ...     releases = pipeline | beam.Create(events, reshuffle=False)
    ...     population = releases | SnapshotReleases(settings)
    ...     _ = population | beam.Map(
    ...         lambda fitted: print(fitted.agents, fitted.fitted.describe()["method"]))
    2 learned_prior
    """

    def __init__(
        self,
        settings: AgentsSettings,
        options: EngineOptions | None = None,
        windows: AgentWindows | None = None,
        *,
        shards: int = AGENT_SHARDS,
        ticks: beam.PCollection | None = None,
        max_samples: int | None = None,
    ) -> None:
        super().__init__()
        shards = as_shards(shards)
        PossibleReleases(
            as_kind("settings", settings, AgentsSettings), max_samples
        )  # refused here if it cannot be
        self._settings = settings
        self._options = require_histogram_of_quantiles(settings, options or EngineOptions())

        self._windows = windows or AgentWindows(refresh=None)
        self._shards = shards
        self._ticks = ticks
        state = agents_part_state(self._settings, self._windows, shards)
        state |= {"state": "releases", "name": None}  # they are of many deployments
        groups = shard_groups(shards)
        self._owner = StateOwner(settings=state | ({"groups": groups} if groups > 1 else {}))
        self._max_samples = max_samples

    def display_data(self) -> dict[str, Any]:
        """Show the settings, which are public."""
        return shown_settings(self._settings, refresh=self._windows.refresh, shards=self._shards)

    def expand(self, made: Released | beam.PCollection) -> beam.PCollection:
        """Keep everyone's newest per shard; join the shards, many of them by groups; fit."""
        require_populations((made.releases if isinstance(made, Released) else made).pipeline)
        keyed, all_ticks = self._ours(made) if isinstance(made, Released) else self._received(made)
        given = self._settings, self._options, self._windows, self._owner
        ticks = all_ticks | "Ticks" >> beam.Flatten()
        # FnApiRunner takes timers of steps that it has fused for one another's; it does not fuse
        # what is flattened.
        changes = (
            (keyed | "For good" >> ForGood(), ticks | "Of shards" >> TicksOf(self._shards))
            | "For shards" >> beam.Flatten()
            | "Gather"
            >> beam.ParDo(GatherShard(*given, shards=self._shards)).with_output_types(KEYED)
        )

        if shard_groups(self._shards) > 1:
            join = beam.ParDo(JoinShards(self._owner, self._windows)).with_output_types(KEYED)
            changes = (changes,) | "For groups" >> beam.Flatten() | "Join" >> join

        return (
            (changes, ticks | "Of all" >> TicksOf(self._shards, whole=True))
            | "For all" >> beam.Flatten()
            | "Fit" >> beam.ParDo(FitReleases(*given)).with_output_types(FittedReleases)
        )

    def _ours(self, made: Released) -> tuple[beam.PCollection, list[beam.PCollection]]:
        """Releases of our own windows, which tick."""
        require(self._ticks is None, "ticks", "be left out where the input has them", self._ticks)
        _check(made.releases)
        by_shard = beam.ParDo(ReleasesByShard(self._shards)).with_output_types(KEYED)
        return made.releases | "Shards" >> by_shard, [made.ticks]

    def _received(
        self, releases: beam.PCollection
    ) -> tuple[beam.PCollection, list[beam.PCollection]]:
        """Releases that others have made; they tick."""
        _check(releases)
        window_fn = releases.windowing.windowfn
        require(
            isinstance(window_fn, GlobalWindows),
            "releases",
            "be in the global window",
            type(window_fn).__name__,
        )

        ends = releases.is_bounded or self._windows.refresh is not None
        require(ends, "refresh", "be given for an unbounded input", self._windows.refresh)
        most = self._max_samples
        receive = ReceiveReleases(self._settings, self._windows, self._shards, max_samples=most)
        parts = releases | "Receive" >> beam.ParDo(receive).with_outputs(NOTES, main="releases")
        keyed, notes = typed_outputs(parts, {"releases": KEYED, NOTES: NOTE})
        # A step later than notes of samples: releases of the same pipeline come with the end of
        # their window.
        ticks = notes | "Tick" >> TickShards(self._windows, self._shards, self._owner, step=1)

        return keyed, [ticks] if self._ticks is None else [ticks, self._ticks]


class EstimateAgents(beam.PTransform):  # type: ignore[misc]
    """Private: each agent's own sums to its estimate, under the population of the same window.

    Input: `OwnBatch` of `ReleaseMeans`. Output: `EstimateBatch`: it belongs to the agents, line by
    line.

    **Privacy.** An estimate mixes in its agent's raw mean and is addressed to that agent. It spends
    nothing.

    Parameters
    ----------
    settings : AgentsSettings
    options : EngineOptions
    windows : AgentWindows
        Those of the agents' own `ReleaseMeans`, and of `SnapshotReleases`.
    population : PCollection of FittedReleases
        Of `SnapshotReleases`: of our own releases, or of those that everyone has published.
    shards : int
        As for `ReleaseMeans`: the most workers that can share the answers.
    """

    def __init__(
        self,
        settings: AgentsSettings,
        options: EngineOptions,
        windows: AgentWindows,
        *,
        population: beam.PCollection,
        shards: int = AGENT_SHARDS,
    ) -> None:
        super().__init__()
        self._shards = shards = as_shards(shards)
        self._settings = as_kind("settings", settings, AgentsSettings)
        self._options = require_histogram_of_quantiles(settings, options)
        self._windows = windows
        self._population = population
        self._owner = StateOwner(
            settings={**agents_part_state(settings, windows, shards), "state": "answers"}
        )

    def display_data(self) -> dict[str, Any]:
        """Show the settings, which are public."""
        return shown_settings(self._settings, refresh=self._windows.refresh, shards=self._shards)

    def expand(self, pcoll: beam.PCollection) -> beam.PCollection:
        """Answer a shard of agents at a time."""
        # Not a side input: Flink's runner (Beam 2.70) cannot make a checkpoint of a step that has
        # one.
        own = pcoll | "Own" >> beam.ParDo(OwnByShard(self._shards)).with_output_types(_EITHER)
        tell = beam.ParDo(PopulationToShards(self._shards)).with_output_types(_EITHER)
        answer = AnswerAgents(self._settings, self._options, self._windows, self._owner)
        return (
            (own, self._population | "To shards" >> tell)
            | "With population" >> beam.Flatten()
            | "Answer" >> beam.ParDo(answer).with_output_types(EstimateBatch)
        )


def _check(releases: beam.PCollection) -> None:
    if releases.element_type not in _TAKEN:
        raise TypeError(f"collaboration takes releases only, got {releases.element_type}")


class Collaborated(NamedTuple):
    """What `CollaborateAgents` gives: batches; `SingleEvents` takes them apart.

    Attributes
    ----------
    estimates : PCollection of EstimateBatch
        Private: each line is addressed to its agent and to no one else.
    releases, population, notices, refusals : PCollection
        Public: `AgentReleases`, `Population`, `BudgetEvent`, `Refusal`.
    rejected : PCollection of DeadLetter
        Public: elements that were no samples, with the reason and nothing of what they said.
    drifts : PCollection of DriftEvent
        Public: agents whose releases show that their mean has changed, or may have; with a memory
        only.
    """

    estimates: beam.PCollection
    releases: beam.PCollection
    population: beam.PCollection
    notices: beam.PCollection
    refusals: beam.PCollection
    rejected: beam.PCollection
    drifts: beam.PCollection


def collaborated(
    made: Released,
    settings: AgentsSettings,
    options: EngineOptions,
    windows: AgentWindows,
    *,
    shards: int,
) -> Collaborated:
    """Fit the population to releases, and answer the agents."""
    population = made | "Snapshot" >> SnapshotReleases(settings, options, windows, shards=shards)
    estimates = made.own | "Estimate" >> EstimateAgents(
        settings, options, windows, population=population, shards=shards
    )
    tell = beam.ParDo(FormatPopulation(settings, options)).with_output_types(Population)
    told = population | "Tell" >> tell

    return Collaborated(
        estimates, made.releases, told, made.notices, made.refusals, made.rejected, made.drifts
    )

"""Private to public: samples to releases, as a transform that can be applied alone; see `pipelines.agents`."""

from __future__ import annotations

from typing import NamedTuple

import apache_beam as beam
from apache_beam.transforms.window import GlobalWindows

import pipelines.beam.agents.coders as _coders  # noqa: F401 - coders register themselves
from operators.agents import AgentsSettings
from operators.validation import require
from pipelines.beam.agents.records import AgentReleases, OwnBatch
from pipelines.beam.agents.release import NOTICES, OWN, REFUSALS, ReleaseShard
from pipelines.beam.agents.split import NOTES, SplitByShard
from pipelines.beam.agents.ticks import KEYED, NOTE, TickShards
from pipelines.beam.agents.windows import AgentWindows
from pipelines.beam.samples import SHARDS
from pipelines.beam.secret import SecretPlace
from pipelines.beam.windows import ForGood
from streaming.events import BudgetEvent, Refusal


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
        Public: the windows that have ended, for every shard.
    """

    releases: beam.PCollection
    own: beam.PCollection
    notices: beam.PCollection
    refusals: beam.PCollection
    ticks: beam.PCollection


class ReleaseMeans(beam.PTransform):  # type: ignore[misc]
    """Private to public: samples to releases on schedule, and each agent's own sums for its owner.

    Input: samples `(agent, value, event time in seconds)`, or batches of them made by `agent_batch`, in the global
    window. Output: `Released`.

    **Privacy.** Neighboring streams differ in the value of one sample; who produced samples and when is public. All
    releases of an agent are (epsilon, delta)-differentially private for the life of the pipeline's state. What is
    executed again releases the same again.

    Parameters
    ----------
    settings : AgentsSettings
        Bounds, privacy parameters, counter and schedule.
    secret : SecretPlace, optional
        Where workers find the secret; by default in their environment.
    refresh : float, optional
        Seconds of event time: shards take samples in at each multiple. By default once, at the end of a bounded input.
    allowed_lateness : float
        Seconds that a window waits for samples behind the watermark; later ones are counted (`rejected_late`).
    final_release : bool, optional
        Whether everybody with new samples releases once more at the end. By default so without `refresh`; with it
        there is no end.
    shards : int
        Into how many parts the agents are split by hash: the most workers that can share them.
    """

    def __init__(
        self,
        settings: AgentsSettings,
        *,
        secret: SecretPlace | None = None,
        refresh: float | None = None,
        allowed_lateness: float = 0.0,
        final_release: bool | None = None,
        shards: int = SHARDS,
    ) -> None:
        super().__init__()
        require(1 <= shards <= 2**15, "shards", f"be in 1..{2**15}", shards)
        require(not final_release or refresh is None, "final_release", "be left out with refresh", final_release)
        require(allowed_lateness >= 0, "allowed_lateness", "be at least 0", allowed_lateness)
        self._settings = settings
        self._secret = secret or SecretPlace()
        self._windows = AgentWindows(refresh=refresh, lateness=allowed_lateness)
        self._final = refresh is None if final_release is None else final_release
        self._shards = shards

    def expand(self, pcoll: beam.PCollection) -> Released:
        """Shuffle by shard, wait for the end of a window, release."""
        window_fn = pcoll.windowing.windowfn
        require(isinstance(window_fn, GlobalWindows), "samples", "be in the global window", type(window_fn).__name__)
        ends = pcoll.is_bounded or self._windows.refresh is not None
        require(ends, "refresh", "be given for an unbounded input", self._windows.refresh)
        split = SplitByShard(self._settings.grid, self._windows, self._shards)
        parts = pcoll | "Split" >> beam.ParDo(split).with_outputs(NOTES, main="samples")
        samples, notes = parts.samples, parts[NOTES]
        samples.element_type, notes.element_type = KEYED, NOTE
        return release_shards(
            samples, notes, self._settings, self._windows, self._secret, final_release=self._final, shards=self._shards
        )


def release_shards(
    samples: beam.PCollection,
    notes: beam.PCollection,
    settings: AgentsSettings,
    windows: AgentWindows,
    secret: SecretPlace,
    *,
    final_release: bool,
    shards: int,
) -> Released:
    """Private to public: `(shard, AgentSamples)`, with notes of their windows, to what the shards release."""
    ticks = notes | "Tick" >> TickShards(windows, shards)
    release = ReleaseShard(settings, windows, secret, final_release=final_release)
    made = (
        (samples | "For good" >> ForGood(), ticks)
        | "For shards" >> beam.Flatten()
        | "Release" >> beam.ParDo(release).with_outputs(OWN, NOTICES, REFUSALS, main="releases")
    )
    types = {"releases": AgentReleases, OWN: OwnBatch, NOTICES: BudgetEvent, REFUSALS: Refusal}
    for name, kind in types.items():
        made[name].element_type = kind
    return Released(made.releases, made[OWN], made[NOTICES], made[REFUSALS], ticks)

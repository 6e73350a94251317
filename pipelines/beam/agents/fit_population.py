"""Public: what has changed in shards to the population of all of them, at one key."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
from apache_beam.transforms.window import TimestampedValue
from apache_beam.utils.timestamp import Timestamp

from meanstream.operators.agents.agents import AgentsSettings
from meanstream.operators.agents.own_histogram import NO_HISTOGRAMS
from meanstream.operators.collaboration.covariates.covariate_design import AgentCovariates
from meanstream.operators.collaboration.covariates.covariate_releases import CovariateReleases
from meanstream.operators.collaboration.registry import ReleaseSummary
from meanstream.operators.collaboration.variance.pooled_variance import PooledVariance
from meanstream.operators.noise.keyed import keyed_owner_words
from meanstream.operators.records import ReleaseColumns
from meanstream.pipelines.beam.agents.agents_elements import (
    FittedReleases,
    PartialReleases,
    Tick,
    record_agent_hash,
)
from meanstream.pipelines.beam.agents.agents_windows import AgentWindows
from meanstream.pipelines.beam.agents.waiting_samples import ShardTurns, take_waiting_elements
from meanstream.pipelines.beam.element_types.columns_coder import ColumnsCoder
from meanstream.pipelines.beam.keyed_state.beam_state import StateOwner
from meanstream.pipelines.beam.keyed_state.keyed_steps import Cells
from meanstream.pipelines.beam.worker.beam_metrics import metric_counter
from meanstream.pipelines.beam.worker.beam_steps import with_window_time
from meanstream.streaming.agents.declared_covariates import covariates_of_columns
from meanstream.streaming.agents.estimates import PersonalEstimates
from meanstream.streaming.engine.engine_options import EngineOptions


class HashedCovariates:
    """Adds the codes of attributes to the summary of everyone's releases.

    State holds releases, and no codes.

    So a pipeline that goes on with other attributes begins nothing again.
    """

    def __init__(self, covariates: AgentCovariates | None) -> None:
        self._covariates = covariates
        if covariates is None:
            return
        hashes = record_agent_hash(keyed_owner_words(list(covariates.names)))
        order = np.argsort(hashes, kind="stable")
        self._hashes = hashes[order]
        self._codes = np.concatenate([covariates.codes[order], covariates.design.missing[None]])

    def of_summary(self, summary: ReleaseSummary) -> ReleaseSummary:
        """Add the codes of its agents, if there are any attributes."""
        if self._covariates is None or not isinstance(summary, CovariateReleases):
            return summary
        place = np.searchsorted(self._hashes, summary.agent)
        inside = np.minimum(place, max(len(self._hashes) - 1, 0))
        known = (
            self._hashes[inside] == summary.agent
            if len(self._hashes)
            else np.zeros(summary.n, np.bool_)
        )

        return replace(summary, codes=self._codes[np.where(known, inside, len(self._hashes))])


def agent_covariates(given: Mapping[str, Mapping[str, Any]]) -> AgentCovariates:
    """Read attributes that a pipeline is given.

    A mapping from each agent to its attributes by name.

    Examples
    --------
    >>> given = {"N1": {"engine": "jet", "seats": 55}, "N2": {"seats": 149}}
    >>> agent_covariates(given).design.attributes[1].name
    'seats'
    """
    if not isinstance(given, Mapping):
        raise TypeError(
            f"covariates must map agents to their attributes, got {type(given).__name__}"
        )

    columns = dict.fromkeys(name for row in given.values() for name in row)
    try:
        table = {name: pa.array([row.get(name) for row in given.values()]) for name in columns}
    except (pa.ArrowException, TypeError, ValueError):  # whose texts show values
        raise ValueError(
            "covariates must have one type of values in each column, got several"
        ) from None

    return covariates_of_columns(list(given), table)


class FitReleases(ShardTurns):
    """Public: the summary of everyone's newest release, as state, to the population that it shows.

    Once per window.

    Shards tell what has changed, so that those without new releases have nothing to do. A window
    that is overtaken has the population of the newest one that has ended.
    """

    VALUES = ("joined",)
    TIMER = "answer"

    def __init__(
        self,
        settings: AgentsSettings,
        options: EngineOptions,
        windows: AgentWindows,
        owner: StateOwner,
    ) -> None:
        super().__init__(owner, windows)
        self._settings = settings
        self._options = options

    def setup(self) -> None:
        """Begin without releases."""
        super().setup()
        self._partial = ColumnsCoder(PartialReleases)
        self._covariates = HashedCovariates(self._options.covariates)
        self._overtaken = metric_counter("windows_overtaken")

    def when(self, number: int) -> Timestamp:
        """Give the time of a window's turn."""
        return self._windows.fitted(number)

    def turn(self, due: list[Tick], cells: Cells) -> Iterator[TimestampedValue]:
        """Take in what has changed, and fit."""
        encoded = cells.joined.read() or b""
        whole = self._remembered(
            cells.key, encoded, lambda: self._partial.decode(encoded) if encoded else self.empty()
        )
        changes = take_waiting_elements(cells.waiting, self._partial, due[-1].number)
        for change in whole.take(changes):
            cells.waiting.add(self._partial.encode(change))

        if changes:
            encoded = self._partial.encode(whole)
            cells.joined.write(encoded)

        self._remember(cells.key, encoded, whole)

        if len(due) > 1:
            self._overtaken.inc(len(due) - 1)

        tick = due[-1]
        shards = np.zeros(max(len(one.shards) for one in due), np.uint8)
        for one in due:
            shards[: len(one.shards)] |= np.frombuffer(one.shards, np.uint8)

        yield with_window_time(
            self._windows.fitted(tick.number), self.fit(whole, due, shards.tobytes())
        )

    def fit(self, whole: PartialReleases, due: list[Tick], shards: bytes = b"") -> FittedReleases:
        """Fit the population to everyone's newest release."""
        nobody = PooledVariance(self._settings.lower, self._settings.upper)
        pool = (whole.pool() if whole.pools else nobody).posterior()
        host = PersonalEstimates(self._settings, self._options)
        told = whole.histograms or NO_HISTOGRAMS
        told = told.take(np.flatnonzero(told.number))

        return FittedReleases(
            number=due[-1].number, newest=due[-1].newest, agents=whole.summary.n, pool=pool,
            fitted=host.fit_summary(self._covariates.of_summary(whole.summary), pool),
            shares=host.shares.fit(told, told.agent),
            overtaken=len(due) - 1, shards=shards,
        )  # fmt: skip

    def empty(self) -> PartialReleases:
        """Give the summary that nothing was added to."""
        none = np.zeros(0, np.int64)
        nothing = np.zeros(0)
        columns = ReleaseColumns(
            agent=none, index=none, count=none, total=none, mean=nothing, noise_variance=nothing
        )
        summary = PersonalEstimates(self._settings, self._options).summarize(columns)

        return PartialReleases(summary=summary, pools={}, turns={})

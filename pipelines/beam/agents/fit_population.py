"""Public: what has changed in shards to the population of all of them, once per window, under one key."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import apache_beam as beam
import numpy as np
from apache_beam.coders import BytesCoder
from apache_beam.transforms.timeutil import TimeDomain
from apache_beam.transforms.userstate import (
    BagStateSpec,
    ReadModifyWriteStateSpec,
    TimerSpec,
    on_timer,
)
from apache_beam.transforms.window import TimestampedValue

from meanstream.operators.agents.agents import AgentsSettings
from meanstream.operators.agents.own_histogram import NO_HISTOGRAMS
from meanstream.operators.collaboration.variance.pooled_variance import PooledVariance
from meanstream.operators.records import ReleaseColumns
from meanstream.pipelines.beam.agents.agents_coders import ForShardCoder, PartialReleasesCoder
from meanstream.pipelines.beam.agents.agents_elements import Packed, Tick
from meanstream.pipelines.beam.agents.agents_windows import AgentWindows
from meanstream.pipelines.beam.agents.hashed_covariates import HashedCovariates
from meanstream.pipelines.beam.agents.population_event import FittedReleases, PartialReleases
from meanstream.pipelines.beam.agents.waiting_samples import WaitingTurns, keep_waiting
from meanstream.pipelines.beam.keyed_state.beam_state import MADE, StateOwner
from meanstream.pipelines.beam.worker.beam_metrics import metric_counter
from meanstream.pipelines.beam.worker.beam_steps import Step, discreet_step
from meanstream.pipelines.beam.worker.beam_windows import with_window_time
from meanstream.streaming.agents.estimates import PersonalEstimates
from meanstream.streaming.engine.engine_options import EngineOptions


class FitReleases(Step):
    """Public: the summary of everyone's newest release, as state, to the population that it shows.

    Once per window.

    Shards tell what has changed, so that those without new releases have nothing to do. A window
    that is overtaken has the population of the newest one that has ended.
    """

    MADE = MADE
    WAITING = BagStateSpec("waiting", BytesCoder())
    TICKS = BagStateSpec("ticks", BytesCoder())
    JOINED = ReadModifyWriteStateSpec("joined", BytesCoder())
    TARGET = ReadModifyWriteStateSpec("target", BytesCoder())
    DUE = TimerSpec("answer", TimeDomain.WATERMARK)

    def __init__(
        self,
        settings: AgentsSettings,
        options: EngineOptions,
        windows: AgentWindows,
        owner: StateOwner,
    ) -> None:
        self._settings = settings
        self._options = options
        self._windows = windows
        self._owner = owner

    def setup(self) -> None:
        """Begin without releases."""
        self._coder = ForShardCoder()
        self._partial = PartialReleasesCoder()
        self._mark = self._owner.mark()
        self._known: tuple[bytes, PartialReleases] | None = None
        self._covariates = HashedCovariates(self._options.covariates)
        self._overtaken = metric_counter("windows_overtaken")

    def process(  # noqa: PLR0917 - all of the state that says whether it is another's
        self,
        element: tuple[int, Packed | Tick],
        waiting: Any = beam.DoFn.StateParam(WAITING),
        ticks: Any = beam.DoFn.StateParam(TICKS),
        timer: Any = beam.DoFn.TimerParam(DUE),
        state: Any = beam.DoFn.StateParam(JOINED),
        made: Any = beam.DoFn.StateParam(MADE),
        target: Any = beam.DoFn.StateParam(TARGET),
    ) -> None:
        """Keep changes until their window has ended."""
        self._mark.claim(made, waiting, ticks, state)
        keep_waiting(element[1], waiting, self._turns(ticks, target, timer))

    @on_timer(DUE)  # type: ignore[untyped-decorator]
    @discreet_step
    def answer(  # noqa: PLR0917 - all of the state
        self,
        time: Any = beam.DoFn.TimestampParam,
        waiting: Any = beam.DoFn.StateParam(WAITING),
        ticks: Any = beam.DoFn.StateParam(TICKS),
        state: Any = beam.DoFn.StateParam(JOINED),
        made: Any = beam.DoFn.StateParam(MADE),
        target: Any = beam.DoFn.StateParam(TARGET),
        timer: Any = beam.DoFn.TimerParam(DUE),
    ) -> Iterator[TimestampedValue]:
        """Take in what has changed, and fit."""
        self._mark.claim(made, waiting, ticks, state)
        due = self._turns(ticks, target, timer).take(time)
        if not due:
            return

        whole = self._whole(state.read() or b"")
        told = [self._partial.decode(encoded) for encoded in waiting.read()]
        waiting.clear()
        changes = [change for change in told if change.number <= due[-1].number]
        later = [change for change in told if change.number > due[-1].number]

        for change in whole.take(changes) + later:
            waiting.add(self._partial.encode(change))

        if changes:
            encoded = self._partial.encode(whole)
            state.write(encoded)
            self._known = encoded, whole

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

    def _whole(self, encoded: bytes) -> PartialReleases:
        """Make the summary of its bytes.

        One whose bytes are still those it was written with is as it was.
        """
        known, self._known = self._known, None  # what fails half-way is read again
        if known is not None and known[0] == encoded:
            return known[1]

        if encoded:
            return self._partial.decode(encoded)
        return self.empty()

    def _turns(self, ticks: Any, target: Any, timer: Any) -> WaitingTurns:
        return WaitingTurns(ticks, target, timer, self._coder, self._windows.fitted)

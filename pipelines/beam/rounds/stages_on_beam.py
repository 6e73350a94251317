"""The stages of a round.

Private sums to reports, reports to tallies, tallies to what the next stage needs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import apache_beam as beam
import numpy as np
from apache_beam import typehints
from apache_beam.pvalue import TaggedOutput

from meanstream.operators.rounds.round_records import Estimate, Public, Tally
from meanstream.pipelines.beam.rounds.known_results import FINDINGS, NeedsFindings
from meanstream.pipelines.beam.rounds.pinned_settings import PinnedResults
from meanstream.pipelines.beam.rounds.rounds_coders import StageTallyCoder
from meanstream.pipelines.beam.rounds.rounds_elements import (
    ReportBatch,
    StageFindings,
    StageTally,
    UserBatch,
)
from meanstream.pipelines.beam.rounds.rounds_windows import carried_in_window
from meanstream.pipelines.beam.worker.beam_metrics import DistributionOf, metric_counter
from meanstream.pipelines.beam.worker.beam_steps import Combine, Step
from meanstream.pipelines.beam.worker.worker_secret import SecretLocation
from meanstream.streaming.events.round_events import StageResult, WindowEstimate
from meanstream.streaming.rounds.event_lines import (
    estimate_event_line,
    report_event_lines,
    stage_event_line,
)
from meanstream.streaming.rounds.rounds_settings import RoundsSettings
from meanstream.streaming.rounds.stage_results import results_by_stage, shape_of_result
from meanstream.streaming.rounds.window_round import WindowRound


class EncodeStage(NeedsFindings):
    """Private to public: the reports of those users of a batch whom one stage asks.

    Parameters
    ----------
    settings : RoundsSettings
        What the parties agreed on.
    stage : int
        From 0.
    secret : SecretLocation
        Where the worker finds the key of the noise.
    """

    def __init__(self, settings: RoundsSettings, stage: int, secret: SecretLocation) -> None:
        self._settings = settings
        self._stage = stage
        self._secret = secret

    def process(
        self, element: tuple[int, UserBatch], findings: StageFindings | None = None
    ) -> Iterator[ReportBatch]:
        """Make them, once the stage before has found something."""
        batch = element[1]
        users = self._settings.users if findings is None else findings.users
        goes_on = findings is not None or (self._stage == 0 and users is not None)
        if goes_on:  # otherwise the round has fewer stages than the pipeline
            this = WindowRound(self._settings, batch.window, users=users or 0)
            public = {} if findings is None else findings.public
            if self._stage in this.stages:
                yield stage_reports(this, self._stage, public, batch, self._secret)


class EncodeNextStage(Step):
    """Private to public: the reports of the stage after the last result that is accepted of a statistician's.

    Of several results of a stage the first that the stage can have found counts, in this pipeline
    and in every later one that has the same `pins`; the others are counted (`results_refused`).
    Without `pins` the first stage is queried.
    """

    def __init__(
        self, settings: RoundsSettings, secret: SecretLocation, pins: str | None = None
    ) -> None:
        self._settings = settings
        self._secret = secret
        self._pins = None if pins is None else PinnedResults(pins)

    def setup(self) -> None:
        """Begin to count."""
        self._refused = metric_counter("results_refused")

    def process(
        self,
        element: tuple[int, UserBatch],
        findings: StageFindings | None = None,
        results: Iterable[StageResult] = (),
    ) -> Iterator[ReportBatch]:
        """Make them; give results in the same order to everyone."""
        batch = element[1]
        users = self._settings.users if findings is None else findings.users
        this = WindowRound(self._settings, batch.window, users=users or 0)
        came = results_by_stage(this.id, results)
        shape = shape_of_result(batch.sums.total)
        public: Public = {}

        for stage in this.stages:
            found = None
            if self._pins is not None:
                found, others = self._pins.accepted(
                    this, stage, public, came.get(stage, ()), shape=shape
                )
                self._refused.inc(others)

            if found is None:
                yield stage_reports(this, stage, public, batch, self._secret)
                return

            public = found


def stage_reports(
    this: WindowRound, stage: int, public: Public, batch: UserBatch, secret: SecretLocation
) -> ReportBatch:
    """Private to public: reports of the users of a batch whom a stage asks.

    None is an answer, too.
    """
    design = this.settings.design_users(this.users)
    asked = batch.take(this.stage_of(batch.words) == stage)
    reports = np.zeros((0, 0), np.int64)
    metric_counter("rounds_reports_", stage).inc(len(asked))

    if len(asked):
        summaries = asked.sums.summaries(asked.words, this.settings.grid)
        reports = this.reports(secret.load(), stage, public, summaries)

    return ReportBatch(
        window=this.window, stage=stage, users=design, names=asked.names, reports=reports
    )


class FormatReports(Step):
    """Public: reports as the lines of `Report` events, the same bytes that the engine writes."""

    def __init__(self, settings: RoundsSettings) -> None:
        self._settings = settings

    def process(self, element: ReportBatch) -> Iterator[bytes]:
        """Write them."""
        if len(element):
            this = WindowRound(self._settings, element.window, users=element.users)
            yield from report_event_lines(
                this, element.stage, element.names.to_pylist(), element.reports
            ).lines


class StampReports(Step):
    """Public: reports to the time of their round."""

    def __init__(self, settings: RoundsSettings) -> None:
        self._settings = settings

    def process(self, element: ReportBatch) -> Iterator[beam.window.TimestampedValue]:
        """Give the time; `TypeError` for anything but reports."""
        if not isinstance(element, ReportBatch):
            raise TypeError(f"statistician takes reports only, got {type(element).__name__}")
        yield carried_in_window(self._settings, element, element.window)


class TallyStage(Step):
    """Public: the reports of one stage, added up batch by batch.

    Those that no user can have made are counted.
    """

    def __init__(self, settings: RoundsSettings, stage: int) -> None:
        self._settings = settings
        self._stage = stage

    def setup(self) -> None:
        """Begin to count."""
        self._refused = metric_counter("rejected_", "invalid")

    def process(
        self, element: ReportBatch, findings: StageFindings | None = None
    ) -> Iterator[StageTally]:
        """Add up."""
        tally = Tally()
        if element.stage == self._stage and len(element):
            this = WindowRound(self._settings, element.window, users=element.users)
            tally, refused = this.tally(
                self._stage, {} if findings is None else findings.public, element.reports
            )

            if refused:
                self._refused.inc(refused)

        if element.stage == self._stage:
            yield StageTally(
                window=element.window, stage=self._stage, users=element.users, tally=tally
            )


@typehints.with_input_types(StageTally)
@typehints.with_output_types(StageTally)
class SumTallies(Combine):
    """Public: tallies added up, exactly and in any order; no randomness, no private input."""

    def create_accumulator(self) -> StageTally | None:
        """Nothing yet."""
        return None

    def add_input(self, accumulator: StageTally | None, tally: StageTally) -> StageTally:
        """Add one."""
        return tally if accumulator is None else accumulator + tally

    def merge_accumulators(self, accumulators: Iterable[StageTally | None]) -> StageTally | None:
        """Add up."""
        total: StageTally | None = None
        for accumulator in accumulators:
            if accumulator is not None:
                total = self.add_input(total, accumulator)

        return total

    def extract_output(self, accumulator: StageTally | None) -> StageTally | None:
        """Give the sum."""
        return accumulator

    def get_accumulator_coder(self) -> StageTallyCoder:
        """Bytes, as between steps."""
        return StageTallyCoder()


class DecodeStage(Step):
    """Public: a stage's tally to what the next stage needs.

    Or to the estimate, after the last stage.
    """

    def __init__(self, settings: RoundsSettings, stage: int, *, last: bool) -> None:
        self._settings = settings
        self._stage = stage
        self._last = last  # of the pipeline

    def setup(self) -> None:
        """Begin to count."""
        self._rounds = metric_counter("rounds")
        self._users = DistributionOf("rounds_window_users")

    def process(
        self, element: StageTally | None, before: StageFindings | None = None
    ) -> Iterator[WindowEstimate | TaggedOutput]:
        """Decode; findings go to `FINDINGS`."""
        if element is not None:
            found = self._decode(element, before)
            yield TaggedOutput(FINDINGS, found) if isinstance(found, StageFindings) else found

    def _decode(
        self, element: StageTally, before: StageFindings | None
    ) -> StageFindings | WindowEstimate:
        this = WindowRound(self._settings, element.window, users=element.users)
        public, counted = ({}, 0) if before is None else (before.public, before.counted)

        if self._last and self._stage != this.stages[-1]:
            raise ValueError(
                f"max_stages must be at least {len(this.stages)} here, got {self._stage + 1}"
            )

        found = this.decode(self._stage, public, element.tally)
        counted += element.tally.n
        if isinstance(found, Estimate):
            self._rounds.inc()
            self._users.update(counted)
            return WindowEstimate.model_validate_json(
                estimate_event_line(this, found, counted).lines[0]
            )

        return StageFindings(
            window=element.window,
            stage=self._stage,
            users=element.users,
            counted=counted,
            public=found,
        )


class FormatResults(Step):
    """Public: what a stage found, as the event that users read before they report in the next stage."""

    def __init__(self, settings: RoundsSettings) -> None:
        self._settings = settings

    def process(
        self, element: StageFindings, before: StageFindings | None = None
    ) -> Iterator[StageResult]:
        """Write it."""
        this = WindowRound(self._settings, element.window, users=element.users)
        reports = element.counted - (0 if before is None else before.counted)
        line = stage_event_line(this, element.stage, Tally(reports), element.public).lines[0]
        yield StageResult.model_validate_json(line)


class CountUsers(Step):
    """Public: how many users a batch has."""

    def process(self, element: tuple[int, UserBatch]) -> Iterator[StageTally]:
        """Count."""
        batch = element[1]
        yield StageTally(window=batch.window, stage=-1, users=0, tally=Tally(len(batch)))


class DesignFor(Step):
    """Public: how many users the round is designed for, before its first stage."""

    def __init__(self, settings: RoundsSettings) -> None:
        self._settings = settings

    def process(self, element: StageTally | None) -> Iterator[StageFindings]:
        """Round the number of users down."""
        if element is not None:
            users = self._settings.design_users(element.tally.n)
            yield StageFindings(window=element.window, stage=-1, users=users)

"""The two sides of rounds as pipelines of their own.

Users report, and a statistician sees reports alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from apache_beam.pvalue import TaggedOutput
from apache_beam.transforms.window import TimestampedValue

from meanstream.operators.rounds.round_records import Estimate, Public, Tally
from meanstream.operators.validation import require
from meanstream.pipelines.beam.rounds.answer_rounds import round_key, stage_reports
from meanstream.pipelines.beam.rounds.pinned_settings import PinnedResults
from meanstream.pipelines.beam.rounds.rounds_coders import StageResultCoder, UserBatchCoder
from meanstream.pipelines.beam.rounds.rounds_elements import ReportBatch, UserBatch
from meanstream.pipelines.beam.rounds.rounds_windows import carried_in_window
from meanstream.pipelines.beam.worker.beam_metrics import DistributionOf, metric_counter
from meanstream.pipelines.beam.worker.beam_steps import Step
from meanstream.pipelines.beam.worker.worker_secret import SecretLocation
from meanstream.streaming.events.round_events import StageResult, WindowEstimate
from meanstream.streaming.rounds.rounds_settings import RoundsSettings
from meanstream.streaming.rounds.stage_results import results_by_stage, shape_of_result
from meanstream.streaming.rounds.window_round import (
    WindowRound,
    estimate_event_line,
    report_event_lines,
    stage_event_line,
)
from meanstream.streaming.rounds.window_widths import Window

RESULTS = "results"
ESTIMATES = "estimates"
_USERS = b"u"
_RESULT = b"r"


class UsersAsBytes(Step):
    """Private: the users of a round as bytes at its key, to be grouped with its published results.

    Grouped, not a side input: Flink's runner (Beam 2.70) cannot make a checkpoint of a step with
    one.
    """

    def process(self, element: tuple[int, UserBatch]) -> Iterator[tuple[int, bytes]]:
        """Write them."""
        yield element[0], _USERS + UserBatchCoder().encode(element[1])


class ResultsAsBytes(Step):
    """Public: results at the key and the time of their round."""

    def __init__(self, settings: RoundsSettings) -> None:
        self._settings = settings

    def process(self, element: StageResult) -> Iterator[TimestampedValue]:
        """Write one."""
        window = Window.between(element.start, element.end)
        yield carried_in_window(
            self._settings,
            (round_key(window), _RESULT + StageResultCoder().encode(element)),
            window,
        )


class ReportNextStage(Step):
    """Private to public: reports of the stage after the last accepted result of a statistician.

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

    def process(self, element: tuple[int, Iterable[bytes]]) -> Iterator[ReportBatch]:
        """Make them; results are read in one order, whatever order they come in."""
        parts = sorted(element[1])
        results: list[Any] = [
            StageResultCoder().decode(part[1:]) for part in parts if part[:1] == _RESULT
        ]
        batches = [UserBatchCoder().decode(part[1:]) for part in parts if part[:1] == _USERS]

        for batch in batches:
            yield from self._reported(batch, results)

    def _reported(self, batch: UserBatch, results: list[StageResult]) -> Iterator[ReportBatch]:
        """Make the reports of the first stage without an accepted result."""
        this = WindowRound(self._settings, batch.window, users=len(batch))
        received = results_by_stage(this.id, results)
        shape = shape_of_result(batch.sums.total)
        public: Public = {}

        for stage in this.stages:
            accepted = None
            if self._pins is not None:
                candidates = received.get(stage, ())
                accepted, refused = self._pins.accepted(
                    this, stage, public, candidates, shape=shape
                )
                self._refused.inc(refused)

            if accepted is None:
                yield stage_reports(this, stage, public, batch, self._secret)
                return

            public = accepted


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
    """Public: reports to the key and the time of their round."""

    def __init__(self, settings: RoundsSettings) -> None:
        self._settings = settings

    def process(self, element: ReportBatch) -> Iterator[TimestampedValue]:
        """Give them; `TypeError` for anything but reports."""
        if not isinstance(element, ReportBatch):
            raise TypeError(f"statistician takes reports only, got {type(element).__name__}")
        yield carried_in_window(
            self._settings, (round_key(element.window), element), element.window
        )


class AnswerReceived(Step):
    """Public: the reports of a round to the result of each stage, and to its estimate.

    Results are tagged `RESULTS`. There is an estimate if all stages have reports. Reports that no
    user can have made are counted and left out.
    """

    def __init__(self, settings: RoundsSettings) -> None:
        self._settings = settings

    def setup(self) -> None:
        """Begin to count."""
        self._refused = metric_counter("rejected_", "invalid")
        self._rounds = metric_counter("rounds")
        self._users = DistributionOf("rounds_window_users")

    def process(
        self, element: tuple[int, Iterable[ReportBatch]]
    ) -> Iterator[WindowEstimate | TaggedOutput]:
        """Add up and decode, stage after stage."""
        batches = list(element[1])
        if not batches:
            return

        designs = {batch.users for batch in batches}
        rule = "be of rounds of one number of users"
        require(len(designs) == 1, "reports", rule, sorted(designs))
        this = WindowRound(self._settings, batches[0].window, users=batches[0].users)
        public: Public = {}
        counted = 0

        for stage in this.stages:
            reports = [batch.reports for batch in batches if batch.stage == stage]
            if not reports:
                return

            tally = self._tally(this, stage, public, reports)
            counted += tally.n
            result = this.decode(stage, public, tally)

            if isinstance(result, Estimate):
                self._rounds.inc()
                self._users.update(counted)
                line = estimate_event_line(this, result, counted).lines[0]
                yield WindowEstimate.model_validate_json(line)

                return

            line = stage_event_line(this, stage, Tally(tally.n), result).lines[0]
            yield TaggedOutput(RESULTS, StageResult.model_validate_json(line))
            public = result

    def _tally(self, this: WindowRound, stage: int, public: Public, reports: list[Any]) -> Tally:
        """Add up a stage's reports without those that no user can have made."""
        total = Tally()
        for batch in reports:
            tally, refused = this.tally(stage, public, batch)
            total += tally
            self._refused.inc(refused)

        return total

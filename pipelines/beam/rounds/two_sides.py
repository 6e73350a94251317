"""The two sides of rounds as pipelines of their own.

Users report, and a statistician sees reports alone.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from apache_beam.pvalue import TaggedOutput
from apache_beam.transforms.window import TimestampedValue
from pydantic import ValidationError

from meanstream.operators.rounds.round_records import Estimate, Public, Tally
from meanstream.operators.validation import require
from meanstream.pipelines.beam.element_types.columns_coder import ColumnsCoder
from meanstream.pipelines.beam.element_types.events import EventCoder
from meanstream.pipelines.beam.rounds.answer_rounds import round_key, stage_reports
from meanstream.pipelines.beam.rounds.rounds_elements import ReportBatch, UserBatch
from meanstream.pipelines.beam.rounds.rounds_windows import carried_in_window
from meanstream.pipelines.beam.worker.beam_metrics import DistributionOf, metric_counter
from meanstream.pipelines.beam.worker.beam_steps import Step
from meanstream.pipelines.beam.worker.worker_secret import SecretLocation
from meanstream.streaming.events.round_events import StageResult, WindowEstimate
from meanstream.streaming.rounds.rounds_settings import RoundsSettings
from meanstream.streaming.rounds.stage_results import (
    first_accepted_result,
    results_by_stage,
    shape_of_result,
)
from meanstream.streaming.rounds.window_round import (
    WindowRound,
    estimate_event_line,
    report_event_lines,
    stage_event_line,
)
from meanstream.streaming.rounds.window_widths import Window


class PinnedResults:
    """Results of stages in a folder of the users' side, one small file each.

    A file is made once and never replaced.

    Parameters
    ----------
    folder : str
        It is there, on a file system that all workers share (hard links must work); kept as long as
        users may be asked.

    Notes
    -----
    **Privacy.** A user who answered a stage upon one result and then upon another would have
    reported twice. A pipeline that begins again has no state, so what was accepted stands outside
    of it, as it does in the engine's store. Anyone who loses the folder must not run rounds again
    that were queried before.
    """

    def __init__(self, folder: str) -> None:
        self._folder = Path(folder)

    def accepted(
        self,
        this: WindowRound,
        stage: int,
        public: Public,
        came: Sequence[StageResult],
        *,
        shape: tuple[int, ...] = (),
    ) -> tuple[Public | None, int]:
        """Public: what users are queried upon after a stage, and how many of these results are others."""
        pinned = self._read(self._path_of(this.id, stage))
        if pinned is None:
            found, refused = first_accepted_result(this, public, came, shape=shape)
            if found is None:
                return None, len(came)
            pinned = self._keep(self._path_of(this.id, stage), came[len(refused)])

        others = sum(one.public != pinned.public for one in came)
        return first_accepted_result(this, public, [pinned], shape=shape)[0], others

    def _path_of(self, round_id: str, stage: int) -> Path:
        name = hashlib.blake2b(round_id.encode(), digest_size=16).hexdigest()
        return self._folder / f"{name}-{stage}.json"

    def _keep(self, place: Path, result: StageResult) -> StageResult:
        """Make the file, whole or not at all.

        If another worker was first, its result is the one that counts.
        """
        with tempfile.NamedTemporaryFile(dir=self._folder, prefix=".pin-") as file:
            file.write(result.model_dump_json().encode())
            file.flush()
            os.fsync(file.fileno())

            try:
                os.link(file.name, place)
            except FileExistsError:
                kept = self._read(place)
                assert kept is not None  # noqa: S101 - files are never removed
                return kept

        folder = os.open(self._folder, os.O_RDONLY)
        try:
            os.fsync(folder)  # before anyone is queried
        finally:
            os.close(folder)

        return result

    @staticmethod
    def _read(place: Path) -> StageResult | None:
        try:
            return StageResult.model_validate_json(place.read_bytes())
        except FileNotFoundError:
            return None
        except ValidationError:
            raise ValueError(
                f"pins must hold results of stages, got another file: {place.name}"
            ) from None


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
        yield element[0], _USERS + ColumnsCoder(UserBatch).encode(element[1])


class ResultsAsBytes(Step):
    """Public: results at the key and the time of their round."""

    def __init__(self, settings: RoundsSettings) -> None:
        self._settings = settings

    def process(self, element: StageResult) -> Iterator[TimestampedValue]:
        """Write one."""
        window = Window.between(element.start, element.end)
        yield carried_in_window(
            self._settings,
            (round_key(window), _RESULT + EventCoder(StageResult).encode(element)),
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
            EventCoder(StageResult).decode(part[1:]) for part in parts if part[:1] == _RESULT
        ]
        batches = [ColumnsCoder(UserBatch).decode(part[1:]) for part in parts if part[:1] == _USERS]

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

"""Private to public: all stages of a round at one key.

Sums of samples, which grow with their number, are made before, on all workers.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from typing import Any

import apache_beam as beam

from meanstream.operators.rounds.round_records import Estimate, Public
from meanstream.pipelines.beam.element_types.columns_coder import ColumnsCoder
from meanstream.pipelines.beam.element_types.events import beam_event_from_json, beam_event_to_json
from meanstream.pipelines.beam.keyed_state.beam_state import StateOwner
from meanstream.pipelines.beam.keyed_state.keyed_steps import Cells, KeyedStep
from meanstream.pipelines.beam.rounds.round_queue import RoundTurns
from meanstream.pipelines.beam.rounds.rounds_elements import (
    ReportBatch,
    UserBatch,
    join_user_records,
)
from meanstream.pipelines.beam.rounds.rounds_windows import MILLI, carried_in_window
from meanstream.pipelines.beam.worker.beam_metrics import DistributionOf, metric_counter
from meanstream.pipelines.beam.worker.beam_steps import Step
from meanstream.pipelines.beam.worker.worker_secret import SecretLocation
from meanstream.streaming.events.round_events import WindowEstimate
from meanstream.streaming.rounds.rounds_deployment import rounds_deployment_identity
from meanstream.streaming.rounds.rounds_settings import RoundsSettings
from meanstream.streaming.rounds.window_round import (
    WindowRound,
    curator_noise_once,
    curator_sum,
    estimate_event_line,
)
from meanstream.streaming.rounds.window_widths import Window


def round_key(window: Window) -> int:
    """Key of a round; it holds the window, since a runner searches all windows of a key."""
    return window.end // MILLI % 2**62


class UsersTogether(beam.PTransform):  # type: ignore[misc]
    """Private: users' sums by shard to those of all users of a round.

    They come to the round's key, or with `in_order` to one key for all rounds.
    """

    def __init__(self, *, in_order: bool = False) -> None:
        super().__init__()
        self._in_order = in_order

    def expand(self, pcoll: beam.PCollection) -> beam.PCollection:
        """Group them, and join them in the order of the users' hashes."""
        keyed = tuple[int, UserBatch]
        to_round = beam.ParDo(_ToRound(in_order=self._in_order)).with_output_types(keyed)
        join = beam.ParDo(_Together()).with_output_types(keyed)
        return (
            pcoll
            | "To its round" >> to_round
            | "Of a round" >> beam.GroupByKey()
            | "Together" >> join
        )


class _ToRound(Step):
    """Private: batches of users, whatever their shard, to the key of their round."""

    def __init__(self, *, in_order: bool) -> None:
        self._in_order = in_order

    def process(self, element: tuple[int, UserBatch]) -> Iterator[tuple[int, UserBatch]]:
        """Key one."""
        yield 0 if self._in_order else round_key(element[1].window), element[1]


class _Together(Step):
    """Private: the batches of a round, joined."""

    def process(self, element: tuple[int, Iterable[UserBatch]]) -> Iterator[tuple[int, UserBatch]]:
        """Join them, in the order of the users' hashes."""
        key, batches = element
        joined = list(batches)

        # A runner may fire an empty pane, as for `JoinBatches`.
        if joined:
            yield key, join_user_records(joined)


def stage_reports(
    this: WindowRound, stage: int, public: Public, batch: UserBatch, secret: SecretLocation
) -> ReportBatch:
    """Private to public: reports of those users of a batch whom a stage queries, maybe of none."""
    queried = batch.take(this.stage_of(batch.words) == stage)
    metric_counter("rounds_reports_", stage).inc(len(queried))

    summaries = queried.sums.summaries(queried.words, this.settings.grid)
    reports = this.reports(secret.load(), stage, public, summaries)
    users = this.settings.design_users(this.users)
    return ReportBatch(
        window=this.window, stage=stage, users=users, names=queried.names, reports=reports
    )


class StagesOfRound:
    """Private to public: the users' sums of a round to its estimate, stage after stage.

    **Privacy.** Reports, and a curator's noise, are a function of the secret, the round and the
    question: a bundle that is executed again answers the same.
    """

    def __init__(self, settings: RoundsSettings, secret: SecretLocation) -> None:
        settings.require_tables()
        self._settings = settings
        self._secret = secret
        self._rounds = metric_counter("rounds")
        self._users = DistributionOf("rounds_window_users")

    def answered(
        self, users: UserBatch, carried: Public | None = None
    ) -> tuple[WindowEstimate, Public | None]:
        """Run all stages of a window; give the answer, and what the next window is given."""
        this = WindowRound(self._settings, users.window, users=len(users), carried=carried)
        public: Public = {}

        for stage in this.stages:
            result = self._result(this, stage, public, users)
            if isinstance(result, Estimate):
                self._rounds.inc()
                self._users.update(len(users))
                line = estimate_event_line(this, result, len(users)).lines[0]
                return WindowEstimate.model_validate_json(line), this.carried_after(result)

            public = result

        raise AssertionError("the last stage gives the estimate")

    def _result(
        self, this: WindowRound, stage: int, public: Public, users: UserBatch
    ) -> Public | Estimate:
        """Compute the result of a stage from the reports of its users."""
        batch = stage_reports(this, stage, public, users, self._secret)
        tally, _ = this.tally(stage, public, batch.reports)
        return this.decode(stage, public, tally)


class CuratedStages(StagesOfRound):
    """Private to public: the same, of everyone's samples, with one noise for each sum."""

    def _result(
        self, this: WindowRound, stage: int, public: Public, users: UserBatch
    ) -> Public | Estimate:
        """Compute the result of a stage from everyone's samples."""
        if stage == this.stages[-1]:
            # Everyone who took part is charged once.
            metric_counter("rounds_reports_", stage).inc(len(users))

        summaries = users.sums.summaries(users.words, this.settings.grid)
        tally = curator_sum(this, stage, public, summaries)
        return curator_noise_once(this, self._secret.load(), stage, public, tally)


class AnswerRound(Step):
    """Private to public: an estimate from the reports of all users of a round."""

    def __init__(self, settings: RoundsSettings, secret: SecretLocation) -> None:
        self._stages = StagesOfRound(settings, secret)

    def process(self, element: tuple[int, UserBatch]) -> Iterator[WindowEstimate]:
        """Answer."""
        yield self._stages.answered(element[1])[0]


class AnswerOnce(KeyedStep):
    """Private to public: a curator adds everyone's samples up, and noises each sum once.

    **Privacy.** The state, per round, holds a keyed digest of the sums that were released: the same
    sums are not released twice, and others of the same round not at all (counted as `refusals`).
    """

    VALUES = ("released",)

    def __init__(self, settings: RoundsSettings, secret: SecretLocation) -> None:
        super().__init__(_owner(settings, secret))
        self._stages = CuratedStages(settings, secret)
        self._refused = metric_counter("refusals")

    def take(self, element: UserBatch, cells: Cells) -> Iterator[WindowEstimate]:
        """Answer, unless this was answered before."""
        secret = hashlib.sha256(self.owner.load()).digest()
        digest = hashlib.blake2b(ColumnsCoder(UserBatch).encode(element), key=secret).digest()
        digest_released = cells.released.read()

        if digest_released is None:
            cells.released.write(digest)
            yield self._stages.answered(element)[0]
        elif digest_released != digest:
            self._refused.inc()


class AnswerCarried(RoundTurns):
    """Windows in the order of time, all stages of each, and what it hands on.

    A stage of a window depends on the answer of the window before it, so no two windows run at
    once. A million users' reports take a few seconds.

    **Privacy.** Until a window is released its users' sums wait here, private; what is carried is a
    function of public results. A bundle that is executed again begins from the same state and makes
    the same reports.
    """

    VALUES = ("carried",)

    def __init__(self, settings: RoundsSettings, secret: SecretLocation) -> None:
        super().__init__(settings, _owner(settings, secret))
        self._stages = StagesOfRound(settings, secret)

    def turn(self, due: list[UserBatch], cells: Cells) -> Iterator[Any]:
        """Answer all windows that are due, the earliest first."""
        kept = cells.carried.read()
        state: Public | None = beam_event_from_json(kept)[0] if kept else None
        for users in due:
            event, state = self._stages.answered(users, state)
            yield carried_in_window(self._settings, event, users.window)

        cells.carried.write(beam_event_to_json([state]))


def _owner(settings: RoundsSettings, secret: SecretLocation) -> StateOwner:
    return StateOwner(settings=rounds_deployment_identity(settings), secret=secret)

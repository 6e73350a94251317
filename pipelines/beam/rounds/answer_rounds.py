"""Private to public: all stages of a round at one key.

Sums of samples, which grow with their number, are made before, on all workers.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from typing import Any

import apache_beam as beam
from apache_beam.coders import BytesCoder
from apache_beam.transforms.userstate import ReadModifyWriteStateSpec

from meanstream.operators.rounds.round_records import Estimate, Public
from meanstream.pipelines.beam.keyed_state.beam_state import MADE, StateOwner
from meanstream.pipelines.beam.rounds.rounds_coders import UserBatchCoder
from meanstream.pipelines.beam.rounds.rounds_elements import (
    ReportBatch,
    UserBatch,
    join_user_records,
)
from meanstream.pipelines.beam.rounds.rounds_windows import MILLI
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


class StagesOfRound(Step):
    """Private to public: the users' sums of a round to its estimate, stage after stage.

    **Privacy.** Reports, and a curator's noise, are a function of the secret, the round and the
    question: a bundle that is executed again answers the same.
    """

    def __init__(self, settings: RoundsSettings, secret: SecretLocation) -> None:
        self._settings = settings
        self._secret = secret

    def setup(self) -> None:
        """Begin to count."""
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


class AnswerRound(StagesOfRound):
    """Private to public: an estimate from the reports of all users of a round."""

    def process(self, element: tuple[int, UserBatch]) -> Iterator[WindowEstimate]:
        """Answer."""
        yield self.answered(element[1])[0]


class AnswerOnce(StagesOfRound):
    """Private to public: a curator adds everyone's samples up, and noises each sum once.

    **Privacy.** The state, per round, holds a keyed digest of the sums that were released: the same
    sums are not released twice, and others of the same round not at all (counted as `refusals`).
    """

    MADE = MADE
    RELEASED = ReadModifyWriteStateSpec("released", BytesCoder())

    def __init__(self, settings: RoundsSettings, secret: SecretLocation) -> None:
        super().__init__(settings, secret)
        self._owner = StateOwner(settings=rounds_deployment_identity(settings), secret=secret)

    def setup(self) -> None:
        """Begin to count."""
        super().setup()
        self._mark = self._owner.mark()
        self._refused = metric_counter("refusals")

    def process(
        self,
        element: tuple[int, UserBatch],
        released: Any = beam.DoFn.StateParam(RELEASED),  # noqa: B008 - Beam's way
        made: Any = beam.DoFn.StateParam(MADE),  # noqa: B008
    ) -> Iterator[WindowEstimate]:
        """Answer, unless this was answered before."""
        self._mark.claim(made, released)
        users = element[1]
        key = hashlib.sha256(self._secret.load()).digest()
        digest = hashlib.blake2b(UserBatchCoder().encode(users), key=key).digest()
        digest_released = released.read()

        if digest_released is None:
            released.write(digest)
            yield self.answered(users)[0]
        elif digest_released != digest:
            self._refused.inc()

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

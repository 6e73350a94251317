"""Rounds that hand on what their results showed.

Windows one after the other, at one key, as the engine runs them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import apache_beam as beam
from apache_beam.coders import BytesCoder
from apache_beam.transforms.timeutil import TimeDomain
from apache_beam.transforms.userstate import ReadModifyWriteStateSpec, TimerSpec, on_timer

from meanstream.operators.rounds.round_records import Estimate, Public
from meanstream.pipelines.beam.element_types.events import beam_event_from_json, beam_event_to_json
from meanstream.pipelines.beam.keyed_state.beam_state import MADE, StateOwner
from meanstream.pipelines.beam.rounds.round_queue import ARRIVED, FAR, NEAR, RoundQueue
from meanstream.pipelines.beam.rounds.rounds_elements import UserBatch, join_user_records
from meanstream.pipelines.beam.rounds.rounds_windows import CarryRounds, carried_in_window
from meanstream.pipelines.beam.rounds.stages_on_beam import stage_reports
from meanstream.pipelines.beam.worker.beam_metrics import DistributionOf, metric_counter
from meanstream.pipelines.beam.worker.beam_steps import Step, discreet_step
from meanstream.pipelines.beam.worker.beam_windows import ForGood
from meanstream.pipelines.beam.worker.worker_secret import SecretLocation
from meanstream.streaming.events.round_events import WindowEstimate
from meanstream.streaming.rounds.event_lines import estimate_event_line
from meanstream.streaming.rounds.rounds_deployment import rounds_deployment_identity
from meanstream.streaming.rounds.rounds_settings import RoundsSettings
from meanstream.streaming.rounds.window_round import WindowRound


class RunCarried(beam.PTransform):  # type: ignore[misc]
    """Private to public: users' sums per window to one `WindowEstimate` per window, each given what the last showed.

    A stage of a window hangs on the answer of the window before it, so that no two windows run at
    once: all users of all windows come to one key, whose worker runs all stages of a window and
    keeps what is carried. Reports are made there a million users a few seconds; what grows with
    samples is summed up before, on all workers.
    """

    def __init__(self, settings: RoundsSettings, secret: SecretLocation) -> None:
        super().__init__()
        self._settings = settings
        self._secret = secret

    def expand(self, pcoll: beam.PCollection) -> beam.PCollection:
        """Bring the users together, and answer window after window."""
        answer = AnswerCarried(self._settings, self._secret)
        return (
            pcoll
            | "To one key" >> beam.ParDo(_ToOneKey()).with_output_types(tuple[int, UserBatch])
            | "Of a round" >> beam.GroupByKey()
            | "Together" >> beam.ParDo(_Together()).with_output_types(tuple[int, UserBatch])
            | "For good" >> ForGood()
            | "Answer" >> beam.ParDo(answer).with_output_types(WindowEstimate)
            | "Carry" >> CarryRounds(self._settings)
        )


class AnswerCarried(Step):
    """Windows in the order of time, all stages of each, and what it hands on.

    **Privacy.** Until a window is released its users' sums wait here, private; what is carried is a function of public
    results. A bundle that is executed again begins from the same state and makes the same reports.
    """

    MADE = MADE
    ARRIVED, NEAR, FAR = ARRIVED, NEAR, FAR
    CARRIED = ReadModifyWriteStateSpec("carried", BytesCoder())
    RELEASE = TimerSpec("release", TimeDomain.WATERMARK)

    def __init__(self, settings: RoundsSettings, secret: SecretLocation) -> None:
        self._settings = settings
        self._secret = secret
        self._owner = StateOwner(settings=rounds_deployment_identity(settings), secret=secret)

    def setup(self) -> None:
        """Begin to count."""
        self._mark = self._owner.mark()
        self._rounds = metric_counter("rounds")
        self._users = DistributionOf("rounds_window_users")

    def process(  # noqa: PLR0917 - Beam's way
        self,
        element: tuple[int, UserBatch],
        arrived: Any = beam.DoFn.StateParam(ARRIVED),
        near: Any = beam.DoFn.StateParam(NEAR),
        far: Any = beam.DoFn.StateParam(FAR),
        timer: Any = beam.DoFn.TimerParam(RELEASE),
        carried: Any = beam.DoFn.StateParam(CARRIED),
        made: Any = beam.DoFn.StateParam(MADE),
    ) -> None:
        """Keep a window's users until its release."""
        self._mark.claim(made, arrived, near, far, carried)
        RoundQueue(self._settings, arrived, near, far).wait(element[1], timer)

    @on_timer(RELEASE)  # type: ignore[untyped-decorator]
    @discreet_step
    def release(  # noqa: PLR0917 - the same
        self,
        time: Any = beam.DoFn.TimestampParam,
        arrived: Any = beam.DoFn.StateParam(ARRIVED),
        near: Any = beam.DoFn.StateParam(NEAR),
        far: Any = beam.DoFn.StateParam(FAR),
        carried: Any = beam.DoFn.StateParam(CARRIED),
        made: Any = beam.DoFn.StateParam(MADE),
    ) -> Iterator[Any]:
        """Answer all windows that are due, the earliest first."""
        self._mark.claim(made, arrived, near, far, carried)
        due = RoundQueue(self._settings, arrived, near, far).due(time)
        if not due:
            return

        kept = carried.read()
        state: Public | None = beam_event_from_json(kept)[0] if kept else None
        for users in due:
            event, state = self._answered(users, state)
            yield carried_in_window(self._settings, event, users.window)

        carried.write(beam_event_to_json([state]))

    def _answered(
        self, users: UserBatch, state: Public | None
    ) -> tuple[WindowEstimate, Public | None]:
        """Run all stages of a window; give the answer, and what the next window is given."""
        this = WindowRound(self._settings, users.window, users=len(users), carried=state)
        public: Public = {}
        for stage in this.stages:
            batch = stage_reports(this, stage, public, users, self._secret)
            tally, _ = this.tally(stage, public, batch.reports)
            found = this.decode(stage, public, tally)
            if isinstance(found, Estimate):
                self._rounds.inc()
                self._users.update(len(users))
                line = estimate_event_line(this, found, len(users)).lines[0]
                return WindowEstimate.model_validate_json(line), this.carried_after(found)

            public = found

        raise AssertionError("the last stage gives the estimate")


class _ToOneKey(Step):
    """Private: batches of users, whatever their shard, to one key."""

    def process(self, element: tuple[int, UserBatch]) -> Iterator[tuple[int, UserBatch]]:
        """Key one."""
        yield 0, element[1]


class _Together(Step):
    """Private: the batches of a round, joined."""

    def process(self, element: tuple[int, Iterable[UserBatch]]) -> Iterator[tuple[int, UserBatch]]:
        """Join them, in the order of the users' hashes."""
        if batches := list(element[1]):  # there may be an empty pane, as for `JoinBatches`
            yield element[0], join_user_records(batches)

"""Rounds that hand on what their results showed.

Windows one after the other, at one key, as the engine runs them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import apache_beam as beam
from apache_beam.coders import BytesCoder
from apache_beam.transforms.timeutil import TimeDomain
from apache_beam.transforms.userstate import ReadModifyWriteStateSpec, TimerSpec, on_timer

from meanstream.operators.rounds.round_records import Public
from meanstream.pipelines.beam.element_types.events import beam_event_from_json, beam_event_to_json
from meanstream.pipelines.beam.keyed_state.beam_state import MADE, StateOwner
from meanstream.pipelines.beam.rounds.answer_rounds import StagesOfRound
from meanstream.pipelines.beam.rounds.round_queue import ARRIVED, FAR, NEAR, RoundQueue
from meanstream.pipelines.beam.rounds.rounds_elements import UserBatch
from meanstream.pipelines.beam.rounds.rounds_windows import carried_in_window
from meanstream.pipelines.beam.worker.beam_steps import discreet_step
from meanstream.pipelines.beam.worker.worker_secret import SecretLocation
from meanstream.streaming.rounds.rounds_deployment import rounds_deployment_identity
from meanstream.streaming.rounds.rounds_settings import RoundsSettings


class AnswerCarried(StagesOfRound):
    """Windows in the order of time, all stages of each, and what it hands on.

    A stage of a window depends on the answer of the window before it, so no two windows run at
    once. A million users' reports take a few seconds.

    **Privacy.** Until a window is released its users' sums wait here, private; what is carried is a function of public
    results. A bundle that is executed again begins from the same state and makes the same reports.
    """

    MADE = MADE
    ARRIVED, NEAR, FAR = ARRIVED, NEAR, FAR
    CARRIED = ReadModifyWriteStateSpec("carried", BytesCoder())
    RELEASE = TimerSpec("release", TimeDomain.WATERMARK)

    def __init__(self, settings: RoundsSettings, secret: SecretLocation) -> None:
        super().__init__(settings, secret)
        self._owner = StateOwner(settings=rounds_deployment_identity(settings), secret=secret)

    def setup(self) -> None:
        """Begin to count."""
        super().setup()
        self._mark = self._owner.mark()

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
            event, state = self.answered(users, state)
            yield carried_in_window(self._settings, event, users.window)

        carried.write(beam_event_to_json([state]))

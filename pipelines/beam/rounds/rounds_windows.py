"""Which Beam window carries a round.

One whose end is the round's release time, so that each round has one pane.

A round is released when the watermark passes the end of its window by the allowed lateness. So what
belongs to a round is stamped with the last millisecond before its release and put into fixed
windows of the rounds' period: each carries exactly one round, late data that are allowed are there
on time, and a group per window is one per round. Batches are put into windows, not samples; which
window a sample belongs to is arithmetic on arrays.
"""

from __future__ import annotations

from typing import Any

import apache_beam as beam
from apache_beam.coders.coders import Coder, IntervalWindowCoder
from apache_beam.transforms.trigger import AccumulationMode, DefaultTrigger
from apache_beam.transforms.window import (
    FixedWindows,
    IntervalWindow,
    Sessions,
    TimestampedValue,
    WindowFn,
)
from apache_beam.utils.timestamp import Duration, Timestamp

from meanstream.pipelines.beam.rounds.rounds_elements import ForRound
from meanstream.pipelines.beam.worker.beam_steps import with_window_time
from meanstream.streaming.rounds.rounds_settings import RoundsSettings
from meanstream.streaming.rounds.window_widths import Window

MILLI = 1000
"""Microseconds: runners cut times of windows and timers to the millisecond."""

LATE_FOR = 30 * 86_400.0
"""Seconds that data for a released round are still distinguished and counted; later, the runner
drops them."""


def window_release_time(settings: RoundsSettings, window: Window) -> int:
    """Microseconds of event time at which a round is released, rounded up to the millisecond."""
    release = window.end + round(settings.allowed_lateness * 1e6)
    return -(-release // MILLI) * MILLI


def window_timestamp(settings: RoundsSettings, window: Window) -> Timestamp:
    """Give the time by which Beam finds the window that carries a round."""
    return Timestamp(micros=window_release_time(settings, window) - MILLI)


def carried_in_window(settings: RoundsSettings, value: Any, window: Window) -> TimestampedValue:
    """Give an element the time of its round."""
    return with_window_time(window_timestamp(settings, window), value)


class CarryRounds(beam.PTransform):  # type: ignore[misc]
    """Elements that were stamped into the window that carries their round.

    Sessions of one population never overlap, so their ends lie a gap apart at least, and a window
    of the gap's size carries one of them. Windows of a calendar are longer than the step that their
    ends are multiples of.
    """

    def __init__(self, settings: RoundsSettings, *, late_panes: bool = False) -> None:
        super().__init__()
        self._settings = settings
        self._late_panes = late_panes

    def expand(self, pcoll: beam.PCollection) -> beam.PCollection:
        """Put them there."""
        period = self._settings.windows.step
        beyond = window_release_time(self._settings, Window(0, 0)) % period
        carrier = FixedWindows(Duration(micros=period), offset=Timestamp(micros=beyond))
        return pcoll | "Window" >> _window_into(carrier, late_panes=self._late_panes)


class JoinSessions(beam.PTransform):  # type: ignore[misc]
    """Batches of one key into sessions that Beam merges; late ones come in panes of their own."""

    def __init__(self, settings: RoundsSettings) -> None:
        super().__init__()
        self._settings = settings

    def expand(self, pcoll: beam.PCollection) -> beam.PCollection:
        """Put each where it would be a session of its own."""
        return pcoll | "Window" >> _window_into(_BatchSessions(self._settings), late_panes=True)


def _window_into(window_fn: WindowFn, *, late_panes: bool) -> beam.WindowInto:
    # A pane when the watermark passes, then one for each late element: as
    # `AfterWatermark(late=AfterCount(1))`, for which Beam's own driver of triggers builds classes
    # for each group.
    return beam.WindowInto(
        window_fn,
        trigger=DefaultTrigger(),
        accumulation_mode=AccumulationMode.DISCARDING,
        allowed_lateness=Duration(LATE_FOR) if late_panes else Duration(0),
    )


class _BatchSessions(WindowFn):  # type: ignore[misc]
    """Sessions of batches.

    A batch lasts from its first sample to a gap after its last, until the release.

    Not a kind of Beam's `Sessions`, which would reach the runner as its parent.
    """

    def __init__(self, settings: RoundsSettings) -> None:
        self._settings = settings
        self._sessions = Sessions(Duration(micros=settings.windows.size))

    def assign(self, context: WindowFn.AssignContext) -> list[IntervalWindow]:
        """Read the window of the batch, which is exact.

        Beam's is at least as long, to the millisecond.
        """
        batch: ForRound = context.element[1]
        release = window_release_time(self._settings, batch.window)
        start = (batch.window.start + release - batch.window.end) // MILLI * MILLI
        return [IntervalWindow(Timestamp(micros=start), Timestamp(micros=release))]

    def merge(self, merge_context: WindowFn.MergeContext) -> None:
        """Merge windows that overlap."""
        self._sessions.merge(merge_context)

    def get_window_coder(self) -> Coder:
        """Bytes of a window."""
        return IntervalWindowCoder()

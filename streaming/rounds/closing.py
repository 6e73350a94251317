"""When windows of rounds close.

At public moments only, because who takes part in a window is public.

A sample that comes after its window has closed does not count. Whether others count must therefore
never depend on what one user sends within a window: neither on its values, nor on how many samples
it sends, nor on their times. A watermark cannot be used here. It is made of event times, so one
user's sample at 00:10 or at 02:00 would decide whether another user's sample is late. One vote for
each user and window does not help either. The vote takes effect where the user's first record of
the window stands among the records of others, and in a log that place is its time.

So windows close in one of three ways, and each is a function of the operator's clock and of who
takes part in what:

- A source in the order of event time (a sorted file): a window closes when a later window has begun. Nothing can come
  late, so the moment decides nothing.
- Another source that ends (`--no-sort`, `--until-end`, a pipe): all windows close at its end. Every sample counts.
- A source without end (a topic, a file that grows): a window closes by the operator's clock, when its end is the
  allowed lateness ago. The source is then read to where it ended at that moment, and no further,
  before the windows close. So how much others have sent, the size of batches and the speed of
  reading decide nothing, and a backlog counts as a whole. Sessions close at the next multiple of
  their gap.

What has closed is committed together with the reports, so a restart repeats it. A record behind the
moment is late. That tells of its own user only, who took part by writing in time or did not.

What remains: the moment is the first one between two batches at which the clock has passed. A batch
and its delivery take time, which is longer if someone sends more. That is time that computing
takes, not data, and moves the moment by no more than one batch.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from meanstream.streaming.rounds.window_widths import MICROS, Windows, windows_in_micros
from meanstream.streaming.sources.source_protocol import Holds, InOrder, Source

_NEVER = -(1 << 63)


class WindowClosing:
    """Says up to which time, in microseconds, windows have closed; it never falls.

    Parameters
    ----------
    windows : Windows
        How event time is cut.
    lateness : float
        Seconds that a window stays open behind its end, of a source without end.
    source : Source
        What is read; it is held at its present end where the clock closes windows.

    Notes
    -----
    **Privacy.** See the module: the time depends on the clock and on which windows have samples, and on nothing else.
    """

    def __init__(self, windows: Windows, lateness: float, source: Source) -> None:
        self._windows = windows
        self._lateness = lateness
        self._source: Source = source
        self._moment: int | None = (
            None  # what closes once the source has been read to where it is held
        )
        self.reached = _NEVER

    def moment_has_come(self, now: float) -> bool:
        """Go on towards the next closing by the clock.

        Say whether all that the source held then has been read.
        """
        source = self._source
        if not isinstance(source, Holds) or source.bounded:
            return False

        if self._moment is None:
            moment = self._whole(round((now - self._lateness) * MICROS))
            if moment <= self.reached or not source.hold():
                return False
            self._moment = moment

        return source.reached_hold()

    @property
    def begun(self) -> bool:
        """Whether any time has closed."""
        return self.reached != _NEVER

    def close(self, newest: float, now: float, *, last_end: int | None, ended: bool) -> int:
        """Close what is due after a batch."""
        if ended:
            self.reached = max(self.reached, self.reached if last_end is None else last_end)
        elif isinstance(self._source, InOrder) and self._source.in_order:
            if math.isfinite(newest):
                self.reached = max(
                    self.reached, self._whole(int(windows_in_micros(np.array([newest]))[0]))
                )
        elif (
            self.moment_has_come(now)
            and self._moment is not None
            and isinstance(self._source, Holds)
        ):
            self.reached, self._moment = max(self.reached, self._moment), None
            self._source.go_on()

        return self.reached

    def snapshot(self) -> dict[str, Any]:
        """Give plain values."""
        return {"closed": None if self.reached == _NEVER else self.reached}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from plain values.

        `ValueError` if an earlier version wrote them, which closed windows otherwise.
        """
        if "closed" not in state:
            raise ValueError(
                "store must be of this version, got rounds of an earlier one: begin a new store with --name"
            )

        self.reached = _NEVER if state["closed"] is None else int(state["closed"])

    def _whole(self, micros: int) -> int:
        """Round down to where windows may end."""
        return self._windows.start(micros)

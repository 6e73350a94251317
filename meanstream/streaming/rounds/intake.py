"""Samples into the windows that are still open: lateness by window, duplicates, plausibility, users numbered."""

from __future__ import annotations

import numpy as np

from meanstream.operators.records import Floats, Ints
from meanstream.streaming.engine.intake import Intake
from meanstream.streaming.engine.options import EngineOptions
from meanstream.streaming.engine.stats import EngineStats
from meanstream.streaming.events.columns import Rejects, SampleColumns, column_partitions
from meanstream.streaming.rounds.open_windows import OpenWindows
from meanstream.streaming.rounds.settings import RoundsSettings
from meanstream.streaming.rounds.summarize import Entries
from meanstream.streaming.rounds.windows import windows_in_micros


class RoundsIntake(Intake):
    """Admits samples of one source into windows.

    A sample is late for a window that lies, to its end, behind the newest sample of its own partition by more than
    the allowed lateness, as it stood when the sample arrived; a sample that is late for all its windows is rejected.
    How the source is cut into batches decides nothing. In a session, which has no end beforehand, a sample is late if
    it lies behind by itself.

    **Privacy.** Which samples count depends on times and ids, never on values.
    """

    def __init__(self, settings: RoundsSettings, options: EngineOptions, source: str, stats: EngineStats) -> None:
        super().__init__(settings.grid, options, source, stats)
        self._windows = settings.windows

    def admit_to_windows(self, samples: SampleColumns, rejects: Rejects, now: float) -> Entries:
        """Take the good samples of a batch; note why others are not used."""
        self._stats.events += len(samples) + len(rejects)
        samples = self._reject(samples, samples.time > now + self._options.max_future, "in_future", rejects)
        self._count_clipped(samples)
        if not len(samples):
            none, nothing = np.zeros(0, np.int64), np.zeros(0)
            return Entries(none, nothing, nothing, none, none)
        bound = _in_micros(
            self._watermark.bounds(column_partitions(samples.position), samples.time, self._sender(samples))
        )
        at = self._windows.assign(samples.time)
        last = at.start if self._windows.kind == "session" else at.end - 1
        still_open = last >= bound[at.sample]
        late = np.bincount(at.sample[still_open], minlength=len(samples)) == 0
        again = self._duplicates(samples, late)
        rejects.add_many("duplicate", samples.position[again])
        rejects.add_many("late", samples.position[late & ~again])
        good = ~(late | again)
        beyond = np.zeros(len(samples), np.bool_)
        beyond[good] = self._beyond(samples.take(good))
        rejects.add_many("too_many_agents", samples.position[beyond])
        good &= ~beyond
        user = np.full(len(samples), -1, np.int64)
        if good.any():
            user[good] = self._enter_users(samples.take(good))
        entries = still_open & good[at.sample]
        which = at.sample[entries]
        return Entries(user[which], samples.value[which], samples.time[which], at.start[entries], at.end[entries])

    def closed(self, waiting: OpenWindows, active: tuple[int, ...], *, ended: bool) -> int:
        """Move the watermark; tell the time, in microseconds, up to which windows have ended for good."""
        if ended:
            self._watermark.finish()
            last = waiting.last_end()
            if last is not None:
                self._watermark.pass_by(last / 1e6)
        else:
            self._watermark.advance(active)
        # An id is remembered as long as a sample that repeats it could enter a window.
        self._seen.forget(self.watermark - self._windows.size / 1e6)
        return int(_in_micros(np.array([self.watermark]))[0])

    def _log_full(self) -> None:
        """Say nothing: when the last of the users that are taken sent something is protected (the private figures)."""

    def _enter_users(self, samples: SampleColumns) -> Ints:
        self._remember(samples)
        user = self._number(samples)
        self._stats.accepted += len(samples)
        self._stats.agents = len(self.names)
        return user


def _in_micros(time: Floats) -> Ints:
    """Whole microseconds; the earliest number for what is before all times, as where there was no sample."""
    finite = np.abs(time) < 1e12
    return np.where(finite, windows_in_micros(np.where(finite, time, 0.0)), np.iinfo(np.int64).min)

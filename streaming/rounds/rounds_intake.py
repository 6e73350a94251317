"""Samples into the windows that are still open.

Lateness by window, duplicates, plausibility, users numbered.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from meanstream.operators.records import Bools, Ints
from meanstream.streaming.engine.engine_intake import Intake
from meanstream.streaming.engine.engine_options import EngineOptions
from meanstream.streaming.engine.engine_stats import EngineStats
from meanstream.streaming.events.event_columns import Rejects, SampleColumns
from meanstream.streaming.rounds.closing import WindowClosing
from meanstream.streaming.rounds.open_windows import OpenWindows
from meanstream.streaming.rounds.rounds_settings import RoundsSettings
from meanstream.streaming.rounds.summarize_users import Entries, valid_values
from meanstream.streaming.rounds.user_places import UserSlots
from meanstream.streaming.rounds.window_widths import MICROS, Assigned, Window
from meanstream.streaming.sources.source_protocol import Source
from meanstream.streaming.store.state_store import Store


class RoundsIntake(Intake):
    """Admits samples of one source into windows.

    A sample is late for a window that has closed; one that is late for all its windows is rejected.
    A session has no end beforehand, so a sample of sessions is late if it lies behind by itself.
    `WindowClosing` says when windows close, and `UserSlots` who takes part in them.

    **Privacy.** Which of a user's samples count depends on their own times, ids and values, on the
    clock, and on nothing that others send. Who takes part in a window depends on names, times and
    the clock alone: a sample without a valid value, or one that repeats an id, still makes its user
    take part.

    Parameters
    ----------
    settings : RoundsSettings
        What the parties agreed on.
    options : EngineOptions
        Plausible times, lateness, greatest number of users.
    source : Source
        What is read.
    stats : EngineStats
        What is counted.
    key : bytes
        Secret key of the order in which users get places.
    """

    def __init__(
        self,
        settings: RoundsSettings,
        options: EngineOptions,
        source: Source,
        stats: EngineStats,
        key: bytes,
    ) -> None:
        super().__init__(settings.grid, options, source.name, stats)
        self._windows = settings.windows
        self.closing = WindowClosing(settings.windows, options.allowed_lateness, source)
        self.places = UserSlots(
            options.max_agents, key, self.names, settings.windows, options.max_future
        )
        self._newest = -math.inf  # of the last batch

    def admit_to_windows(self, samples: SampleColumns, rejects: Rejects, now: float) -> Entries:
        """Take the good samples of a batch; note why others are not used."""
        # What has no value was noted by who read it, and is noted for no second reason here.
        valid = valid_values(samples.value)
        self._stats.events += int(np.count_nonzero(valid)) + len(rejects)
        future = samples.time > now + self._options.max_future
        rejects.add_many("in_future", samples.position[future & valid])
        samples = samples.take(~future)
        valid = valid[~future]
        self._count_clipped(samples)
        self._newest = float(samples.time.max(initial=-math.inf))

        if not len(samples):
            none = np.zeros(0, np.int64)
            nothing = np.zeros(0)
            return Entries(none, nothing, nothing, none, none)

        at = self._windows.assign(samples.time)
        last = at.start if self._windows.kind == "session" else at.end - 1
        still_open = last >= self.closing.reached
        late = np.bincount(at.sample[still_open], minlength=len(samples)) == 0
        again = self._duplicates(samples, late | _without_id(samples))
        rejects.add_many("duplicate", samples.position[again & valid])
        rejects.add_many("late", samples.position[late & ~again & valid])

        good = ~late
        beyond = self._hopeless(samples, good, at, still_open)
        rejects.add_many("too_many_agents", samples.position[beyond & valid & ~again])
        good &= ~beyond
        user = np.full(len(samples), -1, np.int64)

        if good.any():
            user[good] = self._enter_users(samples.take(good), again[good])

        entries = still_open & good[at.sample]
        which = at.sample[entries]
        return Entries(
            user[which],
            samples.value[which],
            samples.time[which],
            at.start[entries],
            at.end[entries],
            again[which],
        )

    def closed(self, waiting: OpenWindows, now: float, *, ended: bool) -> int:
        """Tell the time, in microseconds, up to which windows have closed, after a batch."""
        reached = self.closing.close(self._newest, now, last_end=waiting.last_end(), ended=ended)
        # An id is remembered as long as a sample that repeats it could enter a window.
        self._seen.forget(self.watermark - self._windows.size / MICROS)
        return reached

    def save(self, store: Store, saved_agents: int) -> dict[str, Any]:
        """Write what changed within the transaction of a store; return the rest as plain values."""
        store.add_agents(saved_agents, self.names[saved_agents:])
        self._seen.save(store)
        self.places.save(store)
        return self.closing.snapshot()

    def restore(self, store: Store, state: Mapping[str, Any]) -> None:
        """Continue from what was saved."""
        self.names[:] = store.agents()
        self._numbers = {name: number for number, name in enumerate(self.names)}
        self.closing.restore(state)
        self._seen.restore(store)
        self.places.restore(store)
        self._warn_full()

    @property
    def watermark(self) -> float:
        """Event time up to which windows have closed."""
        return self.closing.reached / MICROS if self.closing.begun else -math.inf

    def _warn_full(self) -> None:
        """Say nothing: when the last of the users that are taken sent something is protected (the private figures)."""
        self._stats.full = self.places.full

    def _hopeless(
        self, samples: SampleColumns, good: Bools, at: Assigned, still_open: Bools
    ) -> Bools:
        """Say which good samples are of new users who can get no place, and need not be remembered."""
        hopeless = np.zeros(len(samples), np.bool_)
        if not self.places.refuses:
            return hopeless
        new = good & (
            self._number_of.of(samples.names)[samples.agent] < 0
        )  # maybe under another code
        codes = [
            code
            for code in np.unique(samples.agent[new]).tolist()
            if samples.names[code] not in self._numbers
        ]

        if not codes:
            return hopeless
        new &= np.isin(samples.agent, codes)
        entries = still_open & new[at.sample]
        ends = np.unique(np.stack([at.start[entries], at.end[entries]], axis=1), axis=0)
        windows = [Window(start, end) for start, end in ends.tolist()]
        out = self.places.hopeless([samples.names[code] for code in codes], windows)

        return new & np.isin(samples.agent, np.array(codes)[out])

    def _enter_users(self, samples: SampleColumns, again: Bools) -> Ints:
        self._remember(samples.take(~(again | _without_id(samples))))
        user = self._number(samples)
        self._stats.accepted += int(np.count_nonzero(valid_values(samples.value) & ~again))
        self._stats.agents = len(self.names)

        return user


def _without_id(samples: SampleColumns) -> Bools:
    """Say which samples have no readable id, so that none of them repeats another."""
    return np.zeros(len(samples), np.bool_) if samples.key is None else samples.key == 0

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
from meanstream.streaming.rounds.open_windows import OpenWindows
from meanstream.streaming.rounds.rounds_settings import RoundsSettings
from meanstream.streaming.rounds.summarize_users import Entries, valid_values
from meanstream.streaming.rounds.user_epsilons import UserEpsilons
from meanstream.streaming.rounds.user_places import UserSlots
from meanstream.streaming.rounds.window_widths import (
    MICROS,
    Assigned,
    Window,
    Windows,
    windows_in_micros,
)
from meanstream.streaming.sources.source_protocol import Holds, InOrder, Source
from meanstream.streaming.store.state_store import Store

_NEVER = -(1 << 63)


class WindowClosing:
    """Says up to which time, in microseconds, windows have closed; it never falls.

    They close at public moments only, because who takes part in a window is public.

    At public moments only, because who takes part in a window is public.

    A sample that comes after its window has closed does not count. Whether others count must therefore
    never depend on what one user sends within a window: neither on its values, nor on how many samples
    it sends, nor on their times. A watermark cannot be used here. It is made of event times, so one
    user's sample at 00:10 or at 02:00 would decide whether another user's sample is late. One vote for
    each user and window does not help either. The vote takes effect where the user's first record of
    the window stands among the records of others, and in a log that place is its time.

    So windows close in one of three ways, and each is a function of the operator's clock and of who
    takes part in what:

    - A source in the order of event time (a sorted file): a window closes when a later window
      has begun. Nothing can come
      late, so the moment decides nothing.
    - Another source that ends (`--no-sort`, `--until-end`, a pipe): all windows close at its
      end. Every sample counts.
    - A source without end (a topic, a file that grows): a window closes by the operator's
      clock, when its end is the
      allowed lateness ago. The source is then read to where it ended at that moment, and no further,
      before the windows close. So how much others have sent, the size of batches and the speed of
      reading decide nothing, and a backlog counts as a whole. Sessions close at the next multiple of
      their gap.

    What has closed is committed together with the reports, so a restart repeats it. A record behind the
    moment is late. That tells of its own user only, who took part by writing in time or did not.

    What remains: the moment is the first one between two batches at which the clock has passed. A batch
    and its delivery take time, which is longer if someone sends more. That is time that computing
    takes, not data, and moves the moment by no more than one batch.

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
    **Privacy.** The time depends on the clock and on which windows have samples, and on nothing else.
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
    user_epsilons : UserEpsilons, optional
        Which epsilon each user accepts: samples of those who accept less than a window costs are
        not used for anything.
    """

    def __init__(
        self,
        settings: RoundsSettings,
        options: EngineOptions,
        source: Source,
        stats: EngineStats,
        key: bytes,
        *,
        user_epsilons: UserEpsilons | None = None,
    ) -> None:
        super().__init__(settings.grid, options, source.name, stats)
        self._epsilon = settings.epsilon
        self._user_epsilons = user_epsilons
        self._directory: list[str] = []
        self._accepts = np.zeros(0, np.bool_)  # of the names of the directory
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
        declined = self._declined(samples)
        rejects.add_many("epsilon_declined", samples.position[declined & valid])
        samples = samples.take(~declined)
        valid = valid[~declined]
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

        assigned = self._windows.assign(samples.time)
        last = assigned.start if self._windows.kind == "session" else assigned.end - 1
        still_open = last >= self.closing.reached
        late = np.bincount(assigned.sample[still_open], minlength=len(samples)) == 0
        again = self._duplicates(samples, late | _without_id(samples))
        rejects.add_many("duplicate", samples.position[again & valid])
        rejects.add_many("late", samples.position[late & ~again & valid])

        good = ~late
        beyond = self._hopeless(samples, good, assigned, still_open)
        rejects.add_many("too_many_agents", samples.position[beyond & valid & ~again])
        good &= ~beyond
        user = np.full(len(samples), -1, np.int64)

        if good.any():
            user[good] = self._enter_users(samples.take(good), again[good])

        entries = still_open & good[assigned.sample]
        which = assigned.sample[entries]
        return Entries(
            user[which],
            samples.value[which],
            samples.time[which],
            assigned.start[entries],
            assigned.end[entries],
            again[which],
        )

    def _declined(self, samples: SampleColumns) -> Bools:
        """Say which samples are of users who accept less than a window costs."""
        if self._user_epsilons is None:
            return np.zeros(len(samples), np.bool_)

        # The directory of a source only grows: each name is looked up once.
        if samples.names is not self._directory:
            self._directory = samples.names
            self._accepts = np.zeros(0, np.bool_)

        added = samples.names[len(self._accepts) :]
        if added:
            accepts = self._user_epsilons.accept(added, self._epsilon)
            self._accepts = np.concatenate([self._accepts, accepts])

        return np.asarray(~self._accepts[samples.agent])

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
        self.closing.restore(state)
        self._seen.restore(store)
        self.places.restore(store)
        self._warn_full()

    @property
    def watermark(self) -> float:
        """Event time up to which windows have closed."""
        return self.closing.reached / MICROS if self.closing.begun else -math.inf

    def _warn_full(self) -> None:
        """Say nothing: when the last place was taken is protected; private figures show it."""
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

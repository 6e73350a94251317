"""Releases of one running mean that forgets: when they are due, and what each says.

They have no end.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np

from meanstream.operators.agents.agent_memory import Memory
from meanstream.operators.agents.memory.decay import DecayedSums, WindowedSums
from meanstream.operators.agents.release_times import Counts, Geometric, Steady, parse_release_times
from meanstream.operators.agents.state_columns import empty_columns
from meanstream.operators.counters.base import ENDLESS, State
from meanstream.operators.counters.decayed import Decayed, decay_of_half_life
from meanstream.operators.counters.windowed import LONGEST_WINDOW, Windowed
from meanstream.operators.noise.distributions import GaussianNoise
from meanstream.operators.records import Floats
from meanstream.operators.validation import require

_ROW = np.zeros(1, np.int64)


@dataclass(frozen=True, slots=True)
class EndlessReleases:
    """The schedule and the noise of one mean that forgets.

    Parameters
    ----------
    times : Counts
        Numbers of updates at the releases.
    counter : Decayed or Windowed
        Noise of its sums.
    """

    times: Counts
    counter: Decayed | Windowed

    @classmethod
    def of(cls, memory: Memory, schedule: str | int) -> Self:
        """Make them for a memory in updates, and a schedule in updates.

        Examples
        --------
        >>> from meanstream.operators.agents.agent_memory import parse_memory
        >>> EndlessReleases.of(parse_memory("half-life:80"), "preferred:10").times.times(9).tolist()
        [10, 15, 20, 30, 40, 50, 60, 70, 80]
        """
        require(
            memory.samples is not None,
            "memory",
            "be forever, half-life:UPDATES or window:UPDATES",
            str(memory),
        )
        length = int(memory.samples or 0)

        if isinstance(schedule, str):
            rule = "be a number of updates with memory window:UPDATES"
            require(memory.kind != "window", "schedule", rule, schedule)
            times = memory.times(parse_release_times(schedule))
            counter = memory.counter(times)
            assert isinstance(times, Steady)  # noqa: S101 - of samples it is
            assert isinstance(counter, Decayed)  # noqa: S101 - no window has come here

            return cls(times, counter)

        require(schedule >= 1, "schedule", "be at least 1 update", schedule)
        times = Steady(
            Geometric(schedule, 3.0), schedule
        )  # its second release would be two gaps later

        if memory.kind == "window":
            rule = f"be 1 to {LONGEST_WINDOW} times the schedule of {schedule} updates"
            require(
                length % schedule == 0 and length <= LONGEST_WINDOW * schedule,
                "memory",
                rule,
                str(memory),
            )

            return cls(times, Windowed(ENDLESS, window=length // schedule))

        decay = decay_of_half_life(schedule, length)
        require(decay > 0, "memory", f"not forget all within {schedule} updates", str(memory))
        return cls(times, Decayed(ENDLESS, decay=decay))

    def due(self, index: int) -> int:
        """Give the number of updates at the release after that many."""
        return int(self.times.at(np.array([index + 1]))[0])

    def init(self, n_rows: int) -> State:
        """State before the first release.

        Noise, what it is of, and samples and sum at the last release.
        """
        nothing = {"marked": np.zeros((n_rows, 2), np.int64), "told_variance": np.zeros(n_rows)}
        return {**empty_columns(self._sums(GaussianNoise(1.0)).columns, n_rows), **nothing}

    def release(
        self,
        state: State,
        index: int,
        *,
        count: int,
        total: int,
        noise: GaussianNoise,
        fresh: Floats,
    ) -> tuple[int, int]:
        """Release once; give the effective number of samples and their noised sum.

        Parameters
        ----------
        state : State
            Of one row; changed in place.
        index : int
            Number of this release, from 1.
        count, total : int
            All samples so far, and their exact sum in grid units.
        noise : GaussianNoise
            Of one draw.
        fresh : float array, shape (1,)
            The draw.
        """
        more = np.array([count, total]) - state["marked"][0]
        told = self._sums(noise).release(
            state, _ROW, index=np.array([index]), count=more[:1], total=more[1:], fresh=fresh
        )
        state["marked"][0] = count, total
        state["told_variance"][:] = told.variance

        return int(told.count[0]), int(told.total[0])

    def _sums(self, noise: GaussianNoise) -> DecayedSums | WindowedSums:
        if isinstance(self.counter, Decayed):
            return DecayedSums(self.counter, noise)
        return WindowedSums(self.counter, noise)

"""How long a mean remembers: for ever, with a half-life, or over a sliding window."""

from __future__ import annotations

import math
from dataclasses import dataclass

from meanstream.operators.agents.release_times import Counts, Every, Steady
from meanstream.operators.counters.base import ENDLESS
from meanstream.operators.counters.decayed import LARGEST_DECAY, Decayed, decay_of_half_life
from meanstream.operators.counters.windowed import LONGEST_WINDOW, Sliding
from meanstream.operators.durations import duration_text, parse_duration
from meanstream.operators.validation import require

FOREVER = "forever"
AUTO = "auto"
LIFE = 40
"""Releases for which `auto` hardly forgets: the usual horizon of who keeps everything."""
LONGEST_AUTO = 10**8
"""Samples: with a half-life much longer nothing would be forgotten between two releases."""
TURNS = 8
"""Releases in a half-life of samples: a few, because noise grows with them, and a change is seen
within one of them."""
_FORMS = (
    "be forever, half-life:LENGTH or window:LENGTH, in samples or a duration (such as half-life:5000 or window:12w), "
    "or, of agents, auto"
)


@dataclass(frozen=True, slots=True)
class Memory:
    """How much older samples weigh.

    Parameters
    ----------
    kind : {"forever", "half-life", "window"}
        Equally; half as much after each half-life; nothing once they have left the window.
    samples : int, optional
        Length of the half-life or of the window, in samples of the agent;
    seconds : float, optional
        or in seconds of event time.

    Notes
    -----
    **Privacy.** Weights follow from counts and times, which are public; values play no part.
    """

    kind: str = FOREVER
    samples: int | None = None
    seconds: float | None = None

    @property
    def forgets(self) -> bool:
        """Whether anything is forgotten: then the stream of releases has no end."""
        return self.kind != FOREVER

    def __str__(self) -> str:
        if not self.forgets:
            return FOREVER

        if self.seconds is None:
            return f"{self.kind}:{self.samples}"
        return f"{self.kind}:{duration_text(self.seconds)}"

    def times(self, schedule: Counts | Every) -> Counts | Every:
        """Give the times of releases under this memory.

        A half-life of samples has some releases in each.
        """
        if not self.forgets:
            return schedule

        if self.seconds is None:
            require(
                isinstance(schedule, Counts),
                "schedule",
                f"count samples, as memory {self} does",
                str(schedule),
            )
            assert isinstance(schedule, Counts)  # noqa: S101 - narrows
            steady = Steady(schedule, max(1, (self.samples or 1) // TURNS))
            room = self.kind != "window" or steady.early[0] <= (self.samples or 1)
            require(room, "schedule", f"have its first release within memory {self}", str(schedule))

            return steady

        require(
            isinstance(schedule, Every),
            "schedule",
            f"be every:DURATION with memory {self}",
            str(schedule),
        )
        assert isinstance(schedule, Every)  # noqa: S101 - narrows
        require(
            schedule.seconds <= self.seconds,
            "schedule",
            f"be at most as long as memory {self}",
            str(schedule),
        )

        if self.kind == "window":
            self._increments(schedule.seconds)

        return schedule

    def counter(self, times: Counts | Every) -> Decayed | Sliding:
        """Make the counter of sums that forget, for releases at these times (of `times`)."""
        if self.kind == "window":
            if isinstance(times, Every):
                return Sliding(ENDLESS, window=self._increments(times.seconds))
            assert isinstance(times, Steady)  # noqa: S101 - `times` has made it
            return Sliding(ENDLESS, window=int(self.samples or 1) // times.gap)

        if isinstance(times, Every):
            return Decayed(ENDLESS, decay=self._decay(times.seconds, float(self.seconds or 0)))
        assert isinstance(times, Steady)  # noqa: S101 - `times` has made it
        half_life = float(self.samples or 0)
        gaps = [later - before for before, later in zip(times.early, times.early[1:], strict=False)]
        decay = self._decay(times.gap, half_life)

        return Decayed(
            ENDLESS, decay=decay, early=tuple(self._decay(gap, half_life) for gap in gaps)
        )

    def _decay(self, turn: float, half_life: float) -> float:
        decay = decay_of_half_life(turn, half_life)
        require(
            0 < decay <= LARGEST_DECAY,
            "memory",
            "forget something, and not all, between two releases",
            str(self),
        )

        return decay

    def _increments(self, seconds: float) -> int:
        number = float(self.seconds or 0) / seconds
        whole = number == math.floor(number) and number <= LONGEST_WINDOW
        require(
            whole,
            "memory",
            f"be 1 to {LONGEST_WINDOW} times {duration_text(seconds)} of the schedule",
            str(self),
        )

        return int(number)


def memory_for(text: str, schedule: Counts | Every) -> Memory:
    """Return the memory that a text names for agents with this schedule.

    `auto` is as long as `forever` would last.

    `auto` is the half-life in which `LIFE` releases are made. Noise is no more than that of
    `forever` then, which would end there, and a mean that stays has 1.04 times the variance of one
    over all samples; changes are seen by tests.

    Examples
    --------
    >>> from meanstream.operators.agents.release_times import parse_release_times
    >>> [str(memory_for("auto", parse_release_times(one))) for one in ("preferred:10", "every:1d", "geometric:10,2")]
    ['half-life:30000000', 'half-life:40d', 'half-life:100000000']
    """
    if text != AUTO:
        return parse_memory(text)
    if isinstance(schedule, Every):
        return Memory("half-life", seconds=LIFE * schedule.seconds)

    return Memory("half-life", samples=min(int(schedule.times(LIFE)[-1]), LONGEST_AUTO))


def parse_memory(text: str) -> Memory:
    """Return the memory that a text names; `str` of it is the one text of all that name it.

    Examples
    --------
    >>> str(parse_memory("half-life: 05000")), str(parse_memory("window:2w")), parse_memory("forever").forgets
    ('half-life:5000', 'window:14d', False)
    """
    kind, _, length = text.partition(":")
    length = length.strip()

    if text == FOREVER:
        return Memory()
    require(kind in ("half-life", "window") and length != "", "memory", _FORMS, text)

    if length[-1].isdigit():
        require(
            length.isascii() and length.isdigit() and 0 < int(length[:20]) < ENDLESS,
            "memory",
            _FORMS,
            text,
        )

        return Memory(kind, samples=int(length))

    try:
        seconds = parse_duration("memory", length)
    except ValueError:
        raise ValueError(f"memory must {_FORMS}, got {text!r}") from None

    require(seconds > 0, "memory", _FORMS, text)
    return Memory(kind, seconds=seconds)

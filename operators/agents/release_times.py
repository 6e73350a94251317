"""When an agent releases.

After given numbers of its own samples, or every that many seconds of event time.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import count, islice, takewhile

import numpy as np

from meanstream.operators.durations import duration_text, parse_duration
from meanstream.operators.records import Floats, Ints
from meanstream.operators.validation import require, require_positive

_LARGEST = 2**62
_FORMS = "be preferred:FIRST, geometric:FIRST,FACTOR or every:DURATION (such as preferred:10 or every:1d)"
_PREFERRED = (10, 15, 20, 30, 50, 70)
"""Preferred numbers, six to a decade."""
_MOST_EARLY = 128
"""Releases before the steady ones, at most: a schedule may grow as slowly as it likes."""


class Counts(ABC):
    """Release when an agent's own number of samples reaches each number of an increasing sequence.

    A release waits for the last sample of its event time; numbers that this passes are left out.

    **Privacy.** The times depend on how many samples there are and when, which is public. They
    never depend on values, nor on the order of samples within one event time.
    """

    __slots__ = ()

    @abstractmethod
    def sequence(self) -> Iterator[int]:
        """Give the numbers of samples at the releases, strictly increasing, without end."""

    def times(self, n: int) -> Ints:
        """Return the numbers of samples at the first `n` releases.

        Past 2**62, which no number of samples reaches, they go on one by one.
        """
        return _first_times(self, n)

    def at(self, index: Ints) -> Ints:
        """Return the numbers of samples at these releases, counted from 1."""
        return self.times(int(np.max(index, initial=1)))[np.asarray(index) - 1]

    def releases_up_to(self, samples: Ints) -> Ints:
        """Return how many releases each number of samples has reached."""
        largest = int(np.max(samples, initial=0))
        times = _times_below(self, 1 << largest.bit_length())
        return np.searchsorted(times, samples, side="right").astype(np.int64)


def require_samples_counted(
    times: Counts | Every, schedule: str, forms: str = "such as preferred:10"
) -> Counts:
    """Refuse a schedule of event time where samples have none."""
    if isinstance(times, Counts):
        return times
    raise ValueError(f"schedule must count samples here ({forms}), got {schedule!r}")


@dataclass(frozen=True, slots=True)
class Geometric(Counts):
    """Release when the number of samples first reaches `first`, `first * factor`, `first * factor**2`, ...

    Parameters
    ----------
    first : int
        Number of samples at the first release, at least 1.
    factor : float
        Growth of the number of samples from one release to the next, above 1. Where it grows by
        less than one sample the next release is one sample later.

    Examples
    --------
    >>> import numpy as np
    >>> schedule = Geometric(10, 1.5)
    >>> schedule.times(5).tolist()
    [10, 15, 23, 34, 51]
    >>> schedule.releases_up_to(np.array([9, 10, 50, 51, 1_000_000])).tolist()
    [0, 1, 4, 5, 29]
    """

    first: int
    factor: float

    def __post_init__(self) -> None:
        require(self.first >= 1, "first", "be at least 1", self.first)
        require(
            math.isfinite(self.factor) and self.factor > 1,
            "factor",
            "be finite and above 1",
            self.factor,
        )

    def __str__(self) -> str:
        return f"geometric:{self.first},{_shortest(self.factor)}"

    def sequence(self) -> Iterator[int]:
        """Count up by the factor, and by one where that is more.

        The products are exact to one rounding each.
        """
        exact = float(self.first)
        number = 0
        while True:
            number = max(number + 1, math.ceil(min(exact, _LARGEST)))
            yield number
            exact *= self.factor


@dataclass(frozen=True, slots=True)
class Preferred(Counts):
    """Release at round numbers of samples, six to a decade: 10, 15, 20, 30, 50, 70, 100, 150, ...

    The numbers grow by a factor of 1.47 on average, and are those at which people look.

    Parameters
    ----------
    first : int
        No release before this number of samples, at least 1.

    Examples
    --------
    >>> Preferred(10).times(8).tolist()
    [10, 15, 20, 30, 50, 70, 100, 150]
    >>> Preferred(4).times(3).tolist()
    [5, 7, 10]
    """

    first: int

    def __post_init__(self) -> None:
        require(self.first >= 1, "first", "be at least 1", self.first)

    def __str__(self) -> str:
        return f"preferred:{self.first}"

    def sequence(self) -> Iterator[int]:
        """Go through the decades; below 10 the numbers are cut to integers."""
        decade = 1
        before = 0
        while decade < _LARGEST:
            for tenths in _PREFERRED:
                number = tenths * decade // 10
                if number > before and number >= self.first:
                    yield number

                before = number

            decade *= 10

        yield from count(before + 1)


@dataclass(frozen=True)
class Steady(Counts):
    """Release as another schedule does until it would wait for more samples than `gap`.

    Then after each `gap` of them.

    Parameters
    ----------
    begin : Counts
        The schedule of the first releases.
    gap : int
        Most samples between two releases.

    Examples
    --------
    >>> import numpy as np
    >>> steady = Steady(Preferred(10), 40)
    >>> steady.times(9).tolist(), steady.at(np.array([1_000_000])).tolist()
    ([10, 15, 20, 30, 50, 70, 100, 140, 180], [39999820])
    >>> steady.releases_up_to(np.array([9, 10, 139, 140, 39999819, 39999820])).tolist()
    [0, 1, 7, 8, 999999, 1000000]
    """

    begin: Counts
    gap: int

    def __post_init__(self) -> None:
        require(self.gap >= 1, "gap", "be at least 1", self.gap)

    def __str__(self) -> str:
        return str(self.begin)

    @cached_property
    def early(self) -> tuple[int, ...]:
        """Numbers of samples at the releases before the steady ones."""
        times: list[int] = []
        for time in self.begin.sequence():
            if len(times) == _MOST_EARLY or (times and time - times[-1] > self.gap):
                return tuple(times)
            times.append(time)

        raise AssertionError("a schedule ends nowhere")  # pragma: no cover

    def sequence(self) -> Iterator[int]:
        """Give the early ones, then count up by the gap."""
        yield from self.early
        yield from count(self.early[-1] + self.gap, self.gap)

    def at(self, index: Ints) -> Ints:
        """Return the numbers of samples at these releases, counted from 1, however many there are."""
        index, early = np.asarray(index), np.array(self.early)
        return np.asarray(
            early[np.minimum(index, len(early)) - 1] + self.gap * np.maximum(index - len(early), 0)
        )

    def releases_up_to(self, samples: Ints) -> Ints:
        """Return how many releases each number of samples has reached."""
        samples, early = np.asarray(samples), np.array(self.early)
        later = np.maximum(samples - early[-1], 0) // self.gap
        return np.asarray(np.searchsorted(early, samples, side="right") + later, np.int64)


@dataclass(frozen=True, slots=True)
class Every:
    """Release at every multiple of a duration of event time at which there are new samples.

    Parameters
    ----------
    seconds : float
        The duration, positive.

    Notes
    -----
    **Privacy.** Who had a sample in which interval is public; values play no part.
    """

    seconds: float

    def __post_init__(self) -> None:
        require_positive(seconds=self.seconds)

    def __str__(self) -> str:
        return f"every:{duration_text(self.seconds)}"

    def turn(self, time: Floats | float) -> Ints:
        """Give the number of the interval that a time lies in.

        The least before all times, the greatest after all.

        The watermark is there before the first sample, and where there was none when the input
        ends.

        Examples
        --------
        >>> Every(60.0).turn(np.array([-np.inf, -1.0, 119.0, np.inf])).tolist()
        [-9223372036854775808, -1, 1, 9223372036854775807]
        """
        number = np.floor(np.asarray(time, np.float64) / self.seconds)
        least = np.iinfo(np.int64).min
        greatest = np.iinfo(np.int64).max
        inside = np.abs(number) < float(greatest)

        return np.where(
            inside,
            np.where(inside, number, 0.0).astype(np.int64),
            np.where(number > 0, greatest, least),
        )


def _shortest(number: float) -> str:
    return repr(float(number)).removesuffix(".0")


@lru_cache(maxsize=64)
def _first_times(schedule: Counts, n: int) -> Ints:
    return _frozen(islice(schedule.sequence(), n))


@lru_cache(maxsize=64)
def _times_below(schedule: Counts, largest: int) -> Ints:
    return _frozen(takewhile(lambda time: time < largest, schedule.sequence()))


def _frozen(times: Iterable[int]) -> Ints:
    """Return an array that callers share and cannot change."""
    array = np.fromiter(times, dtype=np.int64)
    array.flags.writeable = False
    return array


def parse_release_times(text: str) -> Counts | Every:
    """Return the schedule that a text names, by its kind and parameters (durations in units s, m, h, d, w).

    `str` of a schedule is the one text of all that name it.

    Examples
    --------
    >>> parse_release_times("preferred:10"), parse_release_times("geometric:10,1.25"), parse_release_times("every:1d")
    (Preferred(first=10), Geometric(first=10, factor=1.25), Every(seconds=86400.0))
    >>> str(parse_release_times("geometric: 010,2")), str(parse_release_times("every:60m"))
    ('geometric:10,2', 'every:1h')
    """
    kind, _, rest = text.partition(":")
    parts = rest.split(",")
    try:
        if kind == "geometric" and len(parts) == 2:
            return Geometric(int(parts[0]), float(parts[1]))
        if kind == "preferred":
            return Preferred(int(rest))
        if kind == "every":
            return Every(parse_duration("every", rest))
    except ValueError as error:
        raise ValueError(f"schedule must {_FORMS}, got {text!r}: {error}") from None

    raise ValueError(f"schedule must {_FORMS}, got {text!r}")

"""When an agent releases: after given numbers of its own samples, or every so many seconds of event time."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice, takewhile

import numpy as np

from operators.records import Ints
from operators.validation import require, require_positive

_LARGEST = 2**62
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}
_FORMS = "be geometric:FIRST,FACTOR or every:DURATION (for example geometric:10,1.25 or every:1d)"


@dataclass(frozen=True, slots=True)
class Geometric:
    """Release when the number of samples first reaches `first`, `first * factor`, `first * factor**2`, ...

    Parameters
    ----------
    first : int
        Number of samples at the first release, at least 1.
    factor : float
        Growth of the number of samples from one release to the next, above 1. Where it grows by less than one sample
        the next release is one sample later.

    Notes
    -----
    **Privacy.** The times depend on how many samples there are, which is public, and never on their values.

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
        require(math.isfinite(self.factor) and self.factor > 1, "factor", "be finite and above 1", self.factor)

    def times(self, n: int) -> Ints:
        """Return the numbers of samples at the first `n` releases, strictly increasing.

        Past 2**62, which no number of samples reaches, they go on one by one.
        """
        return _first_times(self.first, self.factor, n)

    def releases_up_to(self, count: Ints) -> Ints:
        """Return how many releases each number of samples has reached."""
        largest = int(np.max(count, initial=0))
        times = _times_below(self.first, self.factor, 1 << largest.bit_length())
        return np.searchsorted(times, count, side="right").astype(np.int64)


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


def _geometric(first: int, factor: float) -> Iterator[int]:
    """Count up by the factor, and by one where that is more; the products are exact to one rounding each."""
    exact, last = float(first), 0
    while True:
        last = max(last + 1, math.ceil(min(exact, _LARGEST)))
        yield last
        exact *= factor


@lru_cache(maxsize=64)
def _first_times(first: int, factor: float, n: int) -> Ints:
    return _frozen(islice(_geometric(first, factor), n))


@lru_cache(maxsize=64)
def _times_below(first: int, factor: float, largest: int) -> Ints:
    return _frozen(takewhile(lambda time: time < largest, _geometric(first, factor)))


def _frozen(times: Iterable[int]) -> Ints:
    """Return an array that callers share and cannot change."""
    array = np.fromiter(times, dtype=np.int64)
    array.flags.writeable = False
    return array


def parse_schedule(text: str) -> Geometric | Every:
    """Return the schedule that a text names: `geometric:FIRST,FACTOR` or `every:DURATION` (units s, m, h, d, w).

    Raises
    ------
    ValueError
        If the text has neither form, or a number is out of range.

    Examples
    --------
    >>> parse_schedule("geometric:10,1.25"), parse_schedule("every:1d")
    (Geometric(first=10, factor=1.25), Every(seconds=86400.0))
    """
    kind, _, rest = text.partition(":")
    parts = rest.split(",")
    try:
        if kind == "geometric" and len(parts) == 2:
            return Geometric(int(parts[0]), float(parts[1]))
        if kind == "every":
            return Every(parse_duration("every", rest))
    except ValueError as error:
        raise ValueError(f"schedule must {_FORMS}, got {text!r}: {error}") from None
    raise ValueError(f"schedule must {_FORMS}, got {text!r}")


def parse_duration(name: str, text: str) -> float:
    """Return the seconds that a text such as `90s`, `15m`, `1h`, `1d` or `2w` names.

    Raises
    ------
    ValueError
        Naming the parameter, if the text has another form or the duration is negative or not finite.

    Examples
    --------
    >>> parse_duration("lateness", "1.5h")
    5400.0
    """
    try:
        seconds = float(text[:-1]) * _UNITS[text[-1:]]
    except (ValueError, KeyError):
        seconds = math.nan
    require(math.isfinite(seconds) and seconds >= 0, name, "be a duration such as 90s, 15m, 1h, 1d or 2w", text)
    return seconds

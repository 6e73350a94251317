"""When an agent releases: after given numbers of its own samples, or every so many seconds of event time."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from operators.records import Floats, Ints
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

        Raises
        ------
        ValueError
            If the `n`-th does not fit into 62 bits.
        """
        times = self._until(_LARGEST, n)
        require(len(times) == n, "number of releases", f"be at most {len(times)} for {self}", n)
        return times

    def releases_up_to(self, count: Ints) -> Ints:
        """Return how many releases each number of samples has reached."""
        times = self._until(int(np.max(count, initial=0)), None)
        return np.searchsorted(times, count, side="right").astype(np.int64)

    def _until(self, largest: int, n: int | None) -> Ints:
        """Return the release counts up to `largest`, at most `n` of them."""
        times: list[int] = []
        exact, last = float(self.first), 0
        while exact <= largest and (n is None or len(times) < n):
            last = max(last + 1, math.ceil(exact))
            if last > largest:
                break
            times.append(last)
            exact *= self.factor
        return np.array(times, dtype=np.int64)


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

    Examples
    --------
    >>> import numpy as np
    >>> Every(60).boundaries_up_to(np.array([59.9, 60.0, 200.0])).tolist()
    [0, 1, 3]
    """

    seconds: float

    def __post_init__(self) -> None:
        require_positive(seconds=self.seconds)

    def boundaries_up_to(self, elapsed: Floats) -> Ints:
        """Return how many boundaries lie in (0, elapsed] seconds of event time."""
        return np.floor(np.asarray(elapsed) / self.seconds).astype(np.int64)


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
        if kind == "every" and len(parts) == 1 and rest[-1:] in _UNITS:
            return Every(float(rest[:-1]) * _UNITS[rest[-1]])
    except ValueError as error:
        raise ValueError(f"schedule must {_FORMS}, got {text!r}: {error}") from None
    raise ValueError(f"schedule must {_FORMS}, got {text!r}")

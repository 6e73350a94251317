"""The watermark: the event time that all later samples are expected to be after, followed per partition."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from operators.records import Bools, Floats, Ints


class Watermark:
    """Lags behind the newest event time of the slowest active partition by the allowed lateness; it never falls.

    A sample is late if it lies farther behind the newest one *of its own partition*, as it stood when the sample
    arrived: how partitions are interleaved decides nothing. It is late too if the watermark has passed it, which
    takes a partition that was idle.

    Parameters
    ----------
    allowed_lateness : float
        Seconds.

    Examples
    --------
    >>> watermark = Watermark(10.0)
    >>> watermark.late(np.array([0, 0, 1]), np.array([100.0, 80.0, 80.0])).tolist()
    [False, True, False]
    >>> watermark.advance([0, 1]), watermark.advance([0]), watermark.advance([0, 1])
    (70.0, 90.0, 90.0)
    """

    def __init__(self, allowed_lateness: float) -> None:
        self.reached = -math.inf
        self._lateness = allowed_lateness
        self._newest: dict[int, float] = {}

    @property
    def newest(self) -> float:
        """Newest event time of all."""
        return max(self._newest.values(), default=-math.inf)

    def late(self, partition: Ints, time: Floats) -> Bools:
        """Say which samples are late, in the order of arrival."""
        if partition[0] == partition[-1] and not np.any(partition != partition[0]):
            return self._late(int(partition[0]), time)
        late = np.zeros(len(time), np.bool_)
        for number in np.unique(partition).tolist():
            at = np.flatnonzero(partition == number)
            late[at] = self._late(number, time[at])
        return late

    def bounds(self, partition: Ints, time: Floats) -> Floats:
        """Take samples in; say for each what its partition's newest one, as it arrived, leaves of the past.

        Samples of an event time from there on may still come; -inf where none came before.
        """
        bound = np.empty(len(time))
        for number in np.unique(partition).tolist():
            at = np.flatnonzero(partition == number)
            newest = np.maximum.accumulate(np.r_[self._newest.get(number, -math.inf), time[at]])
            self._newest[number] = float(newest[-1])
            bound[at] = np.maximum(newest[:-1] - self._lateness, self.reached)
        return bound

    def advance(self, active: Sequence[int]) -> float:
        """Move as far as the active partitions allow; without any, as far as the newest sample allows."""
        newest = min((self._newest.get(number, -math.inf) for number in active), default=self.newest)
        self.reached = max(self.reached, newest - self._lateness)
        return self.reached

    def finish(self) -> float:
        """Pass everything: the source has ended."""
        self.reached = float(np.nextafter(max(self.newest, self.reached), math.inf))
        return self.reached

    def pass_by(self, time: float) -> None:
        """Pass a time, whatever has come."""
        self.reached = max(self.reached, time)

    def snapshot(self) -> dict[str, Any]:
        """Give plain values."""
        newest = {str(number): time for number, time in self._newest.items()}
        return {"watermark": self.reached if math.isfinite(self.reached) else None, "newest": newest}

    def restore(self, state: dict[str, Any]) -> None:
        """Continue from plain values."""
        newest = state["newest"]
        if not isinstance(newest, dict):  # written before there were partitions
            newest = {} if newest is None else {"0": newest}
        self._newest = {int(number): time for number, time in newest.items()}
        self.reached = -math.inf if state["watermark"] is None else state["watermark"]

    def _late(self, partition: int, time: Floats) -> Bools:
        before = self._newest.get(partition, -math.inf)
        if time[0] >= max(before, self.reached) and np.all(time[1:] >= time[:-1]):  # the usual case
            self._newest[partition] = float(time[-1])
            return np.zeros(len(time), np.bool_)
        newest = np.maximum.accumulate(np.r_[before, time])
        self._newest[partition] = float(newest[-1])
        return np.asarray(time < np.maximum(newest[:-1] - self._lateness, self.reached))

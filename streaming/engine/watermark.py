"""The watermark: the event time that all later samples are expected to be after, followed per partition."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from meanstream.operators.limits import QUORUM
from meanstream.operators.records import Bools, Floats, Ints, Words

ALONE = 1000
"""A sender that has sent that many records of a partition in a row, and no other between them,
speaks for itself."""
TAIL = 4096
"""Of a batch in order the last samples decide, where they show two senders."""


class _Leading(NamedTuple):
    """Whose sample is the newest of a partition, who has sent the last one, and how many in a row."""

    time: float = -math.inf
    sender: int = 0
    last: int = 0
    run: int = 0


class Watermark:
    """Lags behind the newest event time of the slowest active partition by the allowed lateness.

    It never falls.

    A sample is late if it lies farther behind the newest one *of its own partition*, as it stood
    when the sample arrived: how partitions are interleaved decides nothing. It is late too if the
    watermark has passed it, which takes a partition that was idle.

    One sender's clock cannot make the others late: with a quorum of two, the newest time of a
    partition is one that two senders have reached. A sender that has sent the last `ALONE` records
    of the partition speaks for itself. Where a partition has one sender, the second may be one of
    another partition: that moves the watermark, and decides of no sample next to it.

    Parameters
    ----------
    allowed_lateness : float
        Seconds.
    quorum : {1, 2}
        How many senders must have reached a time before others are late by it.

    Examples
    --------
    >>> watermark = Watermark(10.0, quorum=1)
    >>> watermark.late(np.array([0, 0, 1]), np.array([100.0, 80.0, 80.0])).tolist()
    [False, True, False]
    >>> watermark.advance([0, 1]), watermark.advance([0]), watermark.advance([0, 1])
    (70.0, 90.0, 90.0)
    """

    def __init__(self, allowed_lateness: float, quorum: int = QUORUM) -> None:
        self.reached = -math.inf
        self._lateness = allowed_lateness
        self._quorum = quorum
        self._newest: dict[int, float] = {}  # that a quorum has reached
        self._leading: dict[int, _Leading] = {}

    @property
    def newest(self) -> float:
        """Newest event time of all."""
        return max(self._newest.values(), default=-math.inf)

    def late(self, partition: Ints, time: Floats, sender: Words | None = None) -> Bools:
        """Say which samples are late, in the order of arrival.

        Senders by a hash, which a quorum of two needs.
        """
        if partition[0] == partition[-1] and not np.any(partition != partition[0]):
            return self._late(int(partition[0]), time, sender)
        late = np.zeros(len(time), np.bool_)
        first = np.concatenate(
            [[True], partition[1:] != partition[:-1]]
        )  # of a run: it has one partition

        for number in np.unique(partition[first]).tolist():
            at = np.flatnonzero(partition == number)
            late[at] = self._late(number, time[at], None if sender is None else sender[at])

        return late

    def bounds(self, partition: Ints, time: Floats, sender: Words | None = None) -> Floats:
        """Take samples in; say for each what its partition's newest one, as it arrived, leaves of the past.

        Samples of an event time from there on may still come; -inf where none came before.
        """
        bound = np.empty(len(time))
        for number in np.unique(partition).tolist():
            at = np.flatnonzero(partition == number)
            newest = self._follow(number, time[at], None if sender is None else sender[at])
            bound[at] = np.maximum(newest[:-1] - self._lateness, self.reached)

        return bound

    def advance(self, active: Sequence[int]) -> float:
        """Move as far as the active partitions allow.

        Without any, as far as the newest sample allows.
        """
        vouched = self._newest if self._quorum == 1 else self._vouched(active)
        newest = min((vouched.get(number, -math.inf) for number in active), default=self.newest)
        self.reached = max(self.reached, newest - self._lateness)
        return self.reached

    def finish(self) -> float:
        """Pass everything: the source has ended."""
        self.reached = float(np.nextafter(max(self.last, self.reached), math.inf))
        return self.reached

    @property
    def last(self) -> float:
        """Newest event time that anyone has sent."""
        return max((self.newest, *(leading.time for leading in self._leading.values())))

    def by_clock(self, seconds: float) -> float:
        """Give how far event time has come by the clock after some seconds without a record.

        One sender's fast clock does not hurry the others here either, unless it is the only sender.
        """
        newest = self.newest if math.isfinite(self.newest) else self.last
        return newest - self._lateness + seconds

    def pass_by(self, time: float) -> None:
        """Pass a time, whatever has come."""
        self.reached = max(self.reached, time)

    def snapshot(self) -> dict[str, Any]:
        """Give plain values."""
        newest = {str(number): time for number, time in self._newest.items()}
        leading = {str(number): list(one) for number, one in self._leading.items()}
        return {
            "watermark": _finite(self.reached),
            "newest": newest,
            **({"leading": leading} if leading else {}),
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Continue from plain values."""
        newest = state["newest"]
        if not isinstance(newest, dict):  # written before there were partitions
            newest = {} if newest is None else {"0": newest}

        self._newest = {int(number): time for number, time in newest.items()}
        self._leading = {
            int(number): _Leading(*one) for number, one in state.get("leading", {}).items()
        }
        self.reached = -math.inf if state["watermark"] is None else state["watermark"]

    def _vouched(self, active: Sequence[int]) -> dict[int, float]:
        """Give the newest time of each partition that two senders have reached, the second in whichever partition.

        So a partition with a single sender does not hold event time back, and its clock alone still
        moves nothing.
        """
        first = max(self._leading.values(), default=_Leading())
        others = [one.time for one in self._leading.values() if one.sender != first.sender]
        second = max([*others, *self._newest.values()], default=-math.inf)
        found = {}

        for number in active:
            mine = self._leading.get(number, _Leading())
            another = second if mine.sender == first.sender else first.time
            found[number] = max(self._newest.get(number, -math.inf), min(mine.time, another))

        return found

    def _late(self, partition: int, time: Floats, sender: Words | None) -> Bools:
        before = self._newest.get(partition, -math.inf)
        if time[0] >= max(before, self.reached) and np.all(time[1:] >= time[:-1]):  # the usual case
            if not self._follow_tail(partition, time, sender):
                self._follow(partition, time, sender)

            return np.zeros(len(time), np.bool_)

        newest = self._follow(partition, time, sender)
        return np.asarray(time < np.maximum(newest[:-1] - self._lateness, self.reached))

    def _follow_tail(self, partition: int, time: Floats, sender: Words | None) -> bool:
        """Take samples that are in order in by the last of them, as `_follow` does by all, if these decide."""
        cut = len(time) - TAIL
        before = self._leading.get(partition, _Leading()).time
        if (
            self._quorum == 1
            or sender is None
            or cut <= 0
            or time[0] < before
            or time[cut - 1] == before
        ):
            return False

        holder = int(np.searchsorted(time, time[cut - 1]))  # of equal times the first is the newest
        # How many the one before the tail had sent in a row is not known. It decides nothing once
        # another has come and two have agreed.
        leading = _Leading(float(time[cut - 1]), int(sender[holder]), int(sender[cut - 1]), 1)
        agreed, following = _agreed(leading, time[cut:], sender[cut:])
        changes = np.flatnonzero(sender[cut:] != sender[cut - 1 : -1])

        if not len(changes) or not np.isfinite(agreed[changes[0] :]).any():
            return False
        self._leading[partition] = following
        self._newest[partition] = max(self._newest.get(partition, -math.inf), float(agreed.max()))

        return True

    def _follow(self, partition: int, time: Floats, sender: Words | None) -> Floats:
        """Take samples of a partition in.

        Give the newest time of a quorum, before each and at the end.
        """
        before = self._newest.get(partition, -math.inf)
        if self._quorum == 1 or sender is None:
            newest = np.maximum.accumulate(np.concatenate([[before], time]))
        else:
            leading = self._leading.get(partition, _Leading())
            agreed, self._leading[partition] = _agreed(leading, time, sender)
            newest = np.maximum.accumulate(np.concatenate([[before], agreed]))

        self._newest[partition] = float(newest[-1])
        return newest


def _agreed(leading: _Leading, time: Floats, sender: Words) -> tuple[Floats, _Leading]:
    """Give for each sample what it lets two senders agree on.

    The smaller of its time and of the newest of another.

    Where the newest time is its own sender's, it adds nothing to what was agreed on before; unless
    that sender speaks for itself.
    """
    n = len(time)
    times = np.concatenate([[leading.time], time])
    senders = np.concatenate([np.array([leading.sender], np.uint64), sender])
    newest = np.maximum.accumulate(times)
    record = np.concatenate([[True], times[1:] > newest[:-1]])
    holder = np.maximum.accumulate(
        np.where(record, np.arange(n + 1), 0)
    )  # whose time the newest is
    another = (senders[holder[:-1]] != sender) & np.isfinite(newest[:-1])
    agreed = np.where(another, np.minimum(time, newest[:-1]), -math.inf)

    run = _in_a_row(leading, sender)
    alone = (run >= ALONE) & (senders[holder[1:]] == sender)
    agreed[alone] = newest[1:][alone]
    last = int(holder[-1])

    return agreed, _Leading(float(newest[-1]), int(senders[last]), int(sender[-1]), int(run[-1]))


def _in_a_row(leading: _Leading, sender: Words) -> Ints:
    """Count for each sample how many of its sender have come in a row."""
    previous = np.concatenate([np.array([leading.last], np.uint64), sender[:-1]])
    at = np.arange(len(sender))
    since = np.maximum.accumulate(np.where(sender != previous, at, -leading.run))
    return at - since + 1


def _finite(number: float) -> float | None:
    if math.isfinite(number):
        return number
    return None

"""Offsets of a partition as a restriction of Beam.

Claimed in order, checkpointed anywhere, never shared.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any

from apache_beam.io.iobase import RestrictionProgress, RestrictionTracker
from apache_beam.io.restriction_trackers import OffsetRange
from apache_beam.transforms.core import RestrictionProvider

from meanstream.pipelines.beam.element_types.events import OwnCoder

UNBOUNDED = (1 << 62) - 1
"""Stop of a range that has no end."""

PartitionRange = tuple[int, int, int]
"""Partition, first offset, and the offset after the last one; `UNBOUNDED` where reading goes on."""

_RANGE = struct.Struct(">Bqq")
_VERSION = 1


@dataclass(slots=True)
class Claim:
    """Offsets from `start` to before `following`, taken at once.

    The tracker cuts what is no longer its own.
    """

    start: int
    following: int


class OffsetsTracker(RestrictionTracker):  # type: ignore[misc]
    """Offsets of one partition, of which batches are claimed.

    A runner may take the rest away between two batches (a checkpoint). It may not give a part of
    the rest to a second worker: event time of a partition is known only to who reads it in order.

    Examples
    --------
    >>> tracker = OffsetsTracker(OffsetRange(5, 9))
    >>> claim = Claim(5, 7)
    >>> tracker.try_claim(claim), tracker.try_split(0.5), tracker.try_split(0)
    (True, None, (OffsetRange(start=5, stop=7), OffsetRange(start=7, stop=9)))
    >>> tracker.try_claim(Claim(7, 9))
    False
    """

    def __init__(self, offsets: OffsetRange) -> None:
        self._range = offsets
        self._next: int = offsets.start

    def current_restriction(self) -> OffsetRange:
        """Give the range that is this worker's."""
        return self._range

    def current_progress(self) -> RestrictionProgress:
        """Tell how much was claimed; of a range without end what is left is not known."""
        done = float(self._next - self._range.start)
        return RestrictionProgress(
            completed=done, remaining=float(self._range.stop - self._next) if self._ends else 1.0
        )

    def try_claim(self, position: Claim) -> bool:
        """Claim a batch, cut to the range; False if nothing of it is left to claim."""
        if position.start != self._next:
            raise ValueError(
                f"offsets must be claimed in order from {self._next}, got {position.start}"
            )

        position.following = min(position.following, self._range.stop)
        if position.following <= position.start:
            return False
        self._next = position.following

        return True

    def try_split(self, fraction_of_remainder: float) -> tuple[OffsetRange, OffsetRange] | None:
        """Give up the rest, whole or not at all."""
        if fraction_of_remainder != 0 or self._next >= self._range.stop:
            return None
        rest = OffsetRange(self._next, self._range.stop)
        self._range = OffsetRange(self._range.start, self._next)

        return self._range, rest

    def check_done(self) -> None:
        """Fail if offsets were left out."""
        if self._next < self._range.stop:
            raise ValueError(
                f"offsets from {self._next} to {self._range.stop} must be claimed, got an end before them"
            )

    def is_bounded(self) -> bool:
        """Whether reading ends."""
        return self._ends

    @property
    def _ends(self) -> bool:
        return bool(self._range.stop < UNBOUNDED)


class OffsetRangeCoder(OwnCoder):
    """Two numbers and a version."""

    def encode(self, value: OffsetRange) -> bytes:
        """Write them."""
        return _RANGE.pack(_VERSION, value.start, value.stop)

    def decode(self, encoded: bytes) -> OffsetRange:
        """Read them."""
        version, start, stop = _RANGE.unpack(encoded)
        if version != _VERSION:
            raise ValueError(
                f"offsets of a checkpoint must be of version {_VERSION}, got {version}"
            )

        return OffsetRange(start, stop)


class OffsetsProvider(RestrictionProvider):  # type: ignore[misc]
    """The restriction of a `PartitionRange` is its offsets."""

    def initial_restriction(self, element: PartitionRange) -> OffsetRange:
        """Take all of it."""
        return OffsetRange(element[1], element[2])

    def create_tracker(self, restriction: OffsetRange) -> OffsetsTracker:
        """Track it."""
        return OffsetsTracker(restriction)

    def restriction_size(self, element: PartitionRange, restriction: OffsetRange) -> float:  # noqa: ARG002
        """Count offsets; of a range without end the number says nothing."""
        if restriction.stop < UNBOUNDED:
            return float(restriction.size())
        return 1.0

    def restriction_coder(self) -> OffsetRangeCoder:
        """Never pickle."""
        return OffsetRangeCoder()

    def truncate(self, element: PartitionRange, restriction: OffsetRange) -> Any:  # noqa: ARG002
        """When a pipeline is drained, a range that ends is still read to its end."""
        if restriction.stop < UNBOUNDED:
            return restriction
        return None

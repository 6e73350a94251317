"""A bounded source replayed in the order of event time."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from itertools import accumulate, pairwise

import numpy as np

from meanstream.streaming.events.event_columns import (
    Batch,
    Position,
    Rejects,
    SampleColumns,
    concatenate_columns,
)
from meanstream.streaming.sources.read_digest import ReadDigest
from meanstream.streaming.sources.source_protocol import (
    Source,
    UnreadableSourceError,
    other_source_file,
    require_source_position,
)

MAX_ROWS = 50_000_000
"""So many records are kept in memory: a sample takes 40 bytes, twice while sorting, 4 GB in all; a
rejected one 11."""

READ_ROWS = 1 << 18


class OrderedSource:
    """Reads a bounded source whole, then replays it sorted by event time (ties: as they stood in the source).

    Files are seldom written in event-time order; read as they stand, most of a file would be late.
    Position: how many samples were replayed, the source's own position at its end, and a digest of
    the order, so that another file is refused.

    Parameters
    ----------
    source : Source
        A bounded source.
    max_rows : int
        Refuse more than that many samples.
    cut : float or None
        Seconds: a batch ends where event time enters the next multiple, so that a commit falls
        there.
    """

    bounded = True
    in_order = True
    at_hand = True

    def __init__(
        self, source: Source, *, max_rows: int = MAX_ROWS, cut: float | None = None
    ) -> None:
        self.name = source.name
        self._source = source
        self._max_rows = max_rows
        self._cut = cut or None
        self._parts: list[SampleColumns] | None = None  # one after the other in order
        self._starts: list[int] = []  # the row that each begins with
        self._rejects = KeptRejects()
        self._reported = 0  # of them
        self._digest = ""
        self._end: Position = {}  # of the source: it says which one was read
        self._row = 0

    def next_batch(self, max_samples: int) -> Batch:
        """Replay the next samples.

        The first batches bring the rejected records, that many at a time, too.
        """
        parts = self._load()
        rejects = self._rejects.part(self._reported, self._reported + max_samples)
        self._reported += len(rejects)
        at = bisect_right(self._starts, self._row) - 1
        first = self._row - self._starts[at]
        part = parts[at].take(slice(first, first + max_samples))

        if self._cut and len(part):
            period = part.time // self._cut
            part = part.take(slice(0, int(np.searchsorted(period, period[0], side="right"))))

        self._row += len(part)
        position = {
            "sorted_row": self._row,
            "rejected": self._reported,
            "digest": self._digest,
            "source": self._end,
        }

        return Batch(part, rejects, position, exhausted=not len(part) and not len(rejects))

    def restore(self, position: Position) -> None:
        """Continue after that many samples and rejected records.

        Before these were counted, all came at first.
        """
        require_source_position(position, "sorted_row", self.name)
        self._load()

        if (position.get("digest"), position.get("source")) != (self._digest, self._end):
            raise other_source_file(self.name)
        self._row = int(position["sorted_row"])
        self._reported = int(position.get("rejected", len(self._rejects)))

    def close(self) -> None:
        """Close the source."""
        self._source.close()

    def _load(self) -> list[SampleColumns]:
        if self._parts is not None:
            return self._parts
        parts: list[SampleColumns] = []
        rows = 0

        while not (batch := self._source.next_batch(READ_ROWS)).exhausted:
            if len(batch.samples):
                parts.append(batch.samples)

            self._rejects.extend(batch.rejects)
            rows += len(batch.samples)
            if rows + len(self._rejects) > self._max_rows:
                raise UnreadableSourceError(
                    f"source must have at most {self._max_rows} records to be sorted by event time; read {self.name!r} "
                    "as it stands (--no-sort) with an allowed lateness"
                )

        self._end = batch.position
        if (
            not parts
            or not _in_order(parts)
            or any(part.names is not parts[0].names for part in parts)
        ):
            samples = concatenate_columns(parts)
            parts = [samples.take(np.argsort(samples.time, kind="stable"))]

        self._digest = _digest(parts)
        self._starts = list(accumulate(map(len, parts[:-1]), initial=0))
        self._parts = parts
        return parts


def _in_order(parts: list[SampleColumns]) -> bool:
    within = all(np.all(part.time[1:] >= part.time[:-1]) for part in parts)
    return within and all(now.time[0] >= before.time[-1] for before, now in pairwise(parts))


def _digest(parts: list[SampleColumns]) -> str:
    """Identify the order by times and positions; values are left out."""
    digest = ReadDigest()
    for name in ("time", "position", "agent"):
        for part in parts:
            digest.take(np.ascontiguousarray(getattr(part, name)).data.cast("B"))

    return digest.text()


_NO_SIZE = 0xFF


class KeptRejects:
    """Rejected records in order, packed.

    A file of bad lines alone takes less memory than one of samples.

    Examples
    --------
    >>> kept, two = KeptRejects(), Rejects(["no_value", "not_json"], [7, 8], [None, 64])
    >>> kept.extend(two)
    >>> kept.part(1, 5)
    Rejects(reason=['not_json'], position=[8], size=[64])
    """

    def __init__(self) -> None:
        self._reasons: dict[str, int] = {}
        self._reason = array("H")
        self._position = array("q")
        self._size = array("B")

    def __len__(self) -> int:
        return len(self._position)

    def extend(self, other: Rejects) -> None:
        """Append some."""
        codes = self._reasons
        self._reason.extend(codes.setdefault(reason, len(codes)) for reason in other.reason)
        self._position.extend(other.position)
        self._size.extend(
            _NO_SIZE if size is None else size.bit_length() - 1 for size in other.size
        )

    def part(self, start: int, stop: int) -> Rejects:
        """Give some as they were."""
        names = list(self._reasons)
        which = slice(start, stop)
        return Rejects(
            [names[code] for code in self._reason[which]],
            self._position[which].tolist(),
            [None if power == _NO_SIZE else 1 << power for power in self._size[which]],
        )

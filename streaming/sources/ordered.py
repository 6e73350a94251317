"""A bounded source replayed in the order of event time."""

from __future__ import annotations

import hashlib

import numpy as np

from streaming.columns import Batch, Position, Rejects, SampleColumns, concatenate
from streaming.sources.source import Source, require_position

MAX_ROWS = 50_000_000
"""So many samples are sorted in memory: 40 bytes each, twice while sorting, 4 GB in all."""

READ_ROWS = 1 << 18


class OrderedSource:
    """Reads a bounded source whole, then replays it sorted by event time (ties: as they stood in the source).

    Files are seldom written in event-time order; read as they stand, most of a file would be late. Position: how
    many samples were replayed, and a digest of the order, so that another file is refused.

    Parameters
    ----------
    source : Source
        A bounded source.
    max_rows : int
        Refuse more than so many samples.
    """

    bounded = True

    def __init__(self, source: Source, *, max_rows: int = MAX_ROWS) -> None:
        self.name = source.name
        self._source = source
        self._max_rows = max_rows
        self._loaded: SampleColumns | None = None
        self._rejects = Rejects()
        self._digest = ""
        self._row = 0

    def next_batch(self, max_samples: int) -> Batch:
        """Replay the next samples; the first batch brings all rejected records."""
        samples = self._load()
        rejects, self._rejects = self._rejects, Rejects()
        part = samples.take(slice(self._row, self._row + max_samples))
        self._row += len(part)
        position = {"sorted_row": self._row, "digest": self._digest}
        return Batch(part, rejects, position, exhausted=not len(part) and not len(rejects))

    def restore(self, position: Position) -> None:
        """Continue after so many samples; rejected records were reported with the first of them."""
        require_position(position, "sorted_row", self.name)
        self._load()
        if position.get("digest") != self._digest:
            raise ValueError(f"source must be the file that this store was filled from, got another {self.name!r}")
        self._row, self._rejects = int(position["sorted_row"]), Rejects()

    def close(self) -> None:
        """Close the source."""
        self._source.close()

    def _load(self) -> SampleColumns:
        if self._loaded is not None:
            return self._loaded
        parts: list[SampleColumns] = []
        rows = 0
        while not (batch := self._source.next_batch(READ_ROWS)).exhausted:
            parts.append(batch.samples)
            self._rejects.extend(batch.rejects)
            rows += len(batch.samples)
            if rows > self._max_rows:
                raise ValueError(
                    f"source must have at most {self._max_rows} samples to be sorted by event time; read {self.name!r} "
                    "as it stands (--no-sort) with an allowed lateness"
                )
        samples = concatenate(parts)
        del parts
        if np.any(samples.time[1:] < samples.time[:-1]):
            samples = samples.take(np.argsort(samples.time, kind="stable"))
        self._digest = _digest(samples)
        self._loaded = samples
        return samples


def _digest(samples: SampleColumns) -> str:
    """Identify the order by times and positions; values are left out."""
    digest = hashlib.blake2b(samples.time.tobytes(), digest_size=16)
    digest.update(samples.position.tobytes())
    digest.update(samples.agent.tobytes())
    return digest.hexdigest()

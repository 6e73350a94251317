"""Events to a folder of Parquet files, which readers take as one table."""

from __future__ import annotations

import os
from pathlib import Path

import pyarrow as pa
from pyarrow import json as arrow_json
from pyarrow import parquet

from streaming.encode import EventLines
from streaming.events import Event
from streaming.sinks.sink import SinkPosition, Trust, check_trust


class ParquetSink:
    """One part file per flush in a folder, for one type of event; position: number of parts.

    A part appears whole or not at all. Read the table with `pyarrow.parquet.read_table(folder)`.
    """

    def __init__(self, path: Path, *, trust: Trust) -> None:
        self.trust = trust
        self._folder = path
        self._kind: type[Event] | None = None
        self._lines: list[bytes] = []
        try:
            path.mkdir(mode=0o700 if trust is Trust.PRIVATE else 0o755, exist_ok=True)
        except OSError as error:
            raise ValueError(f"sink must be a folder, got {str(path)!r} ({error.strerror})") from None
        if trust is Trust.PRIVATE:
            path.chmod(0o700)  # a folder that was there before keeps its mode otherwise
        self._parts = len(list(path.glob("part-*.parquet")))

    def write(self, events: EventLines) -> None:
        """Collect events until the next flush."""
        check_trust(self.trust, events.kind)
        if self._kind not in (None, events.kind):
            raise TypeError(f"Parquet sink must be given one type of event, got {events.kind.__name__} after another")
        self._kind = events.kind
        self._lines += events.lines

    def flush(self) -> None:
        """Write what was collected as the next part."""
        if not self._lines:
            return
        data = b"\n".join(self._lines)
        table = arrow_json.read_json(
            pa.BufferReader(data), read_options=arrow_json.ReadOptions(use_threads=False, block_size=len(data) + 1)
        )
        part = self._part(self._parts)
        unfinished = part.with_suffix(".unfinished")
        with unfinished.open("wb") as file:
            parquet.write_table(table, file)
            file.flush()
            os.fsync(file.fileno())
        unfinished.rename(part)
        self._parts += 1
        self._lines = []

    def position(self) -> SinkPosition:
        """Tell the number of parts."""
        return {"path": str(self._folder.resolve()), "parts": self._parts}

    def restore(self, position: SinkPosition) -> None:
        """Remove later parts."""
        if position["path"] != str(self._folder.resolve()):
            return  # another folder from now on
        if self._parts < position["parts"]:
            raise ValueError(
                f"sink must be the folder that this store wrote to ({position['parts']} parts), "
                f"got {self._parts} parts in {str(self._folder)!r}"
            )
        for number in range(position["parts"], self._parts):
            self._part(number).unlink()
        self._parts = int(position["parts"])
        self._lines = []

    def close(self) -> None:
        """Drop what was not flushed."""
        self._lines = []

    def _part(self, number: int) -> Path:
        return self._folder / f"part-{number:06d}.parquet"

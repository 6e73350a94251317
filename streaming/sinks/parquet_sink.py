"""Events to a folder of Parquet files, which readers take as one table."""

from __future__ import annotations

import json
import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
from pyarrow import json as arrow_json
from pyarrow import parquet

from meanstream.operators.validation import require
from meanstream.streaming.events.base import Event
from meanstream.streaming.events.encode import EventLines
from meanstream.streaming.sinks.sink_protocol import (
    SinkLostError,
    SinkOnDisk,
    SinkPosition,
    Trust,
    check_sink_trust,
    checking_disk,
    sink_faults,
)

_COLUMN = "schema_version"
"""Of all events: a table without it is no part of ours."""
_PART = re.compile(r"part-(\d{6,})\.parquet", re.ASCII)


class ParquetSink(SinkOnDisk):
    """One part file per flush in a folder, for one type of event; position: number of parts.

    A part appears whole or not at all. Read the table with `pyarrow.parquet.read_table(folder)`.
    Other files in the folder stay as they are; one where a part goes is refused.
    """

    kind = "a .parquet folder"
    folder = True

    @classmethod
    def check(cls, location: str, option: str) -> None:
        """Refuse also a folder in which a file that is no next part stands where a later part would go."""
        super().check(location, option)
        with checking_disk(option, location):
            numbers = _numbers(Path(location))

        rule = "be a folder without other files where parts go"
        odd = next((number for expected, number in enumerate(numbers) if expected != number), None)
        require(odd is None, option, rule, None if odd is None else str(_part(Path(location), odd)))

    def __init__(self, path: Path, *, trust: Trust, option: str = "sink") -> None:
        self.trust = trust
        self._path = path
        self._option = option
        self._kind: type[Event] | None = None
        self._lines: list[bytes] = []

        try:
            path.mkdir(mode=0o700 if trust is Trust.PRIVATE else 0o755, exist_ok=True)
        except OSError as error:
            raise ValueError(
                f"{option} must be a folder, got {str(path)!r} ({error.strerror})"
            ) from None

        with sink_faults(option, str(path)):
            if trust is Trust.PRIVATE:
                path.chmod(0o700)  # a folder that was there before keeps its mode otherwise

            self._parts = len(_numbers(path))

    def write(self, events: EventLines) -> None:
        """Collect events until the next flush."""
        check_sink_trust(self.trust, events.kind)
        if self._kind not in (None, events.kind):
            raise TypeError(
                f"Parquet sink must be given one type of event, got {events.kind.__name__} after another"
            )

        self._kind = events.kind
        self._lines += events.lines

    def flush(self) -> None:
        """Write what was collected as the next part."""
        if not self._lines:
            return
        lines = b"\n".join(self._lines)
        table = arrow_json.read_json(
            pa.BufferReader(lines),
            read_options=arrow_json.ReadOptions(use_threads=False, block_size=len(lines) + 1),
        )
        part_file = _part(self._path, self._parts)
        unfinished = part_file.with_suffix(".unfinished")

        with sink_faults(self._option, str(self._path)):
            if os.path.lexists(part_file):
                raise SinkLostError(self._in_the_way(part_file))
            unfinished.unlink(missing_ok=True)  # of a run that was killed

            with unfinished.open("xb") as file:
                parquet.write_table(table, file)
                file.flush()
                os.fsync(file.fileno())

            unfinished.rename(part_file)

        self._parts += 1
        self._lines = []

    def position(self) -> SinkPosition:
        """Tell the number of parts."""
        return {"path": self.place, "parts": self._parts}

    def later(self, position: SinkPosition | None) -> Iterator[bytes]:
        """Give the events of the parts after a position."""
        for number in range(
            position["parts"] if position is not None and self.is_of_here(position) else 0,
            self._parts,
        ):
            for row in self._rows(number):
                yield json.dumps(row, default=str).encode()

    def restore(self, position: SinkPosition) -> None:
        """Remove later parts."""
        if not self.is_of_here(position):
            return  # another folder from now on

        if self._parts < position["parts"]:
            raise ValueError(
                f"{self._option} must be the folder that this store wrote to ({position['parts']} parts), "
                f"got {self._parts} parts in {str(self._path)!r}"
            )

        later = [_part(self._path, number) for number in range(position["parts"], self._parts)]
        with sink_faults(self._option, str(self._path)):
            for part_file in later:
                if not _is_ours(part_file):
                    raise ValueError(self._in_the_way(part_file))

            for part_file in later:
                part_file.unlink()

        self._parts = int(position["parts"])
        self._lines = []

    def close(self) -> None:
        """Drop what was not flushed."""
        self._lines = []

    def _rows(self, number: int) -> list[dict[str, object]]:
        part_file = _part(self._path, number)
        with sink_faults(self._option, str(part_file), "be readable"):
            try:
                rows: list[dict[str, object]] = parquet.read_table(part_file).to_pylist()
            except pa.ArrowException:  # its text could hold a value
                raise SinkLostError(
                    f"{self._option} must be undamaged, got {str(part_file)!r}"
                ) from None

        return rows

    def _in_the_way(self, part: Path) -> str:
        return (
            f"{self._option} must be a folder without other files where parts go, got {str(part)!r}"
        )


def _part(folder: Path, number: int) -> Path:
    return folder / f"part-{number:06d}.parquet"


def _numbers(folder: Path) -> list[int]:
    """Numbers of the parts in a folder, in order; none if there is no folder."""
    if not folder.exists():
        return []
    matches = [_PART.fullmatch(path.name) for path in folder.iterdir()]
    numbers = sorted({int(match[1]) for match in matches if match is not None})

    return [
        number for number in numbers if os.path.lexists(_part(folder, number))
    ]  # others have more zeros


def _is_ours(part: Path) -> bool:
    """Say whether a file is a part that a sink wrote."""
    if not stat.S_ISREG(part.lstat().st_mode):
        return False

    try:
        return _COLUMN in parquet.read_schema(part).names
    except pa.ArrowException:
        return False

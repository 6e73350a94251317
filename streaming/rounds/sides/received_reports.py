"""Reports as a statistician receives them.

Where they are read, and those of one stage of one round.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import msgspec

from meanstream.streaming.events.round_events import StageReports
from meanstream.streaming.events.unreadable import UNREADABLE
from meanstream.streaming.sources.lines import LineReader

_READ_LINES = 65_536


class ReportsLocation(Protocol):
    """Where users' sides write.

    Attributes
    ----------
    follows : bool
        Whether a run goes on as more comes, until it is stopped.
    """

    follows: bool

    def lines(self) -> Iterator[bytes | None]:
        """Give what has come since the last reading, without line ends.

        None for what is too long.
        """

    def grew(self) -> bool:
        """Tell whether there is more than at the last reading."""


class ReportsFile:
    """A JSONL file of reports, read as a whole."""

    follows = False

    def __init__(self, path: Path) -> None:
        self._path = path

    def lines(self) -> Iterator[bytes | None]:
        """Give the lines of the file."""
        with closing(LineReader(self._path, option="from_reports")) as reader:
            while (taken := reader.next_block(_READ_LINES)) is not None:
                block, oversized = taken
                yield from [None] * len(oversized)
                yield from block.lines()

    def grew(self) -> bool:
        """Say no: anyone who wants more runs again."""
        return False

    def close(self) -> None:
        """Nothing is open between two readings."""


@dataclass(slots=True)
class ReceivedReports:
    """Reports of one stage of one round, as they came."""

    users: list[str] = field(default_factory=list)
    payload: list[tuple[int, ...]] = field(default_factory=list)
    epsilon: list[float] = field(default_factory=list)
    complete: StageReports | None = None
    expected: int = 0
    forgotten: int = 0

    def forget(self) -> None:
        """Let go of reports that no one asks for any more, but for their number."""
        self.forgotten += len(self.users)
        self.users = []
        self.payload = []
        self.epsilon = []


class _Report(msgspec.Struct, forbid_unknown_fields=True):
    """A report, read fast."""

    round_id: str
    user: str
    stage: int
    payload: tuple[int, ...]
    epsilon: float
    schema_version: int

    def __post_init__(self) -> None:
        if (
            self.schema_version != 1
            or self.stage < 0
            or any(not -(2**63) <= x < 2**63 for x in self.payload)
        ):
            raise ValueError("report must be of schema version 1, with numbers of 64 bits")


_REPORT = msgspec.json.Decoder(_Report)


def read_report(line: bytes) -> _Report | None:
    """Read a line; None if it is no report."""
    try:
        return _REPORT.decode(line)
    except UNREADABLE:
        return None

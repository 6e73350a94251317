"""How long each test takes, in a file that a command renews; what is slow by it is no everyday test.

`make durations` runs every test and writes `durations.json`: seconds of setup, call and teardown, of each test that
takes more than `KEPT` seconds. A test that the file does not know counts as fast until the next renewal.
"""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path

import pytest

FILE = Path(__file__).parent / "durations.json"
KEPT = 0.25
"""Seconds; shorter ones are not written down."""
SLOW = 0.5
"""Seconds; longer ones are marked `slow`."""


def known_durations() -> dict[str, float]:
    """Return the seconds of each test that is written down, by its node id."""
    known: dict[str, float] = json.loads(FILE.read_text(encoding="utf-8")) if FILE.exists() else {}
    return known


class Recorder:
    """Adds up the phases of each test, and writes the file when the session ends."""

    def __init__(self) -> None:
        self._seconds: defaultdict[str, float] = defaultdict(float)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Add one phase of one test."""
        self._seconds[report.nodeid] += report.duration

    def pytest_sessionfinish(self) -> None:
        """Write what was measured over what was known of the same tests."""
        measured = {name: round(seconds, 2) for name, seconds in self._seconds.items()}
        kept = {name: seconds for name, seconds in (known_durations() | measured).items() if seconds >= KEPT}
        FILE.write_text(json.dumps(dict(sorted(kept.items())), indent=0) + "\n", encoding="utf-8")

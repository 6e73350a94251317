"""How long each test takes, in a file that a command renews; what is slow by it is no everyday
test.

`make durations` runs every test and writes `durations.json`: the seconds of each test that takes
more than `KEPT`. A test that starts a server is measured by the clock, any other by the processor
time of its process and children, which does not depend on what else the machine does. A test that
the file does not know counts as fast.
"""

from __future__ import annotations

import json
import os
from collections import defaultdict
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from tests.warm_command import seconds_of_forks

FILE = Path(__file__).parent / "durations.json"
KEPT = 0.25
"""Seconds; shorter ones are not written down."""
SLOW = 0.3
"""Seconds; longer ones are marked `slow`."""
PROPERTY = "processor_seconds"


def known_durations() -> dict[str, float]:
    """Return the seconds of each test that is written down, by its node id."""
    known: dict[str, float] = json.loads(FILE.read_text(encoding="utf-8")) if FILE.exists() else {}
    return known


def processor_seconds() -> float:
    """Return the processor time of this process, and of its children and forks that have ended."""
    used = os.times()
    return used.user + used.system + used.children_user + used.children_system + seconds_of_forks()


class Meter:
    """Notes the processor time of each phase of a test on its report, in the process that runs the
    test."""

    def __init__(self) -> None:
        self._before = 0.0

    def pytest_runtest_logstart(self) -> None:
        """Leave out what came before the test: the first one of a process does not pay for
        collecting them all."""
        self._before = processor_seconds()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self) -> Generator[None, Any, Any]:
        """Note the processor time since the last report of this process."""
        report = yield
        now = processor_seconds()
        report.user_properties.append((PROPERTY, now - self._before))
        self._before = now
        return report


class Recorder:
    """Adds up the phases of each test, and writes the file when the session ends."""

    def __init__(self) -> None:
        self._seconds: defaultdict[str, float] = defaultdict(float)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Add one phase of one test."""
        waits = "servers" in report.keywords
        self._seconds[report.nodeid] += (
            report.duration if waits else dict(report.user_properties)[PROPERTY]
        )

    def pytest_sessionfinish(self) -> None:
        """Write what was measured over what was known of the same tests."""
        measured = {name: round(seconds, 2) for name, seconds in self._seconds.items()}
        kept = {
            name: seconds
            for name, seconds in (known_durations() | measured).items()
            if seconds >= KEPT
        }
        FILE.write_text(json.dumps(dict(sorted(kept.items())), indent=0) + "\n", encoding="utf-8")

"""For pytest: notes which places each test reaches, what it costs, and whether it passes in a copy
of the tree.

What a fixture of a whole file reaches is the first test's that asks for it; what a cache keeps is
forgotten from file to file, so that each reaches what it needs.
"""

from __future__ import annotations

import gc
import json
import mmap
import os
from collections.abc import Generator

import numpy as np
import pytest


class Noting:
    """Rows of test files, as they end: tests, places reached, processor seconds with those of
    children."""

    def __init__(self, shared: str, rows: str) -> None:
        with open(shared, "r+b") as file:
            self._shared = mmap.mmap(file.fileno(), 0)
        self._rows = rows
        self._tests: dict[str, list[float | list[int]]] = {}
        self._failed: set[str] = set()

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(
        self, item: pytest.Item, nextitem: pytest.Item | None
    ) -> Generator[None, bool, bool]:
        """Note one test; after the last of a file, write its row."""
        self._shared[:] = bytes(len(self._shared))
        begun = _processor_seconds()
        done = yield
        name, file = item.nodeid.split("[")[0], _file(item)
        before = self._tests.get(name, [0.0, []])
        reached = np.flatnonzero(np.frombuffer(self._shared[:], dtype=np.uint8)).tolist()
        self._tests[name] = [
            round(before[0] + _processor_seconds() - begun, 3),  # type: ignore[operator]
            sorted({*before[1], *reached}),  # type: ignore[misc]
        ]
        if nextitem is None or _file(nextitem) != file:
            row = {"file": file, "tests": self._tests, "failed": sorted(self._failed)}
            with open(self._rows, "a", encoding="utf-8") as out:
                out.write(json.dumps(row) + "\n")
            self._tests, self._failed = {}, set()
            for kept in gc.get_objects():
                if type(kept).__name__ == "_lru_cache_wrapper" and kept.__module__.startswith(
                    ("meanstream", "tests")
                ):
                    kept.cache_clear()
        return done

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """A test that fails in the copy says nothing of a change."""
        if report.failed:
            self._failed.add(report.nodeid.split("[")[0])


def _file(item: pytest.Item) -> str:
    return item.nodeid.split("::")[0]


def _processor_seconds() -> float:
    return sum(os.times()[:4])


def pytest_configure(config: pytest.Config) -> None:
    """Note, in a run of measuring."""
    config.pluginmanager.register(Noting(os.environ["MUTANTS_SHARED"], os.environ["MUTANTS_ROWS"]))

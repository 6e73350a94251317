"""A copy of the tree in which one change at a time is tried, by tests in forks of one process."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from tests.mutants.mutable_places import copied
from tests.mutants.reach import EVERYDAY, ONE_THREAD
from tests.mutants.small_changes import Change

ENDLESS = "(does not end)"
QUIET = (
    "-q",
    "-p",
    "no:cacheprovider",
    "-rfE",
    "--tb=no",
    "-p",
    "tests.mutants.stopping",
    "-m",
    EVERYDAY,
)


@dataclass(frozen=True, slots=True)
class Chosen:
    """Tests that try a change, what they cost, and after how many processor seconds no more are
    begun."""

    tests: list[str]
    seconds: float
    stop: float = math.inf


class Tree:
    """A copy of the tree in a folder, and the process whose forks run its tests."""

    def __init__(self, folder: Path) -> None:
        self._folder = copied(folder)
        self._time = 1_000_000_000
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.mutants.forking"],
            cwd=folder, env={**os.environ, **ONE_THREAD, "PYTHONPATH": str(folder)}, text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        )  # fmt: skip

    def close(self) -> None:
        """End the process."""
        self._process.communicate()

    def verdict(self, change: Change, chosen: Chosen) -> str:
        """Tell which of some tests notices a change; "" if none does."""
        path = self._folder / change.path
        source = path.read_text(encoding="utf-8")
        path.write_text(change.apply(source), encoding="utf-8")
        try:
            self._age(path)
            return next(iter(self.failing(chosen, "-x")), "")
        finally:
            path.write_text(source, encoding="utf-8")
            self._age(path)

    def _age(self, path: Path) -> None:
        """Give a file a time that it never had, so that no bytecode of another content is taken for
        its own."""
        self._time += 1
        os.utime(path, (self._time, self._time))

    def failing(self, chosen: Chosen, *asked: str) -> list[str]:
        """Run tests in the copy as it is; those that fail."""
        names = self._folder / "tests.txt"
        names.write_text("\n".join(chosen.tests))
        limit = 30 + 4 * math.ceil(
            chosen.seconds
        )  # of processor seconds: a busy machine is no endless loop
        code, text = self._ask(
            {
                "arguments": [*QUIET, *asked, f"@{names}"],
                "out": str(self._folder / "tests.out"),
                "stop": chosen.stop,
                "limit": limit,
                "most": 20 * limit,
            }
        )
        if code in (0, 5):
            return []
        if code < 0:
            return [ENDLESS]
        failed = [line for line in text.splitlines() if line.startswith(("FAILED ", "ERROR "))]
        if not failed and "Error" not in text:
            raise RuntimeError(f"pytest did not run: {text[-1000:]}")
        return [line.split(" - ")[0] for line in failed] or ["(nothing can be imported)"]

    def _ask(self, request: dict) -> tuple[int, str]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        answer = json.loads(self._process.stdout.readline())
        return answer["code"], answer["text"]

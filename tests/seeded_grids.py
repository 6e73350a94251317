"""A test with many parameters that takes long runs a third of them in the gate; which third, the
commit decides.

So each commit tries another third, two runs of one commit try the same, and `make test-all` tries
all. The slow tests of one file of `tests/statistical` are a grid, too: they measure figures at many
points.
"""

from __future__ import annotations

import hashlib
import subprocess
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Protocol

LEAST = 3
"""Parameters; a test with fewer is no grid."""
LONG = 0.5
"""Seconds of all parameters together; a faster grid runs whole."""
FIGURES = "tests/statistical/"
"""Where each file is a grid of its slow tests."""


class Collected(Protocol):
    """What is needed of a test that pytest has collected."""

    @property
    def nodeid(self) -> str:
        """Return its address: file, function, and parameters in brackets."""


def seed_of_commit() -> str:
    """Return the hash of the commit that is tested, or `none` outside of a checkout."""
    command = ["git", "-C", str(Path(__file__).parent), "rev-parse", "--short=12", "HEAD"]
    head = subprocess.run(command, capture_output=True, text=True, check=False)
    return head.stdout.strip() or "none"


def drawn_out(items: Iterable[Collected], durations: dict[str, float], seed: str) -> set[str]:
    """Return the node ids that this seed leaves out: of each slow grid all but a third (rounded
    down, at least one)."""
    grids: defaultdict[str, list[str]] = defaultdict(list)
    for item in items:
        function, bracket, _ = item.nodeid.partition("[")
        if item.nodeid.startswith(FIGURES):
            if durations.get(item.nodeid, 0.0) > LONG:
                grids[function.partition("::")[0]].append(item.nodeid)
        elif bracket:
            grids[function].append(item.nodeid)

    def rank(name: str) -> bytes:
        return hashlib.sha256(f"{seed} {name}".encode()).digest()

    out: set[str] = set()
    for names in grids.values():
        if len(names) >= LEAST and sum(durations.get(name, 0.0) for name in names) > LONG:
            out.update(sorted(names, key=rank)[len(names) // 3 :])
    return out

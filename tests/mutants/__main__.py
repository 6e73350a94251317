"""Do the tests notice? Makes small changes at random, and runs the tests that reach them.

``make mutants`` is ``python -m tests.mutants --changes 120 --seed 1``; another seed draws other changes.
Changes are drawn in strata: half of them in what privacy and exactness stand on (noise, calibration, counters, fixed
point, ledger, chain, loop, intake), the others over all files. Each runs in a copy of the tree, against the everyday
test files that reach its line, until one fails. What nobody notices is printed as a difference, to be read: some change
nothing that anybody could see. Ends with 1 if the share noticed is below ``--least``.

Measuring all test files first takes long; a part of the tree is quick with a part of the tests:
``python -m tests.mutants --under meanstream/operators/noise --tests tests/operators,meanstream/operators/noise``.
"""

from __future__ import annotations

import argparse
import difflib
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from pathlib import Path
from queue import SimpleQueue

from tests.mutants.changes import Change, changes_of
from tests.mutants.reach import EVERYDAY, ONE_THREAD, ROOT, Reach, measured

CORE = (
    "operators/noise/",
    "operators/counters/",
    "operators/agents/agents",
    "streaming/store/",
    "streaming/engine/",
    "streaming/agents/engine",
    "streaming/rounds/engine",
    "streaming/rounds/intake",
)
MOST_SECONDS = 150.0
"""Of test files for one change; the quickest first."""


def drawn(changes: list[Change], number: int, seed: int) -> list[Change]:
    """Half of the core and half of the rest, if there are both."""
    rng = random.Random(seed)  # noqa: S311 - no noise
    strata: tuple[list[Change], list[Change]] = ([], [])
    for change in changes:
        strata[not change.path.startswith(tuple(f"meanstream/{name}" for name in CORE))].append(change)
    halves = ((number + 1) // 2, number // 2) if all(strata) else (number, number)
    return [
        change for stratum, wanted in zip(strata, halves, strict=True) for change in islice(alike(stratum, rng), wanted)
    ]


def alike(changes: list[Change], rng: random.Random) -> Iterator[Change]:
    """Draw changes that are programs, one of each kind in turn, until there are none."""
    pool: dict[str, list[Change]] = {}
    for change in changes:
        pool.setdefault(change.kind, []).append(change)
    while pool:
        for kind in sorted(pool):
            change = pool[kind].pop(rng.randrange(len(pool[kind])))
            if not pool[kind]:
                del pool[kind]
            if change.compiles((ROOT / change.path).read_text(encoding="utf-8")):
                yield change


def copied(folder: Path) -> Path:
    """A tree of its own to change."""
    for name in ("meanstream", "tests", "benchmarks", "docker", "docs", "requirements"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("operators", "streaming", "pipelines"):
        (folder / name).symlink_to(f"meanstream/{name}")
    for path in [*ROOT.glob("*.*"), ROOT / "Makefile", ROOT / "LICENSE", ROOT / ".dockerignore"]:
        if path.is_file():
            shutil.copy(path, folder / path.name)
    return folder


def noticed(change: Change, folder: Path, reach: Reach) -> str:
    """Tell which test file notices a change; "" if none does, "-" if no everyday test reaches the line."""
    path = folder / change.path
    source = path.read_text(encoding="utf-8")
    files = reach.tests_of(change.path, change.line)
    environment = {**os.environ, **ONE_THREAD, "PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1"}
    path.write_text(change.apply(source), encoding="utf-8")
    spent = 0.0
    try:
        for file in files:
            if spent > MOST_SECONDS:
                break
            begun, limit = time.monotonic(), 30.0 + 4.0 * reach.seconds[file]
            command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "-m", EVERYDAY, file]
            try:
                ran = subprocess.run(
                    command, cwd=folder, env=environment, capture_output=True, timeout=limit, check=False
                )
            except subprocess.TimeoutExpired:
                return f"{file} (does not end)"
            if ran.returncode not in (0, 5):
                return file
            spent += time.monotonic() - begun
    finally:
        path.write_text(source, encoding="utf-8")
    return "" if files else "-"


def main() -> int:
    """Draw, try, and tell."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("--changes", type=int, default=120)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--least", type=float, default=0.9, help="share of the changes that must be noticed")
    parser.add_argument("--under", default="meanstream/", help="only files whose path begins with one of these (a,b)")
    parser.add_argument("--tests", default="", help="only test files whose path begins with one of these (a,b)")
    asked = parser.parse_args()
    reach = measured(asked.jobs, tuple(asked.tests.split(",")))
    files = sorted((ROOT / "meanstream").rglob("*.py"))
    changes = [c for path in files for c in changes_of(ROOT, path) if c.path.startswith(tuple(asked.under.split(",")))]
    folders: SimpleQueue[Path] = SimpleQueue()
    with tempfile.TemporaryDirectory() as scratch:
        for job in range(asked.jobs):
            folder = Path(scratch) / str(job)
            folder.mkdir()
            folders.put(copied(folder))

        def tried(change: Change) -> tuple[Change, str]:
            folder = folders.get()
            try:
                return change, noticed(change, folder, reach)
            finally:
                folders.put(folder)

        with ThreadPoolExecutor(asked.jobs) as pool:
            results = []
            for change, by in pool.map(tried, drawn(changes, asked.changes, asked.seed)):
                results.append((change, by))
                tell(change, by)
    return judged(results, asked.least)


def tell(change: Change, by: str) -> None:
    """One line for a change that was noticed, the difference for one that was not."""
    verdict = {"": "NOT NOTICED", "-": "NOT REACHED"}.get(by, "noticed")
    print(f"{verdict}: {change.path}:{change.line} {change.kind} {by}", flush=True)
    if verdict != "noticed":
        source = (ROOT / change.path).read_text(encoding="utf-8")
        rows = difflib.unified_diff(source.splitlines(), change.apply(source).splitlines(), lineterm="", n=2)
        print("\n".join(list(rows)[2:]), flush=True)


def judged(results: list[tuple[Change, str]], least: float) -> int:
    """Print the shares; 1 if too few were noticed."""
    core = tuple(f"meanstream/{name}" for name in CORE)
    for name, rows in (
        ("core", [by for change, by in results if change.path.startswith(core)]),
        ("rest", [by for change, by in results if not change.path.startswith(core)]),
        ("all", [by for _, by in results]),
    ):
        count = Counter("noticed" if by not in ("", "-") else "not" for by in rows)
        print(json.dumps({"stratum": name, "changes": len(rows), "noticed": count["noticed"]}))
    share = sum(by not in ("", "-") for _, by in results) / max(len(results), 1)
    print(f"{share:.3f} of {len(results)} changes were noticed")
    return int(share < least)


if __name__ == "__main__":
    sys.exit(main())

"""Do the tests notice? Makes small changes at random, and runs the tests that reach them.

``make mutants`` is ``python -m tests.mutants --changes 120 --seed 1``; another seed draws other changes.
Changes are drawn in strata: half of them in what privacy and exactness stand on (noise, calibration, counters, fixed
point, ledger, chain, loop, intake), the others over all files. Each runs in a copy of the tree, against the everyday
tests that reach its line, until one fails. What nobody notices is printed as a difference, to be read: some change
nothing that anybody could see. Ends with 1 if the share noticed is below ``--least``.

Which tests reach a line is measured first, at the cost of one run of them, and kept in ``out/mutants``; what was tried
is kept there too, so that ``--minutes 15``, again and again, ends with the whole. A part of the tree is quick with a
part of the tests:
``python -m tests.mutants --under meanstream/operators/noise --tests tests/operators,meanstream/operators/noise``.
"""

from __future__ import annotations

import argparse
import difflib
import hashlib
import json
import math
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from pathlib import Path
from queue import SimpleQueue

from tests.mutants.changes import Change, changes_of
from tests.mutants.places import ROOT, copied
from tests.mutants.reach import EVERYDAY, KEPT, ONE_THREAD, NotMeasuredError, Reach, measured

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
FEW_SECONDS = 20.0
"""Processor seconds of the tests that try a change first: those of its folder, and the quickest."""
MOST_SECONDS = 90.0
"""Of whole files, where those notice nothing."""
UNNOTICED = ("", "-")


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


class Tree:
    """A copy of the tree in which one change at a time is tried."""

    def __init__(self, folder: Path, reach: Reach) -> None:
        self._folder = copied(folder)
        self._reach = reach
        self._time = 1_000_000_000

    def verdict(self, change: Change) -> str:
        """Tell which test notices a change; "" if none does, "-" if no everyday test reaches the line."""
        path = self._folder / change.path
        source = path.read_text(encoding="utf-8")
        tests = self._reach.tests_of(change.path, change.line)
        path.write_text(change.apply(source), encoding="utf-8")
        try:
            self._age(path)
            return self._failing(tests) if tests else "-"
        finally:
            path.write_text(source, encoding="utf-8")
            self._age(path)

    def _age(self, path: Path) -> None:
        """Give a file a time that it never had, so that no bytecode of another content is taken for its own."""
        self._time += 1
        os.utime(path, (self._time, self._time))

    def _failing(self, tests: list[str]) -> str:
        """Try the first tests, then what else there is time for; a file's other tests may share what one has made."""
        few, spent = [], 0.0
        for test in tests:
            if few and spent + self._reach.seconds[test] > FEW_SECONDS:
                break
            few.append(test)
            spent += self._reach.seconds[test]
        if by := self._first_failing(few):
            return by
        files = list(dict.fromkeys(test.split("::")[0] for test in tests))
        cost = dict.fromkeys(files, 0.0)
        for test, seconds in self._reach.seconds.items():
            if (file := test.split("::")[0]) in cost:
                cost[file] += seconds
        many, spent = [], 0.0
        for file in files:
            if many and spent + cost[file] > MOST_SECONDS:
                break
            many += [test for test in self._reach.seconds if test.split("::")[0] == file and test not in few]
            spent += cost[file]
        return self._first_failing(many) if many else ""

    def _first_failing(self, tests: list[str]) -> str:
        names = self._folder / "tests.txt"
        names.write_text("\n".join(tests))
        environment = {**os.environ, **ONE_THREAD, "PYTHONPATH": str(self._folder)}
        command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "-rfE", "--tb=no"]
        limit = 30 + 4 * math.ceil(sum(self._reach.seconds[test] for test in tests))
        limited = ["bash", "-c", f'ulimit -t {limit}; exec "$@"', "tests"]  # a busy machine is no endless loop
        try:
            ran = subprocess.run(
                [*limited, *command, "-m", EVERYDAY, f"@{names}"],
                cwd=self._folder, env=environment, capture_output=True, text=True, timeout=20 * limit, check=False,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            return "(does not end)"
        if ran.returncode in (0, 5):
            return ""
        if ran.returncode < 0:
            return "(does not end)"
        failed = [line for line in ran.stdout.splitlines() if line.startswith(("FAILED ", "ERROR "))]
        if not failed and "Error" not in ran.stdout + ran.stderr:
            raise RuntimeError(f"pytest did not run: {ran.stdout[-500:]} {ran.stderr[-500:]}")
        return failed[0].split(" - ")[0] if failed else "(nothing can be imported)"


class Seed:
    """The changes of a seed and what became of those that were tried, in a file; of another tree they are others."""

    def __init__(self, changes: list[Change], number: int, seed: int) -> None:
        self.drawn = drawn(changes, number, seed)
        drawn_of = hashlib.sha256(repr(self.drawn).encode()).hexdigest()[:12]
        self._path = KEPT / f"seed-{seed}-{drawn_of}.jsonl"
        self.verdicts: dict[int, str] = {}
        if self._path.exists():
            rows = map(json.loads, self._path.read_text().splitlines())
            self.verdicts = {row["change"]: row["by"] for row in rows}

    def note(self, number: int, by: str) -> None:
        """Keep one more."""
        self.verdicts[number] = by
        change = self.drawn[number]
        with self._path.open("a") as out:
            row = {"change": number, "path": change.path, "line": change.line, "kind": change.kind, "by": by}
            out.write(json.dumps(row) + "\n")


def tried(seed: Seed, reach: Reach, jobs: int, until: float) -> None:
    """Try what was not tried, until time is over."""
    trees: SimpleQueue[Tree] = SimpleQueue()
    with tempfile.TemporaryDirectory() as scratch:
        for job in range(jobs):
            folder = Path(scratch) / str(job)
            folder.mkdir()
            trees.put(Tree(folder, reach))

        def one(number: int) -> tuple[int, str | None]:
            if time.monotonic() > until:
                return number, None
            tree = trees.get()
            try:
                return number, tree.verdict(seed.drawn[number])
            finally:
                trees.put(tree)

        with ThreadPoolExecutor(jobs) as pool:
            for number, by in pool.map(one, [i for i in range(len(seed.drawn)) if i not in seed.verdicts]):
                if by is not None:
                    seed.note(number, by)
                    tell(seed.drawn[number], by)


def main() -> int:
    """Draw, try, and tell."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("--changes", type=int, default=120)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--minutes", type=float, default=math.inf, help="stop then; the same command goes on there")
    parser.add_argument("--least", type=float, default=0.9, help="share of the changes that must be noticed")
    parser.add_argument("--under", default="meanstream/", help="only files whose path begins with one of these (a,b)")
    parser.add_argument("--tests", default="", help="only test files whose path begins with one of these (a,b)")
    asked = parser.parse_args()
    until = time.monotonic() + 60 * asked.minutes
    try:
        reach = measured(asked.jobs, until, tuple(asked.tests.split(",")))
    except NotMeasuredError as error:
        print(error)
        return 1
    files = sorted((ROOT / "meanstream").rglob("*.py"))
    changes = [c for path in files for c in changes_of(ROOT, path) if c.path.startswith(tuple(asked.under.split(",")))]
    seed = Seed(changes, asked.changes, asked.seed)
    tried(seed, reach, asked.jobs, until)
    return judged([(seed.drawn[number], by) for number, by in sorted(seed.verdicts.items())], asked.least)


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
    strata = {name: (f"meanstream/{name}",) for name in CORE} | {"core": core, "all": ("",)}
    for name, paths in strata.items():
        rows = [by for change, by in results if change.path.startswith(paths)]
        print(json.dumps({"stratum": name, "changes": len(rows), "noticed": sum(by not in UNNOTICED for by in rows)}))
    share = sum(by not in UNNOTICED for _, by in results) / max(len(results), 1)
    error = math.sqrt(share * (1 - share) / max(len(results), 1))
    print(f"{share:.3f} of {len(results)} changes were noticed (standard error {error:.3f})")
    return int(share < least)


if __name__ == "__main__":
    sys.exit(main())

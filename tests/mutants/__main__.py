"""Do the tests notice? Makes small changes at random, and runs the tests that reach them.

``make mutants`` is ``python -m tests.mutants --changes 120 --seed 1``; another seed draws other
changes. Changes are drawn in strata: half of them in what privacy and exactness stand on (noise,
calibration, counters, fixed point, ledger, chain, loop, intake), the others over all files. Each
runs in a copy of the tree, against the everyday tests that reach its line, until one fails. What
nobody notices is printed as a difference, to be read: some change nothing that anybody could see.
Ends with 1 if the share noticed is below ``--least``.

Which tests reach a line is measured first, at the cost of one run of them, and kept in
``out/mutants``; what was tried is kept there too, so that ``--minutes 15``, again and again, ends
with the whole. ``--near`` measures nothing: it tries the tests that import what is changed, and a
run without it goes on with what those do not notice. A part of the tree is quick with a part of the
tests: ``python -m tests.mutants --under operators/noise --tests tests/operators,operators/noise``.
"""

from __future__ import annotations

import argparse
import difflib
import hashlib
import json
import math
import os
import random
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import partial
from itertools import islice
from pathlib import Path
from queue import SimpleQueue

from tests.mutants.mutable_places import ROOT, package_files
from tests.mutants.mutated_tree import Chosen, Tree
from tests.mutants.near import near_tests
from tests.mutants.reach import KEPT, NotMeasuredError, Reach, measured
from tests.mutants.small_changes import Change, changes_of

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
NEAR_FILES, NEAR_SECONDS = 4, 25.0
"""Files of tests that are chosen by what they import, the nearest first; seconds of these, and of
the others."""
NOT_REACHED = "-"
NEAREST, NEAR, SO_FAR = NOT_YET = ("? nearest", "? near", "? first")
UNNOTICED = ("", NOT_REACHED, *NOT_YET)
"""Verdicts beside the test that notices: none does; no everyday test runs the line; some do not,
and others may."""


def drawn(changes: list[Change], number: int, seed: int) -> list[Change]:
    """Half of the core and half of the rest, if there are both."""
    rng = random.Random(seed)  # noqa: S311 - no noise
    strata: tuple[list[Change], list[Change]] = ([], [])
    for change in changes:
        strata[not change.path.startswith(tuple(f"meanstream/{name}" for name in CORE))].append(
            change
        )
    halves = ((number + 1) // 2, number // 2) if all(strata) else (number, number)
    return [
        change
        for stratum, wanted in zip(strata, halves, strict=True)
        for change in islice(alike(stratum, rng), wanted)
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


class Seed:
    """The changes of a seed and what became of those that were tried, in a file; of another tree
    they are others."""

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
        self._path.parent.mkdir(parents=True, exist_ok=True)  # nothing was measured in a fresh tree
        with self._path.open("a") as out:
            row = {
                "change": number,
                "path": change.path,
                "line": change.line,
                "kind": change.kind,
                "by": by,
            }
            out.write(json.dumps(row) + "\n")


def nearest(change: Change) -> Chosen:
    """Choose a few files of tests by what they import, without a map."""
    return Chosen(near_tests(change.path)[:NEAR_FILES], NEAR_SECONDS, NEAR_SECONDS)


def near(change: Change) -> Chosen:
    """Choose the next ones."""
    return Chosen(near_tests(change.path)[NEAR_FILES:], NEAR_SECONDS, NEAR_SECONDS)


def first(reach: Reach, change: Change) -> Chosen:
    """Choose the tests that try a change first: those of its folder, and the quickest."""
    few: list[str] = []
    spent = 0.0
    for test in reach.tests_of(change.path, change.line):
        if few and spent + reach.seconds[test] > FEW_SECONDS:
            break
        few.append(test)
        spent += reach.seconds[test]
    return Chosen(few, spent)


def others(reach: Reach, change: Change) -> Chosen:
    """Choose what else there is time for, as whole files: a file's other tests may share what one
    has made."""
    files = list(
        dict.fromkeys(test.split("::")[0] for test in reach.tests_of(change.path, change.line))
    )
    cost = dict.fromkeys(files, 0.0)
    for test, seconds in reach.seconds.items():
        if (file := test.split("::")[0]) in cost:
            cost[file] += seconds
    few = set(first(reach, change).tests)
    many: list[str] = []
    spent = 0.0
    for file in files:
        if many and spent + cost[file] > MOST_SECONDS:
            break
        many += [test for test in reach.seconds if test.split("::")[0] == file and test not in few]
        spent += cost[file]
    return Chosen(many, spent)


class Trying:
    """Copies of the tree, and changes that are tried in them until time is over."""

    def __init__(self, seed: Seed, jobs: int, until: float, scratch: Path) -> None:
        self._seed, self._jobs, self._until = seed, jobs, until
        self._trees: SimpleQueue[Tree] = SimpleQueue()
        for job in range(jobs):
            folder = scratch / str(job)
            folder.mkdir()
            self._trees.put(Tree(folder))

    def turn(
        self,
        known: tuple[str | None, ...],
        choose: Callable[[Change], Chosen],
        none: str,
        left: str,
    ) -> None:
        """Try all changes of which so much is known: `none` if there is no test, `left` if no test
        notices."""

        def one(number: int) -> tuple[int, str | None]:
            if time.monotonic() > self._until:
                return number, None
            chosen, tree = choose(self._seed.drawn[number]), self._trees.get()
            try:
                return number, (
                    tree.verdict(self._seed.drawn[number], chosen) or left
                ) if chosen.tests else none
            finally:
                self._trees.put(tree)

        half = (len(self._seed.drawn) + 1) // 2  # strata in turn: what there is time for is of both
        todo = [i for i in range(len(self._seed.drawn)) if self._seed.verdicts.get(i) in known]
        todo.sort(key=lambda i: i % half)
        with ThreadPoolExecutor(self._jobs) as pool:
            for number, by in pool.map(one, todo):
                if by is not None:
                    self._seed.note(number, by)
                    tell(self._seed.drawn[number], by)

    def close(self) -> None:
        """End the processes of the copies."""
        for _ in range(self._jobs):
            self._trees.get().close()

    def confirm(self) -> None:
        """Take back what a test noticed that fails without a change, too: a copy of the tree is no
        checkout."""
        tests = {
            by.split(" ", 1)[1]
            for by in self._seed.verdicts.values()
            if by.startswith(("FAILED ", "ERROR "))
        }
        tree = self._trees.get()
        failing = set(tree.failing(Chosen(sorted(tests), 600.0))) if tests else set()
        self._trees.put(tree)
        for number, by in self._seed.verdicts.items():
            if by in failing:
                self._seed.note(number, NEAR)
                tell(self._seed.drawn[number], NEAR)


def main() -> int:
    """Draw, try, and tell."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("--changes", type=int, default=120)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument(
        "--minutes", type=float, default=math.inf, help="stop then; the same command goes on there"
    )
    parser.add_argument(
        "--least", type=float, default=0.9, help="share of the changes that must be noticed"
    )
    parser.add_argument(
        "--near", action="store_true", help="try tests that import what is changed; measure nothing"
    )
    parser.add_argument(
        "--under",
        default="meanstream/",
        help="only files whose path begins with one of these (a,b)",
    )
    parser.add_argument(
        "--tests", default="", help="only test files whose path begins with one of these (a,b)"
    )
    asked = parser.parse_args()
    until = time.monotonic() + 60 * asked.minutes
    files = package_files(ROOT)
    changes = [
        c
        for path in files
        for c in changes_of(ROOT, path)
        if c.path.startswith(tuple(asked.under.split(",")))
    ]
    seed = Seed(changes, asked.changes, asked.seed)
    try:
        with (
            tempfile.TemporaryDirectory() as scratch,
            closing(Trying(seed, asked.jobs, until, Path(scratch))) as trying,
        ):
            if asked.near:
                trying.turn((None,), nearest, NEAREST, NEAREST)
                trying.turn((NEAREST,), near, NEAR, NEAR)
                trying.confirm()
            else:
                reach = measured(asked.jobs, until, tuple(asked.tests.split(",")))
                trying.turn((None, NEAREST, NEAR), partial(first, reach), NOT_REACHED, SO_FAR)
                trying.turn((SO_FAR,), partial(others, reach), "", "")
    except NotMeasuredError as error:
        print(error)
        return 1
    return judged(
        [(seed.drawn[number], by) for number, by in sorted(seed.verdicts.items())], asked.least
    )


def tell(change: Change, by: str) -> None:
    """One line for a change that was noticed, the difference for one that was not."""
    verdict = {"": "NOT NOTICED", NOT_REACHED: "NOT REACHED"}.get(
        by, "NOT YET" if by in NOT_YET else "noticed"
    )
    print(f"{verdict}: {change.path}:{change.line} {change.kind} {by}", flush=True)
    if by in UNNOTICED:
        source = (ROOT / change.path).read_text(encoding="utf-8")
        rows = difflib.unified_diff(
            source.splitlines(), change.apply(source).splitlines(), lineterm="", n=2
        )
        print("\n".join(list(rows)[2:]), flush=True)


def judged(results: list[tuple[Change, str]], least: float) -> int:
    """Print the shares; 1 if too few were noticed."""
    core = tuple(f"meanstream/{name}" for name in CORE)
    strata = {name: (f"meanstream/{name}",) for name in CORE} | {"core": core, "all": ("",)}
    for name, paths in strata.items():
        rows = [by for change, by in results if change.path.startswith(paths)]
        print(
            json.dumps(
                {
                    "stratum": name,
                    "changes": len(rows),
                    "noticed": sum(by not in UNNOTICED for by in rows),
                }
            )
        )
    share = sum(by not in UNNOTICED for _, by in results) / max(len(results), 1)
    error = math.sqrt(share * (1 - share) / max(len(results), 1))
    print(f"{share:.3f} of {len(results)} changes were noticed (standard error {error:.3f})")
    return int(share < least)


if __name__ == "__main__":
    sys.exit(main())

"""Which tests reach which places, and what each costs: measured in a marked copy of the tree, and
kept.

The row of a test file is kept until that file changes; places are named by their function, so that
a row outlives changes of other code. (`out/mutants` removed: all is measured again.)
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.mutants.mutable_places import ROOT, Places, copied, marked_copy, package_files

KEPT = ROOT / "out" / "mutants"
ONE_THREAD = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
EVERYDAY = "not slow and not servers"
AT_ONCE = 8
"""Test files in one process: few, as only those that ended are kept when time is over."""


class NotMeasuredError(RuntimeError):
    """Time was over before all test files were measured: begin again, it goes on there."""


class Reach:
    """Tests by the places that they run, and the processor seconds of each."""

    def __init__(
        self, numbers: dict[str, int], rows: Iterable[dict[str, dict[str, tuple[float, list[int]]]]]
    ) -> None:
        names = {number: name for name, number in numbers.items()}
        self.seconds: dict[str, float] = {}
        self._tests: defaultdict[str, set[str]] = defaultdict(set)
        for row in rows:
            for test, (seconds, reached) in row["tests"].items():
                if test in row["failed"]:  # in a copy of the tree without a change
                    continue
                self.seconds[test] = seconds
                for number in reached:
                    for name in _and_wider(names[number]):
                        self._tests[name].add(test)

    def tests_of(self, path: str, line: int) -> list[str]:
        """Tests that run a line: those in its own folder of the tests first, then the quickest.

        Of a line that runs at import, tests that run anything of its file.
        """
        place = Places(path, (ROOT / path).read_text(encoding="utf-8")).of_line.get(line, path)
        found = next(
            (tests for name in _and_wider(place) if (tests := self._tests.get(name))), set()
        )
        folder = "/".join(Path(path).parts[1:-1])
        return sorted(
            found,
            key=lambda test: (not test.startswith((f"tests/{folder}/", path)), self.seconds[test]),
        )


def _and_wider(place: str) -> Iterator[str]:
    """Give a place, its function and its file."""
    parts = place.split(":")
    for count in range(len(parts), 0, -1):
        yield ":".join(parts[:count])


def files_of_tests(under: tuple[str, ...] = ("",)) -> Iterator[str]:
    """Files of tests and of doctests whose path begins with one of these."""
    paths = [path for path in (ROOT / "tests").rglob("test_*.py") if "servers" not in path.parts]
    paths += [path for path in package_files(ROOT) if ">>> " in path.read_text(encoding="utf-8")]
    for path in sorted(paths):
        if (name := path.relative_to(ROOT).as_posix()).startswith(under):
            yield name


def measured(jobs: int, until: float, under: tuple[str, ...] = ("",)) -> Reach:
    """Measure the test files whose path begins with one of these, but for those that were measured
    before."""
    KEPT.mkdir(parents=True, exist_ok=True)
    kept, known = KEPT / "reach.jsonl", KEPT / "places.json"
    numbers: dict[str, int] = json.loads(known.read_text()) if known.exists() else {}
    digests = {
        name: hashlib.sha256((ROOT / name).read_bytes()).hexdigest()[:16]
        for name in files_of_tests(under)
    }
    rows = {row["file"]: row for row in _rows(kept) if digests.get(row["file"]) == row["digest"]}
    todo = [name for name in digests if name not in rows]
    if todo:
        with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(jobs) as pool:
            copy = copied(Path(folder))
            marked_copy(copy, numbers)
            known.write_text(json.dumps(numbers))
            parts = [todo[i : i + AT_ONCE] for i in range(0, len(todo), AT_ONCE)]
            for part in pool.map(lambda files: _measure(copy, files, len(numbers), until), parts):
                with kept.open("a") as out:
                    out.writelines(
                        json.dumps({**row, "digest": digests[row["file"]]}) + "\n" for row in part
                    )
                rows |= {row["file"]: row for row in part}
    if missing := len(digests.keys() - rows):
        raise NotMeasuredError(f"{missing} of {len(digests)} test files are still to be measured")
    return Reach(numbers, rows.values())


def _rows(path: Path) -> Iterator[dict]:
    if path.exists():
        with path.open() as lines:
            yield from map(json.loads, lines)


def _measure(copy: Path, files: list[str], places: int, until: float) -> list[dict]:
    """Run some test files in the marked copy; rows of those that ended in time."""
    left = until - time.monotonic()
    if left <= 0:
        return []
    with tempfile.TemporaryDirectory() as own:
        shared, out = Path(own) / "shared", Path(own) / "rows"
        shared.write_bytes(bytes(places))
        environment = {**os.environ, **ONE_THREAD, "PYTHONPATH": str(copy)}
        environment |= {"MUTANTS_SHARED": str(shared), "MUTANTS_ROWS": str(out)}
        command = [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-p",
            "no:cacheprovider",
            "-p",
            "tests.mutants.noting",
        ]
        try:
            ran = subprocess.run(
                [*command, "-m", EVERYDAY, *files],
                cwd=copy, env=environment, capture_output=True, timeout=left, check=False,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            ended = set()
        else:
            ended = (
                set(files) if ran.returncode in (0, 1, 5) else set()
            )  # no test of every day: no row
        rows = {row["file"]: row for row in _rows(out)}
    for name, row in rows.items():
        print(
            f"{sum(seconds for seconds, _ in row['tests'].values()):6.1f} s  {name}",
            file=sys.stderr,
            flush=True,
        )
    return [
        *rows.values(),
        *({"file": name, "tests": {}, "failed": []} for name in sorted(ended - rows.keys())),
    ]

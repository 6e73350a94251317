"""Which test files reach which lines: measured once for a state of the tree, and kept."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import coverage

ROOT = Path(__file__).parents[2]
KEPT = ROOT / ".mutants"
ONE_THREAD = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
EVERYDAY = "not slow and not servers"
SETTINGS = """
[run]
source = meanstream
parallel = true
patch = subprocess
[paths]
source = meanstream
"""


class Reach:
    """Test files by the lines that they run, quickest first, and how long each takes."""

    def __init__(self, lines: dict[str, dict[str, list[int]]], seconds: dict[str, float]) -> None:
        self._lines = {file: {path: frozenset(row) for path, row in rows.items()} for file, rows in lines.items()}
        self.seconds = seconds

    def tests_of(self, path: str, line: int) -> list[str]:
        """Test files that run a line: those in its own folder of the tests first, then the quickest."""
        reached = [file for file, rows in self._lines.items() if line in rows.get(path, ())]
        folder = "/".join(Path(path).parts[1:-1])
        return sorted(reached, key=lambda file: (not file.startswith((f"tests/{folder}", path)), self.seconds[file]))


def files_of_tests(under: tuple[str, ...] = ("",)) -> Iterator[str]:
    """Files of tests and of doctests whose path begins with one of these."""
    paths = [path for path in (ROOT / "tests").rglob("test_*.py") if "servers" not in path.parts]
    paths += [path for path in (ROOT / "meanstream").rglob("*.py") if ">>> " in path.read_text(encoding="utf-8")]
    for path in sorted(paths):
        if (name := path.relative_to(ROOT).as_posix()).startswith(under):
            yield name


def measured(jobs: int, under: tuple[str, ...] = ("",)) -> Reach:
    """Measure the test files whose path begins with one of these, but for what was measured for the same tree."""
    digest = hashlib.sha256()
    for path in sorted([*(ROOT / "meanstream").rglob("*.py"), *(ROOT / "tests").rglob("*.py")]):
        digest.update(path.relative_to(ROOT).as_posix().encode() + path.read_bytes())
    kept = KEPT / f"reach-{digest.hexdigest()[:16]}.json"
    KEPT.mkdir(exist_ok=True)
    (KEPT / "coveragerc").write_text(SETTINGS)
    rows = json.loads(kept.read_text()) if kept.exists() else {}
    files = list(files_of_tests(under))
    with ThreadPoolExecutor(jobs) as pool:
        for file, row in pool.map(_measure, [file for file in files if file not in rows]):
            rows[file] = row
            kept.write_text(json.dumps(rows))
    found = {file: rows[file] for file in files}
    return Reach({file: row["lines"] for file, row in found.items()}, {f: row["seconds"] for f, row in found.items()})


def _measure(file: str) -> tuple[str, dict[str, object]]:
    data = KEPT / "data" / file.replace("/", "-")
    data.parent.mkdir(exist_ok=True)
    environment = {**os.environ, **ONE_THREAD, "COVERAGE_FILE": str(data)}
    begun = time.monotonic()
    command = [sys.executable, "-m", "coverage", "run", f"--rcfile={KEPT / 'coveragerc'}"]
    command += ["-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", EVERYDAY, file]
    subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, check=False)
    seconds = time.monotonic() - begun
    parts = sorted(data.parent.glob(f"{data.name}.*"))
    lines: dict[str, set[int]] = {}
    for part in parts:
        read = coverage.CoverageData(basename=str(part))
        read.read()
        for path in read.measured_files():
            name = os.path.relpath(os.path.realpath(path), ROOT)
            lines.setdefault(name, set()).update(read.lines(path) or ())
        part.unlink()
    print(f"{seconds:6.1f} s  {file}", file=sys.stderr)
    return file, {"lines": {path: sorted(row) for path, row in lines.items()}, "seconds": seconds}

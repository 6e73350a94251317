"""Runs tests in forks of a process that has imported what is not ours: more than half of what a
small file costs.

A program that reads requests from its standard input, a JSON line each, and answers each with one:
the exit code, or the negative number of a signal, and what pytest printed.
"""

from __future__ import annotations

import importlib
import json
import os
import resource
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path

IMPORTED = (
    "cryptography.hazmat.primitives.asymmetric.ed25519",
    "dp_accounting",
    "msgspec",
    "numpy",
    "prometheus_client",
    "pyarrow",
    "pydantic",
    "pytest",
    "rich.console",
    "river.stats",
    "scipy.optimize",
    "scipy.special",
    "scipy.stats",
    "typer",
    "yaml",
)
"""Nothing that pytest takes as a plugin, or that starts threads: neither likes to be there
before."""


def answer(asked: dict) -> dict:
    """Run pytest in a fork, with a bound on processor seconds and one on the clock."""
    out = Path(asked["out"])
    child = os.fork()
    if child == 0:
        os.setsid()
        _tests(asked, out)
    code = _waited(child, time.monotonic() + asked["most"])
    with suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)  # what its tests have started
    return {"code": code, "text": out.read_text(encoding="utf-8", errors="replace")}


def _tests(asked: dict, out: Path) -> None:
    """Be the fork; this does not return."""
    resource.setrlimit(resource.RLIMIT_CPU, (asked["limit"], asked["limit"]))
    os.environ["MUTANTS_SECONDS"] = str(asked["stop"])
    with out.open("wb") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    sys.argv = ["pytest", *asked["arguments"]]
    code = 3
    try:
        import pytest

        code = int(pytest.main(asked["arguments"]))
    finally:
        sys.stdout.flush()
        os._exit(code)


def _waited(child: int, until: float) -> int:
    """Give how a process ended, or was ended."""
    while True:
        found, status = os.waitpid(child, os.WNOHANG)
        if found:
            return os.waitstatus_to_exitcode(status)
        if time.monotonic() > until:
            os.kill(child, signal.SIGKILL)
        time.sleep(0.02)


def main() -> None:
    """Answer until there are no more requests."""
    for name in IMPORTED:
        importlib.import_module(name)
    for line in sys.stdin:
        sys.stdout.write(json.dumps(answer(json.loads(line))) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()

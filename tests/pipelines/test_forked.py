"""A program that is forked ends, writes and sees what one that was started would."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.warm_command import run_forked

ENVIRONMENT = {"PATH": os.environ["PATH"], "WHO": "me"}
SAYS = (
    "import os, sys; print(sys.argv[1:], os.getcwd(), os.environ.get('WHO'))\n"
    "print(len(sys.stdin.read()), file=sys.stderr)"
)
KILLED = "import os, signal; print(signal.getsignal(signal.{0}), flush=True); os.kill(os.getpid(), signal.{0})"


@pytest.mark.parametrize(
    "program",
    [
        SAYS,
        "import sys; sys.exit('refused')",
        "import sys; sys.exit(3)",
        "print('x' * 200_000); raise ValueError('a defect')",
        KILLED.format("SIGKILL"),
        KILLED.format("SIGTERM"),
        "import atexit; atexit.register(print, 'at the end')",
    ],
)
def test_it_is_as_if_it_had_been_started(program: str, tmp_path: Path) -> None:
    forked = run_forked(program, "a", "b c", env=ENVIRONMENT, cwd=tmp_path)
    started = subprocess.run(
        [sys.executable, "-c", program, "a", "b c"],
        env=ENVIRONMENT,
        cwd=tmp_path,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
    )
    assert (forked.returncode, forked.stdout) == (started.returncode, started.stdout)
    assert forked.stderr.splitlines()[-1:] == started.stderr.splitlines()[-1:]


def test_one_fork_leaves_nothing_to_the_next() -> None:
    run_forked("import sys, meanstream; meanstream.left = 1", env={})
    assert (
        run_forked("import meanstream; print(hasattr(meanstream, 'left'))", env={}).stdout
        == b"False\n"
    )


def test_a_file_takes_what_is_written(tmp_path: Path) -> None:
    with (tmp_path / "out").open("wb") as file:
        assert run_forked("print('hello')", env={}, stdout=file).returncode == 0
    assert (tmp_path / "out").read_bytes() == b"hello\n"

"""Signals from the program's first line on: also as process 1, to which a signal without a handler is lost."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

UNSHARE = shutil.which("unshare")
STOPPED = """
import os, signal, sys
from importlib import abc

NAME = sys.argv.pop(1)
sys.argv.append("--version")


class Signals(abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name == "typer":
            os.kill(os.getpid(), getattr(signal, NAME))


from meanstream.pipelines.commands import program

sys.meta_path.insert(0, Signals())
program.main()
"""
"""The program, to which a signal comes while it imports what it needs."""


def started(name: str, *before: str) -> subprocess.CompletedProcess[str]:
    command = [*before, sys.executable, "-c", STOPPED, name]
    clean = {key: value for key, value in os.environ.items() if not key.startswith("MEANSTREAM_")}
    return subprocess.run(
        command,
        env=clean,
        cwd=Path(__file__).parents[3],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        preexec_fn=hear_hangups,
    )


def hear_hangups() -> None:
    """Tests may run under nohup, where the program ignores SIGHUP, as it should."""
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


@pytest.mark.parametrize("name", ["SIGTERM", "SIGHUP"])
def test_a_signal_while_the_program_starts_ends_it(name: str) -> None:
    ran = started(name)
    assert (ran.returncode, ran.stdout) == (128 + getattr(signal, name), "")


@pytest.mark.skipif(
    UNSHARE is None or os.geteuid() != 0, reason="a process 1 needs unshare, as root"
)
def test_process_1_hears_a_signal_while_it_starts() -> None:
    assert UNSHARE is not None
    ran = started("SIGTERM", UNSHARE, "--pid", "--fork")
    assert (ran.returncode, ran.stdout) == (128 + signal.SIGTERM, "")


def test_a_signal_shows_the_stack_and_the_program_goes_on() -> None:
    ran = started("SIGUSR1")
    assert ran.returncode == 0
    assert ran.stdout.startswith("meanstream ")
    assert "Current thread" in ran.stderr

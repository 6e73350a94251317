"""The program `meanstream`: what signals do from its first line on, before anything else is imported."""

from __future__ import annotations

import faulthandler
import signal
from types import FrameType


def main() -> None:
    """Run the command line.

    As process 1 of a container the kernel ignores a signal that has no handler: a SIGTERM while a
    run starts would be lost. SIGUSR1 prints where each thread is, and the run goes on.

    **Privacy.** A stack names files, lines and functions, and no value.
    """
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:  # as under nohup
            signal.signal(number, _end_now)

    faulthandler.register(signal.SIGUSR1, all_threads=True)

    from meanstream.pipelines.commands.main import main as run_command_line

    run_command_line()


def _end_now(number: int, _: FrameType | None) -> None:
    """End with the exit code of a program that the signal ended: nothing has begun that must be committed."""
    raise SystemExit(128 + number)

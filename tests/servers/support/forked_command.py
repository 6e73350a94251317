"""`meanstream` as a process of its own, without a start of Python: forked from one that has imported it."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.servers.support.engine_process import FORKING


class ForkedCommand:
    """One run of the command, with what `subprocess.Popen` has.

    Parameters
    ----------
    folder, log : Path
        Where it runs, and the file of its two streams.
    words : sequence of str
        Its arguments.
    environment : mapping
        All of it.
    """

    def __init__(self, folder: Path, log: Path, words: Sequence[str], environment: Mapping[str, str]) -> None:
        log.touch()
        arguments = (folder, log, list(words), dict(environment))
        self._process = FORKING.Process(target=_be_the_command, args=arguments, daemon=True)
        self._process.start()

    @property
    def pid(self) -> int:
        assert self._process.pid is not None
        return self._process.pid

    @property
    def returncode(self) -> int | None:
        return self._process.exitcode

    def poll(self) -> int | None:
        return self._process.exitcode

    def wait(self, timeout: float | None = None) -> int:
        self._process.join(timeout)
        if (code := self._process.exitcode) is None:
            raise subprocess.TimeoutExpired("meanstream", timeout or 0.0)
        return code


def _be_the_command(folder: Path, log: Path, words: list[str], environment: dict[str, str]) -> None:
    from meanstream.pipelines.commands.main import main

    os.setsid()
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    descriptor = os.open(log, os.O_WRONLY | os.O_APPEND)
    for stream in (1, 2):
        os.dup2(descriptor, stream)
    sys.argv = ["meanstream", *words]
    try:
        main()
    finally:
        logging.shutdown()

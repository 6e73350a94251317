"""Commands and programs in processes of their own, forked from an interpreter that has imported what they need.

An interpreter that starts and imports takes two seconds, a fork some hundredths of one. Exit codes,
signals, streams, folder and environment are those of a process that was started. `run_forked` is
`subprocess.run`, `Forked` is `subprocess.Popen`, and `commands_for_a_shell` gives a folder for PATH
whose `meanstream` is such a fork. An interpreter of its own is in `test_run_imports.py`, in
`test_wheel.py`, and behind the README's own commands.
"""

from __future__ import annotations

import atexit
import importlib
import json
import logging
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
IMPORTED = (
    "cryptography.hazmat.primitives.asymmetric.ed25519",
    "meanstream.lab.evidence.mechanisms_audit",
    "meanstream.lab.papers.bounds.agents_forecast",
    "meanstream.pipelines.commands.main",
    "meanstream.pipelines.commands.run.run_agents",
    "meanstream.pipelines.commands.run.run_rounds",
    "meanstream.streaming.agents.agents_budget",
    "meanstream.streaming.agents.agents_engine",
    "meanstream.streaming.kafka.writing.kafka_sink",
    "meanstream.streaming.kafka.reading.kafka_source",
    "meanstream.streaming.metrics.metrics_server",
    "meanstream.streaming.rounds.rounds_engine",
    "meanstream.streaming.sinks.jsonl_sink",
    "meanstream.streaming.sources.formats.csv_file",
    "meanstream.streaming.sources.formats.jsonl_file",
    "pandas",  # which pyarrow imports, where it is there, with the first array of a list
    "pyarrow.csv",
    "pyarrow.pandas_compat",
    "pydantic",
    "pydantic.type_adapter",
    "rich.table",
    "scipy.optimize",
    "scipy.stats",
    "sqlite3",
    "tests.seeded",
    "yaml",
)
LONGEST = 120.0
"""Seconds of a program that is waited for; none in these tests takes a tenth of that."""
SERVER = "import sys\nfrom tests.warm_command import serve\nexec(serve(sys.argv[1]))\n"
COMMAND = "from tests.warm_command import be_the_command\nbe_the_command()\n"
OF_A_PAGE = f"""import secrets, sys
from tests.seeded import seeded_bytes
secrets.token_bytes = seeded_bytes(repr(sys.argv[1:]))  # what a page prints is the same in every run
{COMMAND}"""
CLIENT = """#!{python} -IS
import json, os, socket, sys
asked = {{"program": {program!r}, "argv": ["meanstream", *sys.argv[1:]], "env": dict(os.environ), "cwd": os.getcwd()}}
text = json.dumps(asked).encode()
with socket.socket(socket.AF_UNIX) as line:
    line.connect({address!r})
    socket.send_fds(line, [b"%8d" % len(text)], [0, 1, 2])
    line.sendall(text)
    line.recv(8)
    ended = line.recv(8)
sys.exit(os.waitstatus_to_exitcode(int(ended)) % 256 if ended else 70)
"""


class Forked:
    """One fork that runs a program, with what `subprocess.Popen` has."""

    def __init__(
        self,
        program: str,
        argv: Sequence[str],
        *,
        env: Mapping[str, str],
        cwd: Path,
        streams: Sequence[int],
    ) -> None:
        asked = {"program": program, "argv": [*argv], "env": dict(env), "cwd": str(cwd)}
        text = json.dumps(asked).encode()
        self._line = socket.socket(socket.AF_UNIX)
        self._line.connect(_server()[0])
        socket.send_fds(self._line, [b"%8d" % len(text)], streams)
        self._line.sendall(text)
        self.pid = int(self._line.recv(8))
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """Tell how it ended, or None while it runs."""
        try:
            return self.wait(0.0)
        except subprocess.TimeoutExpired:
            return None

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end, and tell its exit code as `subprocess` does."""
        if self.returncode is None:
            self._line.settimeout(timeout)
            try:
                ended = self._line.recv(8)
            except (TimeoutError, BlockingIOError):
                raise subprocess.TimeoutExpired("a fork", timeout or 0.0) from None
            if not ended:
                raise RuntimeError("the server of forks has ended")
            self.returncode = os.waitstatus_to_exitcode(int(ended))
            self._line.close()
        return self.returncode


def run_forked(
    program: str, *arguments: str, env: Mapping[str, str], cwd: Path = ROOT, stdout: Any = None
) -> subprocess.CompletedProcess[bytes]:
    """Run a program as `python -c program *arguments` would; its standard output may go to a file or pipe of ours."""
    pipes = [os.pipe() for _ in range(1 if stdout is not None else 2)]
    writable = [end for _, end in pipes]
    out = stdout.fileno() if stdout is not None else writable[0]
    try:
        with Path(os.devnull).open("rb") as nothing:
            streams = [nothing.fileno(), out, writable[-1]]
            fork = Forked(program, ["-c", *arguments], env=env, cwd=cwd, streams=streams)
    finally:
        for end in writable:
            os.close(end)
    with ThreadPoolExecutor(
        len(pipes)
    ) as readers:  # both at once: a pipe that is full stops who writes
        said = list(readers.map(_read, [end for end, _ in pipes]))
    code = fork.wait(LONGEST)
    return subprocess.CompletedProcess(
        arguments, code, said[0] if stdout is None else None, said[-1]
    )


def commands_for_a_shell(folder: Path) -> Path:
    """Write a `meanstream` into a folder that hands its words, environment, folder and streams to a fork."""
    client = folder / "meanstream"
    client.write_text(CLIENT.format(python=sys.executable, program=OF_A_PAGE, address=_server()[0]))
    client.chmod(0o755)
    return folder


def be_the_command() -> None:
    """Be `meanstream`; this does not return."""
    from meanstream.pipelines.commands.main import main

    code = 70
    try:
        main()
        code = 0
    except SystemExit as end:
        code = int(end.code or 0)
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        logging.shutdown()
        os._exit(code)


def _read(end: int) -> bytes:
    with os.fdopen(end, "rb") as pipe:
        return pipe.read()


def seconds_of_forks() -> float:
    """Give the processor time of all forks that have ended, and of their server."""
    if not _server.cache_info().currsize:
        return 0.0
    fields = (
        Path(f"/proc/{_server()[1]}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    )
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")


@cache
def _server() -> tuple[str, int]:
    """Start the server, once per process of tests, and give its address and id; it ends when this process does."""
    folder = tempfile.mkdtemp()  # a socket's path must be short
    address = f"{folder}/line"
    same = {"LC_ALL": "C.UTF-8", "OPENBLAS_NUM_THREADS": "1", "PYTHONPATH": str(ROOT), "TZ": "UTC"}
    server = subprocess.Popen(
        [sys.executable, "-c", SERVER, address], cwd=ROOT, env={**os.environ, **same}, stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
    )  # fmt: skip

    def end() -> None:
        server.terminate()
        server.communicate()
        shutil.rmtree(folder)

    atexit.register(end)
    assert server.stdout is not None
    assert server.stdout.readline() == b"ready\n"
    return address, server.pid


def serve(address: str) -> str:
    """Fork for each request; return, in a fork, the program that it is to run."""
    for name in IMPORTED:
        importlib.import_module(name)
    with socket.socket(socket.AF_UNIX) as line:
        line.bind(address)
        line.listen()
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        signal.signal(signal.SIGCHLD, _reap)
        while True:
            caller, _ = line.accept()
            if os.fork():
                caller.close()
                continue
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            line.close()
            return _attend(caller)


def _reap(*_: object) -> None:
    """Take in who has ended: what it used counts as used by this process's children."""
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def _attend(caller: socket.socket) -> str:
    """Fork once more, tell the caller of the fork and of its end; return, in that fork, its program."""
    size, streams, _, _ = socket.recv_fds(caller, 8, 3)
    text = b""
    while len(text) < int(size):
        text += caller.recv(1 << 16)
    if fork := os.fork():
        for stream in streams:
            os.close(stream)
        caller.send(b"%8d" % fork)
        caller.send(b"%8d" % os.waitpid(fork, 0)[1])
        os._exit(0)
    caller.close()
    return _become(json.loads(text), streams)


def _become(request: dict[str, Any], streams: Sequence[int]) -> str:
    """Take over the streams, folder, environment and arguments of a request; return its program."""
    os.setsid()
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["env"])
    sys.argv = request["argv"]
    program: str = request["program"]
    return program

"""Programs in processes of their own, forked from an interpreter that has imported what commands
need.

An interpreter that starts and imports takes a second, a fork some hundredths of one. Exit codes,
signals, streams, folder and environment are those of a process that was started. The server has one
thread, so a fork inherits no lock.
"""

from __future__ import annotations

import atexit
import json
import os
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
PRELOADED = (
    "meanstream.pipelines.commands.run.run_agents",
    "meanstream.pipelines.commands.run.run_rounds",
    "meanstream.streaming.agents.agents_engine",
    "meanstream.streaming.rounds.rounds_engine",
    "pyarrow.csv",
    "scipy.stats",
)
LONGEST = 120.0
"""Seconds of a program; none in these tests takes a tenth of that."""
_SERVER = "import sys\nfrom tests.pipelines.forked import serve\nexec(serve(int(sys.argv[1])))\n"


def run_forked(
    program: str, *arguments: str, env: Mapping[str, str], cwd: Path = ROOT, stdout: Any = None
) -> subprocess.CompletedProcess[bytes]:
    """Run a program as `python -c program *arguments` would; its standard output may go to a file
    or pipe of ours."""
    pipes = [os.pipe() for _ in range(1 if stdout is not None else 2)]
    writable = [end for _, end in pipes]
    out = stdout.fileno() if stdout is not None else writable[0]
    channel = _server()
    try:
        request = {"program": program, "arguments": arguments, "env": dict(env), "cwd": str(cwd)}
        socket.send_fds(channel, [json.dumps(request).encode()], [out, writable[-1]])
    finally:
        for end in writable:
            os.close(end)
    with ThreadPoolExecutor(
        len(pipes)
    ) as readers:  # both at once: a pipe that is full stops who writes
        said = list(readers.map(_read, [end for end, _ in pipes]))
    status = channel.recv(64)
    if not status:
        raise RuntimeError("the server of forks has ended")
    code = os.waitstatus_to_exitcode(int(status))
    return subprocess.CompletedProcess(
        arguments, code, said[0] if stdout is None else None, said[-1]
    )


def _read(end: int) -> bytes:
    with os.fdopen(end, "rb") as pipe:
        return pipe.read()


@cache
def _server() -> socket.socket:
    """Start the server, once per process of tests; it ends when this process does."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        started = subprocess.Popen(
            [sys.executable, "-c", _SERVER, str(theirs.fileno())],
            cwd=ROOT,
            env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            pass_fds=[theirs.fileno()],
        )
    ours.settimeout(LONGEST)

    def end() -> None:
        ours.close()
        started.wait()

    atexit.register(end)
    return ours


def serve(channel: int) -> str:
    """Fork for each request, and say how the fork ended; return, in a fork, the program that it is
    to run."""
    for name in PRELOADED:
        __import__(name)
    with socket.socket(fileno=channel) as requests:
        while True:
            asked, streams, _, _ = socket.recv_fds(requests, 1 << 20, 2)
            if not asked:
                os._exit(0)
            fork = os.fork()
            if fork == 0:
                break
            for stream in streams:
                os.close(stream)
            requests.send(str(os.waitpid(fork, 0)[1]).encode())
    return _become(json.loads(asked), streams)


def _become(request: dict[str, Any], streams: Sequence[int]) -> str:
    """Take over the streams, folder, environment and arguments of a request; return its program."""
    for number, stream in enumerate(streams, 1):
        os.dup2(stream, number)
        os.close(stream)
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["env"])
    sys.argv = ["-c", *request["arguments"]]
    program: str = request["program"]
    return program

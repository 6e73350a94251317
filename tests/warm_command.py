"""The command `meanstream` for a shell, in forks of one process that has imported it: imports are most of its cost.

`python tests/warm_command.py SOCKET` is that process. `warm_command(folder)` starts it, and gives a folder for PATH in
which `meanstream` is a small program that hands on its words, environment, folder and standard streams. A process that
imports for itself is in `test_run_imports.py`, in `test_wheel.py`, and behind the README's own commands.
"""

from __future__ import annotations

import array
import importlib
import json
import os
import secrets
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).parents[1]
IMPORTED = (
    "cryptography.hazmat.primitives.asymmetric.ed25519",
    "meanstream.operators.evidence.mechanisms_audit",
    "meanstream.pipelines.commands.run.run_agents",
    "meanstream.pipelines.commands.run.run_rounds",
    "meanstream.streaming.agents.agents_budget",
    "meanstream.streaming.agents.agents_engine",
    "meanstream.streaming.metrics.engine_metrics",
    "meanstream.streaming.rounds.rounds_engine",
    "meanstream.streaming.sources.formats.csv_file",
    "meanstream.streaming.sinks.jsonl_sink",
    "meanstream.operators.forecast.agents_forecast",
    "pydantic",
    "rich.table",
    "scipy.optimize",
    "scipy.stats",
    "sqlite3",
    "yaml",
)
CLIENT = """#!{python} -IS
import array, json, os, socket, sys
words = json.dumps([sys.argv[1:], dict(os.environ), os.getcwd()]).encode()
with socket.socket(socket.AF_UNIX) as line:
    line.connect({address!r})
    line.sendmsg([b"%8d" % len(words)], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [0, 1, 2]))])
    line.sendall(words)
    ended = line.recv(1)
sys.exit(ended[0] if ended else 70)
"""


@contextmanager
def warm_command(folder: Path, environment: dict[str, str]) -> Iterator[Path]:
    """Start the process, and end it after; the folder is short-lived, and its path short enough for a socket."""
    (folder / "bin").mkdir()
    client, address = folder / "bin" / "meanstream", str(folder / "line")
    client.write_text(CLIENT.format(python=sys.executable, address=address))
    client.chmod(0o755)
    program = [sys.executable, __file__, address]
    with subprocess.Popen(program, env=environment, cwd=folder, stdout=subprocess.PIPE) as server:
        try:
            assert server.stdout is not None
            assert server.stdout.readline() == b"ready\n"
            yield client.parent
        finally:
            server.terminate()


def _serve(address: str) -> None:
    from meanstream.pipelines.commands.main import app

    assert app
    for name in IMPORTED:
        importlib.import_module(name)
    with socket.socket(socket.AF_UNIX) as line:
        line.bind(address)
        line.listen()
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)
        while True:
            caller, _ = line.accept()
            if os.fork() == 0:
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                line.close()
                _answer(caller)
            caller.close()


def _answer(caller: socket.socket) -> None:
    """Be the command; this does not return."""
    from meanstream.pipelines.commands.main import main
    from tests.seeded import seeded_bytes

    size, ((_, _, handed),), _, _ = caller.recvmsg(8, socket.CMSG_SPACE(12))
    streams = array.array("i")
    streams.frombytes(handed)
    text = b""
    while len(text) < int(size):
        text += caller.recv(1 << 16)
    words, environment, folder = json.loads(text)
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    secrets.token_bytes = seeded_bytes(repr(words))  # what a page prints is the same in every run
    sys.argv = ["meanstream", *words]
    code = 70
    try:
        main()
        code = 0
    except SystemExit as end:
        code = int(end.code or 0)
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        caller.send(bytes([code]))
        os._exit(code)


if __name__ == "__main__":
    _serve(sys.argv[1])

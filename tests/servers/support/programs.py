"""What docker/compose.yaml says, run here without containers: the same commands on the same files,
other places."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, Self

import yaml

from tests.servers.support.wait_until import wait_until
from tests.warm_command import COMMAND, Forked

DOCKER = Path(__file__).parents[3] / "docker"
SERVICES: dict[str, Any] = yaml.safe_load((DOCKER / "compose.yaml").read_text())["services"]
START_SECONDS = 240.0
STOP_SECONDS = 60.0

HERE = {
    "python": sys.executable,
    "meanstream": str(Path(sys.executable).with_name("meanstream")),
    "/opt/meanstream/producer.py": str(DOCKER / "producer.py"),
    "/opt/meanstream/probe.py": str(DOCKER / "probe.py"),
}
"""Programs and files of the images, and where they are on this machine."""


def command_of(service: str, entrypoint: Sequence[str], changes: Mapping[str, str]) -> list[str]:
    """The command of a container with the programs, addresses and folders of this machine.

    Parameters
    ----------
    service : str
        Name in compose.yaml.
    entrypoint : sequence of str
        The image's, where compose.yaml does not name another.
    changes : mapping
        Text to replace in any word; each must occur, so that the test follows the file.
    """
    words = [
        *(SERVICES[service].get("entrypoint") or entrypoint),
        *SERVICES[service].get("command", []),
    ]
    words = [HERE.get(word, word) for word in words]
    for old, new in changes.items():
        assert any(old in word for word in words), f"{service} does not say {old}"
        words = [word.replace(old, new) for word in words]
    return words


class Process(Protocol):
    """What is needed of a process, as `subprocess` has it."""

    @property
    def pid(self) -> int: ...

    @property
    def returncode(self) -> int | None: ...

    def poll(self) -> int | None: ...

    def wait(self, timeout: float | None = None) -> int: ...


class Program:
    """A process with its output in a file; `with` stops it."""

    def __init__(self, folder: Path, name: str, words: Sequence[str], **environment: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._path = folder / f"{name}.log"
        self._process = self._start(folder, words, {**os.environ, **environment})

    def _start(self, folder: Path, words: Sequence[str], environment: dict[str, str]) -> Process:
        with self._path.open("wb") as log:
            return subprocess.Popen(
                words,
                cwd=folder,
                stdout=log,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
                env=environment,
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process.poll() is None:
            self._kill()
        self._process.wait(STOP_SECONDS)

    def _kill(self) -> None:
        """Kill it, and what it has started."""
        os.killpg(self._process.pid, signal.SIGKILL)

    @property
    def log(self) -> str:
        return self._path.read_text(errors="replace")

    def stop(self) -> int:
        """Ask as `docker stop` does, and give the exit code."""
        os.kill(self._process.pid, signal.SIGTERM)
        return self._process.wait(STOP_SECONDS)

    def until(self, condition: Callable[[], Any]) -> None:
        """Wait for a condition while the program lives."""

        def met() -> Any:
            assert self._process.poll() is None, (
                f"it ended with {self._process.returncode}:\n{self.log[-3000:]}"
            )
            return condition()

        wait_until(met, START_SECONDS, why=lambda: self.log[-3000:], every=0.1)


class Command(Program):
    """`meanstream` with these words, forked from a process that has imported it."""

    def _start(self, folder: Path, words: Sequence[str], environment: dict[str, str]) -> Process:
        with self._path.open("ab") as log, Path(os.devnull).open("rb") as nothing:
            streams = [nothing.fileno(), log.fileno(), log.fileno()]
            return Forked(
                COMMAND, ["meanstream", *words], env=environment, cwd=folder, streams=streams
            )

    def _kill(self) -> None:
        os.kill(
            self._process.pid, signal.SIGKILL
        )  # it starts none, and may not have a group of its own yet


def healthy(service: str, changes: Mapping[str, str]) -> bool:
    """Run the health check of a container here."""
    _, *words = SERVICES[service]["healthcheck"]["test"]
    for old, new in changes.items():
        assert any(old in word for word in words), (
            f"the health check of {service} does not say {old}"
        )
        words = [HERE.get(word, word).replace(old, new) for word in words]
    return subprocess.run(words, capture_output=True, check=False, timeout=30).returncode == 0

"""Engines as processes: forked from one that has imported everything and started nothing, and
killed anywhere."""

from __future__ import annotations

import logging
import multiprocessing
import os
import resource
import signal
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import product
from pathlib import Path

import numpy as np

from meanstream.streaming.crash import CrashPoint, Moment
from tests.fitted_once import fit_once_of_all_in
from tests.servers.support.wait_until import NotInTimeError, wait_until
from tests.warm_command import IMPORTED

ROLES = ("releases", "estimates", "dead_letters", "notices")
SECRET = "7c1e94b05fa3d2681be60c9d37f25a84"  # noqa: S105 - of tests only
STEPS = list(product(CrashPoint, Moment))
KILLED = -signal.SIGKILL
END_SECONDS = 180.0

FORKING = multiprocessing.get_context("forkserver")
"""Starts processes from one that has imported what engines need."""
PRELOADED = [
    "tests.servers.support.engine_process",
    "tests.servers.support.wrong_engines",
    *IMPORTED,
]
FORKING.set_forkserver_preload(["__main__", *PRELOADED])


@dataclass(frozen=True, slots=True, kw_only=True)
class Fate:
    """What meets a process.

    Attributes
    ----------
    point, moment, visit : CrashPoint or None, Moment, int
        Where it is killed; None to live on.
    wrong : str
        Name of a defect from `tests.servers.support.wrong_engines` that it has.
    holds : tuple of int
        Before it reads for these times it waits until it is let go (`EngineProcess.let_go`).
    durable : bool
        Whether it waits for the disk. A process that dies loses nothing that it wrote; only a
        machine would.
    """

    point: CrashPoint | None = None
    moment: Moment = Moment.BEFORE
    visit: int = 1
    wrong: str = ""
    holds: tuple[int, ...] = ()
    durable: bool = False


class Trace:
    """A file that tells how often each side of each step was visited, and which was the last; it
    outlives a kill."""

    def __init__(self, path: Path) -> None:
        self._path = path
        path.write_bytes(bytes(4 * (len(STEPS) + 1)))

    def gate(self, visit: int) -> Path:
        """A file that lets a process go which waits before it reads."""
        return self._path.with_name(f"{self._path.name}-{visit}")

    def hook(self) -> Callable[[int], int]:
        """For the process: note the visit of a step; tell how many that makes."""
        counts = np.memmap(self._path, np.uint32, "r+")

        def note(number: int) -> int:
            counts[-1] = number + 1
            counts[number] += 1
            return int(counts[number])

        return note

    def visits(self, point: CrashPoint, moment: Moment = Moment.AFTER) -> int:
        return int(self._counts()[STEPS.index((point, moment))])

    def last(self) -> tuple[CrashPoint, Moment] | None:
        """The last step that was reached; None while the process starts."""
        number = int(self._counts()[-1])
        return STEPS[number - 1] if number else None

    def _counts(self) -> np.ndarray:
        return np.fromfile(self._path, np.uint32)


class EngineProcess:
    """One life of an engine."""

    def __init__(self, folder: Path, arguments: Sequence[str], fate: Fate) -> None:
        number = time.monotonic_ns()
        self._log = folder / f"log-{number}"
        self.trace = Trace(folder / f"trace-{number}")
        self._process = FORKING.Process(
            target=live, args=(arguments, self._log, self.trace, fate), daemon=True
        )
        self._process.start()
        assert self._process.pid is not None
        self.pid = self._process.pid

    def wait(self, seconds: float = END_SECONDS) -> int:
        """Give its exit code; a number below zero is the signal that ended it."""
        self._process.join(seconds)
        code = self._process.exitcode
        if code is None:
            self.kill()
            raise NotInTimeError(f"the engine did not end in {seconds} s; its log:\n{self.log}")
        return code

    def succeed(self) -> None:
        """Wait until it ends well."""
        code = self.wait()
        assert code == 0, f"the engine ended with {code}; its log:\n{self.log}"

    def holds(self, visit: int) -> bool:
        """Whether it waits before it reads for this time, or has done so."""
        return self.trace.visits(CrashPoint.READ_BATCH, Moment.BEFORE) >= visit

    def let_go(self, visit: int) -> None:
        self.trace.gate(visit).touch()

    def kill(self) -> None:
        self._process.kill()
        self._process.join(END_SECONDS)

    def terminate(self) -> None:
        os.kill(self.pid, signal.SIGTERM)

    @property
    def runs(self) -> bool:
        return self._process.is_alive()

    @property
    def log(self) -> str:
        """What it wrote to its two streams."""
        return self._log.read_text() if self._log.exists() else ""

    @property
    def memory(self) -> float:
        """Resident memory in MiB."""
        pages = int(Path(f"/proc/{self.pid}/statm").read_text().split()[1])
        return pages * resource.getpagesize() / 2**20


@dataclass(kw_only=True)
class EngineWorld:
    """A store in a folder, its input and its topics; `start` is one life of its engine."""

    folder: Path
    address: str
    source: str
    samples: Sequence[str]
    topics: dict[str, str]
    options: Sequence[str] = ()
    lives: list[EngineProcess] = field(default_factory=list)

    @property
    def store(self) -> Path:
        return self.folder / "state.db"

    def start(self, fate: Fate | None = None) -> EngineProcess:
        self.folder.mkdir(exist_ok=True)
        self.lives.append(EngineProcess(self.folder, self.arguments(), fate or Fate()))
        return self.lives[-1]

    def finish(self, fate: Fate | None = None) -> EngineProcess:
        """Run to the end."""
        life = self.start(fate)
        life.succeed()
        return life

    def arguments(self) -> list[str]:
        places = {role: f"kafka://{self.address}/{topic}" for role, topic in self.topics.items()}
        places["sink"] = places.pop("estimates")
        named = {"name": "faults", "source": self.source, "store": str(self.store), **places}
        typed = [
            word for name, value in named.items() for word in (f"--{name.replace('_', '-')}", value)
        ]
        return ["run", "agents", *typed, *self.options]


def live(arguments: Sequence[str], log: Path, trace: Trace, fate: Fate) -> None:
    """Be `meanstream`, in a process of its own."""
    from meanstream.pipelines.commands.main import main
    from meanstream.pipelines.commands.run import run_agents as hosting

    descriptor = os.open(log, os.O_CREAT | os.O_WRONLY | os.O_APPEND)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    os.environ["MEANSTREAM_SECRET"] = SECRET
    fit_once_of_all_in(log.parents[1] / "fits")
    if not fate.durable:
        os.fsync = lambda _: None  # type: ignore[assignment]
        sys.modules["meanstream.streaming.store.database"].SYNCHRONOUS = "OFF"  # type: ignore[attr-defined]
    if fate.wrong:
        from tests.servers.support import wrong_engines

        getattr(wrong_engines, fate.wrong)()
    hosting.run_agents_engine = partial(hosting.run_agents_engine, crash=_hook(trace, fate))
    sys.argv = ["meanstream", *arguments]
    try:
        main()
    finally:
        logging.shutdown()


def _hook(trace: Trace, fate: Fate) -> Callable[[CrashPoint, Moment], None]:
    numbers = {step: number for number, step in enumerate(STEPS)}
    note, at = trace.hook(), (fate.point, fate.moment)

    def hook(point: CrashPoint, moment: Moment) -> None:
        visits = note(numbers[point, moment])
        if (point, moment) == at and visits == fate.visit:
            os.kill(os.getpid(), signal.SIGKILL)
        if (point, moment) == (CrashPoint.READ_BATCH, Moment.BEFORE) and visits in fate.holds:
            wait_until(trace.gate(visits).exists, END_SECONDS, every=0.01)

    return hook

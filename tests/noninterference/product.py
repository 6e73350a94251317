"""The product in a folder, watched on every surface, with a clock and coins that are the same in
every world."""

from __future__ import annotations

import hashlib
import http.client
import json
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
from pyarrow import parquet

from meanstream.pipelines.commands.explain import explain_rounds
from meanstream.pipelines.commands.report import report_charts as charts
from meanstream.pipelines.commands.run import opening, run_engine
from meanstream.pipelines.commands.run import progress_line as progress
from meanstream.pipelines.commands.run.signals import stopping_on_signals
from meanstream.streaming.agents.agents_budget import LedgerForecast
from meanstream.streaming.crash import CrashHook
from meanstream.streaming.engine.engine_health import EngineHealth
from meanstream.streaming.metrics.telemetry import AgentsTelemetry, RoundsTelemetry, Telemetry
from tests.noninterference.comparison import Seen
from tests.noninterference.surfaces import METRICS_PATHS, PAGE_ROUTES
from tests.pipelines.command_line import SECRET, Ran, arguments, asks

BEGIN = 1_900_000_000.0
ENVIRONMENT = {"MEANSTREAM_SECRET": SECRET}


class Clock:
    """Stands still but for a second a turn, so that no time depends on the machine."""

    def __init__(self) -> None:
        self.now = BEGIN

    def __call__(self) -> float:
        return self.now


_users_who_differ, _simulations = explain_rounds.simulated_users_who_differ, dict[str, Any]()
_picture, _pictures = charts._picture, dict[str, str]()


def _simulated_once(settings: Any, users: int) -> dict[str, Any]:
    """Simulate a design, which settings alone decide, once for all worlds: it is most of the time
    of a report."""
    key = repr((settings, users))
    if key not in _simulations:
        _simulations[key] = _users_who_differ(settings, users)
    return deepcopy(_simulations[key])


def _drawn_once(name: str, draw: Callable[[Any], None], **how: Any) -> str:
    """Draw a picture once for all worlds that draw it of the same data: most of the time of a
    report is drawing.

    A picture is made of what its function closes over, and of nothing else.
    """
    data = [cell.cell_contents for cell in draw.__closure__ or ()]
    key = json.dumps(
        [name, draw.__qualname__, data, how],
        default=lambda x: x.tolist() if hasattr(x, "tolist") else repr(x),
    )
    if key not in _pictures:
        _pictures[key] = _picture(name, draw, **how)
    return _pictures[key]


@contextmanager
def same_clock_and_coins() -> Iterator[Clock]:
    """Give the clock, and coins that fall alike in every world; what is random and no noise is
    public."""
    clock, drawn = Clock(), iter(range(1 << 62))

    def coins(n: int = 32) -> bytes:
        return hashlib.shake_256(next(drawn).to_bytes(8, "big")).digest(n)

    with pytest.MonkeyPatch.context() as patch:
        for name in ("time", "monotonic", "perf_counter"):
            patch.setattr(f"time.{name}", clock)
        patch.setattr("time.time_ns", lambda: int(clock() * 1e9))
        for kind in (Telemetry, AgentsTelemetry, RoundsTelemetry):
            patch.setitem(kind.__init__.__kwdefaults__, "clock", clock)
        for kind in (Telemetry, AgentsTelemetry):
            patch.setitem(kind.__init__.__kwdefaults__, "time_of_day", clock)
        patch.setitem(LedgerForecast.__init__.__kwdefaults__, "now", clock)
        patch.setitem(EngineHealth.__init__.__kwdefaults__, "now", clock)
        patch.setattr("secrets.token_bytes", coins)
        patch.setattr("secrets.token_hex", lambda n=32: coins(n).hex())
        patch.setattr("secrets.token_urlsafe", lambda _=None: "token")
        patch.setattr("os.fsync", lambda _: None)
        patch.setattr(progress, "PLAIN_SECONDS", 0.0)
        patch.setattr(explain_rounds, "simulated_users_who_differ", _simulated_once)
        patch.setattr(charts, "_picture", _drawn_once)
        yield clock


class Watched:
    """Runs commands in a folder and keeps all that can be seen.

    Parameters
    ----------
    clock : Clock
        It goes on by a second a turn.
    folder : Path
        The current folder of the commands; paths are relative to it, so that they are the same in
        every world.
    ports : tuple of int
        Of the metrics, of the page and, of rounds, of the private metrics.
    asked : list of str
        Agents whose histories are asked of the page.
    """

    def __init__(
        self, folder: Path, clock: Clock, ports: tuple[int, ...] = (), asked: tuple[str, ...] = ()
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder, self.ports, self.asked, self._clock = folder, ports, asked, clock
        self._seen: dict[str, list[bytes]] = defaultdict(list)
        self._files: dict[str, bytes] = {}
        self._fetched = False

    def run(self, name: str, /, *words: str, die: CrashHook | None = None, **options: Any) -> Ran:
        """Run a command, look at it after every turn, and keep how it ended and what it said.

        A signal from outside, as of a time limit, ends the run as it should, and all tests: a world
        that was cut off differs from others by that alone.
        """
        stops: list[Callable[[], bool]] = []

        @contextmanager
        def heard() -> Iterator[Callable[[], bool]]:
            with stopping_on_signals() as stop:
                stops.append(stop)
                yield stop

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(opening, "stopping_on_signals", heard)
            patch.chdir(self.folder)
            if die is not None:
                patch.setattr(run_engine, "no_crash", die)
            for kind in (progress.Progress, progress.LoggedProgress):
                patch.setattr(kind, "__call__", self._looking(kind.__call__, options))
            ran = asks(*words, *arguments(options), environment=ENVIRONMENT)
        if any(stop() for stop in stops):
            pytest.exit(
                f"a signal from outside has stopped {name!r}: its world was not compared",
                returncode=1,
            )
        self._seen[f"{name}: exit code"].append(str(ran.code).encode())
        self._seen[f"{name}: standard output"].append(ran.out)
        self._seen[f"{name}: standard error"].append(ran.err)
        self._look_at_files()
        return ran

    def seen(self) -> Seen:
        """Everything so far, by surface, in the order in which it was seen."""
        return {name: b"\n".join(pieces) for name, pieces in self._seen.items()}

    def keep(self, name: str, data: bytes) -> None:
        """Note what was seen in another way."""
        self._seen[name].append(data)

    def _looking(self, show: Callable[..., None], options: dict[str, Any]) -> Callable[..., None]:
        def shown(this: Any, stats: Any) -> None:
            self._clock.now += 1.0
            show(this, stats)
            if "metrics" in options:
                for path in (*METRICS_PATHS, "/nothing"):
                    self._seen[f"GET {path} of the metrics"].append(fetch(self.ports[0], path))
            if "page" in options:
                once, self._fetched = () if self._fetched else PAGE_ROUTES, True
                for path in (
                    *once,
                    "/",
                    "/data",
                    "/nothing",
                    *(f"/agent?name={name}" for name in self.asked),
                ):
                    self._seen[f"GET {path} of the page"].append(
                        fetch(self.ports[1], path, "token")
                    )
                self._seen["GET / of the page without its token"].append(fetch(self.ports[1], "/"))

        return shown

    def _look_at_files(self) -> None:
        """Files, but for the store (private, and its locks and logs) and the source."""
        found = sorted(p for p in self.folder.rglob("*") if p.is_file())
        self._seen["names of files"].append(
            " ".join(p.name for p in found if ".db" not in p.name).encode()
        )
        for path in found:
            name = path.relative_to(self.folder).as_posix()
            if path.suffix not in (".jsonl", ".html", ".parquet") or name.startswith("private-"):
                continue
            data = rows(path) if name.startswith("estimates.parquet") else path.read_bytes()
            if self._files.get(name) != data:
                self._files[name] = data
                self._seen[f"file {name}"].append(data)


def rows(path: Path) -> bytes:
    """Give a Parquet file whose rows are addressed as lines, after its schema; what it notes of
    columns is of all."""
    table = parquet.read_table(path)
    return (
        "\n".join(
            [str(table.schema), *(json.dumps(row, default=str) for row in table.to_pylist())]
        ).encode()
        + b"\n"
    )


def fetch(port: int, path: str, token: str | None = None) -> bytes:
    """Get a page with its status and headers."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    cookie = {} if token is None else {"Cookie": f"meanstream_page_{port}={token}"}
    connection.request("GET", path, headers=cookie)
    answer = connection.getresponse()
    said = "\n".join(
        [str(answer.status), *(f"{name}: {value}" for name, value in answer.getheaders())]
    )
    data = said.encode() + b"\n\n" + answer.read()
    connection.close()
    return data

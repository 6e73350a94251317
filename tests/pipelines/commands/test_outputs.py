"""A full disk, a broken one or a pipe that nobody reads under every output: one line, and the next
run goes on."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from typing import Any, BinaryIO
from unittest.mock import patch

import pytest
from matplotlib.figure import Figure
from pyarrow import parquet

from meanstream.pipelines.commands.command_outputs import save_output, save_output_figure
from meanstream.pipelines.options.base import OPTION_OF
from meanstream.pipelines.options.option_errors import RunFailed
from meanstream.streaming.open_sink import FILES, STDOUT
from meanstream.streaming.sinks.sink_protocol import Sinks
from tests.pipelines.command_line import (
    SECRET,
    Ran,
    arguments,
    files,
    meanstream,
    options,
    run_agents,
    write_samples,
)
from tests.pipelines.commands.run import test_run_rounds
from tests.warm_command import run_forked

KEY = {"MEANSTREAM_SECRET": SECRET}
REASONS = (errno.ENOSPC, errno.EIO, errno.EACCES, errno.EPIPE, errno.EROFS)
OF_AGENTS = ("releases", "estimates", "population", "dead_letters", "notices")
OF_ROUNDS = ("reports", "stages", "means", "dead_letters", "notices")


class Failing:
    """The calls with which a sink of each kind reaches the operating system, of which the one of a
    number fails."""

    def __init__(self, folder: Path, role: str, number: int, reason: int) -> None:
        self.place, self.role = folder / role, role
        self._left, self._reason = number, reason
        self.failed = False

    def _fails(self, name: str) -> bool:
        if not Path(name).name.startswith(f"{self.role}.") and f"/{self.role}." not in name:
            return False
        self._left -= 1
        self.failed |= self._left == 0
        return self._left == 0

    def _error(self) -> OSError:
        return OSError(self._reason, os.strerror(self._reason))

    @contextmanager
    def jsonl(self) -> Iterator[None]:
        """Fail to write after half of the bytes, to flush, to cut back."""
        calls: dict[str, Callable[..., Any]] = {
            name: getattr(os, name) for name in ("write", "fsync", "ftruncate")
        }

        def failing(name: str) -> Callable[..., Any]:
            def call(file: int, *more: Any) -> Any:
                if self._fails(os.readlink(f"/proc/self/fd/{file}")):
                    if name == "write":
                        calls[name](file, bytes(more[0])[: len(more[0]) // 2])
                    raise self._error()
                return calls[name](file, *more)

            return call

        with patch.multiple(os, **{name: failing(name) for name in calls}):
            yield

    @contextmanager
    def parquet(self) -> Iterator[None]:
        """Fail to write a part after some bytes of it."""
        write = parquet.write_table

        def failing(table: Any, file: Any) -> None:
            if self._fails(file.name):
                file.write(b"PAR1 and then nothing")
                raise self._error()
            write(table, file)

        with patch.object(parquet, "write_table", failing):
            yield


BREAKS = {
    ".jsonl": Failing.jsonl,
    ".parquet": Failing.parquet,
}


def typed(folder: Path, roles: tuple[str, ...], suffix: str) -> dict[str, Any]:
    """Options of the sinks: reports of rounds and dead letters of agents hold several types of
    event or lines."""
    only_lines = {"reports"} if suffix == ".parquet" else set()
    return {
        OPTION_OF.get(role, role): folder / f"{role}{'.jsonl' if role in only_lines else suffix}"
        for role in roles
    }


def spoil(path: Path) -> None:
    """Add a line that becomes a dead letter in the middle and at the end."""
    first, *rest = path.read_text().splitlines()
    spoiled = ",".join("x" for _ in first.split(","))
    path.write_text("\n".join([first, *rest[:25], spoiled, *rest[25:], spoiled]) + "\n")


def agents_options(folder: Path, suffix: str) -> dict[str, Any]:
    budget = {"horizon": 4, "schedule": "geometric:2,1.5"}
    return {
        "sort": False,
        "batch_size": 7,
        "refresh": "3h",
        **budget,
        **typed(folder, OF_AGENTS, suffix),
    }


def agents(folder: Path, suffix: str) -> Ran:
    return run_agents(folder, **agents_options(folder, suffix))


def rounds(folder: Path, suffix: str) -> Ran:
    places = typed(folder, OF_ROUNDS, suffix)
    return test_run_rounds.run(folder, sort=True, batch_size=150, user_budget=2, **places)


HOSTS: dict[str, tuple[Callable[[Path, str], Ran], Callable[[Path], Any], tuple[str, ...]]] = {
    "agents": (agents, lambda path: write_samples(path, rows=60), OF_AGENTS),
    "rounds": (
        rounds,
        lambda path: test_run_rounds.write_flights(path, users=9, rows=400),
        OF_ROUNDS,
    ),
}


def begin(folder: Path, host: str) -> Callable[[str], Ran]:
    folder.mkdir()
    run, write, _ = HOSTS[host]
    write(folder / "flights.csv")
    spoil(folder / "flights.csv")
    return lambda suffix: run(folder, suffix)


def outputs(folder: Path) -> dict[str, bytes]:
    return {
        name: data
        for name, data in files(folder).items()
        if ".db" not in name and "unfinished" not in name
    }


def test_every_role_and_every_kind_of_sink_is_tried() -> None:
    assert {field.name for field in fields(Sinks)} == {*OF_AGENTS, *OF_ROUNDS}
    assert set(BREAKS) == set(FILES)


@pytest.mark.parametrize("suffix", FILES)
@pytest.mark.parametrize("host", HOSTS)
def test_wherever_a_sink_breaks_the_next_run_goes_on(
    host: str, suffix: str, tmp_path: Path
) -> None:
    whole = begin(tmp_path / "whole", host)(suffix)
    assert whole.code == 0, whole.err
    broken = set()
    for role in HOSTS[host][2]:
        kind = Path(typed(tmp_path, (role,), suffix)[OPTION_OF.get(role, role)]).suffix
        for number in (1, 4):
            folder, reason = (
                tmp_path / f"{role} {number}",
                REASONS[(number + len(role)) % len(REASONS)],
            )
            run = begin(folder, host)
            failing = Failing(folder, role, number, reason)
            with BREAKS[kind](failing):
                ran = run(suffix)
            if failing.failed:
                broken.add(role)
                assert_one_line(
                    ran, OPTION_OF.get(role, role), str(folder / f"{role}{kind}"), reason
                )
                assert run(suffix).code == 0
            assert outputs(folder) == outputs(tmp_path / "whole"), (role, number)
    written = {
        path.relative_to(tmp_path / "whole").parts[0]
        for path in (tmp_path / "whole").rglob("*")
        if path.is_file()
    }
    assert broken >= {
        role for role in HOSTS[host][2] if any(name.startswith(f"{role}.") for name in written)
    }
    assert len(broken) >= len(HOSTS[host][2]) - 1  # a round of one stage tells of no stage


def assert_one_line(ran: Ran, option: str, place: str, reason: int) -> None:
    (line,) = ran.err.decode().splitlines()
    assert ran.code == 1, line
    assert line.startswith(
        f"meanstream: {option} must be writable, got {place!r} ({os.strerror(reason)})"
    )


def piped(command: list[str], stdout: Any) -> tuple[int, list[str]]:
    """Run a command of its own process, whose standard output is a file or a pipe; tell its code
    and its lines."""
    program = "from meanstream.pipelines.commands.main import main; main()"
    ran = run_forked(program, *command, env={**os.environ, **KEY}, stdout=stdout)
    return ran.returncode, ran.stderr.decode().splitlines()


@contextmanager
def nobody_reads() -> Iterator[BinaryIO]:
    """A pipe whose reader has gone."""
    end_to_read, end_to_write = os.pipe()
    os.close(end_to_read)
    with os.fdopen(end_to_write, "wb", buffering=0) as pipe:
        yield pipe


@pytest.mark.parametrize(
    "command",
    [
        ["schema", "release"],
        ["--help"],
        [
            "explain",
            "agents",
            "--lower",
            "0",
            "--upper",
            "1",
            "--epsilon",
            "1",
            "--delta",
            "1e-6",
            "--json",
        ],
    ],
)
def test_a_command_whose_answer_nobody_takes_says_so_in_one_line(command: list[str]) -> None:
    with Path("/dev/full").open("wb") as full:
        assert piped(command, full) == refused("No space left on device")
    with (
        nobody_reads() as pipe
    ):  # `| head` has enough: no word, and the exit code that a shell knows
        assert piped(command, pipe) == (141, [])


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_tables_of_a_store_that_nobody_takes_are_one_line(tmp_path: Path, unbuffered: str) -> None:
    """Where Python does not buffer, as in images, each line of a table meets the full disk."""
    write_samples(tmp_path / "flights.csv")
    assert run_agents(tmp_path).code == 0
    store = ["--store", str(tmp_path / "state.db")]
    with patch.dict(os.environ, PYTHONUNBUFFERED=unbuffered), Path("/dev/full").open("wb") as full:
        for command in (["budget"], ["ledger", "verify"], ["store", "show"]):
            assert piped([*command, *store], full) == refused("No space left on device")


def refused(reason: str) -> tuple[int, list[str]]:
    return 1, [f"meanstream: standard output must be writable, got {reason!r}"]


def test_estimates_on_a_broken_pipe_are_one_line_and_the_next_run_goes_on(tmp_path: Path) -> None:
    assert begin(tmp_path / "whole", "agents")(".jsonl").code == 0
    expected = {
        name: data
        for name, data in outputs(tmp_path / "whole").items()
        if name != "estimates.jsonl"
    }
    folder = tmp_path / "broken"
    begin(folder, "agents")
    named = {**agents_options(folder, ".jsonl"), "sink": STDOUT}
    command = ["run", "agents", *arguments(options(folder, quiet=True, **named))]
    line = "meanstream: sink must be writable, got '-' (Broken pipe); the next run continues from the last commit"
    with nobody_reads() as pipe:
        assert piped(command, pipe) == (1, [line])
    assert run_agents(folder, **named).code == 0
    assert outputs(folder) == expected


def test_a_file_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    """A report and a picture; what was there stays."""
    place = tmp_path / "x.html"
    for reason in REASONS:
        save_output("out", place, b"as it was")
        with (
            patch.object(Path, "replace", side_effect=OSError(reason, os.strerror(reason))),
            pytest.raises(
                RunFailed, match=f"^out must be writable, got .*x.html' .{os.strerror(reason)}.$"
            ),
        ):
            save_output("out", place, b"new")
        assert files(tmp_path) == {"x.html": b"as it was"}
    with pytest.raises(RunFailed, match="No space left on device"):
        save_output_figure("out", Path("/dev/full"), Figure(), dpi=30)


def test_every_file_of_a_command_breaks_in_one_line(tmp_path: Path) -> None:
    """A small disk: no file may grow beyond a limit; nothing half is left, and with space each
    command works."""
    write_samples(tmp_path / "flights.csv")
    spoil(tmp_path / "flights.csv")
    assert run_agents(tmp_path, dead_letters=tmp_path / "d.jsonl").code == 0
    store, out = str(tmp_path / "state.db"), tmp_path / "out"
    out.mkdir()
    raw = ["--dead-letters", str(tmp_path / "d.jsonl"), "--source", str(tmp_path / "flights.csv")]
    places = options(
        tmp_path, store=out / "s.db", sink=out / "e.jsonl", releases=out / "r.jsonl", name="other"
    )
    commands = {
        "out": ["report", str(out / "x.html"), "--store", store],
        "to": ["ledger", "backup", "--store", store, "--to", str(out / "copy.db")],
        "raw_to": ["dlq", "show", *raw, "--raw-to", str(out / "raw")],
        "file": ["secret", "new", str(out / "key")],
        "private_figures": [
            "run",
            "agents",
            *arguments(places),
            "--quiet",
            "--private-figures",
            str(out / "p.json"),
        ],
    }
    limits = {
        "out": 32_768,
        "to": 32_768,
        "private_figures": None,
    }  # what SQLite needs to read beside other processes
    for option, command in commands.items():
        code, lines = limited(command, limits.get(option, 0), out / "p.json")
        assert (code, len(lines)) == (2 if option == "file" else 1, 1), (
            lines
        )  # a key's file is all that it is about
        assert {"to": "backup", "file": "secret"}.get(option, option) + " must " in lines[0], lines
        assert "File too large" in lines[0] or "disk" in lines[0], lines
        left = [
            name for name in files(out) if not name.endswith((".db", ".jsonl")) or name == "copy.db"
        ]
        assert left == []
        if option != "private_figures":
            assert limited(command, None, out / "nothing")[0] == 0
            for file in out.iterdir():
                file.unlink()


def limited(command: list[str], limit: int | None, broken: Path) -> tuple[int, list[str]]:
    """Run where files may not grow beyond a limit, or where one file cannot be written."""
    if limit is None:
        write = os.fdopen

        def fails(number: int, *more: Any) -> Any:
            if os.readlink(f"/proc/self/fd/{number}") == str(broken):
                os.close(number)
                raise OSError(errno.EFBIG, os.strerror(errno.EFBIG))
            return write(number, *more)

        with patch.object(os, "fdopen", fails):
            ran = meanstream(*command, environment=KEY)
        return ran.code, ran.err.decode().splitlines()
    program = f"""
import resource
from meanstream.pipelines.commands.main import main
resource.setrlimit(resource.RLIMIT_FSIZE, ({limit}, {limit}))
main()
"""
    ran = run_forked(program, *command, env={**os.environ, **KEY})
    return ran.returncode, ran.stderr.decode().splitlines()

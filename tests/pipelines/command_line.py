"""The command `meanstream` in this process, and a small file of samples for it."""

from __future__ import annotations

import io
import json
import sqlite3
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any
from unittest.mock import patch

import typer

from meanstream.pipelines.commands import main as command

SECRET = "7c1e94b05fa3d2681be60c9d37f25a84"  # noqa: S105 - of tests only


@dataclass(frozen=True)
class Ran:
    """How a command ended, and every byte that it wrote to its two streams."""

    code: int
    out: bytes
    err: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def message(self) -> str:
        """The one line of a refusal."""
        lines = self.err.decode().splitlines()
        assert (self.code, len(lines), self.out) == (2, 1, b""), (self.code, lines)
        return lines[0].removeprefix("meanstream: ")


def meanstream(*arguments: str, environment: Mapping[str, str] | None = None) -> Ran:
    """Run the command as a shell would: not a terminal, exit code, two streams."""
    out, err = io.TextIOWrapper(io.BytesIO(), "utf-8"), io.TextIOWrapper(io.BytesIO(), "utf-8")
    code: Any = 0
    with (
        patch.object(sys, "argv", ["meanstream", *arguments]),
        patch.object(sys, "stdout", out),
        patch.object(sys, "stderr", err),
        patch.dict("os.environ", environment or {}),
    ):
        try:
            command.main()
        except SystemExit as end:
            code = end.code
        out.flush()
        err.flush()
    return Ran(int(code or 0), _bytes(out), _bytes(err))


def _bytes(stream: io.TextIOWrapper) -> bytes:
    buffer = stream.buffer
    assert isinstance(buffer, io.BytesIO)
    return buffer.getvalue()


def write_samples(path: Path, *, agents: int = 3, rows: int = 60) -> Path:
    """Write a CSV file: an agent, a delay in minutes and an hour per line, all different."""
    rest = [
        f"N{i % agents},{(i * 37) % 150 - 40},2013-01-{1 + i // 24:02}T{i % 24:02}:00:00Z,F{i}"
        for i in range(rows)
    ]
    lines = ["tailnum,dep_delay,time_hour,flight", *rest]
    path.write_text("\n".join(lines) + "\n")
    return path


def options(folder: Path, **changes: Any) -> dict[str, Any]:
    """Options of `run agents` in a folder; None leaves one out."""
    named: dict[str, Any] = {
        "source": folder / "flights.csv",
        "agent": "tailnum",
        "value": "dep_delay",
        "time": "time_hour",
        "lower": -30,
        "upper": 120,
        "epsilon": 1,
        "delta": 1e-6,
        "name": "test",
        "store": folder / "state.db",
        "sink": folder / "estimates.jsonl",
        "releases": folder / "releases.jsonl",
        **changes,
    }
    return {name: value for name, value in named.items() if value is not None}


def arguments(named: Mapping[str, Any]) -> list[str]:
    """Write options as a user types them."""
    typed = []
    for name, value in named.items():
        option = "--" + name.replace("_", "-")
        if isinstance(value, bool):
            typed.append(option if value else "--no-" + option.removeprefix("--"))
        else:
            typed += [option, str(value)]
    return typed


@cache
def typed_options(group: str, name: str) -> frozenset[str] | None:
    """Options that a command about a run takes from its command line."""
    found: Any = typer.main.get_command(command.app)
    below = getattr(found.commands[group], "commands", {})
    taken = getattr(getattr(below.get(name), "callback", None), "taken", None)
    return (
        None
        if taken is None or taken.typed is None
        else frozenset(one.strip("_") for one in taken.typed)
    )


def asks(*words: str, environment: Mapping[str, str] | None = None) -> Ran:
    """Run a command about a run: options of the run that it does not type are in the environment."""
    known = typed_options(words[0], "".join(words[1:2]))
    if known is None:
        return meanstream(*words, environment=environment)
    typed, variables = [*words[:2]], dict(environment or {})
    rest = [*words[2:]]
    while rest:
        option = rest.pop(0)
        name = option.removeprefix("--no-").removeprefix("--").replace("-", "_")
        value = (
            [rest.pop(0)]
            if option.startswith("--") and rest and not rest[0].startswith("--")
            else []
        )
        if option.startswith("--") and name not in known:
            variables["MEANSTREAM_" + name.upper()] = (
                value[0] if value else str(not option.startswith("--no-")).lower()
            )
        else:
            typed += [option, *value]
    return meanstream(*typed, environment=variables)


def changed(*words: str) -> list[str]:
    """Let an option take the place of the same one before it: typed twice it is refused.

    >>> changed("plan", "--epsilon", "1", "--json", "--epsilon", "-2")
    ['plan', '--json', '--epsilon', '-2']
    """
    groups: list[list[str]] = [[]]
    for word in words:
        if word.startswith("--"):
            groups.append([])
        groups[-1].append(word)
    last = {group[0]: at for at, group in enumerate(groups) if group}
    return [
        word for at, group in enumerate(groups) if group and last[group[0]] == at for word in group
    ]


def run_agents(folder: Path, **changes: Any) -> Ran:
    """Run `meanstream run agents --quiet` with `options`."""
    return meanstream(
        "run",
        "agents",
        *arguments(options(folder, quiet=True, **changes)),
        environment={"MEANSTREAM_SECRET": SECRET},
    )


def files(folder: Path) -> dict[str, bytes]:
    """Every file in a folder with its content, but for the lock, which names a process."""
    return {
        p.name: p.read_bytes()
        for p in folder.rglob("*")
        if p.is_file() and not p.name.endswith(".lock")
    }


def spoil_row(store: Path, row: int) -> None:
    """Change the block of a row of the ledger, as damage would."""
    connection = sqlite3.connect(store)
    rule, sql = connection.execute(
        "SELECT name, sql FROM sqlite_schema WHERE name = 'ledger_keeps'"
    ).fetchone()
    connection.execute(f"DROP TRIGGER {rule}")
    connection.execute(
        "UPDATE ledger SET data = zeroblob(length(data)) WHERE last >= ? AND last - ? < 4096",
        (row, row),
    )
    connection.execute(sql)
    connection.commit()
    connection.close()

"""No raw value leaves: every byte of every public output and of both standard streams is searched
for the values.

Each value of the file is a digit string that occurs nowhere else. The private outputs do hold
values, which shows that the search would find them; they can be read by their owner only.
"""

from __future__ import annotations

import gzip
import json
import os
import re
import sqlite3
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from meanstream.pipelines.commands.run import progress_line as progress
from tests.pipelines.command_line import SECRET, Ran, arguments, meanstream

PUBLIC = ("releases", "population", "dead_letters", "notices")
STEP = 2**20
LOWER, UPPER = 0, 2**40
"""The grid of sums has steps of 2**20: values that are multiples of it would be published to the
digit."""


def sentinel(i: int) -> int:
    """A value on the grid whose twelve or thirteen digits stand nowhere else."""
    return (2**17 + (i * 7919 + 27182) % (2**20 - 2**17)) * STEP


BAD = {
    "malformed": "{agent},{value},2013-01-02T03:00:00Z,m1,{value}",
    "open quote": '{agent},"{value},2013-01-02T03:00:00Z,m2',
    "letters": "{agent},{value}x,2013-01-02T03:00:00Z,m3",
    "two points": "{agent},{value}.5.5,2013-01-02T03:00:00Z,m4",
    "bad time": "{agent},{value},the {value}th of May,m5",
    "no agent": ",{value},2013-01-02T03:00:00Z,m6",
    "value as time": "{agent},{value},{value},m7",
    "control in the name": "a\x01{value},{value},2013-01-02T03:00:00Z,m8",
    "far too large": "{agent},9{value}e30,2013-01-02T03:00:00Z,m9",
    "out of bounds": "{agent},77{value},2013-01-02T03:00:00Z,m10",
    "late": "{agent},{value},1999-01-01T00:00:00Z,m11",
    "in the future": "{agent},{value},2098-01-01T00:00:00Z,m12",
    "duplicate": "{agent},{value},2013-01-01T00:05:00Z,id1",
    "oversized": "{agent},{value},2013-01-02T03:00:00Z,%s" % ("m" * (1 << 20) + "{value}"),
}


def write_stream(path: Path) -> list[str]:
    """Write good and bad records; return the digits of every value, and of every value in steps of
    the grid."""
    values = [sentinel(i) for i in range(200 + len(BAD))]
    lines = ["tailnum,dep_delay,time_hour,flight"]
    lines += [
        f"N{i % 4},{v},2013-01-01T{i // 12:02}:{5 * (i % 12):02}:00Z,id{i}"
        for i, v in enumerate(values[:200])
    ]
    lines += [
        text.format(agent="N1", value=v) for text, v in zip(BAD.values(), values[200:], strict=True)
    ]
    lines.append("N2,nan,2013-01-02T03:00:00Z,n1")
    lines.append("N2,-inf,2013-01-02T03:00:00Z,n2")
    data = ("\n".join(lines) + "\n").encode("latin-1")
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    assert len(set(values)) == len(values)
    return [str(v) for v in values] + [str(v // STEP) for v in values]


def found(data: bytes, digits: list[str]) -> list[str]:
    """Values anywhere in the bytes; in grid steps, with their six or seven digits, only as whole
    numbers."""
    text = data.decode("latin-1")
    numbers = set(re.findall(r"\d+", text))
    return [value for value in digits if value in numbers or (len(value) > 7 and value in text)]


def typed(folder: Path, source: Path, *more: str) -> list[str]:
    named = {
        "source": source,
        "agent": "tailnum",
        "value": "dep_delay",
        "time": "time_hour",
        "id": "flight",
        "lower": LOWER,
        "upper": UPPER,
        "epsilon": 1,
        "delta": 1e-6,
        "horizon": 6,
        "schedule": "geometric:5,1.5",
        "store": folder / "state.db",
        "sink": folder / "estimates.jsonl",
        **{role: folder / f"{role}.jsonl" for role in PUBLIC},
    }
    return ["run", "agents", *arguments(named), *more]


def public_bytes(folder: Path, *runs: Ran) -> Iterator[tuple[str, bytes]]:
    for role in PUBLIC:
        yield role, (folder / f"{role}.jsonl").read_bytes()
    for number, ran in enumerate(runs):
        yield f"stdout {number}", ran.out
        yield f"stderr {number}", ran.err


@pytest.mark.parametrize("more", [["--json"], ["--no-sort", "--json"], ["--mode", "paper"]])
def test_no_public_byte_holds_a_value(
    more: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "PLAIN_SECONDS", 0.0)
    digits = write_stream(tmp_path / "flights.csv")
    command = typed(tmp_path, tmp_path / "flights.csv", *more)
    environment = {"MEANSTREAM_SECRET": SECRET}
    ran = meanstream(*command, environment=environment)
    assert ran.code == 0
    assert b" events (" in ran.err  # progress was shown
    for name, data in public_bytes(tmp_path, ran):
        assert found(data, digits) == [], name
    assert all((tmp_path / f"{role}.jsonl").stat().st_size for role in PUBLIC)
    reasons = {
        json.loads(line)["reason"]
        for line in (tmp_path / "dead_letters.jsonl").read_bytes().splitlines()
    }
    assert reasons >= {
        "malformed",
        "bad_value",
        "bad_time",
        "missing_agent",
        "bad_agent",
        "not_finite",
        "oversized",
    }
    assert reasons >= {"duplicate", "in_future"}
    assert ("late" in reasons) == ("--no-sort" in more)
    assert "out_of_bounds" not in reasons


def test_no_refusal_holds_a_value(tmp_path: Path) -> None:
    """Errors that are provoked after data could be read: the store of other settings, a torn or
    another file."""
    digits = write_stream(tmp_path / "flights.csv")
    write_stream(tmp_path / "torn.csv.gz")
    torn = (tmp_path / "torn.csv.gz").read_bytes()
    (tmp_path / "torn.csv.gz").write_bytes(torn[: len(torn) // 2])
    good = (tmp_path / "flights.csv").read_text("latin-1").splitlines()
    # A file whose first line is data and not a header, and one with other rows than the store was
    # filled from.
    (tmp_path / "headless.csv").write_text("\n".join(good[1:]), "latin-1")
    environment = {"MEANSTREAM_SECRET": SECRET}
    runs = [
        meanstream(*typed(tmp_path, tmp_path / "flights.csv", "--quiet"), environment=environment)
    ]
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "flights.csv").write_text("\n".join([good[0], *good[5:]]), "latin-1")
    runs += [
        meanstream(*typed(tmp_path, source, "--quiet", *more), environment=environment)
        for source, more in (
            (tmp_path / "torn.csv.gz", []),
            (tmp_path / "other" / "flights.csv", []),
            (tmp_path / "flights.csv", ["--epsilon", "2"]),
            (tmp_path / "flights.csv", ["--value", "delay"]),
            (tmp_path / "flights.csv", ["--lower", "low"]),
        )
    ]
    assert [ran.code for ran in runs] == [0, 2, 2, 2, 2, 2]
    for name, data in public_bytes(tmp_path, *runs):
        assert found(data, digits) == [], name


def test_a_damaged_store_is_refused_without_telling_what_it_holds(tmp_path: Path) -> None:
    digits = write_stream(tmp_path / "flights.csv")
    environment = {"MEANSTREAM_SECRET": SECRET}
    command = typed(tmp_path, tmp_path / "flights.csv", "--quiet")
    assert meanstream(*command, environment=environment).code == 0
    with sqlite3.connect(tmp_path / "state.db") as connection:
        connection.execute("UPDATE chunks SET data = zeroblob(length(data)) WHERE kind = 'agents'")
    connection.close()
    ran = meanstream(*command, environment=environment)
    assert "store must be undamaged" in ran.message
    assert found(ran.err, digits) == []


def test_a_defect_shows_no_value_in_its_traceback(tmp_path: Path) -> None:
    """In a process of its own: a fault in the middle of a batch ends with a traceback of code, not
    of data."""
    digits = write_stream(tmp_path / "flights.csv")
    program = (
        "from meanstream.operators.agents.agents import Agents\n"
        "def broken(self, agent, value, *more):\n"
        "    raise RuntimeError(f'could not use {value[0]:.0f}')\n"
        "Agents.update = broken\n"
        "from meanstream.pipelines.commands.main import main; main()\n"
    )
    ran = subprocess.run(
        [sys.executable, "-c", program, *typed(tmp_path, tmp_path / "flights.csv")],
        env={**os.environ, "MEANSTREAM_SECRET": SECRET},
        capture_output=True,
        check=False,
    )
    assert ran.returncode == 1
    assert (
        ran.stderr.splitlines()[-1] == b"RuntimeError (its text is not shown: it may hold a value)"
    )
    assert b"in broken" in ran.stderr
    assert found(ran.stdout + ran.stderr, digits) == []


def test_private_files_hold_values_and_belong_to_their_owner(tmp_path: Path) -> None:
    """The other side: an estimate of an agent with one sample is that sample, so the search would
    find a leak."""
    digits = write_stream(tmp_path / "flights.csv")
    with (tmp_path / "flights.csv").open("a") as file:
        file.write(f"LONER,{digits[0]},2013-01-01T12:00:00Z,l1\n")
    environment = {"MEANSTREAM_SECRET": SECRET}
    command = typed(tmp_path, tmp_path / "flights.csv", "--quiet", "--collaboration", "none")
    assert meanstream(*command, environment=environment).code == 0
    assert found((tmp_path / "estimates.jsonl").read_bytes(), digits[:1]) == digits[:1]
    for name in ("estimates.jsonl", "state.db"):
        assert stat.S_IMODE((tmp_path / name).stat().st_mode) == 0o600
    assert SECRET.encode() not in (tmp_path / "state.db").read_bytes()

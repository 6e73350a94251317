"""`meanstream ledger verify`: what an auditor notes, and what a fault looks like."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.pipelines.command_line import (
    changed,
    files,
    meanstream,
    run_agents,
    spoil_row,
    write_samples,
)


@pytest.fixture
def store(tmp_path: Path) -> Path:
    write_samples(tmp_path / "flights.csv")
    assert run_agents(tmp_path).code == 0
    return tmp_path / "state.db"


def test_rows_agents_and_head_are_printed(store: Path) -> None:
    before = files(store.parent)
    found = meanstream("ledger", "verify", "--store", str(store), "--json").json
    rows = len((store.parent / "releases.jsonl").read_bytes().splitlines())
    assert (found["rows"], found["agents"], len(bytes.fromhex(found["head"]))) == (rows, 3, 32)
    ran = meanstream("ledger", "verify", "--store", str(store))
    assert ran.code == 0
    assert [line.split() for line in ran.out.decode().splitlines()] == [
        [k, str(v)] for k, v in found.items()
    ]
    assert {name: data for name, data in files(store.parent).items() if name in before} == before


def test_what_was_noted_stays_true_as_the_stream_goes_on(tmp_path: Path) -> None:
    given = {"sort": None, "config": tmp_path / "agents.yaml"}
    (tmp_path / "agents.yaml").write_text("sort: false\n")
    asked = ["ledger", "verify", "--store", str(tmp_path / "state.db")]
    notes = []
    for rows in (30, 60, 120):
        write_samples(tmp_path / "flights.csv", rows=rows)
        assert run_agents(tmp_path, **given).code == 0
        notes.append(meanstream(*asked, "--json").json)
    assert notes[0]["rows"] < notes[1]["rows"] < notes[2]["rows"]
    for note in notes:
        assert (
            meanstream(*asked, "--rows", str(note["rows"]), "--head", note["head"], "--json").json
            == notes[2]
        )
        assert meanstream(*asked, "--head", note["head"].upper()).code == 0
    first, second, last = notes
    for noted, said in (
        (
            ["--rows", str(first["rows"]), "--head", second["head"]],
            f"the noted head at row {first['rows']}",
        ),
        (
            ["--rows", str(last["rows"] + 1)],
            f"at least the {last['rows'] + 1} rows that were noted",
        ),
        (["--head", "00" * 31 + "01"], "the noted head at one of its"),
    ):
        ran = meanstream(*asked, *noted)
        assert (ran.code, ran.out) == (1, b"")
        assert len(ran.err.splitlines()) == 1
        assert said in ran.err.decode()


@pytest.mark.parametrize("form", [[], ["--json"]])
def test_a_fault_is_one_line_and_code_1(form: list[str], store: Path) -> None:
    spoil_row(store, 2)
    ran = meanstream("ledger", "verify", "--store", str(store), *form)
    assert (ran.code, ran.out) == (1, b"")
    (line,) = ran.err.decode().splitlines()
    said = rf"meanstream: store must be undamaged, got a fault in rows 1 to \d+ of the ledger of '{store}'"
    assert re.fullmatch(said, line)


def test_a_file_that_sqlite_cannot_read_is_one_line(store: Path) -> None:
    data = bytearray(store.read_bytes())
    data[4096:] = bytes(len(data) - 4096)
    store.write_bytes(data)
    ran = meanstream("ledger", "verify", "--store", str(store))
    assert (ran.code, len(ran.err.splitlines())) == (1, 1)
    assert b"store must be undamaged, got a fault in the file (SQLITE_" in ran.err


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["--head", "12ab"], "head must be 64 hexadecimal digits, got '12ab'"),
        (["--head", "x" * 64], "head must be 64 hexadecimal digits, got 'xxx"),
        (["--rows", "-1"], "rows must be at least 0, got -1"),
        (["--store", "nowhere.db"], "store must be an existing file, got 'nowhere.db'"),
    ],
)
def test_a_bad_option_is_one_line_and_code_2(more: list[str], said: str, store: Path) -> None:
    assert said in meanstream("ledger", "verify", *changed("--store", str(store), *more)).message

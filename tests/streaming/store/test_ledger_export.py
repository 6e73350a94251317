"""Exports of a ledger: what they hold can be computed by who reads docs/reference/formats.md, and
nothing private is in them."""

from __future__ import annotations

import json
import stat
import struct
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from meanstream.streaming.store import store_audit
from meanstream.streaming.store.state_store import DamagedStoreError, Store, StoreError
from meanstream.streaming.store.store_audit import NotedLedger, audit_ledger, export_ledger
from tests.pipelines.command_line import meanstream
from tests.streaming.store.conftest import NAMES
from tests.streaming.store.test_ledger_tampered import spoil


def lines_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_bytes().splitlines()]


def test_an_export_holds_every_row_and_the_chain_as_the_page_says(
    filled: Path, tmp_path: Path
) -> None:
    report = export_ledger(filled, tmp_path / "l.jsonl")
    assert report == audit_ledger(filled)
    head, *rows, mark = lines_of(tmp_path / "l.jsonl")
    named = {"format": "meanstream ledger", "version": 1, "deployment": head["deployment"]}
    assert head == {**named, "rows": 11}
    with_store = Store.read(filled)
    (block,) = with_store.ledger.verified()
    assert head["deployment"] == (with_store.settings() or {})["name"]
    with_store.close()

    numbers = b"".join(
        struct.pack(
            ">qqqqdqq",
            seq,
            index,
            version,
            charge,
            time,
            len(row["agent"].encode()),
            len(row["output"].encode()),
        )
        for row, seq, index, version, charge, time in zip(
            rows,
            block.rows.seq,
            block.rows.release_index,
            block.rows.input_version,
            block.rows.charge,
            block.rows.time,
            strict=True,
        )
    )
    names, outputs = ("".join(row[part] for row in rows).encode() for part in ("agent", "output"))
    digests = [sha256(part).digest() for part in (numbers, names, outputs)]
    assert mark == {
        "rows": 11,
        "numbers": digests[0].hex(),
        "chain": sha256(bytes(32) + b"".join(digests)).hexdigest(),
    }
    assert mark["chain"] == report.head.hex()
    assert [row["agent"] for row in rows[:4]] == [NAMES[0], NAMES[1], NAMES[0], NAMES[2]]
    assert [row["seq"] for row in rows] == list(range(1, 12))


def test_no_digest_of_an_input_is_in_an_export(filled: Path, tmp_path: Path) -> None:
    export_ledger(filled, tmp_path / "l.jsonl")
    _, *rows, mark = lines_of(tmp_path / "l.jsonl")
    assert {tuple(row) for row in rows} == {("seq", "agent", "output")}
    assert tuple(mark) == ("rows", "numbers", "chain")


@pytest.mark.parametrize("rows", [0, 1, 4, 6, 11])
def test_the_first_rows_have_the_head_that_the_ledger_had_there(
    rows: int, filled: Path, tmp_path: Path
) -> None:
    report = export_ledger(filled, tmp_path / "l.jsonl", rows=rows)
    assert (report.rows, report.agents) == (rows, {0: 0, 1: 1}.get(rows, 3))
    lines = lines_of(tmp_path / "l.jsonl")
    assert lines[0]["rows"] == rows
    assert len(lines) == 1 + rows + bool(rows)
    if rows in {0, 4, 11}:  # where a commit ended
        assert audit_ledger(filled, NotedLedger(rows, report.head)).rows == 11


def test_an_export_is_its_owners_and_replaces_nothing(filled: Path, tmp_path: Path) -> None:
    target = tmp_path / "l.jsonl"
    export_ledger(filled, target)
    assert stat.S_IMODE(target.stat().st_mode) == 0o600
    whole = target.read_bytes()
    with pytest.raises(StoreError, match=r"export must be a new file, got '.*', which exists"):
        export_ledger(filled, target)
    with pytest.raises(StoreError, match=r"export must be in a writable folder"):
        export_ledger(filled, tmp_path / "missing" / "l.jsonl")
    assert target.read_bytes() == whole


def test_a_damaged_ledger_leaves_no_export(filled: Path, tmp_path: Path) -> None:
    spoil(filled, ("UPDATE ledger SET data = zeroblob(length(data)) WHERE last = 11", ()))
    for rows in (None, 4):  # rows after the last exported one are verified, too
        with pytest.raises(DamagedStoreError, match="rows 8 to 11"):
            export_ledger(filled, tmp_path / "l.jsonl", rows=rows)
    assert not (tmp_path / "l.jsonl").exists()


def test_a_disk_without_space_leaves_no_export(
    filled: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(store_audit.os, "fsync", full)
    with pytest.raises(StoreError, match=r"export must be writable, got '.*' \(No space left"):
        export_ledger(filled, tmp_path / "l.jsonl")
    assert not (tmp_path / "l.jsonl").exists()


def test_the_command_says_what_it_wrote_or_why_not(filled: Path, tmp_path: Path) -> None:
    store = ("ledger", "export", "--store", str(filled))
    target = str(tmp_path / "l.jsonl")
    ran = meanstream(*store, "--to", target, "--rows", "4", "--json")
    assert (ran.code, ran.json["rows"], ran.json["agents"]) == (0, 4, 3)
    refused = {
        (target,): "export must be a new file",
        (
            str(tmp_path / "m.jsonl"),
            "--rows",
            "12",
        ): "rows must be at most 11, the rows of the ledger, got 12",
        (str(tmp_path / "m.jsonl"), "--rows", "-1"): "rows must be at least 0, got -1",
        (str(filled),): "to must be another place than store",
        (f"{filled}-wal",): "to must be another place than the write-ahead log",
    }
    for words, says in refused.items():
        assert meanstream(*store, "--to", *words).message.startswith(says)
    assert not (tmp_path / "m.jsonl").exists()

"""examples/verify_ledger.mjs verifies exports with Node's standard library alone: it takes what is
sound, and names what was tampered with."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from meanstream.streaming.store.ledger_chain import SEGMENT
from meanstream.streaming.store.ledger_signature import make_signing_key, sign_head
from meanstream.streaming.store.spend_ledger import LedgerRows
from meanstream.streaming.store.state_store import Store
from meanstream.streaming.store.store_audit import audit_ledger, export_ledger
from tests.code_blocks import ROOT
from tests.conformance.make_kept_store import TAMPERED
from tests.conformance.test_kept_store import FACTS, KEPT
from tests.servers.conftest import need
from tests.streaming.store.conftest import SECRET

READER = ROOT / "examples" / "verify_ledger.mjs"
SIGNED = ("--signature", str(KEPT / "head.json"), "--signer", str(KEPT / "signer.pub"))


@pytest.fixture(autouse=True)
def _node() -> None:
    need(None if shutil.which("node") else "no node on the path")


def read(export: Path, *words: str) -> tuple[int, str, str]:
    """Run the reader: its exit code and its two streams."""
    command = ("node", str(READER), str(export), *words)
    ran = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    return ran.returncode, ran.stdout, ran.stderr


def fault(export: Path, *words: str) -> str:
    """The one line of a fault."""
    code, out, err = read(export, *words)
    assert (code, out, len(err.splitlines())) == (1, "", 1), err
    return err.strip()


def test_the_reader_is_short_and_imports_the_standard_library_alone() -> None:
    lines = READER.read_text().splitlines()
    assert len(lines) <= 200
    imported = [found[1] for line in lines if (found := re.match(r'import .* from "(.*)";', line))]
    assert len(imported) == sum(line.startswith("import") for line in lines)
    assert all(name.startswith("node:") for name in imported)


def test_the_kept_ledger_is_sound() -> None:
    code, out, err = read(
        KEPT / "ledger.jsonl", *SIGNED, "--releases", str(KEPT / "releases.jsonl")
    )
    assert (code, err) == (0, "")
    facts = {**FACTS["verify"], "releases": 15, "signed": 15}
    assert dict(line.split() for line in out.splitlines()) == {k: str(v) for k, v in facts.items()}


def test_the_kept_ledger_of_rounds_is_sound(tmp_path: Path) -> None:
    shutil.copy(KEPT / "rounds" / "state.db", tmp_path)
    export_ledger(tmp_path / "state.db", tmp_path / "l.jsonl")
    code, out, err = read(tmp_path / "l.jsonl")
    assert (code, err) == (0, "")
    facts = {**FACTS["rounds"]["verify"], "releases": 0, "signed": "none"}
    assert dict(line.split() for line in out.splitlines()) == {k: str(v) for k, v in facts.items()}


@pytest.mark.parametrize("name", TAMPERED)
def test_an_export_that_was_tampered_with_is_named(name: str) -> None:
    says = FACTS["tampered"][f"{name}.jsonl"]
    assert says in fault(KEPT / "tampered" / f"{name}.jsonl", *SIGNED)


@pytest.mark.parametrize("name", ["forged_total", "forged_end"])
def test_a_chain_that_was_computed_again_is_found_by_the_signature_alone(name: str) -> None:
    assert read(KEPT / "tampered" / f"{name}.jsonl")[0] == 0


def test_a_head_of_another_key_is_named() -> None:
    words = ("--signature", str(KEPT / "tampered" / "other_head.json"), *SIGNED[2:])
    assert "must be of the signer's key" in fault(KEPT / "ledger.jsonl", *words)


def test_a_released_line_that_was_never_charged_is_named() -> None:
    words = ("--releases", str(KEPT / "tampered" / "releases.jsonl"))
    assert "a released line must be in the ledger" in fault(KEPT / "ledger.jsonl", *words)


def test_any_changed_character_is_found(tmp_path: Path) -> None:
    """Places are drawn once, by a seed; a digit becomes another, a letter the next one."""
    whole = (KEPT / "ledger.jsonl").read_text()
    rng = np.random.default_rng(5)
    marks = np.flatnonzero([character.isalnum() for character in whole])
    for place in rng.choice(marks, 40, replace=False).tolist():
        changed = "1" if whole[place] == "0" else "0" if whole[place].isdigit() else "x"
        changed = "y" if changed == whole[place] else changed
        path = tmp_path / "changed.jsonl"
        path.write_text(whole[:place] + changed + whole[place + 1 :])
        code, _, err = read(path, *SIGNED)
        assert (code, bool(err)) == (1, True), (place, whole[place - 20 : place + 20])


@pytest.mark.parametrize("cut", [1, 200, 6000])
def test_an_export_that_was_cut_off_is_named(cut: int, tmp_path: Path) -> None:
    (tmp_path / "cut.jsonl").write_bytes((KEPT / "ledger.jsonl").read_bytes()[:-cut])
    assert "must" in fault(tmp_path / "cut.jsonl", *SIGNED)


@pytest.mark.parametrize("words", [(), ("--signature", "head.json"), ("--other",)])
def test_wrong_arguments_are_no_fault(words: tuple[str, ...]) -> None:
    exports = [KEPT / "ledger.jsonl"] if words else [KEPT / "missing.jsonl"]
    code, out, err = read(*exports, *words)
    assert (code, out) == (2, "")
    assert err


@pytest.fixture(scope="module")
def long_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Rows of more than two segments, in commits of other sizes, of a kind with other outputs."""
    path = tmp_path_factory.mktemp("long") / "s.db"
    store = Store.open(path, settings={"side": "users", "name": "żółw\x7f"}, secret=SECRET)
    with store.transaction():
        store.add_agents(0, ["ann", "żaneta \u2028"])
    rows = 0
    for size in (1, 4094, 1, 1000, 4000):
        with store.transaction():
            index = list(range(rows + 1, rows + size + 1))
            outputs = [f'{{"row":{i},"text":"ó \\u2028 \u2028"}}'.encode() for i in index]
            new = LedgerRows(
                agent=[1] * size,
                release_index=index,
                input_version=index,
                time=[0.5] * size,
                output=outputs,
            )
            assert store.ledger.charge(new) == []
        rows += size
    store.close()
    return path


@pytest.mark.parametrize("rows", [0, 1, 4095, SEGMENT, 4097, 2 * SEGMENT, 9096])
def test_segments_are_followed_to_any_row(rows: int, long_store: Path, tmp_path: Path) -> None:
    report = export_ledger(long_store, tmp_path / "l.jsonl", rows=rows)
    code, out, err = read(tmp_path / "l.jsonl")
    assert (code, err) == (0, "")
    wanted = {"rows": rows, "agents": min(rows, 1), "head": report.head.hex()}
    ends = {"releases": 0, "signed": "none"}
    assert out.splitlines() == [f"{name:<8} {value}" for name, value in {**wanted, **ends}.items()]


def test_an_earlier_head_is_found_where_the_chain_was_exported(
    long_store: Path, tmp_path: Path
) -> None:
    public = make_signing_key(tmp_path / "k")
    export_ledger(long_store, tmp_path / "all.jsonl")
    for rows, known in ((SEGMENT, True), (5000, False)):
        report = export_ledger(long_store, tmp_path / f"{rows}.jsonl", rows=rows)
        signed = sign_head(
            tmp_path / "k", report, deployment="żółw\x7f", signed_at="2026-01-31T00:00:00Z"
        )
        head = tmp_path / f"{rows}.json"
        head.write_text(json.dumps(signed.plain()))
        words = ("--signature", str(head), "--signer", str(public))
        assert read(tmp_path / f"{rows}.jsonl", *words)[0] == 0
        if known:
            assert f"signed   {rows}" in read(tmp_path / "all.jsonl", *words)[1]
        else:
            assert f"export it with --rows {rows}" in fault(tmp_path / "all.jsonl", *words)


def test_rows_after_a_value_within_a_segment_are_refused(long_store: Path, tmp_path: Path) -> None:
    export_ledger(long_store, tmp_path / "l.jsonl", rows=3)
    head, *rows, mark = [
        json.loads(line) for line in (tmp_path / "l.jsonl").read_bytes().splitlines()
    ]
    lines = [{**head, "rows": 4}, *rows, mark, {**rows[-1], "seq": 4}, {**mark, "rows": 4}]
    (tmp_path / "more.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert "row 4 must follow a whole segment" in fault(tmp_path / "more.jsonl")
    assert audit_ledger(long_store).rows == 9096

"""Make the files of tests/conformance/kept_0_3: stores of agents, of pairs and of rounds that were killed in the
middle of a stream, an exported ledger and its signed head, copies that were tampered with, a shard of
a Beam job, and the schemas of all events.

`python -m tests.conformance.make_kept_store FOLDER` makes them in a new folder. Those in the
repository are of the release that they are named after. They are never made again.
"""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable
from contextlib import chdir
from hashlib import sha256
from pathlib import Path
from typing import Any
from unittest.mock import patch

from meanstream.pipelines.commands.run import run_engine
from meanstream.streaming.crash import CrashPoint, Moment
from meanstream.streaming.events.wire import EVENTS
from meanstream.streaming.store.ledger_signature import make_signing_key
from tests.conformance.make_kept_beam import make_beam_state
from tests.pipelines.command_line import SECRET, Ran, arguments, meanstream, spoil_row
from tests.streaming.support.dying import DieAt

AGENTS = ("N14228", "tail 7", "żaneta", "a!(b)*'c'", "100%/x:1")
"""Names with everything that is encoded in a release id."""
OPTIONS: dict[str, Any] = {
    "source": "samples.csv",
    "id": "id",
    "lower": -30,
    "upper": 120,
    "epsilon": 1,
    "delta": 1e-6,
    "name": "kept żółw",
    "horizon": 8,
    "store": "state.db",
    "sink": "estimates.jsonl",
    "releases": "releases.jsonl",
    "refresh": "6h",
    "batch_size": 16,
    "quiet": True,
}
ROUNDS: dict[str, Any] = {
    "source": "samples.csv",
    "user": "agent",
    "id": "id",
    "lower": -30,
    "upper": 120,
    "window": "12h",
    "epsilon": 1,
    "user_budget": 9,
    "name": "kept rounds",
    "store": "state.db",
    "sink": "means.jsonl",
    "reports": "reports.jsonl",
    "stages": "stages.jsonl",
    "batch_size": 16,
    "quiet": True,
}
PAIRS: dict[str, Any] = {
    "source": "samples.csv",
    "id": "id",
    "lower": -30,
    "upper": 120,
    "epsilon": 1,
    "delta": 1e-6,
    "name": "kept pairs",
    "schedule": "round_robin",
    "stddev": 43,
    "store": "state.db",
    "sink": "estimates.jsonl",
    "refresh": "6h",
    "batch_size": 16,
    "quiet": True,
}
RUNS = {"agents": OPTIONS, "pairs": PAIRS, "rounds": ROUNDS}
"""Options of `meanstream run`, by what runs."""
COMMANDS = {"pairs": "agents"}
"""Commands that are not named as what runs."""
RELEASED = {
    "agents": ["releases.jsonl"],
    "pairs": ["ledger.jsonl"],
    "rounds": ["reports.jsonl", "stages.jsonl", "means.jsonl"],
}
"""Files of what left the process, by what runs. Releases of pairs are exported from their ledger."""
DELIVERIES = {"agents": 8, "pairs": 8, "rounds": 19}
"""Deliveries before the process dies; then rows are charged that were never written."""

Lines = list[dict[str, Any]]


def write_input(path: Path) -> None:
    """Write samples of all agents in turn, one in ten minutes."""
    lines = [
        f"{AGENTS[i % 5]},{(i * 37) % 150 - 30},2026-01-{1 + i // 144:02}T{i // 6 % 24:02}:{i % 6}0:00Z,{i}"
        for i in range(400)
    ]
    path.write_text("\n".join(["agent,value,time,id", *lines]) + "\n", encoding="utf-8")


def run_in(folder: Path, kind: str = "agents") -> Ran:
    """Run the engine on the input in a folder; it continues the store that is there."""
    with chdir(folder):
        words = ("run", COMMANDS.get(kind, kind), *arguments(RUNS[kind]))
        ran = meanstream(*words, environment={"MEANSTREAM_SECRET": SECRET})
        if kind == "pairs":
            Path("ledger.jsonl").unlink(missing_ok=True)
            done("ledger", "export", "--store", "state.db", "--to", "ledger.jsonl")

        return ran


def done(*words: str) -> bytes:
    """Run a command that must work, and give what it prints."""
    ran = meanstream(*words)
    assert ran.code == 0, ran.err.decode()
    return ran.out


def make_store(folder: Path, kind: str) -> None:
    """Make a store whose process dies, what it has released, and all that a run releases which lives."""
    whole = folder / "whole"
    whole.mkdir(parents=True)
    write_input(whole / "samples.csv")
    shutil.copy(whole / "samples.csv", folder)
    ran = run_in(whole, kind)
    assert ran.code == 0, ran.err.decode()
    for name in RELEASED[kind]:
        shutil.copy(whole / name, folder / f"all_{name}")
    shutil.rmtree(whole)

    dying = DieAt(CrashPoint.WRITE_RELEASES, Moment.BEFORE, DELIVERIES[kind] + 1)
    with patch.object(run_engine, "no_crash", dying):
        ran = run_in(folder, kind)
    assert ran.code == 1
    assert b"Died" in ran.err
    for name in ("state.db.lock", "estimates.jsonl"):
        (folder / name).unlink(missing_ok=True)


def sign_and_export(folder: Path, key: Path) -> None:
    """Sign the ledger and export it."""
    with chdir(folder):
        words = ("--store", "state.db", "--to")
        done("ledger", "sign", *words, "head.json", "--signing-key", str(key))
        done("ledger", "export", *words, "ledger.jsonl")
        shutil.copy(f"{key}.pub", "signer.pub")


def facts_of(folder: Path) -> dict[str, Any]:
    """What the commands that read a store say of it."""
    store = ("--store", str(folder / "state.db"), "--json")
    return {
        "verify": json.loads(done("ledger", "verify", *store)),
        "budget": json.loads(done("budget", *store)),
        "show": json.loads(done("store", "show", *store)),
    }


def event_schemas() -> dict[str, Any]:
    """The JSON Schema of each event, as it is read and as it is written."""
    modes = ("validation", "serialization")
    return {
        name: {mode: event.model_json_schema(mode=mode) for mode in modes}  # type: ignore[arg-type]
        for name, event in EVENTS.items()
    }


# -- tampered ----------------------------------------------------------------------------------------------


def with_other_output(lines: Lines, change: dict[str, Any]) -> Lines:
    """Change fields of the release in row 6."""
    release = json.loads(lines[6]["output"])
    output = json.dumps({**release, **change}, separators=(",", ":"), ensure_ascii=False)
    return [*lines[:6], {**lines[6], "output": output}, *lines[7:]]


def numbered(head: dict[str, Any], rows: Lines, mark: dict[str, Any]) -> Lines:
    """Number rows again, and let header and chain end with them."""
    again = [{**row, "seq": number} for number, row in enumerate(rows, 1)]
    return [{**head, "rows": len(rows)}, *again, {**mark, "rows": len(rows)}]


def chained(lines: Lines) -> Lines:
    """Compute the chain of fewer than 4096 rows again, as a forger can."""
    head, *rows, mark = lines
    names, outputs = ("".join(row[part] for row in rows).encode() for part in ("agent", "output"))
    digests = [
        bytes.fromhex(mark["numbers"]),
        *(sha256(text).digest() for text in (names, outputs)),
    ]
    return [head, *rows, {**mark, "chain": sha256(b"".join([bytes(32), *digests])).hexdigest()}]


TAMPERED: dict[str, tuple[Callable[[Lines], Lines], str]] = {
    "changed_total": (lambda lines: with_other_output(lines, {"total": 1}), "the chain at row"),
    "changed_agent": (
        lambda lines: [*lines[:3], {**lines[3], "agent": "N1"}, *lines[4:]],
        "the release in row 3 must have agent N1",
    ),
    "row_gone": (
        lambda lines: numbered(lines[0], [*lines[1:-2]], lines[-1]),
        "the chain at row",
    ),
    "row_gone_unnumbered": (lambda lines: [*lines[:4], *lines[5:]], "row 4 must be the next one"),
    "row_twice": (
        lambda lines: numbered(lines[0], [*lines[1:-1], lines[-2]], lines[-1]),
        "must have index",
    ),
    "rows_exchanged": (
        lambda lines: numbered(lines[0], [lines[2], lines[1], *lines[3:-1]], lines[-1]),
        "the chain at row",
    ),
    "chain_gone": (lambda lines: lines[:-1], "the export must end with the chain"),
    "chain_changed": (
        lambda lines: [*lines[:-1], {**lines[-1], "chain": "0" * 64}],
        "the chain at row",
    ),
    "forged_total": (
        lambda lines: chained(with_other_output(lines, {"total": 1})),
        "the ledger must have the signed head",
    ),
    "forged_end": (
        lambda lines: chained(numbered(lines[0], lines[1:-3], lines[-1])),
        "signed rows",
    ),
    "forged_promise": (
        lambda lines: chained(with_other_output(lines, {"epsilon": 0.5})),
        "must have one promise with all",
    ),
    "other_deployment": (
        lambda lines: [{**lines[0], "deployment": "other"}, *lines[1:]],
        "the release in row 1 must have release_id other/",
    ),
}
"""Ways to tamper with an export, and how the line begins that names it."""


def tamper(folder: Path, other_key: Path) -> dict[str, str]:
    """Write what was tampered with; give what a verifier of each file must say."""
    place = folder / "tampered"
    place.mkdir()
    lines = [json.loads(line) for line in (folder / "ledger.jsonl").read_bytes().splitlines()]
    for name, (change, _) in TAMPERED.items():
        text = "".join(json.dumps(line, separators=(",", ":")) + "\n" for line in change(lines))
        (place / f"{name}.jsonl").write_text(text)

    # A head of somebody else's key, a release that was never charged, and a store with a changed row.
    with chdir(folder):
        words = ("--store", "state.db", "--signing-key", str(other_key))
        done("ledger", "sign", *words, "--to", "tampered/other_head.json")
    released = (folder / "all_releases.jsonl").read_bytes().splitlines(keepends=True)
    (place / "releases.jsonl").write_bytes(b"".join([*released[:4], released[-1]]))
    shutil.copy(folder / "state.db", place / "state.db")
    spoil_row(place / "state.db", 2)

    return {f"{name}.jsonl": says for name, (_, says) in TAMPERED.items()}


def make(folder: Path) -> None:
    """Make all files in a new folder."""
    make_store(folder, "agents")
    make_store(folder / "pairs", "pairs")
    make_store(folder / "rounds", "rounds")
    make_beam_state(folder / "beam")
    keys = [folder / "signing.key", folder / "other.key"]
    for key in keys:
        make_signing_key(key)
    sign_and_export(folder, keys[0])
    others = {kind: facts_of(folder / kind) for kind in ("pairs", "rounds")}
    facts = {**facts_of(folder), **others}
    facts["tampered"] = tamper(folder, keys[1])
    for key in keys:  # nobody needs to sign again
        key.unlink()
        Path(f"{key}.pub").unlink()
    for lock in folder.rglob("*.lock"):
        lock.unlink()

    written = {"facts.json": facts, "event_schemas.json": event_schemas()}
    for name, content in written.items():
        (folder / name).write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    make(Path(sys.argv[1]).resolve())

"""The store: one owner, one identity, append-only ledger, damage found, old files read."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streaming.ledger import LedgerRows
from streaming.secret import fingerprint, load_secret, secret_path
from streaming.snapshot import CorruptedSnapshotError, decode_columns, encode_columns
from streaming.store import Store, StoreError
from streaming.testing import ScriptedSource

SECRET = b"a secret of more than sixteen bytes"
SETTINGS: dict[str, Any] = {"epsilon": 1.0, "counter": "pm1"}
DATA = Path(__file__).parent / "data"


def open_store(folder: Path, settings: dict[str, Any] = SETTINGS, secret: bytes = SECRET) -> Store:
    return Store.open(folder / "s.db", settings=settings, secret=secret)


def test_the_file_is_for_its_owner_and_holds_no_secret(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    for path in tmp_path.iterdir():
        assert path.stat().st_mode & 0o077 == 0
    store.close()
    assert SECRET not in (tmp_path / "s.db").read_bytes()


def test_a_second_process_is_refused_with_the_pid_of_the_first(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    program = (
        "import sys; from pathlib import Path; from streaming.store import Store, StoreError\n"
        f"try: Store.open(Path({str(tmp_path / 's.db')!r}), settings={SETTINGS!r}, secret={SECRET!r})\n"
        "except StoreError as error: print(error)\n"
    )
    process = subprocess.run(
        [sys.executable, "-c", program], cwd=Path(__file__).parents[2], capture_output=True, text=True, check=True
    )
    assert f"in use by process {os.getpid()}" in process.stdout
    store.close()
    open_store(tmp_path).close()


@pytest.mark.parametrize(
    ("settings", "secret", "message"),
    [
        ({**SETTINGS, "epsilon": 2.0}, SECRET, r"epsilon must be 1\.0 as in the store that is continued, got 2\.0"),
        ({**SETTINGS, "counter": "pm2"}, SECRET, r"counter must be 'pm1' .* got 'pm2'"),
        ({**SETTINGS, "lower": 0}, SECRET, r"lower must be None .* got 0"),
        (SETTINGS, SECRET + b"!", r"secret must be the one that the store .* began with"),
    ],
)
def test_another_identity_is_refused(settings: dict[str, Any], secret: bytes, message: str, tmp_path: Path) -> None:
    open_store(tmp_path).close()
    with pytest.raises(StoreError, match=message):
        open_store(tmp_path, settings, secret)
    open_store(tmp_path).close()  # and the refusal left no lock behind


def test_what_is_not_a_store_is_refused(tmp_path: Path) -> None:
    (tmp_path / "s.db").write_bytes(b"something else, long enough to have been a header" * 10)
    with pytest.raises(StoreError, match="must be a Meanstream store"):
        open_store(tmp_path)
    (tmp_path / "s.db").unlink()
    connection = sqlite3.connect(tmp_path / "s.db")
    connection.execute("CREATE TABLE mine (x)")
    connection.close()
    with pytest.raises(StoreError, match="must be a Meanstream store"):
        open_store(tmp_path)
    with pytest.raises(StoreError, match="must be an existing file"):
        Store.read(tmp_path / "none.db")


def test_a_newer_schema_is_refused(tmp_path: Path) -> None:
    open_store(tmp_path).close()
    connection = sqlite3.connect(tmp_path / "s.db")
    connection.execute("PRAGMA user_version = 99")
    connection.close()
    with pytest.raises(StoreError, match="schema version 2, got 99"):
        open_store(tmp_path)


def test_a_failed_transaction_leaves_nothing(tmp_path: Path) -> None:
    store = open_store(tmp_path)

    def fail() -> None:
        with store.transaction():
            store.put_state("x", 1)
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert store.state("x") is None
    store.close()


def rows(ids: list[str], versions: list[int]) -> LedgerRows:
    n = len(ids)
    outputs = [f"{i}@{v}".encode() for i, v in zip(ids, versions, strict=True)]
    return LedgerRows(
        release_id=ids,
        agent=[0] * n,
        release_index=list(range(1, n + 1)),
        input_version=versions,
        time=[0.0] * n,
        output=outputs,
    )


def test_the_ledger_charges_once_and_refuses_another_version(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    with store.transaction():
        store.add_agents(0, ["a"])
        assert store.ledger.charge(rows(["a:1", "a:2"], [7, 8])) == []
    with store.transaction():
        assert store.ledger.charge(rows(["a:1", "a:2", "a:3"], [7, 9, 5])) == [1]
    assert [output for _, output in store.ledger.after(0)] == [b"a:1@7", b"a:2@8", b"a:3@5"]
    assert store.ledger.charges() == [(0, 3)]
    store.close()


@pytest.mark.parametrize("change", ["UPDATE ledger SET charge = 0", "DELETE FROM ledger"])
def test_the_ledger_is_append_only(change: str, tmp_path: Path) -> None:
    store = open_store(tmp_path)
    with store.transaction():
        store.add_agents(0, ["a"])
        store.ledger.charge(rows(["a:1"], [7]))
    store.close()
    connection = sqlite3.connect(tmp_path / "s.db")
    with pytest.raises(sqlite3.IntegrityError, match="append-only"):
        connection.execute(change)
    connection.close()


@given(st.data())
def test_any_changed_byte_of_a_snapshot_is_found(data: st.DataObject) -> None:
    columns: dict[str, Any] = {
        "a": np.arange(5),
        "b": np.array([0.5, np.nan]),
        "c": np.zeros((2, 3), np.uint64),
        "d": np.int64(3),
    }
    written = encode_columns(columns)
    read = decode_columns(written)
    assert all(np.array_equal(read[k], columns[k], equal_nan=k == "b") for k in columns)
    at = data.draw(st.integers(0, len(written) - 1))
    changed = bytearray(written)
    changed[at] ^= data.draw(st.integers(1, 255))
    with pytest.raises(CorruptedSnapshotError):
        decode_columns(bytes(changed))
    with pytest.raises(CorruptedSnapshotError):
        decode_columns(written[:at])


def test_objects_are_not_written() -> None:
    with pytest.raises(TypeError, match="snapshot column must be of type"):
        encode_columns({"x": np.array([object()])})


@pytest.mark.parametrize("table", ["chunks", "state"])
def test_a_damaged_store_is_not_read(table: str, world: Any) -> None:
    world.run(ScriptedSource([("ann", 1.0, float(i)) for i in range(10)]))
    column = "data" if table == "chunks" else "value"
    connection = sqlite3.connect(world.folder / "s.db")
    for key, data in connection.execute(f"SELECT rowid, {column} FROM {table}").fetchall():  # noqa: S608 - a test
        spoiled = bytes([data[0] ^ 1]) + data[1:]
        connection.execute(f"UPDATE {table} SET {column} = ? WHERE rowid = ?", (spoiled, key))  # noqa: S608 - a test
    connection.commit()
    connection.close()
    with pytest.raises(StoreError, match="must be undamaged, got a fault in"):
        world.run(ScriptedSource([("ann", 1.0, float(i)) for i in range(20)]))


def test_a_store_of_version_1_is_continued(world: Any) -> None:
    """`data/version-1.db` was written from the first 60 of these samples; the rest gives the releases of one run."""
    samples = [(f"agent {i % 3}", float(i % 11), float(i)) for i in range(120)]
    world.run(ScriptedSource(samples))
    expected = world.lines("releases")
    shutil.rmtree(world.folder)
    world.folder.mkdir()
    shutil.copy(DATA / "version-1.db", world.folder / "s.db")
    world.run(ScriptedSource(samples))
    assert 0 < len(world.lines("releases")) < len(expected)
    assert world.lines("releases") == expected[-len(world.lines("releases")) :]
    assert {e["agent"]: e["n"] for e in world.events("estimates")} == {f"agent {i}": 40 for i in range(3)}


def test_a_read_only_look_while_an_engine_runs(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    with store.transaction():
        store.add_agents(0, ["ann"])
    looked = Store.read(tmp_path / "s.db")
    assert looked.agents() == ["ann"]
    looked.close()
    store.close()
    looked = Store.read(tmp_path / "s.db")
    assert looked.agents() == ["ann"]
    looked.close()


def test_a_full_disk_is_one_line(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    store._database.execute("PRAGMA max_page_count = 12")
    with (
        pytest.raises(StoreError, match="store must have space on a working disk, got .database or disk is full"),
        store.transaction(),
    ):
        store.post("dead_letter", [b"x" * 1000] * 1000)
    assert store.outbox() == []
    store.close()


# -- the secret ----------------------------------------------------------------------------------------------


def test_a_secret_is_made_once_beside_the_store(tmp_path: Path) -> None:
    store = tmp_path / "s.db"
    secret = load_secret(store, environment={})
    assert len(secret) == 64
    assert secret_path(store).stat().st_mode & 0o777 == 0o600
    assert load_secret(store, environment={}) == secret


def test_a_lost_secret_is_not_replaced(tmp_path: Path) -> None:
    store = tmp_path / "s.db"
    load_secret(store, environment={})
    store.touch()
    secret_path(store).unlink()
    with pytest.raises(ValueError, match="secret must be in a readable file"):
        load_secret(store, environment={})


def test_the_secret_may_come_from_elsewhere(tmp_path: Path) -> None:
    store = tmp_path / "s.db"
    (tmp_path / "mine").write_text("a long enough secret\n")
    assert load_secret(store, environment={"MEANSTREAM_SECRET_FILE": str(tmp_path / "mine")}) == b"a long enough secret"
    assert load_secret(store, environment={"MEANSTREAM_SECRET": "another secret of mine"}) == b"another secret of mine"
    with pytest.raises(ValueError, match="at least 16 bytes long, got 5 in MEANSTREAM_SECRET"):
        load_secret(store, environment={"MEANSTREAM_SECRET": "short"})
    with pytest.raises(ValueError, match="readable file"):
        load_secret(store, environment={"MEANSTREAM_SECRET_FILE": str(tmp_path / "none")})
    assert fingerprint(b"a", b"salt") != fingerprint(b"b", b"salt")

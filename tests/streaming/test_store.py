"""The store: one owner, one identity, old files continued, a full disk, the secret."""

from __future__ import annotations

import json
import re
import shutil
import sqlite3
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streaming.secret import fingerprint, load_secret, secret_path
from streaming.store.audit import verify_ledger
from streaming.store.snapshot import CorruptedSnapshotError, decode_columns, encode_columns, seal
from streaming.store.store import EmptyStoreError, Store, StoreError
from streaming.testing import ScriptedSource

SECRET = b"a secret of more than sixteen bytes"
SETTINGS: dict[str, Any] = {"epsilon": 1.0, "counter": "pm1"}
DATA = Path(__file__).parent / "data"
SAMPLES = [(f"agent {i % 3}", float(i % 11), float(i)) for i in range(120)]


def open_store(folder: Path, settings: dict[str, Any] = SETTINGS, secret: bytes = SECRET) -> Store:
    return Store.open(folder / "s.db", settings=settings, secret=secret)


def test_the_file_is_for_its_owner_and_holds_no_secret(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    for path in tmp_path.iterdir():
        assert path.stat().st_mode & 0o077 == 0
    store.close()
    assert SECRET not in (tmp_path / "s.db").read_bytes()


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
    (tmp_path / "begun.db").touch()
    with pytest.raises(EmptyStoreError, match=r"must hold something, got nothing yet in '.*begun\.db'"):
        Store.read(tmp_path / "begun.db")
    (tmp_path / "s.db").unlink()
    open_store(tmp_path).close()
    (tmp_path / "s.db").write_bytes(b"")
    with pytest.raises(StoreError, match=r"must have the \d+ commits that its lock file tells of, got 0"):
        Store.read(tmp_path / "s.db")


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


@pytest.mark.parametrize("version", [1, 2])
def test_a_store_of_every_version_is_continued(version: int, world: Any) -> None:
    """The files were left by engines of that time after 64 of these samples; the rest gives the releases of one run."""
    world.run(ScriptedSource(SAMPLES))
    expected, whole = world.lines("releases"), verify_ledger(world.folder / "s.db")
    shutil.rmtree(world.folder)
    world.folder.mkdir()
    shutil.copy(DATA / f"version-{version}.db", world.folder / "s.db")
    world.run(ScriptedSource(SAMPLES))
    assert 0 < len(world.lines("releases")) < len(expected)
    assert world.lines("releases") == expected[-len(world.lines("releases")) :]
    assert {e["agent"]: e["n"] for e in world.events("estimates")} == {f"agent {i}": 40 for i in range(3)}
    assert verify_ledger(world.folder / "s.db") == whole


def open_old(folder: Path) -> Store:
    connection = sqlite3.connect(folder / "s.db")
    (sealed,) = connection.execute("SELECT value FROM state WHERE name = 'identity'").fetchone()
    connection.close()
    return open_store(folder, json.loads(sealed[:-16])["settings"])


def test_version_1_is_brought_up_to_date_once_with_everything_in_it(tmp_path: Path) -> None:
    shutil.copy(DATA / "version-1.db", tmp_path / "s.db")
    connection = sqlite3.connect(tmp_path / "s.db")
    connection.execute("INSERT INTO outbox VALUES (41, 'budget', x'7b7d'), (42, 'dead_letter', x'7b7d')")
    connection.commit()
    old = connection.execute("SELECT seq, agent, release_index, input_version, time, output FROM ledger").fetchall()
    connection.close()
    with pytest.raises(StoreError, match=r"must have schema version 2, got 1 .* run the engine on it once"):
        Store.read(tmp_path / "s.db")
    store = open_old(tmp_path)
    assert store.outbox() == [(41, "budget", b"{}"), (42, "dead_letter", b"{}")]
    with store.transaction():
        store.clear_outbox(42)
        store.post("budget", [b"{}"])
    assert store.outbox() == [(43, "budget", b"{}")]
    (block,) = store.ledger.verified()
    assert list(zip(*(column for i, column in enumerate(block.rows.columns()) if i != 4), strict=True)) == old
    assert store.ledger.charges() == [(0, 6), (1, 6), (2, 6)]
    name = store.public_id()
    store.close()
    again = open_old(tmp_path)
    assert (again.public_id(), len(name)) == (name, 32)
    again.close()


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE agents SET name = 'agent 7' WHERE number = 1",
        "UPDATE ledger SET agent = 9 WHERE seq = 5",
        "UPDATE ledger SET release_id = 'agent%201:9', release_index = 9 WHERE release_id = 'agent%201:2'",
        "UPDATE ledger SET seq = 99 WHERE seq = 18",
        "DELETE FROM ledger WHERE seq = 4",
        "UPDATE state SET value = zeroblob(length(value)) WHERE name = 'engine'",
        "UPDATE chunks SET data = zeroblob(length(data)) WHERE kind = 'agents'",
        "UPDATE sqlite_sequence SET seq = 0; UPDATE state SET value = x'@outbox' WHERE name = 'delivered'",
        "DROP TABLE outbox",
    ],
)
def test_a_damaged_store_of_version_1_is_left_as_it_is(change: str, tmp_path: Path) -> None:
    shutil.copy(DATA / "version-1.db", tmp_path / "s.db")
    connection = sqlite3.connect(tmp_path / "s.db")
    rules = connection.execute("SELECT name, sql FROM sqlite_schema WHERE type = 'trigger'").fetchall()
    for name, _ in rules:
        connection.execute(f"DROP TRIGGER {name}")
    connection.executescript(change.replace("@outbox", seal(b'{"outbox":3}').hex()))
    for _, sql in rules:
        connection.execute(sql)
    connection.execute("PRAGMA wal_checkpoint")
    connection.close()
    before = (tmp_path / "s.db").read_bytes()
    with pytest.raises(StoreError, match="must be undamaged, got a fault in"):
        open_old(tmp_path)
    assert (tmp_path / "s.db").read_bytes() == before


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


def test_the_public_id_is_random_and_stays(tmp_path: Path) -> None:
    names = []
    for folder in (tmp_path / "one", tmp_path / "two"):
        folder.mkdir()
        for _ in range(2):
            store = open_store(folder)
            names.append(store.public_id())
            store.close()
    looked = Store.read(tmp_path / "one" / "s.db")
    assert names == [looked.public_id()] * 2 + [names[2]] * 2
    looked.close()
    assert names[0] != names[2]
    assert all(re.fullmatch("[0-9a-f]{32}", name) for name in names)


def test_the_size_is_that_of_the_file_and_its_log(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    before = store.file_bytes()
    with store.transaction():
        store.post("budget", [b"x" * 100_000])
    log = (tmp_path / "s.db-wal").stat().st_size
    assert log > 100_000
    assert store.file_bytes() == log + (tmp_path / "s.db").stat().st_size > before
    store.close()


def test_events_that_are_posted_together_come_back_in_order(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    with store.transaction():
        store.post("budget", [b"one", b"two"])
        store.post("refusal", [])
        store.post("refusal", [b"three"])
    assert store.outbox() == [(1, "budget", b"one"), (1, "budget", b"two"), (2, "refusal", b"three")]
    with store.transaction():
        store.clear_outbox(2)
    assert (store.outbox(), store.posted()) == ([], 2)
    with pytest.raises(ValueError, match="lines must hold no line end"), store.transaction():
        store.post("budget", [b"one\ntwo"])
    store.close()


def test_names_are_kept_in_order_however_they_come(tmp_path: Path) -> None:
    names = [f"agent {i}" for i in range(5000)]
    store = open_store(tmp_path)
    for first, last in ((0, 1), (1, 1), (1, 1000), (1000, 1024), (1024, 4500), (4500, 5000)):
        with store.transaction():
            store.add_agents(first, names[first:last])
        assert store.agents() == names[:last]
        assert store.encoded_names() == [name.encode() for name in names[:last]]
    store.close()
    looked = Store.read(tmp_path / "s.db")
    assert looked.agents() == names
    looked.close()


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

"""The store: one owner, one identity, a full disk, the secret."""

from __future__ import annotations

import re
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from meanstream.streaming.rounds.rounds_deployment import (
    open_rounds_deployment,
    rounds_deployment_identity,
)
from meanstream.streaming.store.secret_source import load_secret, secret_path
from meanstream.streaming.store.state_snapshot import (
    CorruptedSnapshotError,
    decode_snapshot_columns,
    encode_snapshot_columns,
)
from meanstream.streaming.store.state_store import (
    DamagedStoreError,
    EmptyStoreError,
    Store,
    StoreError,
)
from meanstream.streaming.store.store_identity import identity_fingerprint
from tests.streaming.support.rounds_world import rounds_settings

SECRET = b"a secret of more than sixteen bytes"
SETTINGS: dict[str, Any] = {"epsilon": 1.0, "counter": "pm1"}
ROUNDS = rounds_settings(lower=0.0, upper=10.0, estimator="one_shot", users=12)
SAMPLES = [(f"agent {i % 3}", float(i % 11), float(i)) for i in range(120)]


def open_store(folder: Path, settings: dict[str, Any] = SETTINGS, secret: bytes = SECRET) -> Store:
    return Store.open(folder / "s.db", settings=settings, secret=secret)


def test_the_file_is_for_its_owner_and_holds_no_secret(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    for path in tmp_path.iterdir():
        assert path.stat().st_mode & 0o077 == 0
    store.close()
    assert SECRET not in (tmp_path / "s.db").read_bytes()


@pytest.mark.parametrize("mode", [0o666, 0o640, 0o604])
def test_files_that_were_made_beforehand_are_kept_to_the_owner(mode: int, tmp_path: Path) -> None:
    for name in ("s.db", "s.db.lock"):
        (tmp_path / name).touch()
        (tmp_path / name).chmod(mode)
    for _ in range(2):
        with closing(open_store(tmp_path)):
            modes = {path.name: path.stat().st_mode & 0o777 for path in tmp_path.iterdir()}
        assert {"s.db", "s.db-wal", "s.db-shm"} <= modes.keys()
        assert set(modes.values()) == {0o600}
        (tmp_path / "s.db").chmod(mode)
    with closing(Store.amend(tmp_path / "s.db")):
        assert (tmp_path / "s.db").stat().st_mode & 0o777 == 0o600


def test_a_file_that_is_no_store_keeps_its_mode(tmp_path: Path) -> None:
    (tmp_path / "s.db").write_text("agent,value,time\n" * 100)
    (tmp_path / "s.db").chmod(0o644)
    with pytest.raises(StoreError):
        open_store(tmp_path)
    assert (tmp_path / "s.db").stat().st_mode & 0o777 == 0o644


def test_what_was_not_asked_of_a_store_is_refused_by_its_own_name(tmp_path: Path) -> None:
    asked = {"histogram_share": 0.1, "exceeds": ()}
    open_store(tmp_path).close()
    for exceeds, name in (((), "quantiles"), ((30.0,), "exceeds")):
        with pytest.raises(
            StoreError, match=rf"^{name} must be left out, since the store began without"
        ):
            open_store(tmp_path, {**SETTINGS, **asked, "exceeds": exceeds})
    (tmp_path / "s.db").unlink()
    (tmp_path / "s.db.lock").unlink()
    open_store(tmp_path, {**SETTINGS, **asked}).close()
    with pytest.raises(
        StoreError,
        match=r"^quantiles or exceeds must be given, since the store began with one of them",
    ):
        open_store(tmp_path)


@pytest.mark.parametrize(
    ("settings", "secret", "message"),
    [
        (
            {**SETTINGS, "epsilon": 2.0},
            SECRET,
            r"epsilon must be 1\.0 as in the store that is continued, got 2\.0",
        ),
        ({**SETTINGS, "counter": "pm2"}, SECRET, r"counter must be 'pm1' .* got 'pm2'"),
        ({**SETTINGS, "lower": 0}, SECRET, r"lower must be None .* got 0"),
        (SETTINGS, SECRET + b"!", r"secret must be the one that the store began with"),
    ],
)
def test_another_identity_is_refused(
    settings: dict[str, Any], secret: bytes, message: str, tmp_path: Path
) -> None:
    open_store(tmp_path).close()
    with pytest.raises(StoreError, match=message):
        open_store(tmp_path, settings, secret)
    open_store(tmp_path).close()  # and the refusal left no lock behind


def test_what_both_sides_have_is_named_before_what_may_follow_from_it(tmp_path: Path) -> None:
    open_store(tmp_path).close()
    with pytest.raises(
        StoreError, match=r"^epsilon must be 1\.0 as in the store that is continued, got 2\.0"
    ):
        open_store(tmp_path, {**SETTINGS, "a later setting": 7, "epsilon": 2.0}, SECRET)
    with pytest.raises(StoreError, match=r"^a later setting must be None"):
        open_store(tmp_path, {**SETTINGS, "a later setting": 7}, SECRET)


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
    with pytest.raises(
        EmptyStoreError, match=r"must hold something, got nothing yet in '.*begun\.db'"
    ):
        Store.read(tmp_path / "begun.db")
    (tmp_path / "s.db").unlink()
    open_store(tmp_path).close()
    (tmp_path / "s.db").write_bytes(b"")
    with pytest.raises(
        StoreError, match=r"must have the \d+ commits that its lock file counts, got 0"
    ):
        Store.read(tmp_path / "s.db")


def test_a_file_whose_header_was_changed_is_refused_for_writing_and_for_reading(
    tmp_path: Path,
) -> None:
    open_store(tmp_path).close()
    connection = sqlite3.connect(tmp_path / "s.db")
    connection.execute("PRAGMA journal_mode = DELETE")
    connection.close()
    for opened in (lambda: open_store(tmp_path), lambda: Store.read(tmp_path / "s.db")):
        with pytest.raises(DamagedStoreError, match=r"got a fault in its header of '.*s\.db'"):
            opened()


@pytest.mark.parametrize("version", [2, 99])
def test_another_schema_is_refused(version: int, tmp_path: Path) -> None:
    open_store(tmp_path).close()
    connection = sqlite3.connect(tmp_path / "s.db")
    connection.execute(f"PRAGMA user_version = {version}")
    connection.close()
    for opened in (lambda: open_store(tmp_path), lambda: Store.read(tmp_path / "s.db")):
        with pytest.raises(StoreError, match=f"schema version 5, got {version}"):
            opened()


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
    written = encode_snapshot_columns(columns)
    read = decode_snapshot_columns(written)
    assert all(np.array_equal(read[k], columns[k], equal_nan=k == "b") for k in columns)
    at = data.draw(st.integers(0, len(written) - 1))
    changed = bytearray(written)
    changed[at] ^= data.draw(st.integers(1, 255))
    with pytest.raises(CorruptedSnapshotError):
        decode_snapshot_columns(bytes(changed))
    with pytest.raises(CorruptedSnapshotError):
        decode_snapshot_columns(written[:at])


def test_objects_are_not_written() -> None:
    with pytest.raises(TypeError, match="snapshot column must be of type"):
        encode_snapshot_columns({"x": np.array([object()])})


@pytest.mark.parametrize("key", ["another phrase, not the one of this store", "short", ""])
def test_a_weak_key_opens_no_other_store_and_begins_none(key: str, tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    Store.open(path, settings=rounds_deployment_identity(ROUNDS), secret=SECRET).close()
    before = path.read_bytes()
    for store in (path, tmp_path / "new.db"):
        with pytest.raises(
            ValueError, match=r"^secret must be 128 random bits or more .* in MEANSTREAM_SECRET$"
        ):
            open_rounds_deployment(store, ROUNDS, environment={"MEANSTREAM_SECRET": key})
    with pytest.raises(
        ValueError, match=r"^secret must be 128 random bits or more .*, got a phrase in"
    ):
        open_rounds_deployment(
            tmp_path / "new.db", ROUNDS, environment={"MEANSTREAM_SECRET": SECRET.decode()}
        )
    (tmp_path / "empty.db").touch()
    with pytest.raises(
        ValueError, match=r"^secret must be 128 random bits or more .*, got a phrase in"
    ):
        open_rounds_deployment(
            tmp_path / "empty.db", ROUNDS, environment={"MEANSTREAM_SECRET": SECRET.decode()}
        )
    assert path.read_bytes() == before
    assert not (tmp_path / "new.db").exists()


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


def test_a_look_leaves_the_files_as_they_were(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    with store.transaction():
        store.post("budget", [b"x" * 100_000])
    killed = tmp_path / "killed"
    killed.mkdir()
    for name in ("s.db", "s.db-wal", "s.db.lock"):  # as after a kill: the log is not folded in
        shutil.copy(tmp_path / name, killed / name)
    store.close()
    for folder, log in ((tmp_path, False), (killed, True)):
        before = {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}
        assert ("s.db-wal" in before) is log
        looked = Store.read(folder / "s.db")
        assert looked.outbox() == [(1, "budget", b"x" * 100_000)]
        with pytest.raises(StoreError), looked.transaction():
            looked.put_state("more", 1)
        looked.close()
        left = {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}
        left.pop("s.db-shm" if log else "", None)  # no content: the index of the log
        assert left == before


def test_events_that_are_posted_together_come_back_in_order(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    with store.transaction():
        store.post("budget", [b"one", b"two"])
        store.post("refusal", [])
        store.post("refusal", [b"three"])
    assert store.outbox() == [
        (1, "budget", b"one"),
        (1, "budget", b"two"),
        (2, "refusal", b"three"),
    ]
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
    (tmp_path / "mine").write_text("7c1e94b05fa3d2681be60c9d37f25a84\n")
    assert (
        load_secret(store, environment={"MEANSTREAM_SECRET_FILE": str(tmp_path / "mine")})
        == b"7c1e94b05fa3d2681be60c9d37f25a84"
    )
    assert (
        load_secret(store, environment={"MEANSTREAM_SECRET": "48a52f73d9c06eb1862d3af50b49e1c7"})
        == b"48a52f73d9c06eb1862d3af50b49e1c7"
    )
    with pytest.raises(
        ValueError, match=r"128 random bits or more .* got 5 bytes in MEANSTREAM_SECRET"
    ):
        load_secret(store, environment={"MEANSTREAM_SECRET": "short"})
    with pytest.raises(ValueError, match="readable file"):
        load_secret(store, environment={"MEANSTREAM_SECRET_FILE": str(tmp_path / "none")})
    assert identity_fingerprint(b"a", b"salt") != identity_fingerprint(b"b", b"salt")

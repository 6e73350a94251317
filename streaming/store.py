"""The store: input position, operator state, ledger and outgoing events in one SQLite file, committed together."""

from __future__ import annotations

import fcntl
import hmac
import json
import os
import secrets
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, Self

from streaming.ledger import SCHEMA as LEDGER_SCHEMA
from streaming.ledger import Ledger
from streaming.secret import fingerprint
from streaming.snapshot import Columns, CorruptedSnapshotError, decode_columns, encode_columns, seal, unseal

APPLICATION_ID = 0x4D454E53  # "MENS": recognizes the file
SCHEMA_VERSION = 1
SYNCHRONOUS = "FULL"  # a commit is on the disk when it returns
CACHE_KIBIBYTES = 65_536  # holds the inner pages of the ledger's index, which a commit enters everywhere
CHECKPOINT_PAGES = 8_192  # pages that each commit writes anew reach the file once for many commits

_SCHEMA = """
CREATE TABLE state (name TEXT PRIMARY KEY, value BLOB NOT NULL) STRICT;
CREATE TABLE agents (number INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE) STRICT;
CREATE TABLE chunks (kind TEXT, number INTEGER, data BLOB NOT NULL, PRIMARY KEY (kind, number)) STRICT;
CREATE TABLE outbox (seq INTEGER PRIMARY KEY AUTOINCREMENT, topic TEXT NOT NULL, line BLOB NOT NULL) STRICT;
"""


class StoreError(RuntimeError):
    """The store cannot be used; the message is one line for the user."""


class Store:
    """One file, one writer. Use `Store.open` to run on it, `Store.read` to look into it.

    **Privacy.** The file is on the private side: it holds raw sums and, until their event time has passed, raw
    samples. It can be read by its owner only; deleted content is overwritten when the write-ahead log is folded in, at
    the latest on closing. It does not hold the secret.

    Examples
    --------
    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "state.db"
    >>> store = Store.open(path, settings={"epsilon": 1.0}, secret=b"sixteen bytes or more")
    >>> with store.transaction():
    ...     store.put_state("position", {"line": 7})
    >>> store.state("position")
    {'line': 7}
    >>> store.close()
    >>> Store.open(path, settings={"epsilon": 2.0}, secret=b"sixteen bytes or more")
    Traceback (most recent call last):
    streaming.store.StoreError: epsilon must be 1.0 as in the store that is continued, got 2.0
    """

    def __init__(self, path: Path, connection: sqlite3.Connection, lock: IO[str] | None) -> None:
        self.path = path
        self.ledger = Ledger(connection)
        self._connection = connection
        self._lock = lock

    @classmethod
    def open(cls, path: Path, *, settings: Mapping[str, Any], secret: bytes) -> Self:
        """Create a store, or continue one that was made with the same settings and secret.

        Parameters
        ----------
        path : Path
            The file.
        settings : mapping
            Plain values that a stream cannot change half way.
        secret : bytes
            Secret of the noise; the store keeps a salted fingerprint of it.

        Raises
        ------
        StoreError
            If another process uses the store, it is no store, or settings or secret differ.
        """
        lock = _lock(path)
        try:
            if not path.exists():
                os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
            connection = _connect(path, read_only=False)
        except BaseException:
            lock.close()
            raise
        store = cls(path, connection, lock)
        try:
            store._prepare()
            store._recognize(settings, secret)
        except BaseException:
            store.close()
            raise
        return store

    @classmethod
    def read(cls, path: Path) -> Self:
        """Look into a store, also while another process runs on it."""
        if not path.is_file():
            raise StoreError(f"store must be an existing file, got {str(path)!r}")
        return cls(path, _connect(path, read_only=True), None)

    def close(self) -> None:
        """Give the store free; what was not committed is gone."""
        self._connection.close()
        if self._lock is not None:
            self._lock.close()

    # -- reading ---------------------------------------------------------------------------------------------

    def state(self, name: str) -> Any:
        """Read the plain value saved under a name; None if there is none."""
        row = self._connection.execute("SELECT value FROM state WHERE name = ?", (name,)).fetchone()
        return None if row is None else json.loads(self._checked(unseal, row[0], name))

    def agents(self) -> list[str]:
        """List the names of all agents, by number."""
        return [name for (name,) in self._connection.execute("SELECT name FROM agents ORDER BY number")]

    def chunks(self, kind: str) -> Iterator[tuple[int, Columns]]:
        """Read saved columns of one kind, by number."""
        for number, data in self._connection.execute(
            "SELECT number, data FROM chunks WHERE kind = ? ORDER BY number", (kind,)
        ):
            yield number, self._checked(decode_columns, data, f"{kind} {number}")

    def outbox(self) -> list[tuple[int, str, bytes]]:
        """List events that were committed and not yet marked as delivered: sequence number, topic, line."""
        return self._connection.execute("SELECT seq, topic, line FROM outbox ORDER BY seq").fetchall()

    # -- writing, within a transaction -----------------------------------------------------------------------

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Commit all or nothing, durably."""
        try:
            self._connection.execute("BEGIN IMMEDIATE")
            yield
            self._connection.execute("COMMIT")
        except BaseException as error:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
            if isinstance(error, sqlite3.OperationalError):
                raise StoreError(f"store must be writable, got {error} in {str(self.path)!r}") from error
            raise

    def put_state(self, name: str, value: Any) -> None:
        """Save a plain value under a name."""
        data = seal(json.dumps(value, separators=(",", ":")).encode())
        self._connection.execute("INSERT OR REPLACE INTO state VALUES (?, ?)", (name, data))

    def add_agents(self, first: int, names: Sequence[str]) -> None:
        """Enter new agents with the numbers from `first` on."""
        self._connection.executemany("INSERT INTO agents VALUES (?, ?)", enumerate(names, first))

    def put_chunk(self, kind: str, number: int, columns: Columns) -> None:
        """Save columns."""
        self._connection.execute(
            "INSERT OR REPLACE INTO chunks VALUES (?, ?, ?)", (kind, number, encode_columns(columns))
        )

    def drop_chunks(self, kind: str, numbers: Sequence[int]) -> None:
        """Remove columns."""
        self._connection.executemany(
            "DELETE FROM chunks WHERE kind = ? AND number = ?", [(kind, number) for number in numbers]
        )

    def post(self, topic: str, lines: Sequence[bytes]) -> None:
        """Put events into the outbox."""
        self._connection.executemany("INSERT INTO outbox (topic, line) VALUES (?, ?)", [(topic, x) for x in lines])

    def clear_outbox(self, seq: int) -> None:
        """Forget delivered events."""
        self._connection.execute("DELETE FROM outbox WHERE seq <= ?", (seq,))

    # -- internals -------------------------------------------------------------------------------------------

    def _prepare(self) -> None:
        """Create the tables of a new file; refuse a version that is not known."""
        connection = self._connection
        if connection.execute("PRAGMA schema_version").fetchone()[0] == 0:
            connection.execute("PRAGMA journal_mode = WAL")
            with self.transaction():
                for statement in _statements(_SCHEMA + LEDGER_SCHEMA):
                    connection.execute(statement)
                connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
                connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
        version = connection.execute("PRAGMA user_version").fetchone()[0]
        if version != SCHEMA_VERSION:
            raise StoreError(f"store must have schema version {SCHEMA_VERSION}, got {version} in {str(self.path)!r}")

    def _recognize(self, settings: Mapping[str, Any], secret: bytes) -> None:
        """Compare with the settings and the secret that the store began with."""
        identity = self.state("identity")
        if identity is None:
            salt = secrets.token_bytes(16)
            with self.transaction():
                mark = fingerprint(secret, salt).hex()
                self.put_state("identity", {"settings": dict(settings), "salt": salt.hex(), "secret": mark})
            return
        saved = identity["settings"]
        for name in sorted(saved.keys() | settings.keys()):
            if saved.get(name) != settings.get(name):
                raise StoreError(
                    f"{name} must be {saved.get(name)!r} as in the store that is continued, got {settings.get(name)!r}"
                )
        if not hmac.compare_digest(fingerprint(secret, bytes.fromhex(identity["salt"])).hex(), identity["secret"]):
            raise StoreError(f"secret must be the one that the store {str(self.path)!r} began with, got another")

    def _checked(self, read: Any, data: bytes, what: str) -> Any:
        try:
            return read(data)
        except CorruptedSnapshotError as error:
            raise StoreError(f"store must be undamaged, got a fault in {what} of {str(self.path)!r}: {error}") from None


def _lock(path: Path) -> IO[str]:
    """Take the lock file beside the store, or say who has it."""
    try:
        file = os.fdopen(os.open(f"{path}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600), "r+")
    except OSError as error:
        raise StoreError(f"store must be in a writable folder, got {str(path)!r} ({error.strerror})") from None
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        owner = file.read().strip() or "unknown"
        file.close()
        raise StoreError(f"store must be used by one process, got {str(path)!r} in use by process {owner}") from None
    file.truncate(0)
    file.write(str(os.getpid()))
    file.flush()
    return file


def _connect(path: Path, *, read_only: bool) -> sqlite3.Connection:
    mode = "ro" if read_only else "rw"
    connection = sqlite3.connect(f"{path.resolve().as_uri()}?mode={mode}", uri=True, isolation_level=None, timeout=10)
    try:
        application = connection.execute("PRAGMA application_id").fetchone()[0]
        empty = connection.execute("PRAGMA schema_version").fetchone()[0] == 0
        if application != APPLICATION_ID and (read_only or not empty):
            raise sqlite3.DatabaseError
        if not read_only:
            connection.execute(f"PRAGMA synchronous = {SYNCHRONOUS}")
            connection.execute("PRAGMA secure_delete = ON")
            connection.execute(f"PRAGMA cache_size = -{CACHE_KIBIBYTES}")
            connection.execute(f"PRAGMA wal_autocheckpoint = {CHECKPOINT_PAGES}")
    except sqlite3.DatabaseError:
        connection.close()
        raise StoreError(f"store must be a Meanstream store, got {str(path)!r}") from None
    return connection


def _statements(script: str) -> list[str]:
    """Split a script at the ends of statements; `executescript` would commit half way."""
    statements, text = [], ""
    for line in script.splitlines():
        text += line + "\n"
        if sqlite3.complete_statement(text):
            statements.append(text)
            text = ""
    return statements

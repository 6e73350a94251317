"""The store: input position, operator state, ledger and outgoing events in one SQLite file, committed together."""

from __future__ import annotations

import hmac
import os
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

from streaming.secret import fingerprint
from streaming.store.database import DamagedStoreError, Database, EmptyStoreError, StoreError
from streaming.store.layout import VERSION, create_tables, version_of
from streaming.store.ledger import Ledger
from streaming.store.lock import StoreLock, Witness
from streaming.store.migration import migrate
from streaming.store.tables import Tables

__all__ = ["DamagedStoreError", "EmptyStoreError", "Store", "StoreError"]


class Store(Tables):
    """One file, one writer. Use `Store.open` to run on it, `Store.read` to look into it.

    Whatever is read is compared with what the last commit said is there: a changed byte is a `DamagedStoreError`, never
    another value.

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
    streaming.store.database.StoreError: epsilon must be 1.0 as in the store that is continued, got 2.0
    """

    def __init__(self, database: Database, lock: StoreLock | None) -> None:
        super().__init__(database)
        self.path = database.path
        self.ledger = Ledger(database, self)
        self._lock = lock
        self._id: str | None = None

    @classmethod
    def open(cls, path: Path, *, settings: Mapping[str, Any], secret: bytes) -> Self:
        """Create a store, or continue one that was made with the same settings and secret.

        A store of an older version is brought up to this one.

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
            If another process uses the store, it is no store or damaged, or settings or secret differ.
        """
        lock = StoreLock.take(path)
        try:
            begun = not _create(path)
            store = cls(Database(path, read_only=False), lock)
        except BaseException:
            lock.close()
            raise
        try:
            if begun and store._database.is_empty:
                Witness.of(path).check(None, 0)
            store._prepare()
            store.require_same(settings, secret)
            if store.state("identity") is None:
                store._identify(settings, secret)
        except BaseException:
            store.close()
            raise
        return store

    @classmethod
    def read(cls, path: Path) -> Self:
        """Look into a store as it is now, also while another process runs on it.

        Raises
        ------
        StoreError
            If there is none, it is damaged, or it is of an older version.
        """
        if not path.is_file():
            raise StoreError(f"store must be an existing file, got {str(path)!r}")
        witness = Witness.of(path)
        try:
            store = cls(Database(path, read_only=True), None)
        except EmptyStoreError:
            witness.check(None, 0)  # one that somebody has emptied is not new
            raise
        try:
            version = version_of(store._database)
            if version != VERSION:
                raise StoreError(
                    f"store must have schema version {VERSION}, got {version} in {str(path)!r}: run the engine on it "
                    "once, which brings it up to date"
                )
            witness.check(store.public_id(), store.commits())
        except BaseException:
            store.close()
            raise
        return store

    def close(self) -> None:
        """Give the store free; what was not committed is gone."""
        self._database.close()
        if self._lock is not None:
            self._lock.close()

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Commit all or nothing, durably, with the contents."""
        with super().transaction():
            yield
        if self._lock is not None:
            self._lock.note(self.public_id(), self.commits())

    def public_id(self) -> str:
        """Give the store's name for the outside: random, made with it, and independent of secret and content."""
        if self._id is None:
            self._id = str(self.state("public")["id"])
        return self._id

    def file_bytes(self) -> int:
        """Tell the size of the file and its write-ahead log."""
        files = (self.path, self.path.with_name(self.path.name + "-wal"))
        return sum(file.stat().st_size for file in files if file.exists())

    def copy_to(self, path: Path) -> None:
        """Write the store as it is now into an empty file; see `streaming.store.backup.back_up`."""
        self._database.copy_to(path)

    def require_same(self, settings: Mapping[str, Any], secret: bytes) -> None:
        """Compare with the settings and the secret that the store began with, if it has begun.

        Raises
        ------
        StoreError
            Naming what differs.
        """
        identity = self.state("identity")
        if identity is None:
            return
        saved = identity["settings"]
        for name in sorted(saved.keys() | settings.keys()):
            if saved.get(name) != settings.get(name):
                raise StoreError(
                    f"{name} must be {saved.get(name)!r} as in the store that is continued, got {settings.get(name)!r}"
                )
        if not hmac.compare_digest(fingerprint(secret, bytes.fromhex(identity["salt"])).hex(), identity["secret"]):
            raise StoreError(f"secret must be the one that the store {str(self.path)!r} began with, got another")

    def forget(self) -> None:
        """Read again what is remembered: a transaction was given up, or somebody else has written."""
        super().forget()
        self.ledger.forget()

    # -- internals -------------------------------------------------------------------------------------------

    def _prepare(self) -> None:
        """Create the tables of a new file; bring an older version up to date; refuse a version that is not known."""
        if self._database.is_empty:
            with self.transaction():
                create_tables(self._database)
                self.adopt()
                self.put_state("public", {"id": secrets.token_hex(16)})
            self._database.fold()  # from now on the file itself says which store it is
        elif version_of(self._database) < VERSION:
            with self.transaction():
                migrate(self._database, self, self.ledger)
                self.put_state("public", {"id": secrets.token_hex(16)})
            self._database.fold()
        self.check()
        self.ledger.check_end()
        Witness.of(self.path).check(self.public_id(), self.commits())

    def _identify(self, settings: Mapping[str, Any], secret: bytes) -> None:
        """Begin with settings and a secret."""
        salt = secrets.token_bytes(16)
        with self.transaction():
            mark = fingerprint(secret, salt).hex()
            self.put_state("identity", {"settings": dict(settings), "salt": salt.hex(), "secret": mark})


def _create(path: Path) -> bool:
    """Make an empty file that its owner can read; say so, or that there is one."""
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
        return True
    except FileExistsError:
        return False
    except OSError as error:
        raise StoreError(f"store must be in a writable folder, got {str(path)!r} ({error.strerror})") from None

"""The store: input position, operator state, ledger and outgoing events in one SQLite file, committed together."""

from __future__ import annotations

import os
import re
import secrets
import sys
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from meanstream.streaming.store import schema_migrations as schema
from meanstream.streaming.store.database import (
    DamagedStoreError,
    Database,
    EmptyStoreError,
    StoreError,
    create_database_file,
    keep_database_to_owner,
)
from meanstream.streaming.store.schema_migrations import (
    PUBLIC,
    checked_schema_version,
    create_layout,
    migrate_schema,
)
from meanstream.streaming.store.spend_ledger import Ledger
from meanstream.streaming.store.store_identity import (
    OtherIdentityError,
    make_identity,
    new_identity_name,
    require_same_identity,
    require_store_kind,
    store_kind,
)
from meanstream.streaming.store.store_tables import StoreTables

_posix: Any = None
with suppress(ImportError):  # Windows has none
    import fcntl as _posix

_OWNER = "{:<20}\n"
_WITNESS = "{} {:<20}\n"
_WITNESS_AT = 21
_RECORD = re.compile(rb"(\d+) *\n(?:([0-9a-f]{32}) (\d+) *\n)?")


@dataclass(frozen=True, slots=True)
class Witness:
    """What a lock file tells of a store: how many commits it has seen.

    SQLite takes a damaged write-ahead log for one that ends there, so without a witness the last
    commits could be lost without a word.
    """

    path: Path
    store: str | None = None
    commits: int = 0

    @classmethod
    def of(cls, path: Path) -> Self:
        """Read the lock file of a store, if there is one.

        A reader must do so before it looks at the store.
        """
        try:
            record = _RECORD.match(lock_path(path).read_bytes()[:100])
        except OSError:
            record = None

        if record is None or record[2] is None:
            return cls(path)
        return cls(path, record[2].decode(), int(record[3]))

    def check(self, store: str | None, commits: int) -> None:
        """Compare with what the store itself tells.

        Its public id and its commits; None and 0 if it is empty.
        """
        if store in (None, self.store) and commits < self.commits:
            raise StoreError(
                f"store must have the {self.commits} commits that its lock file counts, got {commits} in "
                f"{str(self.path)!r}: it is damaged or an older copy; to continue from it nevertheless, delete the "
                "lock file"
            )


class StoreLock:
    """The lock of a store, held until it is closed.

    The operating system gives it free when its owner dies: what a killed process leaves is no
    obstacle.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    @classmethod
    def take(cls, path: Path) -> Self:
        """Take the lock file next to a store, or say who has it."""
        if _posix is None:
            rule = "be on a system with locks of POSIX (Linux, macOS, or WSL on Windows)"
            raise StoreError(f"store must {rule}, got {sys.platform} for {str(path)!r}")

        while True:
            lock = cls._try_take(path)
            if lock is not None:
                return lock

    @classmethod
    def _try_take(cls, path: Path) -> Self | None:
        """Take the lock file.

        None if its owner took it away meanwhile: the name is that of no file, or another's.
        """
        try:
            descriptor = os.open(lock_path(path), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise StoreError(
                f"store must be in a writable folder, got {str(path)!r} ({error.strerror})"
            ) from None

        try:
            _posix.flock(descriptor, _posix.LOCK_EX | _posix.LOCK_NB)
            if not _is_still(descriptor, lock_path(path)):
                os.close(descriptor)
                return None

            head = os.pread(descriptor, 100, 0)
            # Next to an existing store it is the store's own, damaged; before a new one it is
            # someone else's.
            if head.strip(b"\0") and _RECORD.match(head) is None and not path.exists():
                os.close(descriptor)
                shown = repr(str(lock_path(path)))
                raise StoreError(
                    f"store must have a lock file of its own, got another file in {shown}"
                )

            os.pwrite(descriptor, _OWNER.format(os.getpid()).encode(), 0)
        except BlockingIOError:
            record = _RECORD.match(os.pread(descriptor, 100, 0))
            os.close(descriptor)
            owner = "another process" if record is None else f"process {int(record[1])}"
            raise StoreError(
                f"store must be used by one process, got {str(path)!r} in use by {owner}"
            ) from None
        except OSError as error:
            os.close(descriptor)
            raise StoreError(
                f"store must have a writable lock file, got {str(path)!r} ({error.strerror})"
            ) from None

        return cls(descriptor)

    def note(self, store: str, commits: int) -> None:
        """Remember how many commits a store has seen; they are on the disk."""
        with suppress(OSError):  # a witness that knows less is still true
            os.pwrite(self._descriptor, _WITNESS.format(store, commits).encode(), _WITNESS_AT)

    def close(self) -> None:
        """Give the store free."""
        os.close(self._descriptor)


def _is_still(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False


def lock_path(path: Path) -> Path:
    """Name the lock file of a store."""
    resolved = path.resolve()  # a store with two names is one store
    return resolved.with_name(resolved.name + ".lock")


__all__ = ["DamagedStoreError", "EmptyStoreError", "Store", "StoreError"]

NO_CHANGE = ": a store keeps its settings; another value needs a new --store, whose budget adds up to this one's"
"""What to do about a setting that differs."""


class Store(StoreTables):
    """One file, one writer. Use `Store.open` to run on it, `Store.read` to look into it.

    Whatever is read is compared with what the last commit said is there: a changed byte is a
    `DamagedStoreError`, never another value.

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
    meanstream.streaming.store.database.StoreError: epsilon must be 1.0 as in the store that is continued, got 2.0: \
a store keeps its settings; another value needs a new --store, whose budget adds up to this one's
    """

    def __init__(self, database: Database, lock: StoreLock | None) -> None:
        super().__init__(database)
        self.path = database.path
        self.ledger = Ledger(database, self)
        self._lock = lock
        self._id: str | None = None
        self.schema_version = schema.VERSION  # of the file, which reading leaves as it is
        self.made: list[Path] = []  # files that opening it has made, for `undo`
        self._witness: Witness | None = None  # what the lock file of a new store told before

    @classmethod
    def open(cls, path: Path, *, settings: Mapping[str, Any], secret: bytes) -> Self:
        """Create a store, or continue one that was made with the same settings and secret.

        A new store that is not given the `name` of its deployment makes one; it is kept for good.
        """
        # Files that did not exist may be removed again if the run is refused.
        made = [file for file in _files_of(path) if not file.exists()]
        witness = Witness.of(path)
        lock = StoreLock.take(path)
        try:
            # The lock is taken before the store is looked at.
            begun = not create_database_file(path)
            store = cls(Database(path, read_only=False), lock)
        except BaseException:
            lock.close()
            raise

        store.made, store._witness = ([], None) if begun else (made, witness)
        try:
            # A lock file that has seen commits, and a store without any: somebody has emptied it.
            if begun and store._database.is_empty:
                Witness.of(path).check(None, 0)

            version = store._prepare()
            store._require_same_before_migration(version, settings, secret)
            migrate_schema(store._database, store, version)
            store.require_same(settings, secret)

            if store.state("identity") is None:
                store._identify(settings, secret)

            keep_database_to_owner(_files_of(path))
        except BaseException:
            store.undo()
            raise

        return store

    @classmethod
    def amend(cls, path: Path) -> Self:
        """Open a store that has begun to change its notes.

        Nothing is released, so no secret is needed.
        """
        # It must be readable as it is before anything is changed.
        cls.read(path).close()
        lock = StoreLock.take(path)
        try:
            store = cls(Database(path, read_only=False), lock)
        except BaseException:
            lock.close()
            raise

        try:
            version = store._prepare()
            migrate_schema(store._database, store, version)
            keep_database_to_owner(_files_of(path))
        except BaseException:
            store.close()
            raise

        return store

    @classmethod
    def read(cls, path: Path) -> Self:
        """Look into a store as it is now, also while another process runs on it.

        One of an older schema version is migrated in memory; its file stays as it is.
        """
        if path.is_dir():
            hint = f"name one of its stores, such as {path / '0.db'}"
            raise StoreError(
                f"store must be an existing file, got the folder {str(path)!r}: {hint}"
            )
        if not path.is_file():
            raise StoreError(f"store must be an existing file, got {str(path)!r}")
        witness = Witness.of(path)
        try:
            store = cls(Database(path, read_only=True), None)
        except EmptyStoreError:
            witness.check(None, 0)  # one that someone has emptied is not new
            raise

        # The witness beside the store tells an older copy from the store itself.
        try:
            version = store.schema_version = checked_schema_version(store._database)
            store._check_version(version)
            witness.check(store.public_id(), store.commits())
            store._migrate_in_memory(version)
        except BaseException:
            store.close()
            raise

        return store

    def close(self) -> None:
        """Give the store free; what was not committed is gone."""
        self._database.close()
        if self._lock is not None:
            self._lock.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def keep(self) -> None:
        """Say that the run begins.

        From now on others may know the store, and it is not taken away any more.
        """
        self.made = []
        self._witness = None

    def undo(self) -> None:
        """Close a store of which the run was refused.

        What opening it has made is taken away, as if it had not been.
        """
        self._database.close()
        for file in self.made:
            file.unlink(missing_ok=True)  # the lock is held: no one else can have begun here

        if self._lock is not None:
            if self._witness is not None and self._witness.store is not None:
                self._lock.note(self._witness.store, self._witness.commits)

            self._lock.close()

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Commit all or nothing, durably, with the contents."""
        with super().transaction():
            yield

        # The lock file notes each commit.
        if self._lock is not None:
            self._lock.note(self.public_id(), self.commits())

    def erase_deleted(self) -> None:
        """Overwrite in the file what was deleted from it, and empty the write-ahead log."""
        if not self._database.fold():
            raise StoreError(
                f"store must have no reader while deleted pages are overwritten, got one of {str(self.path)!r}: stop "
                "pages, reports and backups that read it, and run the command again"
            )

    def public_id(self) -> str:
        """Give the store's name for the outside.

        Random, made with it, and independent of secret and content.
        """
        if self._id is None:
            self._id = str(self.state(PUBLIC)["id"])

        return self._id

    def copy_to(self, path: Path) -> None:
        """Write the store as it is now into an empty file; see `store_backup.back_up_store`."""
        self._database.copy_to(path)

    def settings(self) -> dict[str, Any] | None:
        """Give the settings that the store began with, as it keeps them.

        None if it has not begun.
        """
        identity = self.state("identity")

        if identity is None:
            return None
        return dict(identity["settings"])

    def begun_settings(self, *kinds: str, with_pairs: str = "") -> dict[str, Any]:
        """Give the same of a store that has begun, and is of one of some kinds, if any are named."""
        settings = self.settings()
        if settings is None:
            raise StoreError(f"store must have been begun by an engine, got {str(self.path)!r}")

        if kinds:
            require_store_kind(self.path, settings, *kinds, with_pairs=with_pairs)

        return settings

    def require_same(self, settings: Mapping[str, Any], secret: bytes) -> None:
        """Compare with the settings and the secret that the store began with, if it has begun."""
        identity = self.state("identity")
        if identity is None:
            return
        saved = identity["settings"]
        same = f"go on with its --schedule {saved.get('schedule')}"
        require_store_kind(self.path, saved, store_kind(settings), with_pairs=same)
        named_settings = (
            {**settings, "name": identity["settings"]["name"]}
            if settings.get("name") is None
            else settings
        )

        try:
            require_same_identity(identity, named_settings, secret, what="store")
        except OtherIdentityError as error:
            raise StoreError(
                f"{error}{NO_CHANGE if ' as in the store ' in str(error) else ''}"
            ) from None

    def forget(self) -> None:
        """Read again what is remembered.

        A transaction was given up, or someone else has written.
        """
        super().forget()
        self.ledger.forget()

    # -- internals -------------------------------------------------------------------------------------------

    def _prepare(self) -> int:
        """Create the tables of a new file; give its schema version if it can be read."""
        if self._database.is_empty:
            with self.transaction():
                create_layout(self._database)
                self.begin_contents()
                self._put_public()

            self._database.fold()  # from now on the file itself says which store it is

        version = checked_schema_version(self._database)
        self.check()
        self._check_version(version)
        self.ledger.check_end()
        Witness.of(self.path).check(self.public_id(), self.commits())

        return version

    def _put_public(self) -> None:
        self.put_state(PUBLIC, {"id": secrets.token_hex(16), "version": schema.VERSION})

    def _check_version(self, version: int) -> None:
        """Compare the file's version with the one under seal."""
        if self.state(PUBLIC).get("version") != version:
            raise self._database.damage("its version")

    def _migrate_in_memory(self, version: int) -> None:
        """Show a store of an older version as one of this version, without a change of its file."""
        if version != schema.VERSION:
            self._database.use_copy_in_memory()
            migrate_schema(self._database, self, version)

    def _require_same_before_migration(
        self, version: int, settings: Mapping[str, Any], secret: bytes
    ) -> None:
        """Refuse other settings or another secret before the file is changed for good."""
        if version != schema.VERSION:
            with closing(type(self).read(self.path)) as migrated:
                migrated.require_same(settings, secret)

    def _identify(self, settings: Mapping[str, Any], secret: bytes) -> None:
        """Begin with settings and a secret."""
        name = settings.get("name") or new_identity_name()
        with self.transaction():
            self.put_state("identity", make_identity({**settings, "name": name}, secret))


def _files_of(path: Path) -> list[Path]:
    """Name the files of a store that is open.

    Its own, SQLite's next to it, and at the end its lock.
    """
    resolved = path.resolve()
    return [
        resolved,
        *(resolved.with_name(resolved.name + suffix) for suffix in ("-wal", "-shm")),
        lock_path(path),
    ]

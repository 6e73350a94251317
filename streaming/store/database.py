"""A SQLite file of which every fault is one line."""

from __future__ import annotations

import os
import sqlite3
import stat
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

APPLICATION_ID = 0x4D454E53  # "MENS": recognizes the file
SYNCHRONOUS = "FULL"  # a commit is on the disk when it returns
CACHE_KIBIBYTES = 65_536
CHECKPOINT_PAGES = 8_192  # pages that each commit writes again reach the file once for many commits
BUSY_SECONDS = 10
PAGE = 4096  # bytes, SQLite's own choice

_HEADER = {"auto_vacuum": 0, "encoding": "UTF-8", "journal_mode": "wal"}
"""What the first page says of a file that was made here."""

_LOGS = ("-wal", "-journal")

Row = tuple[Any, ...]


class StoreError(RuntimeError):
    """The store cannot be used; the message is one line for the user."""


class EmptyStoreError(StoreError):
    """There is nothing in the file yet.

    The engine that made it has ended before its first commit.
    """


class DamagedStoreError(StoreError):
    """The store does not hold what was written."""


class CopyFailedError(StoreError):
    """The place of a copy does not take it."""


_FAULTS_OF_WRITING = {
    sqlite3.SQLITE_FULL,
    sqlite3.SQLITE_IOERR_WRITE,
    sqlite3.SQLITE_IOERR_FSYNC,
    sqlite3.SQLITE_IOERR_DIR_FSYNC,
    sqlite3.SQLITE_IOERR_TRUNCATE,
    sqlite3.SQLITE_READONLY,
}


class Database:
    """One connection. Reading only, it sees the file as it was at one moment, whatever is committed meanwhile.

    **Privacy.** No message repeats what SQLite says about content: it could quote a value.
    """

    def __init__(self, path: Path, *, read_only: bool) -> None:
        self.path = path
        self.is_empty = False
        uri = f"{path.resolve().as_uri()}?mode={'ro' if read_only and _has_log(path) else 'rw'}"
        with self._readable_faults():
            self._file = sqlite3.connect(uri, uri=True, isolation_level=None, timeout=BUSY_SECONDS)

        self._connection = self._file  # or a copy of it in memory

        try:
            self._begin(read_only=read_only)
        except BaseException:
            self._connection.close()
            raise

    def close(self) -> None:
        """End; what was not committed is gone."""
        self._connection.close()
        self._file.close()

    def use_copy_in_memory(self) -> None:
        """Go on with a copy in memory, which may be changed; the file stays as it is."""
        with self._readable_faults():
            memory = sqlite3.connect(":memory:", isolation_level=None)
            self._file.backup(memory)

        self._connection = memory

    def execute(self, sql: str, parameters: Sequence[Any] = ()) -> None:
        """Run a statement that gives no rows."""
        with self._readable_faults():
            self._connection.execute(sql, parameters)

    def insert(self, sql: str, rows: Iterable[Sequence[Any]]) -> None:
        """Run a statement for each row."""
        with self._readable_faults():
            self._connection.executemany(sql, rows)

    def rows(self, sql: str, parameters: Sequence[Any] = ()) -> list[Row]:
        """Read all rows."""
        with self._readable_faults():
            return self._connection.execute(sql, parameters).fetchall()

    def one(self, sql: str, parameters: Sequence[Any] = ()) -> Any:
        """Read one value; None if there is no row."""
        rows = self.rows(sql, parameters)

        if rows:
            return rows[0][0]
        return None

    def blocks(
        self, sql: str, parameters: Sequence[Any] = (), *, size: int = 1
    ) -> Iterator[list[Row]]:
        """Read rows, that many at a time."""
        with self._readable_faults():
            cursor = self._connection.execute(sql, parameters)

        while True:
            with self._readable_faults():
                rows = cursor.fetchmany(size)

            if not rows:
                return
            yield rows

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Commit all or nothing, durably; writers of several processes come one after the other."""
        self.execute("BEGIN IMMEDIATE")
        try:
            yield
            self.execute("COMMIT")
        except BaseException:
            with suppress(sqlite3.Error):  # SQLite has rolled back where it could not write
                self._connection.execute("ROLLBACK")

            raise

    def fold(self) -> bool:
        """Write what is in the write-ahead log into the file.

        Say whether nothing is left of the log.
        """
        return bool(self.one("PRAGMA wal_checkpoint(TRUNCATE)") == 0)

    def copy_to(self, path: Path) -> None:
        """Write what this connection sees of the file into an empty one, page by page."""
        with self._readable_faults(), closing(sqlite3.connect(path)) as target:
            try:
                self._file.backup(target)
            except sqlite3.OperationalError as error:
                if error.sqlite_errorcode not in _FAULTS_OF_WRITING:  # nothing else is written
                    raise
                raise CopyFailedError(
                    f"backup must be writable, got {str(path)!r} ({error})"
                ) from None

    def damage(self, what: str) -> DamagedStoreError:
        """Say that something is not what was written."""
        return DamagedStoreError(
            f"store must be undamaged, got a fault in {what} of {str(self.path)!r}"
        )

    def _begin(self, *, read_only: bool) -> None:
        """Recognize the file and set the connection up."""
        application = self.one("PRAGMA application_id")
        untouched = self.path.stat().st_size in (0, PAGE) and application == 0
        self.is_empty = untouched and self.one("SELECT count(*) FROM sqlite_schema") == 0

        if self.is_empty and read_only:
            raise EmptyStoreError(
                f"store must hold something, got nothing yet in {str(self.path)!r}"
            )
        if application != APPLICATION_ID and not self.is_empty:
            raise StoreError(f"store must be a Meanstream store, got {str(self.path)!r}")

        self.execute("PRAGMA cell_size_check = ON")
        self.execute("PRAGMA trusted_schema = OFF")

        if read_only:
            self.execute("PRAGMA query_only = ON")
            self.execute("BEGIN")
        else:
            self.execute(f"PRAGMA synchronous = {SYNCHRONOUS}")
            self.execute("PRAGMA secure_delete = ON")
            self.execute(f"PRAGMA cache_size = -{CACHE_KIBIBYTES}")
            self.execute(f"PRAGMA wal_autocheckpoint = {CHECKPOINT_PAGES}")
            # A log that one large transaction made longer is cut when it begins anew.
            self.execute(f"PRAGMA journal_size_limit = {CHECKPOINT_PAGES * PAGE}")

        if self.is_empty and not read_only:
            self.execute("PRAGMA journal_mode = WAL")
        elif {name: self.one(f"PRAGMA {name}") for name in _HEADER} != _HEADER:
            raise self.damage("its header")

    @contextmanager
    def _readable_faults(self) -> Iterator[None]:
        """Turn a fault that SQLite found into one line."""
        try:
            yield
        except sqlite3.ProgrammingError:  # a defect of the caller
            raise
        except (
            sqlite3.DatabaseError,
            UnicodeError,
        ) as error:  # the message itself may quote damaged text
            raise self._fault_line(error) from None

    def _fault_line(self, error: Exception) -> StoreError:
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF  # without the extension
        shown_path = repr(str(self.path))
        if code in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR):
            return StoreError(
                f"store must have space on a working disk, got {str(error)!r} for {shown_path}; "
                "committed work is safe: make space and start again"
            )

        if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            return StoreError(
                f"store must be free within {BUSY_SECONDS} s, got {str(error)!r} for {shown_path}"
            )

        if code in (
            sqlite3.SQLITE_CANTOPEN,
            sqlite3.SQLITE_READONLY,
            sqlite3.SQLITE_PERM,
            sqlite3.SQLITE_AUTH,
        ):
            return StoreError(
                f"store must be a file that can be opened, got {str(error)!r} for {shown_path}"
            )

        if code == sqlite3.SQLITE_NOTADB:
            return StoreError(f"store must be a Meanstream store, got {shown_path}")
        return self.damage(f"the file ({getattr(error, 'sqlite_errorname', 'unreadable text')})")


def _has_log(path: Path) -> bool:
    """Say whether a file has a log, which a writing connection would fold in or roll back.

    Where there is none, only a writing connection takes away the empty ones that SQLite makes to
    read.
    """
    file = path.resolve()
    return any(file.with_name(file.name + suffix).exists() for suffix in _LOGS)


def keep_database_to_owner(paths: Iterable[Path]) -> None:
    """Let the owner alone read and write files of a store, also those that were made before it."""
    for path in paths:
        with suppress(FileNotFoundError):
            mode = stat.S_IMODE(path.stat().st_mode)
            if not mode & 0o077:
                continue

            try:
                path.chmod(mode & 0o700)
            except PermissionError:
                if mode & 0o007:
                    rule = "store must be for its owner alone (chmod 600)"
                    raise StoreError(f"{rule}, got mode {mode:04o} of {str(path)!r}") from None


@contextmanager
def new_file(
    path: Path,
    name: str,
    *,
    mode: int = 0o600,
    refused: type[Exception] = StoreError,
    failed: type[Exception] | None = CopyFailedError,
) -> Iterator[BinaryIO]:
    """Make a file that is not there yet, whole or not at all; by default for its owner alone.

    A place that is taken, or cannot be written to, is `refused`; a fault of writing has
    `failed`, or goes on as it is.
    """
    try:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(path, flags, mode)
    except FileExistsError:
        raise refused(f"{name} must be a new file, got {str(path)!r}, which exists") from None
    except OSError as error:
        raise refused(
            f"{name} must be in a writable folder, got {str(path)!r} ({error.strerror})"
        ) from None

    try:
        with os.fdopen(descriptor, "wb") as file:
            yield file
            file.flush()
            os.fsync(descriptor)
    except BaseException as error:
        path.unlink()
        if isinstance(error, OSError) and failed is not None:
            raise failed(f"{name} must be writable, got {str(path)!r} ({error.strerror})") from None

        raise


def create_database_file(path: Path) -> bool:
    """Make an empty file that its owner can read; say so, or that there is one."""
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
        return True
    except FileExistsError:
        return False
    except OSError as error:
        raise StoreError(
            f"store must be in a writable folder, got {str(path)!r} ({error.strerror})"
        ) from None

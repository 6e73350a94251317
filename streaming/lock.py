"""One process at a time: a lock file that names its owner, and knows how far the store has come."""

from __future__ import annotations

import fcntl
import os
import re
from contextlib import suppress
from pathlib import Path
from typing import Self

from streaming.database import StoreError

_OWNER = "{:<20}\n"
_WITNESS = "{} {:<20}\n"
_WITNESS_AT = 21
_RECORD = re.compile(rb"(\d+) *\n(?:([0-9a-f]{32}) (\d+) *\n)?")


class StoreLock:
    """The lock of a store, held until it is closed.

    The operating system gives it free when its owner dies: what a killed process leaves is no obstacle.

    The file also tells how many commits the store has seen. SQLite takes a damaged write-ahead log for one that ends
    there, so without a witness the last commits could be lost without a word.
    """

    def __init__(self, path: Path, descriptor: int) -> None:
        self._path = path
        self._descriptor = descriptor

    @classmethod
    def take(cls, path: Path) -> Self:
        """Take the lock file beside a store, or say who has it.

        Raises
        ------
        StoreError
            If another process has the lock, naming its id, or the file cannot be written.
        """
        place = path.resolve()  # a store with two names is one store
        try:
            descriptor = os.open(f"{place}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise StoreError(f"store must be in a writable folder, got {str(path)!r} ({error.strerror})") from None
        lock = cls(path, descriptor)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.pwrite(descriptor, _OWNER.format(os.getpid()).encode(), 0)
        except BlockingIOError:
            owner = lock._record()[0]
            lock.close()
            raise StoreError(f"store must be used by one process, got {str(path)!r} in use by {owner}") from None
        except OSError as error:
            lock.close()
            raise StoreError(f"store must have a writable lock file, got {str(path)!r} ({error.strerror})") from None
        return lock

    def close(self) -> None:
        """Give the store free."""
        os.close(self._descriptor)

    def note(self, store: str, commits: int) -> None:
        """Remember how many commits a store has seen; they are on the disk."""
        with suppress(OSError):  # a witness that knows less is still true
            os.pwrite(self._descriptor, _WITNESS.format(store, commits).encode(), _WITNESS_AT)

    def check(self, store: str, commits: int) -> None:
        """Compare with what was noted of this store.

        Raises
        ------
        StoreError
            If the store has seen fewer commits.
        """
        _, name, noted = self._record()
        if name == store and noted > commits:
            raise self._lost(noted, commits)

    def check_new(self) -> None:
        """Refuse to begin a store in an empty file where there was one.

        Raises
        ------
        StoreError
            If commits of a store were noted.
        """
        _, _, noted = self._record()
        if noted:
            raise self._lost(noted, 0)

    def _lost(self, noted: int, found: int) -> StoreError:
        return StoreError(
            f"store must have the {noted} commits that its lock file tells of, got {found} in {str(self._path)!r}: it "
            "is damaged or an older copy; to go on from what is there nevertheless, delete the lock file"
        )

    def _record(self) -> tuple[str, str | None, int]:
        """Read the owner, the store and the number of its commits."""
        found = _RECORD.match(os.pread(self._descriptor, 100, 0))
        if found is None:
            return "another process", None, 0
        name = None if found[2] is None else found[2].decode()
        return f"process {int(found[1])}", name, int(found[3] or 0)

"""One process at a time: a lock file that names its owner, and tells how far the store has come."""

from __future__ import annotations

import os
import re
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from meanstream.streaming.store.database import StoreError

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
            found = _RECORD.match(lock_path(path).read_bytes()[:100])
        except OSError:
            found = None

        if found is None or found[2] is None:
            return cls(path)
        return cls(path, found[2].decode(), int(found[3]))

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
            found = _RECORD.match(os.pread(descriptor, 100, 0))
            os.close(descriptor)
            owner = "another process" if found is None else f"process {int(found[1])}"
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
    place = path.resolve()  # a store with two names is one store
    return place.with_name(place.name + ".lock")

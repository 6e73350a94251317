"""One process at a time: a lock file that names its owner."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from typing import IO

from streaming.database import StoreError


def take_lock(path: Path) -> IO[bytes]:
    """Take the lock file beside a store until it is closed, or say who has it.

    The operating system gives the lock free when its owner dies, so that what a killed process leaves is no obstacle.

    Raises
    ------
    StoreError
        If another process has the lock, naming its id, or the file cannot be written.
    """
    place = path.resolve()  # a store with two names is one store
    try:
        file = os.fdopen(os.open(f"{place}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600), "r+b", buffering=0)
    except OSError as error:
        raise StoreError(f"store must be in a writable folder, got {str(path)!r} ({error.strerror})") from None
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        owner = b"%d\n" % os.getpid()
        file.write(owner)  # and then the rest goes, so that at no moment nobody is named
        file.truncate(len(owner))
    except BlockingIOError:
        found = file.read(32).split(b"\n")[0]
        file.close()
        owned = f"process {found.decode()}" if found.isdigit() else "another process"
        raise StoreError(f"store must be used by one process, got {str(path)!r} in use by {owned}") from None
    except OSError as error:
        file.close()
        raise StoreError(f"store must have a writable lock file, got {str(path)!r} ({error.strerror})") from None
    return file

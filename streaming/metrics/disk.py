"""What a store takes of its disk, and what is left of that."""

from __future__ import annotations

import os
from contextlib import closing
from pathlib import Path

from meanstream.streaming.store.state_store import Store, StoreError


def disk_ledger_size(path: Path) -> tuple[int, int] | tuple[None, None]:
    """Give the rows and bytes of a ledger as its end says, read next to the engine.

    None where it cannot be read.
    """
    try:
        with closing(Store.read(path)) as store:
            head = store.ledger.head()
    except StoreError:
        return None, None

    return head.rows, head.size


def disk_of_store(path: Path) -> dict[str, int]:
    """Private: give the bytes of a store's files, and the free and all bytes of their disk.

    None where there is none.

    **Privacy.** How long the numbers in private outputs on the disk are is in what is left of it.
    """
    try:
        disk = os.statvfs(path.parent)
        files = [path.with_name(path.name + end) for end in ("", "-wal")]
        used = sum(file.stat().st_size for file in files if file.exists())
    except OSError:
        return {}

    return {
        "store_bytes": used,
        "store_free_bytes": disk.f_bavail * disk.f_frsize,
        "store_disk_bytes": disk.f_blocks * disk.f_frsize,
    }

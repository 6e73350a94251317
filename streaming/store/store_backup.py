"""A copy of a store at one commit, made while an engine may be running on it."""

from __future__ import annotations

import os
from pathlib import Path

from meanstream.streaming.store.database import CopyFailedError
from meanstream.streaming.store.state_store import Store, StoreError
from meanstream.streaming.store.store_audit import LedgerReport, audit_ledger


def back_up_store(store: Path, place: Path) -> LedgerReport:
    """Copy a store and verify the copy's ledger.

    Copying the file by hand misses what is still in the write-ahead log.

    **Privacy.** The copy is on the private side as the store is: it holds raw sums, and raw samples that wait for
    their event time. Only its owner can read it. It does not hold the secret, without which it cannot be continued.
    Restored, it is an older copy: continued on other input than before, it would give the noise of one release to two
    sums. Restore the newest only, onto the input that it had read from.

    Returns
    -------
    LedgerReport
        Rows, agents and head of the copy's ledger, to be noted elsewhere.
    """
    opened = Store.read(store)
    try:
        _make(place)
        try:
            opened.copy_to(place)
            report = audit_ledger(place)
            _sync(place)
            _sync(place.parent)
        except BaseException as error:
            place.unlink()
            if isinstance(error, OSError):
                raise CopyFailedError(
                    f"backup must be writable, got {str(place)!r} ({error.strerror})"
                ) from None

            raise
        finally:  # anyone who reads a copy leaves these next to it; there is nothing in them
            for suffix in ("-wal", "-shm"):
                place.with_name(place.name + suffix).unlink(missing_ok=True)
    finally:
        opened.close()

    return report


def _make(place: Path) -> None:
    try:
        os.close(os.open(place, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    except FileExistsError:
        raise StoreError(f"backup must be a new file, got {str(place)!r}, which exists") from None
    except OSError as error:
        raise _unwritable(place, error) from None


def _unwritable(place: Path, error: OSError) -> StoreError:
    return StoreError(f"backup must be in a writable folder, got {str(place)!r} ({error.strerror})")


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)

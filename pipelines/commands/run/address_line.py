"""An address with the token that opens it, told to who runs the engine and to no one who reads its log."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from meanstream.pipelines.options.option_errors import RunFailed

_log = logging.getLogger("meanstream.run")


@contextmanager
def announcing_address(
    what: str, url: str, secret: str, *, store: Path | None, suffix: str
) -> Iterator[Callable[[], None]]:
    """Tell an address, with its token, once; what is told in a file goes when the context is left.

    On a terminal, or without a store, it is printed. Elsewhere standard error is a log, which
    others may read: there what is given, to be called once the store is this run's own, writes it
    into a file next to the store.
    """
    place = None if store is None or sys.stderr.isatty() else store.with_name(store.name + suffix)
    written: list[Path] = []

    if place is None:
        sys.stderr.write(f"{what}: {secret}\n")

    def announce() -> None:
        if place is not None:
            _write_for_owner(what, place, secret)
            written.append(place)
            _log.info(f"{what} is served", extra={"url": url, "token_in": str(place)})

    try:
        yield announce
    finally:
        for path in written:
            path.unlink(missing_ok=True)


def _write_for_owner(what: str, place: Path, line: str) -> None:
    """Write a line that only the owner of the file can read, in place of one that a killed run has left."""
    fresh = place.with_name(f"{place.name}.{os.getpid()}")
    try:
        descriptor = os.open(
            fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600
        )
        with os.fdopen(descriptor, "w") as file:
            file.write(line + "\n")

        fresh.replace(place)
    except OSError as error:
        raise RunFailed(
            f"{what} could not be written to {str(place)!r} ({error.strerror})"
        ) from None

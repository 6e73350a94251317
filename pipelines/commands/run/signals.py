"""The process of a run: signals end it between two commits, and Python looks for cycles rarely."""

from __future__ import annotations

import gc
import logging
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

_log = logging.getLogger("meanstream.run")


@dataclass(frozen=True, slots=True)
class Parent:
    """The process that has started this one as a shard.

    Attributes
    ----------
    pid : int
    run : str
        Another one at each start.
    shards : int
        How many it has started.
    channel : int
        Descriptor of the pipe that it reads.
    """

    pid: int
    run: str
    shards: int
    channel: int

    @property
    def gone(self) -> bool:
        """Whether it has died, and left this process alone."""
        return os.getppid() != self.pid

    def tell(self, what: str, text: str = "") -> None:
        """Write a line to it: where something is served, or that something has been done."""
        with suppress(OSError):  # it is gone, and this process ends
            os.write(self.channel, f"{what} {text}\n".encode())


_parents: list[Parent] = []


def follow_parent(parent: Parent) -> None:
    """End this process in the usual way when that one is gone."""
    _parents.append(parent)


def followed_parent() -> Parent | None:
    """Give the process that has started this one as a shard, if one has."""
    return _parents[-1] if _parents else None


@contextmanager
def stopping_on_signals() -> Iterator[Callable[[], bool]]:
    """Finish the batch at hand and commit on SIGTERM, SIGHUP or Ctrl-C.

    A SIGHUP that is ignored, as under nohup, stays ignored.
    """
    received: list[int] = []
    handlers = {
        s: signal.signal(s, lambda number, _: received.append(number))
        for s in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
        if signal.getsignal(s) is not signal.SIG_IGN
    }
    said: list[int] = []
    parent = followed_parent()

    def stop() -> bool:
        if received and not said:
            said.append(received[0])
            _log.info("stopping", extra={"signal": signal.Signals(received[0]).name})

        return bool(received) or (parent is not None and parent.gone)

    try:
        yield stop
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)


YOUNG_OBJECTS = 50_000
"""New containers between two looks for cycles: an engine makes a million at once, of which none is
in a cycle."""


def pause_collection() -> None:
    """Look for no cycles until `resume_collection`.

    Imports make 400,000 containers that all stay.
    """
    gc.disable()


def resume_collection() -> None:
    """Look for cycles among what is made from now on.

    What is there stays to the end of the process.
    """
    if not gc.get_freeze_count():
        gc.freeze()  # no collection, nor the last one, looks at it

    gc.set_threshold(YOUNG_OBJECTS)
    gc.enable()

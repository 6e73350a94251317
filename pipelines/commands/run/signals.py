"""SIGTERM, SIGHUP and Ctrl-C end a run between two commits."""

from __future__ import annotations

import logging
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_log = logging.getLogger("meanstream.run")


@contextmanager
def stopping_on_signals() -> Iterator[Callable[[], bool]]:
    """Finish the batch at hand and commit on SIGTERM, SIGHUP or Ctrl-C.

    A SIGHUP that is ignored, as under nohup, stays ignored.
    """
    asked: list[int] = []
    handlers = {
        s: signal.signal(s, lambda number, _: asked.append(number))
        for s in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
        if signal.getsignal(s) is not signal.SIG_IGN
    }
    said: list[int] = []

    def stop() -> bool:
        if asked and not said:
            said.append(asked[0])
            _log.info("stopping", extra={"signal": signal.Signals(asked[0]).name})

        return bool(asked)

    try:
        yield stop
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)

"""The log lines of clients end with the command that made the clients.

A client may outlive its command by some seconds, where no broker answers its last words.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


class ClientLogs:
    """The lines of the clients that one command makes.

    Examples
    --------
    >>> with logs_of_clients() as logs:
    ...     logs is current_client_logs(), logs.ended
    (True, False)
    >>> logs.ended, current_client_logs()
    (True, None)
    """

    def __init__(self) -> None:
        self.ended = False


_running: list[ClientLogs] = []
"""Of the commands that run in this process, the newest last."""


def current_client_logs() -> ClientLogs | None:
    """Give the lines to which a new client's belong; None for a client of no command."""
    if _running:
        return _running[-1]
    return None


@contextmanager
def logs_of_clients() -> Iterator[ClientLogs]:
    """Let clients that are made meanwhile write log lines until the end, and not beyond."""
    logs = ClientLogs()
    _running.append(logs)

    try:
        yield logs
    finally:
        logs.ended = True
        _running.remove(logs)

"""A server in a thread of its own, from an address that someone typed to a port that is closed again."""

from __future__ import annotations

import re
import socket
import threading
from http.server import BaseHTTPRequestHandler
from typing import Generic, Self, TypeVar

from meanstream.streaming.metrics.connections import BoundedThreads

Listening = TypeVar("Listening", bound=BoundedThreads)

_ADDRESS = re.compile(r"(?P<host>\[[0-9A-Fa-f:.]+\]|[^\[\]:\s]+):(?P<port>\d{1,5})")
_LOOKS_FOR_THE_END = 0.1
"""Seconds between two looks at whether it shall close."""


def parse_server_address(address: str, option: str = "metrics") -> tuple[str, int]:
    """Split an address, the value of the option of this name, into host and port.

    Examples
    --------
    >>> parse_server_address("127.0.0.1:9464"), parse_server_address("[::1]:9464")
    (('127.0.0.1', 9464), ('::1', 9464))
    >>> parse_server_address("9464")
    Traceback (most recent call last):
    ValueError: metrics must be HOST:PORT, such as 127.0.0.1:9464, got '9464'
    """
    match = _ADDRESS.fullmatch(address)
    if match is None or int(match["port"]) > 65_535:
        raise ValueError(f"{option} must be HOST:PORT, such as 127.0.0.1:9464, got {address!r}")
    return match["host"].strip("[]"), int(match["port"])


class BackgroundServer(Generic[Listening]):
    """Answers while it is open; use as a context manager. The base of all servers.

    Parameters
    ----------
    option : str
        The option whose value the address is; the thread has its name.
    address : str
        `HOST:PORT`, with an IPv6 address in brackets; port 0 takes a free one (see `url`).
    server : type of BoundedThreads
        What listens.
    handler : type of BaseHTTPRequestHandler
        What answers one connection.
    """

    def __init__(
        self,
        option: str,
        address: str,
        server: type[Listening],
        handler: type[BaseHTTPRequestHandler],
    ) -> None:
        host, port = parse_server_address(address, option)
        try:
            family, _, _, _, place = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
            self._server: Listening = type("Server", (server,), {"address_family": family})(
                place[:2], handler
            )
        except UnicodeError:
            raise ValueError(f"{option} must be the name of a host, got {address!r}") from None
        except OSError as error:
            raise ValueError(
                f"{option} must be an address that is free, got {address!r} ({error.strerror})"
            ) from None

        self.host = host
        self.url = f"http://{f'[{host}]' if ':' in host else host}:{self._server.server_port}"
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(_LOOKS_FOR_THE_END,), name=option, daemon=True
        )

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Stop listening; answers that are on their way are finished or dropped."""
        if self._thread.is_alive():
            self._server.shutdown()
            self._thread.join()

        self._server.server_close()

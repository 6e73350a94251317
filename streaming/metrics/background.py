"""A server in a thread of its own, from an address that someone typed to a port that is closed again."""

from __future__ import annotations

import re
import socket
import threading
from contextlib import suppress
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, HTTPServer
from socketserver import TCPServer, ThreadingMixIn
from typing import Any, Generic, Self, TypeVar
from urllib.parse import urlsplit

MAX_CONNECTIONS = 64
"""Threads, and open files, of a server."""


class BoundedThreads(ThreadingMixIn, HTTPServer):
    """One thread per connection, and that many at most: for one more the oldest of them is closed.

    An answer takes milliseconds, so the oldest one is a client that has said nothing, or reads
    nothing.
    """

    daemon_threads = True
    block_on_close = False  # anyone who keeps a connection must not keep the engine from ending
    request_queue_size = 128

    def __init__(self, *arguments: Any, **named: Any) -> None:
        self._guard = threading.Lock()
        self._open: dict[int, Any] = {}
        super().__init__(*arguments, **named)

    def server_bind(self) -> None:
        """Bind without asking a name server for our own name."""
        TCPServer.server_bind(self)
        self.server_name = str(self.server_address[0])
        self.server_port = self.server_address[1]

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing of a client that has gone before its answer was complete."""

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Answer, and forget the connection."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            with self._guard:
                self._open.pop(id(request), None)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Begin with a connection, if need be in place of the oldest."""
        with self._guard:
            self._open[id(request)] = request
            oldest = (
                self._open.pop(next(iter(self._open)))
                if len(self._open) > MAX_CONNECTIONS
                else None
            )

        if oldest is not None:
            with suppress(OSError):
                oldest.shutdown(socket.SHUT_RDWR)  # its thread wakes up and ends

        super().process_request(request, client_address)


class RequestsWithoutBody(BaseHTTPRequestHandler):
    """Refuses a request with a body, or with a head that can be read in two ways, and closes its connection.

    **Privacy.** A body would be read as the next request. Behind a proxy, which sends the requests
    of many over one connection, a stranger's would be answered in place of another's, and that
    one's answer be the stranger's.
    """

    error_message_format = (
        "%(message)s\n"  # one line, as everything else that is refused, not a page of HTML
    )
    error_content_type = "text/plain; charset=utf-8"

    def parse_request(self) -> bool:
        """Read the head of a request; False if it was refused."""
        if not super().parse_request():
            return False
        lengths = self.headers.get_all("Content-Length", ["0"])
        clear = (
            not self.headers.defects
            and set(lengths) == {"0"}
            and "Transfer-Encoding" not in self.headers
        )
        clear = (
            clear and len(self.headers.get_all("Host", [])) <= 1
        )  # a proxy may have gone by another one than we do

        try:
            urlsplit(self.path)
        except ValueError:
            clear = False

        if not clear:
            self.send_error(HTTPStatus.BAD_REQUEST)

        return clear


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
            family, _, _, _, socket_address = socket.getaddrinfo(
                host, port, type=socket.SOCK_STREAM
            )[0]
            self._server: Listening = type("Server", (server,), {"address_family": family})(
                socket_address[:2], handler
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

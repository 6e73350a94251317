"""A bound on the connections of a server, and on what is a request.

Clients that say nothing cost no thread for long, and keep no one out; none can put words into
another's mouth.
"""

from __future__ import annotations

import socket
import threading
from contextlib import suppress
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, HTTPServer
from socketserver import TCPServer, ThreadingMixIn
from typing import Any
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

    **Privacy.** A body would be read as the next request. Behind a proxy, which sends the requests of many over one
    connection, a stranger's would be answered in place of another's, and that one's answer be the stranger's.
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

"""The engine's HTTP side: /metrics for Prometheus, /healthz and /readyz for whoever runs the process."""

from __future__ import annotations

import logging
import re
import socket
import threading
from collections.abc import Callable, Iterable
from socketserver import TCPServer
from typing import Any, Self
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

from meanstream.streaming.engine.health import EngineHealth
from meanstream.streaming.metrics.connections import BoundedThreads
from meanstream.streaming.metrics.metrics import Metrics

_log = logging.getLogger("meanstream.metrics")

Application = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]
_ADDRESS = re.compile(r"(?P<host>\[[0-9A-Fa-f:.]+\]|[^\[\]:\s]+):(?P<port>\d{1,5})")


class MetricsServer:
    """Serves metrics and probes while it is open; use as a context manager.

    Parameters
    ----------
    address : str
        `HOST:PORT`, with an IPv6 address in brackets; port 0 takes a free one (see `url`).
    metrics : Metrics
        What /metrics shows.
    health : EngineHealth
        What /healthz (is the process alive) and /readyz (can it do its work) say: 200, or 503 with the reason.

    Raises
    ------
    ValueError
        If the address is none, or cannot be listened on.

    Notes
    -----
    **Privacy.** All three answers are public. There is no authentication: listen where only those who may know the
    state of the engine can connect.
    """

    def __init__(self, address: str, metrics: Metrics, health: EngineHealth) -> None:
        host, port = parse_server_address(address)
        try:
            family, _, _, _, place = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
            server_type = type("Server", (_Server,), {"address_family": family})
            self._server: _Server = server_type(place[:2], _Handler)
        except OSError as error:
            raise ValueError(f"metrics must be an address that is free, got {address!r} ({error.strerror})") from None
        self._server.set_app(_application(metrics, health))
        shown = f"[{host}]" if ":" in host else host
        self.url = f"http://{shown}:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.1,), name="metrics", daemon=True)

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


def parse_server_address(address: str, name: str = "metrics") -> tuple[str, int]:
    """Split an address, the value of the option of this name, into host and port.

    Raises
    ------
    ValueError
        If it is not `HOST:PORT`.

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
        raise ValueError(f"{name} must be HOST:PORT, such as 127.0.0.1:9464, got {address!r}")
    return match["host"].strip("[]"), int(match["port"])


class _Server(BoundedThreads, WSGIServer):
    request_queue_size = 128

    def server_bind(self) -> None:
        """Bind without asking a name server for our own name."""
        TCPServer.server_bind(self)
        self.server_name, self.server_port = str(self.server_address[0]), self.server_address[1]
        self.setup_environ()

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ARG002
        """Say nothing of a client that has gone."""
        _log.debug("a client has gone before its answer was complete")


class _Handler(WSGIRequestHandler):
    timeout = 10.0  # a client that sends nothing

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Keep requests out of the log: what is in them is not ours."""


def _application(metrics: Metrics, health: EngineHealth) -> Application:
    """Answer the three paths; anything else is refused."""
    pages: dict[str, Application] = {
        "/metrics": metrics.application(),
        "/healthz": _probe(health.not_alive),
        "/readyz": _probe(health.not_ready),
    }

    def application(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        page = pages.get(environ["PATH_INFO"])
        if page is None:
            return _text(start_response, "404 Not Found", f"there are {', '.join(pages)}")
        if environ["REQUEST_METHOD"] not in ("GET", "HEAD"):
            return _text(start_response, "405 Method Not Allowed", "use GET or HEAD", ("Allow", "GET, HEAD"))
        try:
            answer = page({**environ, "REQUEST_METHOD": "GET"}, start_response)
        except Exception as error:
            _log.error("metrics cannot be shown", extra={"error": type(error).__name__})
            return _text(start_response, "500 Internal Server Error", type(error).__name__)
        return [b""] if environ["REQUEST_METHOD"] == "HEAD" else answer

    return application


def _probe(problem: Callable[[], str | None]) -> Application:
    def probe(_: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        found = problem()
        return _text(start_response, "200 OK" if found is None else "503 Service Unavailable", found or "ok")

    return probe


def _text(start_response: Callable[..., Any], status: str, line: str, *headers: tuple[str, str]) -> Iterable[bytes]:
    start_response(status, [("Content-Type", "text/plain; charset=utf-8"), ("Cache-Control", "no-store"), *headers])
    return [f"{line}\n".encode()]

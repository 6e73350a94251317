"""The engine's HTTP side: /metrics for Prometheus, /healthz and /readyz for anyone who runs the process."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import Any, Protocol
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

from meanstream.streaming.metrics.background import BackgroundServer, BoundedThreads

_log = logging.getLogger("meanstream.metrics")

Application = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]


class Shown(Protocol):
    """What /metrics shows."""

    def application(self) -> Application:
        """Return the WSGI application that answers a scrape."""


class Probed(Protocol):
    """What the probes ask."""

    def not_alive(self) -> str | None:
        """Say why the process should be replaced, or None."""

    def not_ready(self) -> str | None:
        """Say why it cannot do its work now, or None."""


class MetricsServer(BackgroundServer["_Server"]):
    """Serves metrics and probes while it is open; use as a context manager.

    Parameters
    ----------
    address : str
        `HOST:PORT`, with an IPv6 address in brackets; port 0 takes a free one (see `url`).
    metrics : Shown
        What /metrics shows.
    health : Probed
        What /healthz (is the process alive) and /readyz (can it do its work) say: 200, or 503 with
        the reason.
    option : str
        The option that the address is of, for an error.

    Notes
    -----
    **Privacy.** All three answers are public. There is no authentication: listen where only those
    who may know the state of the engine can connect.
    """

    def __init__(
        self, address: str, metrics: Shown, health: Probed, *, option: str = "metrics"
    ) -> None:
        super().__init__(option, address, _Server, _Handler)
        self._server.set_app(_application(metrics, health))


class _Server(BoundedThreads, WSGIServer):
    def server_bind(self) -> None:
        """Bind, and say what a WSGI application asks for."""
        super().server_bind()
        self.setup_environ()


class _Handler(WSGIRequestHandler):
    timeout = 10.0  # a client that sends nothing

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Keep requests out of the log: what is in them is not ours."""


def _application(metrics: Shown, health: Probed) -> Application:
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
            return _text(
                start_response, "405 Method Not Allowed", "use GET or HEAD", ("Allow", "GET, HEAD")
            )

        try:
            answer = page({**environ, "REQUEST_METHOD": "GET"}, start_response)
        except Exception as error:
            _log.error("metrics cannot be shown", extra={"error": type(error).__name__})
            return _text(start_response, "500 Internal Server Error", type(error).__name__)

        if environ["REQUEST_METHOD"] == "HEAD":
            return [b""]
        return answer

    return application


def _probe(problem: Callable[[], str | None]) -> Application:
    def probe(_: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        why = problem()
        return _text(
            start_response, "200 OK" if why is None else "503 Service Unavailable", why or "ok"
        )

    return probe


def _text(
    start_response: Callable[..., Any], status: str, line: str, *headers: tuple[str, str]
) -> Iterable[bytes]:
    start_response(
        status,
        [("Content-Type", "text/plain; charset=utf-8"), ("Cache-Control", "no-store"), *headers],
    )

    return [f"{line}\n".encode()]

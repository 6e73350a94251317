"""The page's server: on this machine, behind a token, from files that are installed.

Nothing is fetched elsewhere.
"""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Callable
from http import HTTPStatus
from http.cookies import CookieError, SimpleCookie
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import msgspec

from meanstream.operators.validation import require
from meanstream.pipelines.page.page_figures import forecast_figure, page_figures
from meanstream.pipelines.page.private_requests import (
    PrivateRequests,
    hosts_of_this_machine,
    require_loopback,
)
from meanstream.streaming.agents.agents_budget import BudgetOutlook
from meanstream.streaming.metrics.background import (
    BackgroundServer,
    BoundedThreads,
    parse_server_address,
)
from meanstream.streaming.metrics.telemetry import AgentsTelemetry, Telemetry

STATIC = Path(__file__).parent / "static"
FILES = {
    "/": (STATIC / "index.html", "text/html; charset=utf-8"),
    "/page.css": (STATIC / "page.css", "text/css; charset=utf-8"),
    "/page.js": (STATIC / "page.js", "text/javascript; charset=utf-8"),
    "/charts.js": (STATIC / "charts.js", "text/javascript; charset=utf-8"),
}
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data: blob:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
}


def _plotly_file() -> Path | None:
    """Find the drawing library among the installed packages; None if it is not there."""
    spec = find_spec("plotly")
    if spec is None or not spec.submodule_search_locations:
        return None
    path = Path(next(iter(spec.submodule_search_locations))) / "package_data" / "plotly.min.js"

    if path.is_file():
        return path
    return None


def check_page_server(address: str, *, remote: bool = False) -> None:
    """Refuse an address that a page would not be served at.

    Examples
    --------
    >>> check_page_server("127.0.0.1:8080")
    >>> check_page_server("0.0.0.0:8080")
    Traceback (most recent call last):
    ValueError: page must be an address of this machine only, unless --page-remote is given, got '0.0.0.0:8080'
    """
    host, _ = parse_server_address(address, "page")
    require_loopback("page", host, address, remote=remote)
    require(
        _plotly_file() is not None,
        "page",
        "come with its package: pip install 'meanstream[page]'",
        address,
    )


class PageServer(BackgroundServer["_Server"]):
    """Serves the page while it is open; use as a context manager.

    Parameters
    ----------
    address : str
        `HOST:PORT`; port 0 takes a free one (see `url`).
    telemetry : Telemetry
        What is shown. Each request takes a view of it: nothing of the engine is read.
    bounds : pair of float or None
        Declared bounds of a value, for the stages of rounds.
    remote : bool
        Listen where other machines can connect. There is no encryption: put a proxy in front of it.
    outlook : callable, optional
        Says when the budgets end, as often as it is queried.

    Notes
    -----
    **Privacy.** Anyone who has the token sees everything that the telemetry keeps: of agents that is private. The token
    is random, of this server only, compared in constant time, and moves from the address to a cookie that scripts and
    other sites cannot read. On an address of this machine a request that names another host is refused, so that no
    foreign site gets in by a name of its own.
    """

    def __init__(
        self,
        address: str,
        telemetry: Telemetry,
        *,
        bounds: tuple[float, float] | None = None,
        remote: bool = False,
        outlook: Callable[[], BudgetOutlook | None] | None = None,
    ) -> None:
        check_page_server(address, remote=remote)
        super().__init__("page", address, _Server, _Handler)
        hosts = hosts_of_this_machine(self.host, remote=remote)
        self._server.site = _Site(telemetry, bounds, outlook, self._server.server_port, hosts)
        self.url += f"/?token={self._server.site.token}"


class _Site:
    """Who may see what."""

    def __init__(
        self,
        telemetry: Telemetry,
        bounds: tuple[float, float] | None,
        outlook: Callable[[], BudgetOutlook | None] | None,
        port: int,
        hosts: set[str] | None,
    ) -> None:
        self.token = secrets.token_urlsafe(24)
        self.cookie = f"meanstream_page_{port}"  # cookies of a host are shared by its ports
        self._telemetry = telemetry
        self._bounds = bounds
        self._outlook = outlook
        self.hosts = hosts
        self._encoded: tuple[tuple[Any, ...], bytes] = ((), b"")

    def refusal(self, given: str | None) -> HTTPStatus | None:
        """Say how to refuse what was given as a token; None if it is the token."""
        if not given:
            return HTTPStatus.UNAUTHORIZED
        same = hmac.compare_digest(given.encode("utf-8", "replace"), self.token.encode())

        if same:
            return None
        return HTTPStatus.FORBIDDEN

    def data(self) -> bytes:
        """Everything that is shown; encoded once for all that look."""
        view = self._telemetry.view()
        ahead = None if self._outlook is None else self._outlook()
        of = (view.version, view.problem, ahead)
        if self._encoded[0] != of:
            shown = page_figures(
                view,
                kind=self._telemetry.kind,
                horizon=self._telemetry.horizon,
                bounds=self._bounds,
            ) | {
                "searchable": isinstance(self._telemetry, AgentsTelemetry),
                "protected": self._telemetry.protected,
                "forecast": None if ahead is None else forecast_figure(ahead.summary),
            }
            self._encoded = (of, msgspec.json.encode(shown))

        return self._encoded[1]

    def agent(self, name: str) -> bytes | None:
        """One agent's own history, and names like it; None where agents are not to be seen."""
        if not isinstance(self._telemetry, AgentsTelemetry):
            return None
        figures = {
            "name": name,
            "history": self._telemetry.history(name),
            "like": self._telemetry.names_like(name),
        }

        return msgspec.json.encode(figures)


class _Server(BoundedThreads):
    site: _Site


class _Handler(PrivateRequests):
    server: _Server

    def do_GET(self) -> None:  # noqa: N802
        """Answer if the token is right."""
        site = self.server.site
        address = urlsplit(self.path)
        query = parse_qs(address.query)

        if not self.names_host_of(site.hosts):
            self._say(HTTPStatus.FORBIDDEN, "this page is for this machine only")
            return

        typed = query.get("token", [""])[0]
        refusal = site.refusal(typed or self._cookie())
        if refusal is not None:
            self._say(
                refusal, "the address that was printed at the start has the token for this page"
            )
        elif typed and address.path == "/":
            cookie = f"{site.cookie}={site.token}; Path=/; HttpOnly; SameSite=Strict"
            self._send(
                HTTPStatus.SEE_OTHER, "text/plain", b"", {"Location": "/", "Set-Cookie": cookie}
            )
        else:
            self._answer(address.path, query)

    def _answer(self, path: str, query: dict[str, list[str]]) -> None:
        if path in FILES:
            file, kind = FILES[path]
            self._send(HTTPStatus.OK, kind, file.read_bytes())
        elif path == "/plotly.js" and (library := _plotly_file()) is not None:
            headers = {"Cache-Control": "private, max-age=3600"}
            self._send(
                HTTPStatus.OK, "text/javascript; charset=utf-8", library.read_bytes(), headers
            )
        elif path == "/data":
            self._send(HTTPStatus.OK, "application/json", self.server.site.data())
        elif (
            path == "/agent"
            and (found := self.server.site.agent(query.get("name", [""])[0])) is not None
        ):
            self._send(HTTPStatus.OK, "application/json", found)
        else:
            self._say(HTTPStatus.NOT_FOUND, "there is nothing here")

    def _cookie(self) -> str | None:
        try:
            morsel = SimpleCookie(self.headers.get("Cookie", "")).get(self.server.site.cookie)
        except CookieError:
            return None

        if morsel is None:
            return None
        return morsel.value

    def _say(self, status: HTTPStatus, line: str) -> None:
        self._send(status, "text/plain; charset=utf-8", f"{line}\n".encode())

    def _send(
        self, status: HTTPStatus, kind: str, body: bytes, more: dict[str, str] | None = None
    ) -> None:
        self.send_response(status)
        headers = {
            "Cache-Control": "no-store",
            "Content-Type": kind,
            "Content-Length": str(len(body)),
        }
        for name, value in {**HEADERS, **headers, **(more or {})}.items():
            self.send_header(name, value)

        self.end_headers()
        self.wfile.write(body)

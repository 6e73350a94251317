"""256 connections that say nothing keep nobody from the metrics or the page, and take bounded room.

Nor does a request that calls the server by two names get in by one of them.
"""

from __future__ import annotations

import socket
import threading
from contextlib import ExitStack
from urllib.parse import urlsplit
from urllib.request import urlopen

import pytest

from meanstream.operators.agents.agents import AgentsSettings
from meanstream.pipelines.page.page_server import PageServer
from meanstream.streaming.engine.engine_health import EngineHealth
from meanstream.streaming.metrics.background import MAX_CONNECTIONS
from meanstream.streaming.metrics.engine_metrics import Metrics
from meanstream.streaming.metrics.metrics_server import MetricsServer
from meanstream.streaming.metrics.telemetry import AgentsTelemetry
from tests.servers.support.wait_until import wait_until

SETTINGS = AgentsSettings(lower=0.0, upper=1.0, epsilon=1.0, delta=1e-6)


def answers_among_idle_connections(url: str) -> None:
    place = urlsplit(url)
    before = threading.active_count()
    with ExitStack() as idle:
        for _ in range(256):
            idle.enter_context(
                socket.create_connection((str(place.hostname), int(place.port or 0)), timeout=10)
            )
        for _ in range(5):
            with urlopen(url, timeout=10) as answer:  # noqa: S310 - of this test
                assert answer.status == 200
        wait_until(lambda: threading.active_count() - before <= MAX_CONNECTIONS)


def test_metrics() -> None:
    with MetricsServer(
        "127.0.0.1:0", Metrics(settings=SETTINGS, health=EngineHealth()), EngineHealth()
    ) as server:
        answers_among_idle_connections(server.url + "/healthz")


def test_page() -> None:
    with PageServer("127.0.0.1:0", AgentsTelemetry(settings=SETTINGS)) as server:
        answers_among_idle_connections(server.url.replace("/?", "/data?"))


def status_of(url: str, *hosts: str) -> int:
    place = urlsplit(url)
    with socket.create_connection(
        (str(place.hostname), int(place.port or 0)), timeout=60
    ) as client:
        named = "".join(f"Host: {host.format(place.netloc)}\r\n" for host in hosts)
        client.sendall(
            f"GET {place.path}?{place.query} HTTP/1.1\r\n{named}Connection: close\r\n\r\n".encode()
        )
        with client.makefile("rb") as answer:
            return int(answer.read().split()[1])


@pytest.mark.parametrize(
    "hosts", [("{}", "attacker.example"), ("attacker.example", "{}"), ("{}", "{}")]
)
def test_a_request_that_names_two_hosts_is_none(hosts: tuple[str, ...]) -> None:
    """A proxy may have let it in by the one, and we by the other."""
    with PageServer("127.0.0.1:0", AgentsTelemetry(settings=SETTINGS)) as server:
        url = server.url.replace("/?", "/data?")
        assert (status_of(url, "{}"), status_of(url, *hosts)) == (200, 400)

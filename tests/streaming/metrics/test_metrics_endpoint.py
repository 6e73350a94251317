"""The address of metrics: who asks badly is told in one line, who is slow delays nobody, and probes
hear the truth."""

from __future__ import annotations

import http.client
import socket
import threading
import urllib.request
from collections.abc import Callable
from dataclasses import replace

import pytest

from meanstream.pipelines.page.page_server import check_page_server
from meanstream.streaming.engine.engine_health import EngineHealth
from meanstream.streaming.engine.engine_stats import EngineStats
from meanstream.streaming.kafka.connection.kafka_client import protocols_of_listener
from meanstream.streaming.metrics.engine_metrics import REASONS, Metrics
from meanstream.streaming.metrics.metrics_server import MetricsServer
from tests.streaming.metrics.conftest import OPTIONS, SAMPLES, SETTINGS, Life
from tests.streaming.support.scripted_source import SettableClock, SettableConnection


class _FaultyConnection(SettableConnection):
    def connection_problem(self) -> str | None:
        return str(1 / 0)


def metrics_of(health: EngineHealth) -> Metrics:
    return Metrics(settings=SETTINGS, health=health)


def ask(url: str, path: str, method: str = "GET") -> tuple[int, str]:
    connection = http.client.HTTPConnection(url.removeprefix("http://"), timeout=10)
    try:
        connection.request(method, path)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()


def test_metrics_before_the_first_turn() -> None:
    health = EngineHealth()
    with MetricsServer("127.0.0.1:0", metrics_of(health), health) as server:
        status, text = ask(server.url, "/metrics")
    assert status == 200
    assert "meanstream_events_total 0.0" in text
    assert text.count("meanstream_rejects_total{") == len(REASONS)
    assert "meanstream_ready 0.0" in text
    for absent in (
        "ledger_rows",
        "watermark_lag_seconds",
        "checkpoint_age_seconds",
        "prior_spread",
        "prior_count_ratio",
        "dependence_ratio",
        "covariates_explained_ratio",
        "input_lag_events",
    ):
        assert f"\nmeanstream_{absent} " not in text


def test_prometheus_gets_the_format_it_asks_for() -> None:
    health = EngineHealth()
    with MetricsServer("127.0.0.1:0", metrics_of(health), health) as server:
        request = urllib.request.Request(  # noqa: S310 - our own
            f"{server.url}/metrics",
            headers={"Accept": "application/openmetrics-text;version=1.0.0"},
        )
        with urllib.request.urlopen(request, timeout=10) as answer:  # noqa: S310
            assert answer.headers["Content-Type"].startswith("application/openmetrics-text")
            text = answer.read().decode()
    assert text.endswith("# EOF\n")
    assert "# TYPE meanstream_budget_spent_ratio gaugehistogram" in text


def test_paths_and_methods() -> None:
    health = EngineHealth()
    with MetricsServer("127.0.0.1:0", metrics_of(health), health) as server:
        assert ask(server.url, "/healthz") == (200, "ok\n")
        assert ask(server.url, "/metrics", "HEAD") == (200, "")
        for method in ("POST", "PUT", "DELETE", "PATCH", "OPTIONS"):
            assert ask(server.url, "/metrics", method)[0] == 405
        assert ask(server.url, "/")[0] == ask(server.url, "/metrics/agents")[0] == 404
        url = server.url
    with pytest.raises(ConnectionRefusedError):
        ask(url, "/healthz")


def test_a_fault_is_an_answer_and_not_a_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    health = EngineHealth()
    metrics = metrics_of(health)
    health.watch(_FaultyConnection("source"))
    health.started()
    with MetricsServer("127.0.0.1:0", metrics, health) as server:
        assert ask(server.url, "/readyz") == (500, "ZeroDivisionError\n")
    assert "Traceback" not in capsys.readouterr().err


@pytest.mark.parametrize(
    "address",
    [
        "9464",
        "localhost",
        "127.0.0.1:",
        ":9464",
        "127.0.0.1:http",
        "127.0.0.1:70000",
        "::1:9464",
        "a b:1",
        "",
    ],
)
def test_a_bad_address_is_one_line(address: str) -> None:
    health = EngineHealth()
    with pytest.raises(
        ValueError, match=r"^metrics must be HOST:PORT, such as 127\.0\.0\.1:9464, got "
    ) as refused:
        MetricsServer(address, metrics_of(health), health)
    assert str(refused.value).endswith(repr(address))


def test_a_port_in_use_is_one_line() -> None:
    health = EngineHealth()
    with socket.create_server(("127.0.0.1", 0)) as other:
        address = f"127.0.0.1:{other.getsockname()[1]}"
        with pytest.raises(
            ValueError,
            match=r"^metrics must be an address that is free, got '127.*\(Address already",
        ):
            MetricsServer(address, metrics_of(health), health)


@pytest.mark.parametrize("host", ["a..b", "x" * 70, "\u00fc" * 100])
def test_the_name_of_no_host_is_one_line(host: str) -> None:
    health = EngineHealth()
    with pytest.raises(ValueError, match=r"^private_metrics must be the name of a host, got "):
        MetricsServer(f"{host}:80", metrics_of(health), health, option="private_metrics")
    with pytest.raises(ValueError, match=r"^page must be an address of this machine only, "):
        check_page_server(f"{host}:80")
    assert protocols_of_listener(f"{host}:9092", 1.0) == ()


def test_a_client_that_says_nothing_delays_nobody(new_life: Callable[..., Life]) -> None:
    health = EngineHealth()
    server = MetricsServer("127.0.0.1:0", metrics_of(health), health)
    with server, socket.create_connection(("127.0.0.1", int(server.url.rpartition(":")[2]))):
        assert ask(server.url, "/healthz")[0] == 200


def test_scrapes_while_the_engine_works_see_whole_turns(new_life: Callable[..., Life]) -> None:
    """Every page belongs to the end of one turn: as many events as batches of 10 hold, all of them
    accounted for."""
    life = new_life(options=replace(OPTIONS, collaboration="none"))
    seen: list[dict[str, float]] = []
    done = threading.Event()

    def scrape() -> None:
        while not done.is_set():
            if hasattr(life, "metrics"):
                text = life.metrics.exposition().decode()
                rows = [
                    line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#")
                ]
                seen.append({name: float(value) for name, value in rows})

    thread = threading.Thread(target=scrape)
    thread.start()
    try:
        life.run([(f"agent {i % 7}", 1.0, float(i)) for i in range(1000)])
    finally:
        done.set()
        thread.join()
    events = [page["meanstream_events_total"] for page in seen]
    assert events == sorted(events)
    assert len(set(events)) > 3
    assert all(n % 10 == 0 for n in events)
    for page in seen:
        agents = page.get("meanstream_budget_spent_ratio_gcount", 0.0)
        assert agents == page.get(
            "meanstream_agents", 0.0
        )  # before the first turn there is nothing to show


def test_ready_after_the_start_until_a_delivery_is_stuck_or_a_connection_is_down() -> None:
    clock = SettableClock(0.0)
    health = EngineHealth(silent_seconds=100, stuck_seconds=30, now=clock.now)
    assert health.not_ready() == "state is being restored"
    assert health.not_alive() is None
    assert health.checkpoint_age is None
    health.started()
    assert health.not_ready() is None
    clock.set(10)
    health.delivering()
    clock.set(40)
    health.delivering()  # tried again
    assert health.not_ready() is None
    clock.set(41)
    assert health.not_ready() == "delivery has not succeeded for 31 s"
    assert health.not_alive() is None
    assert health.checkpoint_age == 41
    health.delivered()
    health.turned()
    assert health.not_ready() is None
    assert health.checkpoint_age == 0
    source = SettableConnection("source", "h:1 (refused)")
    health.watch(source)
    assert health.not_ready() == "source cannot be reached: h:1 (refused)"
    assert b'meanstream_kafka_connected{client="source"} 0.0' in metrics_of(health).exposition()
    source.problem = None
    assert health.not_ready() is None
    assert b'meanstream_kafka_connected{client="source"} 1.0' in metrics_of(health).exposition()
    health.stopping()
    assert health.not_ready() == "stopping"


def test_not_alive_without_a_sign_of_life() -> None:
    clock = SettableClock(0.0)
    health = EngineHealth(silent_seconds=100, now=clock.now)
    health.started()
    clock.set(100)
    assert health.not_alive() is None
    clock.set(101)
    assert health.not_alive() == health.not_ready() == "no sign of life for 101 s"
    with MetricsServer("127.0.0.1:0", metrics_of(health), health) as server:
        assert ask(server.url, "/healthz") == (503, "no sign of life for 101 s\n")
        assert ask(server.url, "/readyz")[0] == 503
        health.delivering()
        assert ask(server.url, "/healthz") == (200, "ok\n")


def test_the_engine_reports_its_start_turns_and_end(new_life: Callable[..., Life]) -> None:
    ready: list[bool] = []

    class Watched(Metrics):
        def observe(self, stats: EngineStats) -> None:
            super().observe(stats)
            ready.append(self._health.not_ready() is None)

    life = new_life(metrics_type=Watched).run(SAMPLES)
    assert ready == [True] * len(life.pages)
    assert life.metrics._health.not_ready() == "stopping"
    assert b"meanstream_events_total 0.0" in life.pages[0]  # before the first batch

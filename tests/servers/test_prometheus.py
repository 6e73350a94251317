"""What the engine shows, as Prometheus and promtool see it; and the shipped configuration, rules
and alerts."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from meanstream.operators.agents.agents import AgentsSettings
from meanstream.streaming.agents.agents_engine import Engine
from meanstream.streaming.engine.engine_health import EngineHealth
from meanstream.streaming.engine.engine_options import EngineOptions
from meanstream.streaming.engine.engine_stats import EngineStats
from meanstream.streaming.events.event_columns import Batch
from meanstream.streaming.metrics.engine_metrics import Metrics
from meanstream.streaming.metrics.metrics_server import MetricsServer
from meanstream.streaming.metrics.private_answers import PrivateMetrics
from meanstream.streaming.sinks.sink_protocol import Sinks, Trust
from meanstream.streaming.store.deployment_store import open_deployment
from tests.servers.conftest import need
from tests.servers.support.prometheus import SHIPPED, Prometheus, missing
from tests.servers.support.wait_until import wait_until
from tests.streaming.support.scripted_source import MemorySink, ScriptedSource

ROOT = Path(__file__).parents[2]

RULES = sorted((SHIPPED / "rules").glob("*.yml"))
OF_ENGINES = [path for path in RULES if path.name != "flink.yml"]
"""Those that an engine's metrics are enough for; tests/servers/test_flink_metrics.py has the
other."""
ONLY_OF_JOBS = {"meanstream_reading_turns_total"}
"""Metrics that no engine has; rules/flink.yml records them."""
OF_GROUPS = {"meanstream_group_commit_age_seconds"}
"""Once the broker has taken offsets of a group (tests/streaming/kafka/test_group_commit_age.py)."""
UNIT_TESTS = sorted((SHIPPED / "tests").glob("*.yml"))
SECONDS = 180.0
KINDS = (Metrics, PrivateMetrics)
SETTINGS = AgentsSettings(
    name="test",
    lower=0,
    upper=10,
    epsilon=5,
    delta=1e-6,
    counter="pm1",
    schedule="geometric:2,1.5",
    horizon=9,
)


class LaggingSource(ScriptedSource):
    """Tells how much of its script is left, and does not end."""

    def next_batch(self, max_samples: int) -> Batch:
        batch = super().next_batch(max_samples)
        lag = len(self.script) - self._at
        return replace(batch, lag=lag, lags={("samples", 0): lag})


def serve(folder: Path, ready: Callable[[str, str], None], stop: threading.Event) -> None:
    """Be an engine with metrics for everybody and for the operator, in one thread as SQLite wants
    it, until told."""
    begin = time.time() - 400
    samples = [
        (f"agent {i % 40}", float((i % 2) * 5 + (i * 7 % 11) / 3), begin + i) for i in range(400)
    ]
    source = LaggingSource([*samples, ("agent 1", 1.0, begin + 1)], bounded=False)
    deployment = open_deployment(
        folder / "s.db",
        SETTINGS,
        environment={"MEANSTREAM_SECRET": "7c1e94b05fa3d2681be60c9d37f25a84"},
    )
    health = EngineHealth()
    metrics, private = (
        kind(settings=SETTINGS, health=health, store=folder / "s.db") for kind in KINDS
    )

    def observe(stats: EngineStats) -> None:
        for one in (metrics, private):
            one.observe(stats)

    engine = Engine(
        source=source,
        settings=SETTINGS,
        noise=deployment.noise,
        store=deployment.store,
        sinks=Sinks(estimates=MemorySink(trust=Trust.PRIVATE)),
        options=EngineOptions(batch_size=100, refresh=60.0, poll=0.05),
        on_turn=observe,
        health=health,
    )
    served = (MetricsServer("127.0.0.1:0", one, health) for one in (metrics, private))
    with next(served) as server, next(served) as of_operator:
        ready(server.url, of_operator.url)
        engine.run(stop.is_set)
    deployment.store.close()


@pytest.fixture(scope="module")
def endpoints(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    """A live engine's two addresses."""
    found: list[str] = []
    there, stop = threading.Event(), threading.Event()

    def ready(*urls: str) -> None:
        found.extend(urls)
        there.set()

    thread = threading.Thread(target=serve, args=(tmp_path_factory.mktemp("engine"), ready, stop))
    thread.start()
    try:
        assert there.wait(SECONDS)
        wait_until(lambda: 'meanstream_rejects_total{reason="late"} 1.0' in page(found[0]))
        yield found[0], found[1]
    finally:
        stop.set()
        thread.join(SECONDS)


@pytest.fixture
def endpoint(endpoints: tuple[str, str]) -> str:
    """The public one."""
    return endpoints[0]


def page(url: str) -> str:
    with urllib.request.urlopen(f"{url}/metrics", timeout=10) as answer:  # noqa: S310 - our own
        text: str = answer.read().decode()
    return text


def sample_names(text: str) -> set[str]:
    names = {re.split(r"[{ ]", line)[0] for line in text.splitlines() if not line.startswith("#")}
    return {
        name for name in names if not name.endswith("_created")
    }  # the client's own, in one of its two formats


def promtool(*arguments: str | Path, text: str | None = None) -> subprocess.CompletedProcess[str]:
    need(missing())
    return subprocess.run(
        ["promtool", *map(str, arguments)],
        input=text,
        capture_output=True,
        text=True,
        check=False,
        env={
            **os.environ,
            "GOGC": "400",
        },  # a third of its time goes into the collection of garbage
    )


def passes(*arguments: str | Path, text: str | None = None) -> None:
    ran = promtool(*arguments, text=text)
    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_the_shipped_configuration_rules_and_unit_tests_pass() -> None:
    for name in ("prometheus.yml", "compose.yml", "flink.yml"):
        passes("check", "config", SHIPPED / name)
    passes("check", "rules", *RULES)
    passes("test", "rules", *UNIT_TESTS)


def test_the_receiver_of_opentelemetry_has_a_configuration_of_prometheus(tmp_path: Path) -> None:
    """The Collector's receiver reads a configuration of Prometheus; the Collector itself is not run."""
    page_text = (ROOT / "docs" / "reference" / "metrics.md").read_text()
    (block,) = re.findall(r"(?ms)^```yaml\n(receivers:.*?)^```$", page_text)
    collector = yaml.safe_load(block)
    pipeline = collector["service"]["pipelines"]["metrics"]
    assert pipeline["receivers"] == [*collector["receivers"]]
    assert pipeline["exporters"] == [*collector["exporters"]]

    configuration = tmp_path / "prometheus.yml"
    configuration.write_text(yaml.safe_dump(collector["receivers"]["prometheus"]["config"]))
    passes("check", "config", configuration)
    configuration.write_text(configuration.read_text().replace("targets", "target"))
    assert promtool("check", "config", configuration).returncode != 0


def test_metrics_follow_the_conventions(endpoint: str, endpoints: tuple[str, str]) -> None:
    for url in endpoints:
        passes("check", "metrics", text=page(url))
    text = page(endpoint)
    bad = promtool(
        "check",
        "metrics",
        text=text.replace("meanstream_agents_exhausted", "meanstream_agentsExhausted"),
    )
    assert bad.returncode != 0


def test_prometheus_scrapes_every_family_and_evaluates_every_rule(
    endpoints: tuple[str, str], tmp_path: Path
) -> None:
    need(missing())
    names = set().union(*(sample_names(page(url)) for url in endpoints))
    assert len(names) > 50
    with Prometheus(
        tmp_path / "prometheus", *(url.removeprefix("http://") for url in endpoints)
    ) as prometheus:
        wait_until(
            lambda: (
                [found["value"][1] for found in prometheus.query('up{job="meanstream"}')]
                == ["1", "1"]
            )
        )
        wait_until(lambda: all(prometheus.query(name) for name in names))
        assert prometheus.query("meanstream_events_total")[0]["value"][1] == "401"
        assert prometheus.query("meanstream_ready")[0]["value"][1] == "1"
        for lag in (
            "meanstream_input_lag_events",
            'meanstream_partition_lag_events{topic="samples",partition="0"}',
        ):
            assert prometheus.query(lag)[0]["value"][1] == "0"
        (memory,) = prometheus.query("process_resident_memory_bytes")
        assert memory["metric"]["trust"] == "private"
        assert 5e7 < float(memory["value"][1]) < 5e9
        (left,) = prometheus.query("meanstream_store_free_bytes / meanstream_store_disk_bytes")
        assert 0 < float(left["value"][1]) <= 1
        (stored,) = prometheus.query("meanstream_store_bytes")
        assert 4096 <= float(stored["value"][1]) < 1e8
        (delivered,) = prometheus.query("meanstream_delivery_seconds_count")
        assert 1 <= float(delivered["value"][1]) <= 6
        wait_until(lambda: all(rule["health"] != "unknown" for rule in prometheus.rules()))
        assert [rule for rule in prometheus.rules() if rule["health"] != "ok"] == []
        wait_until(lambda: prometheus.query("instance:meanstream_released_half_width:p90"))


def test_rules_ask_for_nothing_that_is_not_there(endpoints: tuple[str, str]) -> None:
    """Those of rounds are asked of in tests/docker/test_queries.py, those of jobs alone in
    test_flink_metrics.py."""
    rules = [
        rule
        for path in OF_ENGINES
        for group in yaml.safe_load(path.read_text())["groups"]
        for rule in group["rules"]
    ]
    recorded = {rule["record"] for rule in rules if "record" in rule}
    asked = {
        name
        for rule in rules
        for name in re.findall(r"[a-z_:]*meanstream_[a-z0-9_:]+", rule["expr"])
    }
    asked = (
        {name for name in asked if not name.startswith("meanstream_rounds_")}
        - ONLY_OF_JOBS
        - OF_GROUPS
    )
    assert asked - recorded - set().union(*(sample_names(page(url)) for url in endpoints)) == set()
    assert {name for name in asked if ":" in name} <= recorded


def test_every_alert_says_how_bad_it_is_and_has_a_unit_test() -> None:
    alerts = [
        r
        for g in yaml.safe_load((SHIPPED / "rules" / "alerts.yml").read_text())["groups"]
        for r in g["rules"]
    ]
    tested = (SHIPPED / "tests" / "alerts.yml").read_text()
    assert {alert["alert"] for alert in alerts} == set(SPOILED)
    for alert in alerts:
        assert alert["labels"]["severity"] in {"critical", "warning", "info"}
        assert set(alert["annotations"]) == {"summary", "description", "runbook_url"}
        file, _, anchor = alert["annotations"]["runbook_url"].partition("#")
        assert anchor == alert["alert"].lower()
        assert f"\n## {alert['alert']}\n" in (SHIPPED.parents[1] / file).read_text()
        assert f"name: {alert['alert']}" in tested


SPOILED = {
    "MeanstreamDown": [
        ('up{job="meanstream"} == 0 or', 'up{job="meanstream"} == 2 or'),
        ('or absent(up{job=~"meanstream|flink"})', ""),
        ('absent(up{job=~"meanstream|flink"})', 'absent(up{job="meanstream"})'),
    ],
    "MeanstreamNotReady": [
        ("meanstream_ready == 0", "meanstream_ready == 2"),
        ("meanstream_ready == 0\n        for: 5m", "meanstream_ready == 0\n        for: 1m"),
    ],
    "MeanstreamWatermarkLagGrowing": [
        (
            "> 600 + (meanstream_allowed_lateness_seconds or",
            "> 600 + (0 * meanstream_allowed_lateness_seconds or",
        ),
        (
            "deriv(meanstream_watermark_lag_seconds[10m]) > 0.1",
            "deriv(meanstream_watermark_lag_seconds[10m]) > -1",
        ),
        (
            "deriv(meanstream_watermark_lag_seconds[10m]) > 0.1",
            "deriv(meanstream_watermark_lag_seconds[10m]) > 9",
        ),
        ("and increase(meanstream_events_total[10m]) > 0", ""),
    ],
    "MeanstreamAnswerLagGrowing": [
        ("meanstream_answer_lag_seconds > 600", "meanstream_answer_lag_seconds > 10"),
        (
            "deriv(meanstream_answer_lag_seconds[10m]) > 0.1",
            "deriv(meanstream_answer_lag_seconds[10m]) > -1",
        ),
        (
            "deriv(meanstream_answer_lag_seconds[10m]) > 0.1",
            "deriv(meanstream_answer_lag_seconds[10m]) > 9",
        ),
        ("and rate(meanstream_events_total[10m]) > 0", ""),
    ],
    "MeanstreamReadingTurnsMany": [
        ("meanstream_reading_turns_total > 16000", "meanstream_reading_turns_total > 8000"),
        ("meanstream_reading_turns_total > 16000", "meanstream_reading_turns_total > 32000"),
        (
            "meanstream_reading_turns_total > 16000\n        for: 10m",
            "meanstream_reading_turns_total > 16000\n        for: 1m",
        ),
    ],
    "MeanstreamGroupNotCommitted": [
        ("commit_age_seconds > 900", "commit_age_seconds > 100"),
        ("commit_age_seconds > 900", "commit_age_seconds > 9e9"),
    ],
    "MeanstreamInputSilent": [
        ('silent_seconds{pauses!="expected"}) > 900', 'silent_seconds{pauses!="expected"}) > 100'),
        ('silent_seconds{pauses!="expected"}) > 900', 'silent_seconds{pauses!="expected"}) > 9e9'),
        ('silent_seconds{pauses!="expected"}', "silent_seconds"),
        (
            'increase(meanstream_events_total{job="flink"}[15m]) == 0',
            'increase(meanstream_events_total{job="flink"}[15m]) < 99',
        ),
        ('and meanstream_events_total{job="flink"} offset 15m', ""),
        ("min without (shard) (meanstream_input", "max without (shard) (meanstream_input"),
    ],
    "MeanstreamInputLagGrowing": [
        ("meanstream_input_lag_events > 10000 +", "meanstream_input_lag_events > 10 +"),
        (
            "deriv(meanstream_input_lag_events[10m]) > 0",
            "deriv(meanstream_input_lag_events[10m]) > -1e9",
        ),
        ("input_lag_events > 10000 + 60 * rate", "input_lag_events > 10000 + 0 * rate"),
    ],
    "MeanstreamPartitionStuck": [
        ("1000 + 60 * rate", "1000 + 0 * rate"),
        (
            "deriv(meanstream_partition_lag_events[10m]) > 0",
            "deriv(meanstream_partition_lag_events[10m]) > -1e9",
        ),
        ("() 1000 + 60", "() 1e9 + 60"),
    ],
    "MeanstreamPendingGrowing": [
        ("10000 + 2 * (60 +", "10000 + 0 * (60 +"),
        ("and deriv(meanstream_samples_pending[10m]) > 0", ""),
        ("> 10000 + 2", "> 1e9 + 2"),
    ],
    "MeanstreamNoRelease": [
        (
            "increase(meanstream_releases_total[1h]) == 0",
            "increase(meanstream_releases_total[1h]) < 9",
        ),
        ("and increase(meanstream_events_total[1h]) > 0", ""),
        ("and meanstream_agents > meanstream_agents_exhausted", ""),
        ("and meanstream_events_total offset 1h", ""),
        (
            "<= 3600 + 2 * meanstream_allowed_lateness_seconds",
            "<= 3600 + 0 * meanstream_allowed_lateness_seconds",
        ),
    ],
    "MeanstreamNoEstimates": [
        (
            "increase(meanstream_estimates_total[30m]) == 0",
            "increase(meanstream_estimates_total[30m]) < 99",
        ),
        ("and increase(meanstream_accepted_total[30m]) > 0", ""),
        ("and meanstream_refresh_seconds\n", "\n"),
        ("+ 2 * meanstream_allowed_lateness_seconds\n            unless", "\n            unless"),
        ("unless (meanstream_refresh_seconds > 900", "unless (meanstream_refresh_seconds > 9000"),
    ],
    "MeanstreamNoWindow": [
        (
            "300 + 2 * meanstream_rounds_period_seconds",
            "300 + 0 * meanstream_rounds_period_seconds",
        ),
        ("rounds_period_seconds + meanstream_allowed_lateness_seconds", "rounds_period_seconds"),
        ("> 300 + 2 * meanstream", "> 9e9 + 2 * meanstream"),
    ],
    "MeanstreamUsersOverBudget": [
        ("> 0.1 * (increase", "> 0.001 * (increase"),
        ("> 0.1 * (increase", "> 0.9 * (increase"),
        ("> 0.1 * (increase", ">= 0 * (increase"),
    ],
    "MeanstreamBudgetNearlySpent": [
        ("agents:ratio >= 0.1", "agents:ratio >= 0.01"),
        ("agents:ratio >= 0.1", "agents:ratio >= 0.2"),
    ],
    "MeanstreamAgentBudgetNearlySpent": [
        ("meanstream_budget_spent_ratio_max > 0.9", "meanstream_budget_spent_ratio_max >= 0.9"),
        ("meanstream_budget_spent_ratio_max > 0.9", "meanstream_budget_spent_ratio_max > 1"),
    ],
    "MeanstreamAgentsMoved": [
        ("> 2 + 0.1 * meanstream_agents", "> 2 + 0.01 * meanstream_agents"),
        ("> 2 + 0.1 * meanstream_agents", "> 2 + 0.5 * meanstream_agents"),
        ("> 2 + 0.1 * meanstream_agents", "> 0.1 * meanstream_agents"),
    ],
    "MeanstreamRefusal": [
        ("meanstream_refusals_total > 0", "meanstream_refusals_total >= 0"),
        ("meanstream_refusals_total > 0", "meanstream_refusals_total > 2"),
    ],
    "MeanstreamDeadLetters": [
        ("ratio_rate5m > 0.05", "ratio_rate5m > 0.001"),
        ("ratio_rate5m > 0.05", "ratio_rate5m > 0.5"),
    ],
    "MeanstreamCheckpointStale": [
        ("meanstream_checkpoint_age_seconds > 300", "meanstream_checkpoint_age_seconds > 30"),
        ("meanstream_checkpoint_age_seconds > 300", "meanstream_checkpoint_age_seconds > 3000"),
    ],
    "MeanstreamDiskFull": [
        ("< 0.05 * meanstream", "< 0.01 * meanstream"),
        ("< 0.2 * meanstream", "< 0.9 * meanstream"),
        ("4 * 3600) < 0", "4 * 3600) < 1e12"),
        ("4 * 3600) < 0", "4 * 3600) < -1e12"),
    ],
    "MeanstreamDescriptors": [
        ('process_open_fds{trust="private"} > 0.8', 'process_open_fds{trust="private"} > 0.01'),
        ('process_open_fds{trust="private"} > 0.8', 'process_open_fds{trust="private"} > 0.99'),
        ('{trust="private"} > 0.8 * process_max_fds{trust="private"}', " > 0.8 * process_max_fds"),
    ],
}
"""Each alert with its expression spoiled in several ways, some of which fire too often and some
never."""


@pytest.mark.parametrize("number", range(6))
def test_a_spoiled_alert_fails_its_unit_test(number: int, tmp_path: Path) -> None:
    """One way of each alert at a time; the report must name every alert that was spoiled, and no
    other."""
    shutil.copytree(SHIPPED, tmp_path / "shipped")
    path = tmp_path / "shipped" / "rules" / "alerts.yml"
    text = path.read_text()
    spoiled = {alert: ways[number] for alert, ways in SPOILED.items() if number < len(ways)}
    tests = tmp_path / "shipped" / "tests" / "alerts.yml"
    of_spoiled(tests, set(spoiled))
    for good, bad in spoiled.values():
        assert text.count(good) == 1
        text = text.replace(good, bad)
    path.write_text(text)
    passes("check", "rules", path)
    ran = promtool("test", "rules", tests)
    assert ran.returncode != 0
    assert set(re.findall(r"Meanstream\w+", re.sub(r"(?m)^.*name: .*$", "", ran.stderr))) == set(
        spoiled
    )


def of_spoiled(path: Path, spoiled: set[str]) -> None:
    """Leave the unit tests of these alerts and that in which nothing fires: each one takes a
    quarter second."""
    head, *tests = re.split(r"(?m)^(?=  - name: )", path.read_text())
    kept = tuple(f"  - name: {name}" for name in (*spoiled, "nothing fires while all is well"))
    path.write_text(head + "".join(test for test in tests if test.startswith(kept)))


def test_absent_programs_are_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(os.environ, "PATH", "")
    assert missing() == "no prometheus on the path: apt-get install prometheus"

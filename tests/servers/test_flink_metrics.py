"""A real Prometheus scrapes a real Flink that runs a pipeline: the engine's names have the numbers
of its input."""

from __future__ import annotations

import re
import shutil
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from meanstream.pipelines.beam.agents.split_agents import AgentDirectory
from meanstream.pipelines.beam.element_types.beam_samples import AGENT_SHARDS
from meanstream.pipelines.beam.worker.beam_metrics import COUNTERS, DISTRIBUTIONS
from meanstream.pipelines.beam.worker.worker_secret import SecretLocation
from tests.servers.conftest import need
from tests.servers.support import metrics_stream as stream
from tests.servers.support.flink_cluster import STREAMING, FlinkCluster
from tests.servers.support.flink_stream import SECRET
from tests.servers.support.prometheus import SHIPPED, Prometheus, missing
from tests.servers.support.wait_until import wait_until
from tests.servers.test_prometheus import passes, promtool

RULES = SHIPPED / "rules" / "flink.yml"
FLINK = "flink_taskmanager_job_task_operator_meanstream_"
JOB = "agents_without_end"
GAUGES = {"agents", "agents_exhausted"}
"""Families that are no counters in Prometheus."""
SECONDS = 240.0
"""A cold start of the Python workers takes long on a busy machine."""


class Watched:
    """A pipeline on Flink and the Prometheus that watches it."""

    def __init__(self, flink: FlinkCluster, prometheus: Prometheus, late: Path) -> None:
        self.flink, self.late = flink, late
        self._prometheus = prometheus

    def value(self, name: str) -> float | None:
        """The one number of this pipeline, or None."""
        found = self._prometheus.query(f'{name}{{job_name="{JOB}"}}')
        assert len(found) <= 1, found
        return float(found[0]["value"][1]) if found else None

    def counts(self, names: Any) -> dict[str, float | None]:
        return {name: self.value(of_engine(name)) for name in names}

    def rejects(self) -> dict[str, float]:
        found = self._prometheus.query(f'meanstream_rejects_total{{instance="{JOB}"}}')
        return {series["metric"]["reason"]: float(series["value"][1]) for series in found}

    def unhealthy(self) -> list[dict[str, Any]]:
        return [
            rule for rule in self._prometheus.rules() if rule["health"] not in {"ok", "unknown"}
        ]

    def raw(self) -> str:
        """What the TaskManager exposes of this pipeline."""
        url = f"http://127.0.0.1:{self.flink.taskmanager_metrics}/metrics"
        with urllib.request.urlopen(url, timeout=10) as answer:
            lines = answer.read().decode().splitlines()
        return "\n".join(line for line in lines if f'job_name="{JOB}"' in line)


def of_engine(name: str) -> str:
    family = COUNTERS[name].family
    return f"meanstream_{family}" if family in GAUGES else f"meanstream_{family}_total"


@pytest.fixture
def watched(flink: FlinkCluster, tmp_path: Path) -> Iterator[Watched]:
    need(missing())
    (tmp_path / "secret").write_text(SECRET)
    targets = (
        f"127.0.0.1:{port}" for port in (flink.jobmanager_metrics, flink.taskmanager_metrics)
    )
    with Prometheus(tmp_path / "prometheus", *targets, shipped="flink.yml") as prometheus:
        options = flink.arguments(*STREAMING, f"--job_name={JOB}")
        stream.submit(options, SecretLocation(file=str(tmp_path / "secret")), tmp_path / "late")
        try:
            yield Watched(flink, prometheus, tmp_path / "late")
        finally:
            flink.cancel(flink.job_id(JOB))


def test_prometheus_knows_a_pipeline_by_the_names_of_the_engine(watched: Watched) -> None:
    wait_until(lambda: watched.counts(stream.BEFORE) == stream.BEFORE, SECONDS)
    assert watched.rejects() == {"not_finite": stream.BAD, "duplicate": stream.REPEATED}
    watched.late.touch()
    wait_until(
        lambda: watched.counts(stream.AFTER) == stream.AFTER and "late" in watched.rejects(),
        SECONDS,
    )
    assert watched.rejects() == {
        "not_finite": stream.BAD,
        "duplicate": stream.REPEATED,
        "late": stream.LATE,
    }
    windows = stream.AFTER["estimates"] / stream.AGENTS
    turns = watched.value("meanstream_batch_seconds_count")
    assert turns == watched.value("meanstream_release_lag_seconds_count")
    assert turns is not None
    names = [f"agent {agent}" for agent in range(stream.AGENTS)]
    shards = len(set(AgentDirectory(AGENT_SHARDS).of(names, np.arange(stream.AGENTS))[1].tolist()))
    assert (
        shards <= turns <= shards * windows
    )  # where there are agents; windows that wait together have one turn
    assert 0 < (watched.value("meanstream_batch_seconds_sum") or 0) < 60
    assert watched.value("meanstream_batch_samples_sum") == stream.AFTER["events"]
    wait_until(lambda: abs(watched.value("meanstream_watermark_lag_seconds") or 1e9) < 60, SECONDS)
    assert watched.unhealthy() == []
    # What the reporter makes of a distribution itself, and what Prometheus keeps of that.
    for name in ("batch_samples", "batch_milliseconds"):
        assert set(re.findall(rf"(?m)^{FLINK}{name}{{.*}} (\S+)$", watched.raw())) == {"0.0"}
        assert watched.value(f"{FLINK}{name}") is None
    assert "agent 1" not in watched.raw().replace("_", " ")


def rules() -> list[dict[str, str]]:
    return [
        rule for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]
    ]


def test_every_figure_of_a_pipeline_has_a_rule_and_no_rule_asks_for_another() -> None:
    asked = re.findall(rf"{FLINK}(\w+)", RULES.read_text())
    counted = {name for name, figure in COUNTERS.items() if not figure.label}
    labelled = {name for name, figure in COUNTERS.items() if figure.label}
    parts = {f"{name}_{part}" for name in DISTRIBUTIONS for part in ("sum", "count")}
    assert sorted(asked) == sorted(counted | labelled | parts)
    recorded = {rule["record"] for rule in rules()}
    families = {figure.family for figure in COUNTERS.values()}
    expected = {
        f"meanstream_{family}" + ("" if family in GAUGES else "_total") for family in families
    }
    expected |= {
        f"meanstream_{figure.family}_{p}"
        for figure in DISTRIBUTIONS.values()
        for p in ("sum", "count")
    }
    assert recorded == expected | {
        "meanstream_watermark_lag_seconds",
        "meanstream_answer_lag_seconds",
    }


@pytest.mark.parametrize("name", ["flink.yml", "compose.yml"])
def test_what_the_reporter_makes_of_distributions_is_dropped(name: str) -> None:
    config = yaml.safe_load((SHIPPED / name).read_text())
    (job,) = [job for job in config["scrape_configs"] if job["job_name"] == "flink"]
    (relabel,) = job["metric_relabel_configs"]
    assert relabel["action"] == "drop"
    assert relabel["regex"] == f"{FLINK}(private_)?({'|'.join(DISTRIBUTIONS)})"


@pytest.mark.parametrize(
    ("good", "bad"),
    [
        ("sum by (job, job_name) (flink_taskmanager_job_task_operator_meanstream_samples)",
         "max by (job, job_name) (flink_taskmanager_job_task_operator_meanstream_samples)"),
        ("time() - min by", "time() - max by"),
        ("_milliseconds_sum) / 1000", "_milliseconds_sum) / 1"),
        ('"reason", "$1"', '"cause", "$1"'),
        ("meanstream_refusals)", "meanstream_refused)"),
        (' and on (job, job_name) meanstream_events_total', ""),
    ],
)  # fmt: skip
def test_a_spoiled_rule_fails_the_unit_tests(good: str, bad: str, tmp_path: Path) -> None:
    shutil.copytree(SHIPPED, tmp_path / "shipped")
    path = tmp_path / "shipped" / "rules" / "flink.yml"
    text = path.read_text()
    assert good in text
    path.write_text(text.replace(good, bad))
    passes("check", "rules", path)
    assert promtool("test", "rules", tmp_path / "shipped" / "tests" / "flink.yml").returncode != 0

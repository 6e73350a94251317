"""No raw value leaves by what watches a run: its logs as JSON and its metrics, on a file of good
and bad values."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from meanstream.operators.agents.agents import Agents
from meanstream.pipelines.commands.run import progress_line as progress
from meanstream.pipelines.commands.run import run_logs as logs
from meanstream.streaming.engine.engine_stats import EngineStats
from meanstream.streaming.metrics.engine_metrics import Metrics
from tests.contracts.test_no_raw_values import found, typed, write_stream
from tests.pipelines.command_line import SECRET, Ran, meanstream

ENVIRONMENT = {"MEANSTREAM_SECRET": SECRET}
METRICS = ("--metrics", "127.0.0.1:0")
JSON = ("--log-format", "json")


def found_numbers(page: bytes, digits: list[str]) -> list[str]:
    """Values among the numbers of a page, in whatever notation; those in grid steps are small and
    occur by chance."""
    numbers = {float(number) for number in re.findall(rb" ([0-9.e+]+)\n", page)}
    return [value for value in digits if len(value) > 7 and float(value) in numbers]


def run(folder: Path, *more: str) -> tuple[Ran, list[str]]:
    digits = write_stream(folder / "flights.csv")
    return meanstream(
        *typed(folder, folder / "flights.csv", *more), environment=ENVIRONMENT
    ), digits


@pytest.mark.parametrize("more", [(), ("--no-sort",), ("--refresh", "1h")])
def test_no_log_record_holds_a_value(
    more: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "PLAIN_SECONDS", 0.0)
    ran, digits = run(tmp_path, *JSON, *METRICS, *more)
    assert ran.code == 0
    events = [json.loads(line)["event"] for line in ran.err.splitlines()]
    assert {"started", "progress", "finished"} <= set(events)
    assert found(ran.err, digits) == []
    resumed, _ = run(tmp_path, *JSON, *more)
    assert json.loads(resumed.err.splitlines()[0])["event"] == "resumed"
    assert found(resumed.err, digits) == []


def broken(self: Agents, agent: Any, value: Any, *others: Any, **named: Any) -> None:
    raise ValueError(f"could not use {value[0]:.0f}")


def test_a_defect_that_names_a_value_shows_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Agents, "update", broken)
    ran, digits = run(tmp_path, *JSON)
    assert ran.code == 1
    last = json.loads(ran.err.splitlines()[-1])
    assert (last["event"], last["error"]) == ("crashed", "ValueError")
    assert "broken" in last["at"]
    assert found(ran.err, digits) == []
    monkeypatch.setattr(
        logs, "is_own_error", lambda _: True
    )  # a twin that trusts everybody: it was there to be found
    ran, digits = run(tmp_path)
    assert found(ran.err, digits) != []


class ShowsMeans(Metrics):
    """A known-bad twin: shows an agent's raw value."""

    leaked = 0.0

    def exposition(self) -> bytes:
        return super().exposition() + f"meanstream_mean {self.leaked:.1f}\n".encode()


def pages_of_a_run(
    folder: Path, metrics_type: type[Metrics], monkeypatch: pytest.MonkeyPatch
) -> list[bytes]:
    pages: list[bytes] = []
    observe = metrics_type.observe

    def keep(self: Metrics, stats: EngineStats) -> None:
        observe(self, stats)
        pages.append(self.exposition())

    monkeypatch.setattr(metrics_type, "observe", keep)
    monkeypatch.setattr("meanstream.streaming.metrics.engine_metrics.Metrics", metrics_type)
    ran, _ = run(folder, "--quiet", *METRICS)
    assert ran.code == 0
    return pages


def test_no_metric_holds_a_value(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    digits = write_stream(tmp_path / "flights.csv")
    pages = pages_of_a_run(tmp_path, Metrics, monkeypatch)
    assert len(pages) >= 2
    assert b"meanstream_events_total 216.0" in pages[-1]
    for page in pages:
        assert found(page, digits) == []
        assert found_numbers(page, digits) == []


def test_a_metric_that_holds_a_value_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    digits = write_stream(tmp_path / "flights.csv")
    monkeypatch.setattr(ShowsMeans, "leaked", float(digits[3]))
    (*_, page) = pages_of_a_run(tmp_path, ShowsMeans, monkeypatch)
    assert found_numbers(page, digits) == [digits[3]]

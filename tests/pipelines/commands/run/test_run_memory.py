"""`run agents --memory`: what is released, shown and refused where means may move."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.pipelines.command_line import SECRET, arguments, asks, options, run_agents, write_samples

DAYS = {"memory": "half-life:5d", "schedule": "every:1d"}
WINDOW, WINDOW_OF_DAYS = {"memory": "window:16"}, {"memory": "window:5d", "schedule": "every:1d"}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MEANSTREAM_SECRET", SECRET)
    write_samples(tmp_path / "flights.csv", rows=600)
    return tmp_path


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_bytes().splitlines()]


def store(folder: Path) -> list[str]:
    return ["--store", str(folder / "state.db")]


@pytest.mark.parametrize("memory", ["half-life:16", "window:16"])
def test_releases_go_on_and_every_command_says_so(memory: str, folder: Path) -> None:
    ran = run_agents(folder, memory=memory, notices=folder / "notices.jsonl")
    assert ran.code == 0, ran.err
    counts = {event["agent"]: event["index"] for event in lines(folder / "releases.jsonl")}
    assert min(counts.values()) > 90  # 200 samples each, a release after every second one
    assert (folder / "notices.jsonl").read_bytes() == b""
    table = asks("budget", *store(folder)).out.decode().splitlines()
    assert table[1].split()[:6] == ["N0", str(counts["N0"]), "-", "-", "no", "end"]
    assert table[-1].startswith("3 agents: at most ")
    assert table[-1].endswith("releases each so far, without end, 0 releases refused")
    row = asks("budget", *store(folder), "--json").json["agents"][0]
    assert (row["remaining"], row["horizon"], row["ends"]) == (None, None, None)
    assert (
        "releases, which have no end, protected at (1, 1e-06)"
        in asks("get", *store(folder), "N1").out.decode()
    )
    dry = asks("run", "agents", "--source", str(folder / "flights.csv"), "--agent", "tailnum", "--value",
                     "dep_delay", "--time", "time_hour", "--lower", "-30", "--upper", "120", "--epsilon", "1",
                     "--delta", "1e-6", *store(folder), "--dry-run").out.decode()  # fmt: skip
    assert "over the releases of its agent, which have no end" in dry
    assert "without end" in dry
    report = asks("report", str(folder / "report.html"), *store(folder))
    assert report.code == 0, report.err
    assert "endless releases" in (folder / "report.html").read_text()
    assert asks("audit", "store", str(folder / "state.db")).code == 0


@pytest.mark.parametrize(
    "memory", [{"memory": "half-life:16"}, DAYS, WINDOW, WINDOW_OF_DAYS], ids=str
)
def test_a_store_goes_on_with_its_memory(memory: dict[str, str], folder: Path) -> None:
    """In two runs, the second of which does not name it, as in one; a store that keeps everything
    stays as it is."""
    whole = folder / "whole"
    whole.mkdir()
    write_samples(whole / "flights.csv", rows=600)
    in_order = folder / "agents.yaml"
    in_order.write_text("sort: false\nfinal_release: false\n")
    assert run_agents(whole, sort=None, config=in_order, **memory).code == 0
    text = (folder / "flights.csv").read_text().splitlines(keepends=True)
    (folder / "flights.csv").write_text("".join(text[:300]))
    named = {name: value for name, value in memory.items() if name != "memory"}
    assert run_agents(folder, sort=None, config=in_order, **memory).code == 0
    (folder / "flights.csv").write_text("".join(text))
    ran = run_agents(folder, sort=None, config=in_order, **named)
    assert ran.code == 0, ran.err
    assert sorted(json.dumps(e) for e in lines(folder / "releases.jsonl")) == sorted(
        json.dumps(e) for e in lines(whole / "releases.jsonl")
    )
    rule = f"memory must be {memory['memory']} as in the store that is continued, got 'forever'"
    assert run_agents(folder, sort=None, config=in_order, memory="forever", **named).message == rule


def test_a_store_that_keeps_everything_names_no_memory(folder: Path) -> None:
    assert run_agents(folder).code == 0
    shown = asks("store", "show", *store(folder), "--json").out.decode()
    assert "half-life" not in shown
    said = run_agents(folder, memory="half-life:16").message
    assert said == "memory must be forever as in the store that is continued, got 'half-life:16'"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"memory": "half-life:30d"},
            "schedule must be every:DURATION with memory half-life:30d, got 'preferred:10'",
        ),
        (
            {"memory": "window:12w"},
            "schedule must be every:DURATION with memory window:84d, got 'preferred:10'",
        ),
        (WINDOW | {"counter": "pm1"}, "counter must be left out with memory window:16, got 'pm1'"),
        ({"memory": "auto", "horizon": 40}, "horizon must be left out with memory auto"),
        (
            {"memory": "auto", "mode": "paper"},
            "memory must be forever with mode paper and noise gaussian, got 'auto'",
        ),
        (
            {"memory": "half-life:50", "horizon": 40},
            "horizon must be left out with memory half-life:50",
        ),
        (
            {"memory": "half-life:50", "counter": "pm1"},
            "counter must be left out with memory half-life:50, got 'pm1'",
        ),
        ({"memory": "half-life:50", "mode": "paper"}, "memory must be forever with mode paper"),
        ({"memory": "long"}, "memory must be forever, half-life:LENGTH"),
    ],
)
def test_refused_before_anything_is_made(
    changes: dict[str, Any], message: str, folder: Path
) -> None:
    ran = run_agents(folder, **changes)
    assert message in ran.message
    assert not (folder / "state.db").exists()


def test_explain_says_that_there_is_no_end() -> None:
    said = (
        "explain",
        "agents",
        "--lower",
        "0",
        "--upper",
        "1",
        "--epsilon",
        "1",
        "--delta",
        "1e-6",
    )
    text = asks(*said, "--memory", "half-life:5000").out.decode()
    assert "counter         decayed, no end of releases," in text
    assert "memory half-life:5000: older samples weigh less" in text
    facts = asks(*said, "--memory", "half-life:5000", "--json").json
    assert facts["mechanism"]["horizon"] is None
    assert "no end" in facts["total"]["after"]
    last = facts["releases"]["noise_stddev_of_the_mean"]
    assert last == sorted(last, reverse=True)
    assert asks(*said, "--memory", "forever").out == asks(*said).out


def test_explain_says_that_a_window_leaves_samples_out() -> None:
    said = (
        "explain",
        "agents",
        "--lower",
        "0",
        "--upper",
        "1",
        "--epsilon",
        "1",
        "--delta",
        "1e-6",
    )
    text = asks(*said, "--memory", "window:5000").out.decode()
    assert "counter         sliding, no end of releases," in text
    assert "memory window:5000: older samples are left out" in text
    facts = asks(*said, "--memory", "window:12w", "--schedule", "every:1w", "--json").json
    assert facts["releases"]["memory"] == "window:84d"
    assert facts["mechanism"]["horizon"] is None


@pytest.mark.parametrize(
    ("schedule", "chosen"), [("preferred:10", "half-life:30000000"), ("every:1d", "half-life:40d")]
)
def test_auto_is_chosen_from_the_schedule_and_told(
    schedule: str, chosen: str, folder: Path
) -> None:
    chosen_options = options(folder, memory="auto", schedule=schedule)
    ran = asks(
        "run", "agents", *arguments(chosen_options), environment={"MEANSTREAM_SECRET": SECRET}
    )
    assert ran.code == 0, ran.err
    assert f'memory={chosen} why="as long as 40 releases of {schedule}"' in ran.err.decode()
    assert run_agents(folder, memory="auto", schedule=schedule).code == 0  # it goes on
    assert run_agents(folder, memory=chosen, schedule=schedule).code == 0
    said = run_agents(folder, memory="window:100", schedule=schedule).message
    assert said.startswith(f"memory must be {chosen} as in the store that is continued")
    explained = (
        "--lower",
        "0",
        "--upper",
        "1",
        "--epsilon",
        "1",
        "--delta",
        "1e-6",
        "--schedule",
        schedule,
    )
    assert (
        f"memory {chosen}" in asks("explain", "agents", *explained, "--memory", "auto").out.decode()
    )

"""`audit store` and `audit topic`: what anybody can tell from releases, and what is wrong with
forged ones."""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest

from meanstream.lab.evidence.noise_law import NoiseLaw
from meanstream.operators.agents.agents import Agents, AgentsSettings
from meanstream.operators.noise.group_privacy import group_epsilon
from meanstream.operators.noise.keyed import GaussianNoise, KeyedNoise, LaplaceNoise
from tests.pipelines.command_line import SECRET, asks, meanstream

# Of sums with less noise than samples may vary by, as integers have it here, nothing is told.
PROMISED = (
    "--lower",
    "0",
    "--upper",
    "8",
    "--epsilon",
    "1",
    "--delta",
    "1e-6",
    "--horizon",
    "4",
    "--noise",
    "gaussian",
)
AGENTS, SAMPLES = 400, 22


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store, and the releases of its engine."""
    folder = tmp_path_factory.mktemp("made")
    rng = np.random.default_rng(3)
    means = rng.uniform(2, 6, AGENTS)
    lines = ["agent,value,time"]
    for k in range(SAMPLES):
        lines += [
            f"a{i},{v:.3f},{1_357_000_000 + 60 * k}" for i, v in enumerate(rng.normal(means, 1))
        ]
    (folder / "samples.csv").write_text("\n".join(lines) + "\n")
    places = (
        "--source",
        f"{folder}/samples.csv",
        "--store",
        f"{folder}/s.db",
        "--releases",
        f"{folder}/r.jsonl",
    )
    with patch("os.fsync"):
        ran = meanstream(
            "run",
            "agents",
            *places,
            *PROMISED,
            "--sink",
            f"{folder}/e.jsonl",
            environment={"MEANSTREAM_SECRET": SECRET},
        )
    assert ran.code == 0, ran.err
    return folder


def test_what_the_engine_made_is_as_promised(made: Path) -> None:
    of_store = meanstream("audit", "store", f"{made}/s.db", "--json")
    of_file = asks("audit", "topic", f"{made}/r.jsonl", *PROMISED, "--json")
    assert (of_store.code, of_file.code) == (0, 0)
    for ran in (of_store, of_file):
        row, votes = ran.json["rows"]
        assert 0.8 < row["proved"] < 1.1
        assert votes["name"] == f"{row['name']}.votes"
        assert "too few votes, 1 degrees of freedom" in votes["method"]
        assert "400 agents, 1,600 releases, at most 4 of one agent" in " ".join(ran.json["notes"])


def forged(
    change: Callable[[dict[str, Any]], None],
) -> Callable[[list[dict[str, Any]]], list[dict[str, Any]]]:
    def every(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
        change(events[7])
        return events

    return every


def float_noise(event: dict[str, Any]) -> None:
    """Known bad: a mean with noise of its own, in floats."""
    event["mean"] += float(np.random.default_rng(1).laplace(0.0, 1e-3))


def repeated(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Known bad: an older release comes again with other noise."""
    step = 8 / 2**20
    again = dict(events[3], total=events[3]["total"] + 1000)
    again["mean"] = again["total"] * step / again["n"]
    return [*events, again]


TWINS = {
    "means that do not match their sum on the grid": forged(float_noise),
    "release ids with a second value": repeated,
    "releases past the horizon": forged(
        lambda event: event.update(
            index=5, release_id=event["release_id"].rpartition(":")[0] + ":5"
        )
    ),
    "releases that declare less noise than promised": forged(
        lambda event: event.update(noise_variance=event["noise_variance"] / 2)
    ),
    "ids that do not match their agent and index": forged(
        lambda event: event.update(release_id="x/y:1")
    ),
}


@pytest.mark.parametrize("fault", TWINS)
def test_a_topic_that_is_not_as_promised_is_named(fault: str, made: Path, tmp_path: Path) -> None:
    events = [json.loads(line) for line in (made / "r.jsonl").read_text().splitlines()]
    path = tmp_path / "r.jsonl"
    path.write_text("".join(json.dumps(event) + "\n" for event in TWINS[fault](events)))
    ran = asks("audit", "topic", str(path), *PROMISED, "--json")
    assert ran.code == 1
    assert ran.json["rows"][0]["fault"] == f"1 {fault}"


@pytest.mark.parametrize("noise", ["gaussian", "laplace"])
@pytest.mark.parametrize("scale", [1.0, 0.95])
def test_a_scale_five_percent_too_small_is_told_from_a_hundred_thousand_releases(
    scale: float, noise: str
) -> None:
    """False alarm 1e-6; what the samples add to the noise is less than a percent here."""
    named = {
        "lower": 0,
        "upper": 1,
        "epsilon": 1,
        "delta": 1e-6,
        "horizon": 5,
        "counter": "pm2",
        "noise": noise,
    }
    settings = AgentsSettings(**named)  # type: ignore[arg-type]
    true = AgentsSettings(**named)  # type: ignore[arg-type]
    fresh = settings.fresh
    narrow = (
        GaussianNoise(scale * fresh.stddev)
        if isinstance(fresh, GaussianNoise)
        else LaplaceNoise(scale * fresh.scale)
    )
    true.__dict__["fresh"] = narrow
    n = 20_000
    agents = Agents(
        true,
        KeyedNoise(bytes.fromhex("9b1f6c04d2a85e73bb40c9f1e6a7250d"), deployment="x", purpose="y"),
    )
    agents.add_agents([f"a{i}" for i in range(n)])
    rng, law = np.random.default_rng(4), NoiseLaw(settings)
    means = rng.uniform(0.3, 0.7, n)
    for k in range(50):
        law.take(agents.update(np.arange(n), rng.normal(means, 0.1), np.full(n, float(k))).releases)
    row = law.row("x")
    assert row.violated is (scale < 1)


@pytest.mark.parametrize("mode", ["tuned", "paper"])
def test_no_more_is_proved_than_the_noise_costs(mode: str) -> None:
    """As in print, the noise is for more than the claim: (1, 1e-6) is declared, .56 is spent. The
    scale has a standard error of .5 %."""
    settings = AgentsSettings(
        lower=0, upper=1, epsilon=1, delta=1e-6, horizon=7, counter="pm2", noise="gaussian",
        mode=mode, spread_share=0,
    )  # fmt: skip
    assert settings.mu is not None
    spent = group_epsilon(settings.mu, settings.delta)
    assert (spent < 0.6) == (mode == "paper")
    n = 4_000
    key = KeyedNoise(bytes.fromhex("9b1f6c04d2a85e73bb40c9f1e6a7250d"), deployment="x", purpose="y")
    agents = Agents(settings, key)
    agents.add_agents([f"a{i}" for i in range(n)])
    rng, law = np.random.default_rng(6), NoiseLaw(settings)
    for k in range(50):
        law.take(agents.update(np.arange(n), rng.random(n), np.full(n, float(k))).releases)
    row = law.row("x")
    assert not row.violated
    assert 0.85 * spent < row.proved < 1.03 * spent


def scale_is_told(
    kind: str, settings: AgentsSettings, true: AgentsSettings, *, violated: bool
) -> None:
    """Release by other settings than are declared; see whether the audit tells them apart."""
    n = 4_000
    key = bytes.fromhex("9b1f6c04d2a85e73bb40c9f1e6a7250d")
    # Each agent is a host of its own: of one vote for all nothing could be told.
    agents = Agents(true, KeyedNoise(key, deployment="x", purpose="y"), votes_alone=True)
    agents.add_agents([f"a{i}" for i in range(n)])
    rng, law = np.random.default_rng(5), NoiseLaw(settings)
    for k in range(100):
        law.take(agents.update(np.arange(n), rng.random(n), np.full(n, float(k))).releases)
    row = law.row_of_counts(kind, "x")
    assert "12,000 degrees of freedom" in row.method
    assert row.violated is violated
    assert row.proved < 1.1 * row.claimed


def scaled(noise: GaussianNoise | LaplaceNoise, scale: float) -> GaussianNoise | LaplaceNoise:
    """Noise of the same kind, so much larger."""
    if isinstance(noise, GaussianNoise):
        return GaussianNoise(scale * noise.stddev)
    return LaplaceNoise(scale * noise.scale)


@pytest.mark.parametrize(
    ("memory", "noise"),
    [
        ("forever", "gaussian"),
        ("forever", "staircase"),
        ("half-life:30", "gaussian"),
        ("window:30", "gaussian"),
    ],
)
@pytest.mark.parametrize("scale", [1.0, 0.95])
def test_votes_whose_noise_is_five_percent_too_small_are_told(
    scale: float, memory: str, noise: str
) -> None:
    """False alarm 1e-6. Of sums that forget nothing is said; their votes are as public as
    others'."""
    settings, true = (
        AgentsSettings(lower=0, upper=1, epsilon=1, delta=1e-6, memory=memory, noise=noise)
        for _ in range(2)
    )
    assert true.vote is not None
    true.__dict__["vote"] = replace(true.vote, noise=scaled(true.vote.noise, scale))
    scale_is_told("votes", settings, true, violated=scale < 1)


@pytest.mark.parametrize("noise", ["gaussian", "staircase"])
@pytest.mark.parametrize("scale", [1.0, 0.95])
def test_histograms_whose_noise_is_five_percent_too_small_are_told(
    scale: float, noise: str
) -> None:
    """False alarm 1e-6; what is not looked at, the places of the samples in the bins, is whatever
    it is."""
    given: dict[str, Any] = {
        "lower": 0,
        "upper": 1,
        "epsilon": 1,
        "delta": 1e-6,
        "histogram_share": 0.1,
        "noise": noise,
    }
    settings, true = (AgentsSettings(**given, exceeds=(0.3,)) for _ in range(2))
    assert true.histogram is not None
    true.__dict__["histogram"] = replace(true.histogram, noise=scaled(true.histogram.noise, scale))
    scale_is_told("histograms", settings, true, violated=scale < 1)


def test_histograms_are_audited_in_a_store_and_in_a_file(tmp_path: Path) -> None:
    lines = [f"a{i % 40},{i % 9},{1_357_000_000 + i}" for i in range(1_000)]
    (tmp_path / "samples.csv").write_text("\n".join(["agent,value,time", *lines]) + "\n")
    places = (
        "--source",
        f"{tmp_path}/samples.csv",
        "--store",
        f"{tmp_path}/s.db",
        "--releases",
        f"{tmp_path}/r.jsonl",
    )
    asked, sink = ("--exceeds", "3"), ("--sink", f"{tmp_path}/e.jsonl")
    ran = meanstream(
        "run",
        "agents",
        *places,
        *PROMISED,
        *asked,
        *sink,
        environment={"MEANSTREAM_SECRET": SECRET},
    )
    assert ran.code == 0, ran.err
    of_store = meanstream("audit", "store", f"{tmp_path}/s.db", "--json")
    of_file = asks("audit", "topic", f"{tmp_path}/r.jsonl", *PROMISED, *asked, "--json")
    for name, found in (("ledger", of_store), ("releases", of_file)):
        assert [row["name"] for row in found.json["rows"]] == [
            name,
            f"{name}.votes",
            f"{name}.histograms",
        ]
        assert "too few histograms, 40 degrees of freedom" in found.json["rows"][2]["method"]


def test_what_cannot_be_read_is_refused_in_one_line(tmp_path: Path) -> None:
    assert "store must" in meanstream("audit", "store", str(tmp_path / "none.db")).message
    assert "address must be given" in asks("audit", "topic", *PROMISED).message
    assert (
        "releases must be"
        in asks("audit", "topic", str(tmp_path / "none.jsonl"), *PROMISED).message
    )
    said = asks("audit", "topic", str(tmp_path / "none.jsonl")).message
    assert "lower, upper and epsilon must be given" in said


def test_a_changed_ledger_ends_with_1(made: Path, tmp_path: Path) -> None:
    shutil.copy(made / "s.db", tmp_path / "s.db")
    with sqlite3.connect(tmp_path / "s.db") as database:
        guards = "SELECT name FROM sqlite_master WHERE type = 'trigger' AND sql LIKE '%UPDATE%'"
        (guard,) = database.execute(guards).fetchone()
        database.execute(f"DROP TRIGGER {guard}")
        database.execute("UPDATE ledger SET data = zeroblob(length(data))")
    ran = meanstream("audit", "store", str(tmp_path / "s.db"))
    assert ran.code == 1
    assert b"ledger" in ran.err

"""`run agents --schedule round_robin`: Algorithm 1 on the engine, its state, its refusals, and who
learns what."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from meanstream.lab.papers.colme.pairwise_settings import PAIRWISE_SCHEDULES
from meanstream.lab.papers.colme.pairwise_stream import PairwiseStream
from meanstream.lab.papers.colme.pairwise_stream_settings import PairwiseStreamSettings
from meanstream.operators.agents.agents_settings import AgentsSettings
from meanstream.pipelines.commands.run.run_pairwise import public_pairs_metrics, run_pairs
from meanstream.pipelines.options.agents_options import PAIRWISE, AgentsOptions
from meanstream.pipelines.options.pairwise_options import pairwise_options as checked_pairs
from meanstream.streaming.crash import CrashPoint, Moment
from meanstream.streaming.engine.engine_health import EngineHealth
from meanstream.streaming.engine.engine_stats import EngineStats
from meanstream.streaming.store.secret_source import load_secret, noise_from_secret
from tests.pipelines.command_line import SECRET, Ran, arguments, meanstream
from tests.streaming.support.dying import DieAt, Died
from tests.streaming.support.stored_rows import stored_rows

NAMES = [f"agent {number}" for number in range(6)]
STEPS = 40
SCHEDULES = ("round_robin", "restricted_round_robin")


def values_of(seed: int = 3) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return np.where(np.arange(len(NAMES)) % 2, 0.2, 0.8) + rng.normal(0, 0.05, (STEPS, len(NAMES)))


def write(path: Path, values: np.ndarray) -> Path:
    rows = [
        f"{NAMES[a]},{v!r},{60 * t}"
        for t, row in enumerate(values.tolist())
        for a, v in enumerate(row)
    ]
    path.write_text("\n".join(["agent,value,time", *rows]) + "\n")
    return path


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MEANSTREAM_SECRET", SECRET)
    write(tmp_path / "samples.csv", values_of())
    return tmp_path


def named(folder: Path, **changes: Any) -> dict[str, Any]:
    found = {
        "source": folder / "samples.csv", "lower": 0, "upper": 1, "epsilon": 1, "delta": 1e-6, "name": "test",
        "store": folder / "state.db", "sink": folder / "estimates.jsonl", "schedule": "round_robin", "refresh": "5m",
        "stddev": 0.05, "members": True, **changes,
    }  # fmt: skip
    return {name: value for name, value in found.items() if value is not None}


def run(folder: Path, **changes: Any) -> Ran:
    return meanstream("run", "agents", *arguments(named(folder, **changes)))


def lines(folder: Path, file: str = "estimates.jsonl") -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / file).read_bytes().splitlines()]


def ledger(folder: Path) -> list[Any]:
    return stored_rows(folder / "state.db")


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("variance", ["known", "released", "from_releases", "bayesian"])
def test_the_engine_learns_what_algorithm_1_learns(
    schedule: str, variance: str, folder: Path
) -> None:
    """`tests/lab/papers/colme/test_pairwise_stream.py` compares the stream with the simulator of
    the paper."""
    stddev = 0.05 if variance == "known" else None
    ran = run(folder, schedule=schedule, variance=variance, stddev=stddev, weights="mean_of_means")
    assert ran.code == 0, ran.err
    release = AgentsSettings(
        lower=0,
        upper=1,
        epsilon=1,
        delta=1e-6,
        counter="pm1",
        horizon=1_000_000,
        spread_share=0.0,
        name="test",
    )
    settings = PairwiseStreamSettings(
        release=release,
        schedule=schedule,
        variance=variance,
        stddev=stddev,
        weights="mean_of_means",
    )
    stream = PairwiseStream(
        settings,
        noise_from_secret(load_secret(folder / "state.db", environment=os.environ), "test"),
        capacity=len(NAMES),
    )
    values = values_of()
    agent, time = (
        np.tile(np.arange(len(NAMES)), STEPS),
        np.repeat(60.0 * np.arange(STEPS), len(NAMES)),
    )
    made = stream.take(agent, values.ravel(), time, NAMES)
    answer, alone = stream.estimate(np.arange(len(NAMES)))
    last = {one["agent"]: one for one in lines(folder)}
    assert [last[name]["value"] for name in NAMES] == answer.value.tolist()
    assert [last[name]["local"] for name in NAMES] == alone.value.tolist()
    assert [last[name]["class_size"] for name in NAMES] == answer.class_size.tolist()
    assert [last[name]["members"] for name in NAMES] == [
        stream.members(a) for a in range(len(NAMES))
    ]
    kept = [json.loads(row[-2]) for row in ledger(folder)]
    assert [one["total"] for one in kept] == made.total.tolist()
    received = [one.get("variance") for one in kept]
    assert [v for v in received if v is not None] == (
        made.variance[np.isfinite(made.variance)].tolist() if variance == "released" else []
    )
    assert [(NAMES.index(one["agent"]), NAMES.index(one["reader"])) for one in kept] == [
        *zip(made.agent.tolist(), made.reader.tolist(), strict=True)
    ]


POINTS = [CrashPoint.SAVE_POSITION, CrashPoint.CHARGE_LEDGER, CrashPoint.COMMIT, CrashPoint.WRITE_ESTIMATES,
          CrashPoint.FLUSH_SINKS, CrashPoint.MARK_DELIVERY]  # fmt: skip


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("point", POINTS)
def test_a_killed_run_goes_on_to_the_same_bytes(
    schedule: str, point: CrashPoint, folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    whole = tmp_path_factory.mktemp("whole")
    changes: dict[str, Any] = {"schedule": schedule, "batch_size": 17, "stddev": None}
    assert run(whole, source=folder / "samples.csv", **changes).code == 0
    options = AgentsOptions(
        **{k: str(v) if isinstance(v, Path) else v for k, v in named(folder, **changes).items()}
    )
    for visit, moment in ((1, Moment.AFTER), (2, Moment.BEFORE)):
        with pytest.raises(Died):
            run_pairs(checked_pairs(options), crash=DieAt(point, moment, visit))
    assert run(folder, **changes).code == 0
    assert (folder / "estimates.jsonl").read_bytes() == (whole / "estimates.jsonl").read_bytes()
    assert [row[:7] for row in ledger(folder)] == [row[:7] for row in ledger(whole)]
    assert len(lines(folder)) > 6 * 6


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"weights": "windowed"}, "weights must be 'last' as in the store"),
        ({"schedule": "restricted_round_robin"}, "schedule must be 'round_robin' as in the store"),
        ({"stddev": None}, "stddev must be 0.05 as in the store"),
        ({"stddev": 0.06}, "stddev must be 0.05 as in the store"),
        ({"epsilon": 2}, "epsilon must be 1.0 as in the store"),
        ({"partners": True}, "partners must be None as in the store"),
        ({"schedule": "preferred:10", "stddev": None, "members": None},
         "store must be one of agents, got"),
    ],
)  # fmt: skip
def test_a_store_goes_on_with_its_settings_only(
    changes: dict[str, Any], message: str, folder: Path
) -> None:
    assert run(folder).code == 0
    if changes.get("partners"):
        (folder / "partners.csv").write_text(f"agent,partner\n{NAMES[0]},{NAMES[1]}\n")
        changes = {"partners": folder / "partners.csv"}
    before = (folder / "estimates.jsonl").read_bytes()
    assert message in run(folder, **changes).message
    assert (folder / "estimates.jsonl").read_bytes() == before


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"weights": "mom"}, "weights must be one of last, mean_of_means, windowed, got 'mom'"),
        (
            {"variance": "known", "stddev": None},
            "variance must be known with stddev, and only then",
        ),
        ({"releases": "r.jsonl"}, "releases must be left out with --schedule round_robin"),
        ({"collaboration": "tests"}, "collaboration must be left out with --schedule round_robin"),
        ({"quantiles": ".5"}, "quantiles must be left out with --schedule round_robin"),
        ({"counter": "optimal"}, "counter must be pm1, pm2 or toeplitz with a pairwise schedule"),
        ({"max_agents": 100_000}, "max_agents must be at most"),
        ({"runner": "FnApiRunner"}, "members must be left out with --runner"),
        (
            {"runner": "DataflowRunner", "members": None},
            "schedule must be of another kind with DataflowRunner",
        ),
        (
            {"runner": "FnApiRunner", "members": None, "max_agents": 3000},
            "max_agents must be at most 2032 with --runner",
        ),
        (
            {"schedule": None, "weights": "last", "members": None},
            "weights must come with --schedule round_robin or",
        ),
        (
            {"schedule": None, "members": True},
            "members must come with collaboration tests or a pairwise schedule",
        ),
        ({"partners": "absent.csv"}, "partners must be a readable file"),
    ],
)
def test_what_a_pairwise_schedule_has_not_is_refused(
    changes: dict[str, Any], message: str, folder: Path
) -> None:
    assert message in run(folder, **changes).message
    assert not (folder / "state.db").exists()


def test_one_agent_more_than_allowed_is_a_dead_letter(folder: Path) -> None:
    ran = run(folder, max_agents=5, dead_letters=folder / "dead.jsonl", json=True)
    assert ran.json["rejected"] == {"too_many_agents": STEPS}
    assert {one["reason"] for one in lines(folder, "dead.jsonl")} == {"too_many_agents"}
    assert {one["agent"] for one in lines(folder)} == set(NAMES[:5])
    assert (
        "max_agents must be at least 5, the agents of the store, got 4"
        in run(folder, max_agents=4).message
    )


def test_agents_stay_among_their_partners(folder: Path) -> None:
    rows = [(NAMES[a], NAMES[(a + d) % 6]) for a in range(5) for d in (1, 2)]
    text = "\n".join(["agent,partner", *(",".join(row) for row in rows)])
    (folder / "partners.csv").write_text(text + "\n")
    assert run(folder, partners=folder / "partners.csv").code == 0
    kept = [json.loads(row[-2]) for row in ledger(folder)]
    assert {(one["reader"], one["agent"]) for one in kept} <= set(rows)
    assert len(kept) > 100
    last = {one["agent"]: one for one in lines(folder)}
    assert (last[NAMES[5]]["class_size"], last[NAMES[5]]["members"]) == (1.0, [])


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_values_of_an_agent_that_nobody_queries_reach_nobody_else(
    schedule: str, folder: Path
) -> None:
    """Two worlds: the last agent's values differ, and with them whom it queries and how many
    releases there are."""
    rows = [(a, b) for a in NAMES for b in NAMES[:-1] if a != b]
    partners = folder / "partners.csv"
    partners.write_text("\n".join(["agent,partner", *(",".join(row) for row in rows)]) + "\n")
    worlds, releases = [], []
    for world, shift in (("w1", 0.0), ("w2", -5.0)):
        place = folder / world
        place.mkdir()
        values = values_of()
        values[:, -1] += shift
        write(place / "samples.csv", values)
        ran = run(place, schedule=schedule, partners=partners, epsilon=30, json=True,
                  dead_letters=place / "dead.jsonl")  # fmt: skip
        assert ran.code == 0
        others = [
            line
            for line in (place / "estimates.jsonl").read_bytes().splitlines()
            if b'"agent 5"' not in line
        ]
        seen_by_all = re.sub(rb"\d{4}-\d\d-\d\dT\S+|/w[12]/", b"", ran.err)
        worlds.append((others, (place / "dead.jsonl").read_bytes(), ran.out, seen_by_all))
        releases.append(len(ledger(place)))
        assert len(others) == 5 * 9
    assert worlds[0] == worlds[1]
    if schedule == "restricted_round_robin":
        assert releases[0] != releases[1]  # what would leak, if anything showed it


def test_public_metrics_do_not_count_releases(folder: Path) -> None:
    def page(messages: int) -> list[tuple[str, float]]:
        settings = AgentsSettings(lower=0, upper=1, epsilon=1, delta=1e-6)
        metrics = public_pairs_metrics(
            settings=settings, health=EngineHealth(), store=folder / "state.db"
        )
        metrics.observe(EngineStats(messages=messages))
        return [
            (s.name, s.value)
            for f in metrics.collect()
            for s in f.samples
            if "seconds" not in s.name
        ]

    assert run(folder, schedule="restricted_round_robin").code == 0
    assert len(ledger(folder)) > 100
    assert page(7) == page(9)
    assert not [name for name, value in page(7) if "ledger" in name and np.isfinite(value)]


def test_a_dry_run_says_what_readers_learn_who_pool(folder: Path) -> None:
    told = run(folder, dry_run=True, mode="paper").out.decode()
    assert "towards one reader: 1, 5 readers: 1.87, 50 readers: 6.81; delta 1e-06" in told
    assert not (folder / "state.db").exists()
    assert "privacy of a coalition" in run(folder).err.decode()


def test_the_command_line_and_the_ring_name_the_same_schedules() -> None:
    assert tuple(PAIRWISE_SCHEDULES) == PAIRWISE


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_a_runner_of_beam_gives_the_engines_answers(schedule: str, folder: Path) -> None:
    (folder / "partners.csv").write_text(
        "\n".join(["agent,partner", *(f"{a},{b}" for a in NAMES for b in NAMES[:4] if a != b)])
        + "\n"
    )
    changes: dict[str, Any] = {
        "schedule": schedule, "members": None, "refresh": None, "weights": "windowed", "stddev": None,
        "variance": "released", "partners": folder / "partners.csv",
    }  # fmt: skip
    assert run(folder, **changes).code == 0
    beam = folder / "beam.jsonl"
    ran = run(folder, **changes, runner="FnApiRunner", sink=beam, store=folder / "none.db")
    assert ran.code == 0, ran.err
    found = {one["agent"]: one for one in lines(folder, "beam.jsonl")}
    assert found == {one["agent"]: one for one in lines(folder)}
    assert len(found) == len(NAMES)


def test_too_few_samples_for_the_partners_are_warned_of(folder: Path) -> None:
    """Each pair exchanges less than three releases: numbers of samples and agents say so."""
    write(folder / "few.csv", values_of()[:10])
    ran = run(folder, source=folder / "few.csv", json=True)
    assert ran.json["releases"] == 10 * len(NAMES)
    assert ran.json["samples_per_partner"] == 2.0
    assert "too few samples for pairwise queries" in ran.err.decode()
    assert "--partners" in ran.err.decode()


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_releases_are_counted_where_their_number_is_public(schedule: str, folder: Path) -> None:
    ran = run(folder, schedule=schedule, json=True)
    assert ran.json.get("releases") == (240 if schedule == "round_robin" else None)
    assert ran.json["samples_per_partner"] == 8.0
    assert "too few samples" not in ran.err.decode()

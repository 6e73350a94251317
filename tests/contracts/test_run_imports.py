"""An engine starts again in a second: a run imports nothing heavy that it does not use."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

HEAVY = {
    "apache_beam",
    "matplotlib",
    "river",
    "scipy.interpolate",
    "scipy.optimize",
    "scipy.signal",
}
HEAVY |= {"scipy.stats", "scipy.linalg", "confluent_kafka", "yaml"}
HEAVY |= {
    "meanstream.pipelines.page.page_answers",
    "meanstream.pipelines.commands.run.run_pairwise",
    "meanstream.pipelines.commands.run.agents_dry_run",
    "meanstream.streaming.agents.agents_budget",
    "meanstream.streaming.agents.declared_covariates",
    "meanstream.streaming.kafka.connection.schema_registry",
    "meanstream.streaming.metrics.background",
    "meanstream.streaming.metrics.metric_records",
    "meanstream.streaming.rounds.user_places",
}
MOST_MODULES = 220
"""Modules of ours that a run of agents on a file may import: each takes about a millisecond of a start."""

PROGRAM = """
import sys
from meanstream.pipelines.commands.main import main
try:
    main()
finally:
    print(*sys.modules, file=sys.stderr)
"""


def imported(*arguments: str, beforehand: str = "") -> set[str]:
    """Run the command in a process of its own; give the modules that it ends with."""
    ran = subprocess.run(
        [sys.executable, "-c", beforehand + PROGRAM, *arguments],
        capture_output=True,
        check=True,
        text=True,
    )
    return set(ran.stderr.splitlines()[-1].split())


@pytest.fixture
def samples(tmp_path: Path) -> Path:
    place = tmp_path / "samples.jsonl"
    lines = [
        f'{{"agent":"a{i % 7}","time":{1.7e9 + i},"value":{i % 10 / 10}}}\n' for i in range(400)
    ]
    place.write_text("".join(lines))
    return place


def arguments_of(samples: Path) -> list[str]:
    shared = ["--lower", "0", "--upper", "1", "--epsilon", "1", "--delta", "1e-6", "--quiet"]
    places = [
        "--store",
        str(samples.with_name("s.db")),
        "--sink",
        str(samples.with_name("e.jsonl")),
    ]
    return ["run", "agents", "--source", str(samples), *shared, *places]


def test_a_run_of_agents_imports_nothing_heavy_that_it_does_not_use(samples: Path) -> None:
    modules = imported(*arguments_of(samples))
    assert {"numpy", "pyarrow", "meanstream.streaming.agents.agents_engine"} <= modules
    assert HEAVY & modules == set()
    ours = {name for name in modules if name.partition(".")[0] == "meanstream"}
    assert len(ours) <= MOST_MODULES
    assert samples.with_name("e.jsonl").read_text().count("\n") >= 7


@pytest.mark.parametrize("asked", ["--help", "--version"])
def test_the_list_of_commands_imports_none_of_them(asked: str) -> None:
    modules = imported(asked)
    assert {
        "numpy",
        "pydantic",
        "yaml",
        "rich",
        "meanstream.pipelines.commands.run.command",
    } & modules == set()


def test_what_rounds_protect_is_explained_without_the_statistics_of_scipy() -> None:
    asked = "explain rounds --users 4043 --lower -30 --upper 120 --epsilon 1 --window 7d"
    assert {"scipy.stats", "scipy.optimize"} & imported(*asked.split()) == set()


THREADS = """
import atexit, os
atexit.register(lambda: print(os.environ.get("OPENBLAS_NUM_THREADS"), file=sys.stderr))
"""


@pytest.mark.parametrize(("said", "threads"), [(None, "1"), ("3", "3")])
def test_small_matrices_get_one_thread_unless_somebody_says_another_number(
    samples: Path, monkeypatch: pytest.MonkeyPatch, said: str | None, threads: str
) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    if said is None:
        monkeypatch.delenv("OPENBLAS_NUM_THREADS", raising=False)
    else:
        monkeypatch.setenv("OPENBLAS_NUM_THREADS", said)
    program = PROGRAM.replace("import sys\n", f"import sys\n{THREADS}", 1)
    ran = subprocess.run(
        [sys.executable, "-c", program, *arguments_of(samples)],
        capture_output=True,
        check=True,
        text=True,
    )
    assert ran.stderr.splitlines()[-1].split()[0] == threads


def test_the_check_sees_a_heavy_import() -> None:
    assert {"scipy.signal", "scipy.stats"} <= HEAVY & imported(
        "--version", beforehand="import scipy.signal\n"
    )

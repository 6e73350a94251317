"""`meanstream explain --diff`: each promise that is weakened or strengthened, and an exit code for
a check."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from meanstream.pipelines.commands.explain.explain_diff import (
    AGENTS_BEARING,
    ROUNDS_BEARING,
    Bearing,
)
from meanstream.pipelines.options.agents_options import AgentsOptions
from meanstream.pipelines.options.declaration import PRIVACY, declared_options
from meanstream.pipelines.options.rounds_options import RoundsOptions
from tests.code_blocks import page_environment
from tests.pipelines.command_line import SECRET, Ran, arguments, meanstream
from tests.warm_command import commands_for_a_shell

ROOT = Path(__file__).parents[4]
AGENTS = {
    "lower": 0,
    "upper": 1,
    "epsilon": 1,
    "delta": 1e-6,
    "noise": "gaussian",
    "name": "delays",
    "source": "a.csv",
}
ROUNDS = {"lower": 0, "upper": 1, "epsilon": 0.5, "window": "7d", "name": "weekly", "users": 500}
PERSON = {"person": "who", "per_person": 3}
WEAKER: list[tuple[dict[str, Any], dict[str, Any], dict[str, Any], set[str]]] = [
    (AGENTS, {}, {"epsilon": 3}, {"epsilon", "right guesses"}),
    (AGENTS, {}, {"delta": 1e-5}, {"delta", "right guesses"}),
    (AGENTS, {}, {"horizon": 41}, {"horizon"}),
    (AGENTS, {}, {"memory": "half-life:5000"}, {"horizon"}),
    (AGENTS, PERSON, {}, {"unit", "person"}),
    (AGENTS, PERSON, {"person": "user", "per_person": 3}, {"person"}),
    (AGENTS, {"id": "flight"}, {}, {"id"}),
    (AGENTS, {}, {"agent": "user"}, {"agent"}),
    (AGENTS, {}, {"name": "others"}, {"name"}),
    (AGENTS, {"spread_share": 0}, {}, {"votes"}),
    (AGENTS, {}, {"quantiles": 0.5}, {"histogram"}),
    (AGENTS, {}, {"releases": "r.jsonl", "metrics": "127.0.0.1:9464"}, {"releases", "metrics"}),
    (AGENTS, {}, {"sink": "kafka://h:1/t", "answers": "127.0.0.1:1"}, {"sink", "answers"}),
    (AGENTS, {}, {"page_remote": True}, {"page_remote"}),
    (AGENTS, {"calibration": "classical"}, {}, {"right guesses"}),
    (ROUNDS, {}, {"epsilon": 0.6}, {"epsilon", "right guesses"}),
    (ROUNDS, {}, {"window": "1d"}, {"window"}),
    (ROUNDS, {}, {"window": "session:30m"}, {"window"}),
    (ROUNDS, {"user_budget": 5}, {"user_budget": 6}, {"user budget"}),
    (ROUNDS, {"user_budget": 5}, {}, {"user budget"}),
    (ROUNDS, {"user_budget": 5}, {"user_budget": 5, "window": "7d,1d"}, {"window", "overlap"}),
    (ROUNDS, {}, {"estimator": "central.mean"}, {"trust"}),
    (ROUNDS, {}, {"reports": "r.jsonl", "dead_letters": "d.jsonl"}, {"reports", "dead_letters"}),
]
NEUTRAL: list[tuple[dict[str, Any], dict[str, Any], set[str]]] = [
    (
        AGENTS,
        {"schedule": "every:1d", "lower": -1, "source": "b.csv"},
        {"schedule", "lower", "source"},
    ),
    (AGENTS, {"lateness": "1h", "quiet": True, "collaboration": "none", "max_agents": 9}, set()),
    (ROUNDS, {"users": 600, "level": 0.9}, {"users"}),
]


def diff(folder: Path, old: Any, new: Any, *more: str) -> Ran:
    for name, config in (("old.yaml", old), ("new.yaml", new)):
        (folder / name).write_text(yaml.safe_dump(config))
    return meanstream(
        "explain", "--diff", str(folder / "old.yaml"), str(folder / "new.yaml"), *more
    )


@pytest.mark.parametrize(("base", "old", "new", "names"), WEAKER)
def test_a_weaker_promise_ends_with_1_and_the_way_back_does_not(
    base: dict[str, Any], old: dict[str, Any], new: dict[str, Any], names: set[str], tmp_path: Path
) -> None:
    there = diff(tmp_path, base | old, base | new, "--json")
    assert there.code == 1
    assert {row["what"] for row in there.json["weaker"]} == names
    back = diff(tmp_path, base | new, base | old, "--json")
    both_ways = {
        name
        for name in ("person", "agent", "name", "sink")
        if old.get(name, "-") != new.get(name, "-")
    }
    both_ways -= {"person"} if not (old and new) else set()
    assert {row["what"] for row in back.json["weaker"]} == both_ways & names
    assert back.code == int(bool(back.json["weaker"]))


@pytest.mark.parametrize(("base", "new", "names"), NEUTRAL)
def test_a_change_without_a_direction_is_listed_and_ends_with_0(
    base: dict[str, Any], new: dict[str, Any], names: set[str], tmp_path: Path
) -> None:
    found = diff(tmp_path, base, base | new, "--json")
    assert (found.code, found.json["weaker"], found.json["stronger"]) == (0, [], [])
    assert {row["what"] for row in found.json["changed"]} == names


@pytest.mark.parametrize(
    ("table", "kind"), [(AGENTS_BEARING, AgentsOptions), (ROUNDS_BEARING, RoundsOptions)]
)
def test_every_option_has_its_bearing_and_none_of_privacy_or_output_has_no_bearing(
    table: dict[str, Bearing], kind: type[Any]
) -> None:
    declared = declared_options(kind)
    assert table.keys() == declared.keys()
    without = {name for name, bearing in table.items() if bearing is Bearing.NONE}
    assert [name for name in without if declared[name].rich_help_panel == PRIVACY] == []
    assert {name for name in without if declared[name].shows} == {
        "json",
        "dry_run",
        "log_format",
        "quiet",
    }


def test_it_is_in_words_and_has_no_password(tmp_path: Path) -> None:
    place = {"releases": "kafka://me:hunter2@h:9092/t?sasl.password=hunter2"}
    ran = diff(tmp_path, AGENTS | PERSON, AGENTS | {"epsilon": 3} | place)
    assert b"hunter2" not in ran.out
    lines = ran.out.decode().splitlines()
    assert "weaker    epsilon: 1 -> 3 (privacy loss, over all releases of an agent)" in lines
    assert any(
        line.startswith("weaker    unit: all samples of one person in one agent -> one sample")
        for line in lines
    )
    assert lines[-1] == "5 weaker, 0 stronger, 1 changed"
    assert diff(tmp_path, AGENTS, AGENTS).out.decode().splitlines()[1:] == [
        "0 weaker, 0 stronger, 0 changed"
    ]


def test_files_are_compared_whatever_the_environment_and_a_store_here_say(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MEANSTREAM_EPSILON", "9")
    samples = tmp_path / "a.csv"
    samples.write_text(
        "agent,value,time\n" + "".join(f"a,.5,2024-01-01T00:00:{i:02}Z\n" for i in range(60))
    )
    store = tmp_path / "state.db"
    typed = arguments({**AGENTS, "spread_share": 0, "quiet": True, "source": samples})
    places = ["--store", str(store), "--sink", str(tmp_path / "e.jsonl")]
    ran = meanstream("run", "agents", *typed, *places, environment={"MEANSTREAM_SECRET": SECRET})
    assert ran.code == 0, ran.err
    found = diff(
        tmp_path,
        AGENTS | {"store": str(store), "spread_share": 0},
        AGENTS | {"store": str(store)},
        "--json",
    )
    assert [row["what"] for row in found.json["weaker"]] == ["votes"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ["--diff", "old.yaml", "rounds.yaml"],
            "diff must be two files of agents or two of rounds, got agents and",
        ),
        (["--diff", "old.yaml", "none.yaml"], "config must be a readable file"),
        (["--diff", "old.yaml", "bad.yaml"], "epsilon must be positive"),
        (["--diff", "old.yaml"], "requires 2 arguments"),
        (["--json"], "diff must be two files, got None: add --diff OLD NEW"),
        (
            ["--diff", "old.yaml", "old.yaml", "agents"],
            "diff must be given without a command, got 'agents'",
        ),
    ],
)
def test_a_refusal_is_one_line(
    words: list[str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, config in (("old", AGENTS), ("rounds", ROUNDS), ("bad", AGENTS | {"epsilon": -1})):
        Path(f"{name}.yaml").write_text(yaml.safe_dump(config))
    assert said in meanstream("explain", *words).message


@pytest.mark.parametrize(
    ("change", "code"), [({"epsilon": 3}, 1), ({"epsilon": 0.5}, 0), (None, 1), ({"upper": 2}, 0)]
)
def test_the_workflow_of_the_page_fails_where_a_pull_request_weakens(
    change: dict[str, Any] | None, code: int, tmp_path: Path
) -> None:
    steps = yaml.safe_load((ROOT / "docs" / "examples" / "privacy-check.yml").read_text())["jobs"][
        "promise"
    ]["steps"]
    (compare,) = (step for step in steps if "env" in step)
    assert compare["env"] == {"BASE": "${{ github.event.pull_request.base.sha }}"}
    runs = tmp_path / "repository" / "runs"
    runs.mkdir(parents=True)
    (tmp_path / "bin").mkdir()
    environment = page_environment(commands_for_a_shell(tmp_path / "bin")) | {
        "RUNNER_TEMP": str(tmp_path)
    }
    me = ("git", "-c", "user.name=a", "-c", "user.email=a@b", "-c", "init.defaultBranch=main")

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            words,
            cwd=runs.parent,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )

    (runs / "kept.yaml").write_text(yaml.safe_dump(AGENTS))
    for words in (["init", "-q"], ["add", "."], ["commit", "-qm", "base"]):
        assert run(*me, *words).returncode == 0
    environment["BASE"] = run("git", "rev-parse", "HEAD").stdout.strip()
    (runs / ("new.yaml" if change is None else "kept.yaml")).write_text(
        yaml.safe_dump(AGENTS | (change or {}))
    )
    for words in (["add", "."], ["commit", "-qm", "request"]):
        assert run(*me, *words).returncode == 0
    ran = run("bash", "-e", "-c", compare["run"])
    assert ran.returncode == code, ran.stdout + ran.stderr

"""`run collaborate`: `--dry-run` refuses what a run would refuse, and one vocabulary with the other
run commands."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import typer

from meanstream.pipelines.commands.main import app
from tests.pipelines.command_line import (
    Ran,
    arguments,
    files,
    meanstream,
    run_agents,
    write_samples,
)

OTHER_MEANING = {
    "source", "until_end", "lower", "upper", "epsilon", "mode", "refresh", "store", "releases", "dead_letters",
    "notices", "sink", "private_metrics", "agent", "quantiles", "delta",
}  # fmt: skip
"""What another command reads, writes or answers: these alone are described otherwise there."""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a store of agents, and their releases."""
    write_samples(tmp_path / "flights.csv", rows=240)
    assert run_agents(tmp_path).code == 0
    return tmp_path


def collaborate(folder: Path, **options: Any) -> Ran:
    given = {
        "releases": folder / "releases.jsonl",
        "store": folder / "state.db",
        "sink": folder / "answers.jsonl",
    }
    return meanstream("run", "collaborate", *arguments({**given, "until_end": True, **options}))


def test_a_dry_run_tells_what_would_be_answered_and_makes_nothing(folder: Path) -> None:
    before = files(folder)
    ran = collaborate(folder, dry_run=True)
    assert (ran.code, ran.err) == (0, b"")
    assert "nothing is spent" in ran.out.decode()
    facts = collaborate(folder, dry_run=True, json=True).json
    assert files(folder) == before
    done = collaborate(folder, json=True).json
    assert facts["store"]["agents"] == done["own_agents"] > 0


def test_a_dry_run_refuses_what_a_run_would_refuse(folder: Path) -> None:
    before = files(folder)
    for option, value in (
        ("releases", "none.jsonl"),
        ("store", "none.db"),
        ("refresh", "soon"),
        ("collaboration", "gossip"),
        ("sink", "kafka://127.0.0.1:1/estimates"),
        ("population", "kafka://127.0.0.1:1/population"),
        ("sink", f"{folder}/state.db.collaborate.page"),
        ("metrics", "nowhere"),
        ("private_metrics", "nowhere"),
        ("page", "0.0.0.0:8080"),
        ("page_remote", True),
        ("wait_for", "long"),
    ):
        refused = collaborate(folder, dry_run=True, **{option: value})
        assert (refused.code, refused.message.startswith(f"{option} must")) == (2, True), (
            refused.message
        )
        assert refused.message == collaborate(folder, **{option: value}).message
    assert files(folder) == before


def test_run_commands_say_the_same_of_an_option() -> None:
    run: Any = typer.main.get_command(app).commands["run"]  # type: ignore[attr-defined]
    told: dict[str, dict[str, tuple[str, tuple[str, ...]]]] = {}
    for name, command in run.commands.items():
        for option in command.params:
            told.setdefault(option.name, {})[name] = (option.help, tuple(option.opts))
    differing = {option for option, said in told.items() if len(set(said.values())) > 1}
    assert differing == OTHER_MEANING
    assert {"--lateness", "--allowed-lateness"} == set(told["allowed_lateness"]["rounds"][1])
    everywhere = {
        "metrics",
        "private_metrics",
        "page",
        "page_remote",
        "dry_run",
        "wait_for",
        "log_format",
        "quiet",
    }
    assert all(told[option].keys() == run.commands.keys() for option in everywhere)

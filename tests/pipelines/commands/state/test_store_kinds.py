"""A store that is of another kind than a command's, or no store at all: one line, and nothing is
changed."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from tests.pipelines.command_line import (
    SECRET,
    arguments,
    files,
    meanstream,
    options,
    write_samples,
)

KEY = {"MEANSTREAM_SECRET": SECRET}
AGREED = {"lower": -30, "upper": 120, "window": "7d", "epsilon": 1, "name": "test"}
SAMPLES = {"user": "tailnum", "value": "dep_delay", "time": "time_hour"}


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of each kind, and a database of somebody else."""
    folder = tmp_path_factory.mktemp("stores")
    write_samples(folder / "flights.csv")
    for command in (agents(folder), users(folder), statistician(folder)):
        ran = meanstream(*command, environment=KEY)
        assert ran.code == 0, ran.err
    connection = sqlite3.connect(folder / "foreign.db")
    connection.execute("CREATE TABLE mine (x)")
    connection.close()
    return folder


def agents(folder: Path, **changes: Any) -> list[str]:
    named = options(folder, **{"quiet": True, "store": folder / "agents.db", **changes})
    return ["run", "agents", *arguments(named)]


def users(folder: Path, **changes: Any) -> list[str]:
    places = {name: folder / f"{name}.jsonl" for name in ("reports", "stages", "sink")}
    named = {
        "source": folder / "flights.csv",
        "store": folder / "users.db",
        **AGREED,
        **SAMPLES,
        **places,
    }
    return ["run", "rounds", *arguments({**named, "quiet": True, **changes})]


def statistician(folder: Path, **changes: Any) -> list[str]:
    places = {"stages": folder / "found.jsonl", "sink": folder / "means.jsonl"}
    named = {
        "from_reports": folder / "reports.jsonl",
        "store": folder / "statistician.db",
        **AGREED,
        **places,
    }
    return ["run", "rounds", *arguments({**named, "quiet": True, **changes})]


COMMANDS = {
    "run agents": (agents, {"agents"}),
    "run rounds": (users, {"users"}),
    "run rounds --from-reports": (statistician, {"statistician"}),
    "run agents --dry-run": (lambda folder, **to: agents(folder, dry_run=True, **to), {"agents"}),
    "run rounds --dry-run": (lambda folder, **to: users(folder, dry_run=True, **to), {"users"}),
    "run collaborate": (
        lambda folder, store: [
            *("run", "collaborate", "--releases", str(folder / "releases.jsonl"), "--until-end"),
            *("--sink", str(folder / "answers.jsonl"), "--store", str(store)),
        ],
        {"agents"},
    ),
    "budget": (lambda _, store: ["budget", "--store", str(store)], {"agents", "users"}),
    "report": (
        lambda folder, store: ["report", str(folder / "x.html"), "--store", str(store)],
        {"agents", "users"},
    ),
}
WORDS = {"agents": "agents", "users": "users in rounds", "statistician": "a statistician in rounds"}


@pytest.mark.parametrize("kind", [*WORDS, "foreign"])
@pytest.mark.parametrize("command", COMMANDS)
def test_a_store_of_another_kind_is_one_line(command: str, kind: str, stores: Path) -> None:
    typed, good = COMMANDS[command]
    if kind in good:
        return
    before, store = files(stores), stores / f"{kind}.db"
    ran = meanstream(*typed(stores, store=store), environment=KEY)
    wanted = " or of ".join(WORDS[name] for name in WORDS if name in good)
    expected = f"store must be one of {wanted}, got '{store}', one of {WORDS.get(kind)}"
    assert ran.message == (
        expected if kind in WORDS else f"store must be a Meanstream store, got '{store}'"
    )
    assert files(stores) == before


def test_each_kind_is_good_for_its_own_commands(stores: Path) -> None:
    """Otherwise a test that everything is refused would pass."""
    for command, (typed, good) in COMMANDS.items():
        for kind in good:
            ran = meanstream(*typed(stores, store=stores / f"{kind}.db"), environment=KEY)
            assert ran.code == 0, (command, kind, ran.err)
    shown = meanstream("store", "show", "--store", str(stores / "statistician.db"), "--json")
    assert json.loads(shown.out)["name"] == "test"

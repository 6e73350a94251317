"""What the deployment notes tell people to type and to open is there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import typer
from typer.main import get_command

from meanstream.pipelines.commands.main import app

ROOT = Path(__file__).parents[2]
NOTES = [
    ROOT / "docs" / "deployment.md",
    *sorted((ROOT / "docs" / "operations").glob("*.md")),
    *sorted((ROOT / "docs").glob("beam*.md")),
    ROOT / "docker" / "README.md",
]


def commands(text: str) -> list[list[str]]:
    """Calls of meanstream in blocks of code, line ends joined and comments cut."""
    blocks = "\n".join(re.findall(r"(?ms)^```\n(.*?)^```", text)).replace("\\\n", " ")
    lines = [line.split(" #")[0] for line in blocks.splitlines()]
    return [
        line.split("meanstream ", 1)[1].split()
        for line in lines
        if re.search(r"(^|\s)meanstream ", line)
    ]


def options_of(words: list[str]) -> set[str]:
    """Options of the subcommand that a call names."""
    command = get_command(app)
    for word in words:
        if not isinstance(command, typer.core.TyperGroup):
            break
        command = command.commands[word]
    return {
        option
        for parameter in command.params
        for option in (*parameter.opts, *parameter.secondary_opts)
    }


@pytest.mark.parametrize("path", NOTES, ids=lambda path: path.name)
def test_commands_and_options_exist(path: Path) -> None:
    text = path.read_text()
    for words in commands(text):
        named = {word.split("=")[0] for word in words if word.startswith("--")}
        assert named <= options_of(words), words


def test_there_are_commands_and_a_wrong_option_is_seen() -> None:
    found = commands(NOTES[0].read_text())
    assert len(found) >= 5
    assert not {"--stor"} <= options_of(["ledger", "backup"])


@pytest.mark.parametrize("path", NOTES, ids=lambda path: path.name)
def test_files_that_are_named_exist(path: Path) -> None:
    text = path.read_text()
    for link in re.findall(r"\]\(([^)#:]+)\)", text):
        assert (path.parent / link).exists(), link
    named = re.findall(r"`((?:tests|benchmarks|docker|docs|requirements)/[\w./-]+)`", text)
    for name in named:
        assert (ROOT / name).exists(), name
    for name in re.findall(r"python ((?:benchmarks|docker)/\S+\.py)", text):
        assert (ROOT / name).exists(), name


def test_the_table_of_files_is_complete() -> None:
    docker = ROOT / "docker"
    told = set(re.findall(r"(?m)^\| `([^`]+)` \|", (docker / "README.md").read_text()))
    there = {
        path.name + ("/" if path.is_dir() else "")
        for path in docker.iterdir()
        if path.name != "__pycache__"
    }
    folders = {name.split("/")[0] + "/" for name in told if "/" in name}
    assert there - {"README.md"} == {name for name in told if "/" not in name} | folders

"""Each command that the README names exists, with its options. Its blocks run in `test_code_blocks.py`."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from meanstream.operators.agents.settings import AgentsSettings
from meanstream.operators.noise.canonical import canonical_spelling
from meanstream.pipelines.options.agents import AgentsOptions
from tests.pipelines.command_line import meanstream

README = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
BLOCKS = [block.partition("\n") for block in README.split("```")[1::2]]
PYTHON = [text for language, _, text in BLOCKS if language == "python"]
COMMANDS = [
    re.sub(r"\s+#.*", "", line)
    for language, _, text in BLOCKS
    for line in text.replace("\\\n", " ").splitlines()
    if not language and line.startswith("meanstream ")
]


def test_there_is_something_to_run() -> None:
    assert PYTHON
    assert len(COMMANDS) >= 5


@pytest.mark.parametrize("command", COMMANDS)
def test_commands_and_options_exist(command: str) -> None:
    words = shlex.split(command)[1:]
    named = [w for w in words if w.startswith("--")]
    group = [w for w in words[:2] if not w.startswith("-") and w != "..."]
    known = meanstream(*group, "--help").out.decode()
    for option in named:
        assert option in known, option


def test_the_lines_for_beam_release_what_the_command_line_does(tmp_path: Path) -> None:
    """Row 4: under one name and secret they gave each release id a second value, with other noise, uncharged."""
    found = re.search(r"CollaborateAgents\((name=[^)]*)\)", README)
    assert found is not None
    in_python = AgentsSettings(**eval(f"dict({found[1]})"))  # noqa: S307 - our own README
    typed = AgentsOptions(lower=-30, upper=120, epsilon=1, delta=1e-6, name="delays", store=tmp_path / "state.db")
    assert canonical_spelling(typed.settings()) == canonical_spelling(in_python)
    assert "run agents --source flights.csv" in README
    assert "--lower -30 --upper 120 --epsilon 1 --delta 1e-6" in README

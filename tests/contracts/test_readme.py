"""The README is one page; the site's command for a stream and its lines for Beam are one
deployment."""

from __future__ import annotations

import re
from pathlib import Path

from meanstream.operators.agents.agents_settings import AgentsSettings
from meanstream.operators.noise.canonical import canonical_spelling
from meanstream.pipelines.options.agents_options import AgentsOptions

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
LINES, WORDS = 110, 900


def test_the_readme_is_one_page() -> None:
    assert len(README.splitlines()) <= LINES
    assert len(README.split()) <= WORDS


def test_the_lines_for_beam_release_what_the_command_line_does(tmp_path: Path) -> None:
    """Under one name and secret they once gave each release id a second value, with other noise,
    uncharged."""
    found = re.search(
        r"CollaborateAgents\((name=\"delays\"[^)]*)\)", (ROOT / "docs" / "beam.md").read_text()
    )
    assert found is not None
    in_python = AgentsSettings(**eval(f"dict({found[1]})"))  # noqa: S307 - our own page
    typed = AgentsOptions(
        lower=-30, upper=120, epsilon=1, delta=1e-6, name="delays", store=tmp_path / "state.db"
    )
    assert canonical_spelling(typed.settings()) == canonical_spelling(in_python)
    assert (
        "--lower -30 --upper 120 --epsilon 1 --delta 1e-6"
        in (ROOT / "docs" / "operations" / "topics.md").read_text()
    )

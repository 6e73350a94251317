"""The README is one page; the site's command for a stream and its lines for Beam are one
deployment."""

from __future__ import annotations

import re
from inspect import signature
from pathlib import Path

import meanstream
import meanstream.beam
from meanstream import private_means
from meanstream.operators.agents.agents_settings import AgentsSettings
from meanstream.operators.collaboration.registry import COLLABORATIONS
from meanstream.operators.noise.keyed import canonical_spelling
from meanstream.pipelines.options.agents_options import AgentsOptions
from meanstream.pipelines.options.declaration import declared_options
from tests.pipelines.command_line import meanstream as meanstream_command

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
LINES, WORDS = 110, 900
FOLDERS = ("operators", "streaming", "pipelines", "meanstream")


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


def _spans() -> list[str]:
    """What README sets as code in its sentences and tables."""
    sentences = re.sub(r"(?ms)^```.*?^```|<!--.*?-->", "", README)
    return sorted({*re.findall(r"`([^`\n]+)`", sentences)})


def test_what_a_sentence_names_is_there() -> None:
    """Blocks of code are run; a call, an option or a target that a sentence names must exist, too."""
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = {*re.findall(r"(?m)^([a-z-]+):", makefile)}
    parameters = {*signature(private_means).parameters}
    options = {option.partition("=")[0] for option in declared_options(AgentsOptions)}
    known = {*dir(meanstream), *dir(meanstream.beam), *COLLABORATIONS, *FOLDERS}

    wrong = []
    for span in _spans():
        program, *words = span.split()
        if program == "make":
            right = {*words} <= targets
        elif program == "meanstream" and words:
            right = meanstream_command(*words, "--help").code == 0
        elif span.startswith("--"):
            right = span.removeprefix("--").replace("-", "_") in options
        elif span.endswith("="):
            right = span.removesuffix("=") in parameters
        else:
            right = span.partition(".")[0] in {*known, "means"}
        if not right:
            wrong.append(span)

    assert len(_spans()) > 15
    assert wrong == []

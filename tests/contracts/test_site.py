"""The site builds without a warning, and holds what the code has."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from meanstream.operators.estimators.registry import distinct_estimators
from meanstream.streaming.events.wire import EVENTS

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
GROUPS, ENTRIES, PAGES = 4, 25, 50
"""What the left column shows of the site before a page is opened: longer lists are not read."""


def test_the_site_builds_and_its_reference_is_the_codes(tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "sphinx",
        "-b",
        "html",
        "-W",
        "--keep-going",
        "-n",
        "-q",
        "-d",
        tmp_path / "trees",
    ]
    ran = subprocess.run(
        [*command, DOCS, tmp_path / "site"], capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr[-4000:]
    pages = {
        page.name: page.read_text() for page in (tmp_path / "site" / "reference").glob("*.html")
    }
    assert "run agents" in pages["commands.html"]
    assert "Engine and Beam: run rounds" in pages["configuration.html"]
    assert all(name in pages["registries.html"] for name in distinct_estimators())
    assert all(f"<h2>{name}<" in pages["events.html"] for name in EVENTS)
    assert "meanstream_rejects_total" in pages["metrics.html"]
    assert "private_means" in pages["python.html"]
    assert "<math" in (tmp_path / "site" / "theory" / "colme.html").read_text()
    asked = re.compile(r"""<(?:script|link|img)[^>]+(?:src|href)=["'](https?:)?//""")
    assert [
        p.name for p in (tmp_path / "site").rglob("*.html") if asked.search(p.read_text())
    ] == []  # all is here


def entries_of(page: Path) -> list[tuple[str, list[str]]]:
    """Give each list of contents of a page: its caption, and its pages from the top of the site."""
    found = []
    for block in re.findall(r"(?ms)^```\{toctree\}\n(.*?)^```", page.read_text()):
        caption = re.search(r"(?m)^:caption: (.*)$", block)
        names = [line for line in block.splitlines() if line and not line.startswith(":")]
        pages = [
            (page.parent / f"{name}.md").resolve().relative_to(DOCS).as_posix() for name in names
        ]
        found.append((caption[1] if caption else "", pages))
    return found


def test_every_page_is_in_the_tree_once() -> None:
    pages = sorted(page.relative_to(DOCS).as_posix() for page in DOCS.rglob("*.md"))
    listed = [
        name for page in DOCS.rglob("*.md") for _, names in entries_of(page) for name in names
    ]
    assert sorted([*listed, "index.md"]) == pages


def test_the_left_column_is_short() -> None:
    groups = entries_of(DOCS / "index.md")
    assert len(groups) == GROUPS
    assert all(caption for caption, _ in groups)
    assert sum(len(names) for _, names in groups) <= ENTRIES


@pytest.mark.parametrize(
    "page", [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))], ids=lambda p: p.name
)
def test_links_to_files_lead_somewhere(page: Path) -> None:
    text = re.sub(r"(?ms)^ *```.*?^ *```$", "", page.read_text())
    for place, part in re.findall(r"\]\((?!https?:|mailto:)([^)\s#]*)(#[^)\s]*)?\)", text):
        target = (page.parent / place).resolve() if place else page
        assert target.exists(), place
        if part and target.suffix == ".md":
            assert part[1:] in anchors(target), f"{place}{part}"


def anchors(page: Path) -> set[str]:
    """Give the names that headings of a page have, on the site and where code is hosted."""
    headings = re.findall(r"(?m)^#+ (.*)$", page.read_text())
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


QUESTIONS = (
    "groups that must appear though empty", "hidden names", "add or remove a row, or replace it",
    "bounded contributions",
    "bounds from the data", "clipped values", "nan", "weights", "counts, sums and variance", "laplace", "pure epsilon",
    "accuracy before", "budget that is left", "rolling mean", "jupyter", "erase a person", "rebalance", "retained",
    "protobuf", "upgrade", "kubernetes", "text instead of numbers", "dates as", "-999", "duplicate groups", "one row",
    "the model", "prior", "shrinkage", "intervals", "two teams", "start again", "epsilon",
)  # fmt: skip
"""What people ask first, as they type it into a search."""


def test_what_people_ask_first_has_a_heading_of_its_own() -> None:
    """The site's search lists headings first, so that a word of a question leads to its answer."""
    text = (DOCS / "start" / "which-question.md").read_text()
    headings = " | ".join(re.findall(r"(?m)^### (.*)$", text)).lower()
    assert [words for words in QUESTIONS if words not in headings] == []


def test_long_lines_of_code_break_and_are_not_cut() -> None:
    """At 900 px a third of the commands of the pages went beyond their box."""
    style = (DOCS / "_site" / "static" / "site.css").read_text()
    longest = max(
        len(line)
        for page in DOCS.rglob("*.md")
        for block in re.findall(r"(?ms)^```\w*\n(.*?)^```", page.read_text())
        for line in block.splitlines()
    )
    assert longest > 105  # what fits there
    assert re.search(r"div\.highlight pre \{[^}]*white-space: pre-wrap", style)


def test_the_docs_stay_few() -> None:
    assert len([*DOCS.rglob("*.md")]) <= PAGES

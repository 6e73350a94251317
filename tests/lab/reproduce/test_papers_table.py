"""The table of the documents' algorithms, theorems and figures: each of its commands runs, with
small sizes."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
_SPEC = importlib.util.spec_from_file_location("papers", ROOT / "benchmarks" / "papers.py")
assert _SPEC is not None
assert _SPEC.loader is not None
papers = importlib.util.module_from_spec(_SPEC)
sys.modules["papers"] = papers
_SPEC.loader.exec_module(papers)
COMMANDS = sorted({item.command for item in papers.items() if item.command})


@pytest.mark.full
@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_of_the_table_runs(command: str, tmp_path: Path) -> None:
    assert not papers.ran(command, tmp_path)

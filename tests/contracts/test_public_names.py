"""A public name means one thing: few classes and functions have a name that stands in another module, too."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

PACKAGE = Path(__file__).parents[2] / "meanstream"
MOST = 10
"""Names in more than one module: what commands are called, and what each figure's module has."""


def names_in_more_than_one(modules: dict[str, str]) -> dict[str, set[str]]:
    """Give the public classes and functions that several modules define."""
    found: dict[str, set[str]] = defaultdict(set)
    for module, source in modules.items():
        for node in ast.parse(source).body:
            if isinstance(node, ast.ClassDef | ast.FunctionDef) and not node.name.startswith("_"):
                found[node.name].add(module)
    return {name: places for name, places in found.items() if len(places) > 1}


def test_few_names_are_defined_in_more_than_one_module() -> None:
    modules = {path.relative_to(PACKAGE).as_posix(): path.read_text() for path in PACKAGE.rglob("*.py")}
    found = names_in_more_than_one(modules)
    assert len(found) <= MOST, found


def test_a_name_that_is_taken_would_be_found() -> None:
    sources = {"a.py": "class Law: ...", "b.py": "class Law: ...\ndef _f(): ...", "c.py": "def _f(): ..."}
    assert names_in_more_than_one(sources) == {"Law": {"a.py", "b.py"}}

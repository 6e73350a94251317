"""A public name means one thing: few classes and functions have a name that stands in another module, too."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

PACKAGE = Path(__file__).parents[2] / "meanstream"
MOST = 5
"""Names in more than one module."""
GUESSED = 0.85
"""Least share of the public functions whose name has a word of their file's."""
BY_FOLDER = ("base", "registry", "command", "protocol")
"""Files that are named alike in many folders: a function has the folder's word."""


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


def has_a_word_of(path: Path, function: str) -> bool:
    """Tell whether a function's name has a word of its file, by their first letters."""
    places = [path.stem, path.parent.name] if path.stem in BY_FOLDER else [path.stem]
    words = {word[:4] for place in places for word in place.split("_")}
    return not words.isdisjoint(word[:4] for word in function.split("_"))


def test_functions_are_where_their_names_say() -> None:
    named = [
        has_a_word_of(path, node.name)
        for path in PACKAGE.rglob("*.py")
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.FunctionDef) and not node.name.startswith("_")
    ]
    assert len(named) > 700
    assert sum(named) >= GUESSED * len(named)
    assert has_a_word_of(Path("counters/registry.py"), "make_counter")
    assert not has_a_word_of(Path("counters/registry.py"), "measure")


def test_a_name_that_is_taken_would_be_found() -> None:
    sources = {"a.py": "class Law: ...", "b.py": "class Law: ...\ndef _f(): ...", "c.py": "def _f(): ..."}
    assert names_in_more_than_one(sources) == {"Law": {"a.py", "b.py"}}

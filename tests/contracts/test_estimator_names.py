"""No module outside the folder of estimators names one: what differs is an attribute of its class."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from meanstream.operators.estimators.registry import ESTIMATORS

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "meanstream"
WHOLE = {"adaptive", "repeating", "item", "semi", "split", "plan"}
"""Names that are words: only a string that is nothing else names the estimator."""
IN_TEXT = re.compile(rf"\b({'|'.join(re.escape(name) for name in sorted(ESTIMATORS.keys() - WHOLE | {'cummings'}))})\b")
EXCEPTIONS = {
    "operators/estimators": "the registry, and what is listed there",
    "pipelines/commands/reproduce": "figures of the papers, each of its own estimator",
    "operators/simulation/adaptive_goals.py": "a goal of one estimator",
    "operators/simulation/round_goals.py": "a goal of one estimator",
    "pipelines/commands/parts.py": "`meanstream plan` is a command",
    "pipelines/commands/simulate/rounds.py": "options that one estimator takes name it in their help",
}
"""Where an estimator may be named, and why."""


def names_in(source: str) -> Iterator[str]:
    """Give every string of a program that names an estimator; docstrings are prose and examples."""
    tree = ast.parse(source)
    prose = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in prose:
            text = node.value
            if text in ESTIMATORS or IN_TEXT.search(text):
                yield f"{node.lineno}: {text}"


def excepted(path: Path) -> bool:
    place = path.relative_to(PACKAGE).as_posix()
    return any(place == known or place.startswith(f"{known}/") for known in EXCEPTIONS)


def test_no_module_outside_the_registry_names_an_estimator() -> None:
    found = {
        path.relative_to(ROOT).as_posix(): names
        for path in sorted(PACKAGE.rglob("*.py"))
        if not excepted(path) and (names := list(names_in(path.read_text())))
    }
    assert not found


@pytest.mark.parametrize("place", EXCEPTIONS)
def test_every_exception_is_needed(place: str) -> None:
    path = PACKAGE / place
    files = [path] if path.suffix else sorted(path.rglob("*.py"))
    assert any(list(names_in(file.read_text())) for file in files)


@pytest.mark.parametrize(
    "twin",
    [
        'CURATOR = "cummings.ratio"',
        'DIFFER = ("kent.linf",)',
        'best = by_name["plan"]',
        'print(f"take {x} or one_shot")',
        'if name.startswith("kent"): pass',
    ],
)
def test_a_name_would_be_found(twin: str) -> None:
    assert list(names_in(twin))
    assert not list(names_in(f"def f():\n    '''For example {twin!r}.'''\n"))

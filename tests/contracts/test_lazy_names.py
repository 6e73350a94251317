"""Modules that are named by a text, to be imported when they are needed, are imports too: those point down as well.

`lint-imports` reads imports, in functions too, but no texts: the registries of estimators, sources and sinks hold such.
"""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NAMED = re.compile(r"(meanstream(?:\.\w+)+)(?::\w+)?")


def named_modules(source: str) -> set[str]:
    """Give the modules of the package that texts of a module name."""
    texts = (node.value for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Constant))
    found = {match[1] for text in texts if isinstance(text, str) and (match := NAMED.fullmatch(text))}
    return {name for name in found if (ROOT / f"{name.replace('.', '/')}.py").exists()}


def arrows() -> set[tuple[str, str]]:
    """Give who names whom."""
    return {
        (".".join(path.relative_to(ROOT).with_suffix("").parts), named)
        for path in (ROOT / "meanstream").rglob("*.py")
        for named in named_modules(path.read_text(encoding="utf-8"))
    }


def layers() -> Iterator[tuple[str, dict[str, int]]]:
    """Read each container of a contract of layers, and the layer of each of its children, the highest first."""
    for contract in tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]:
        if contract["type"] == "layers":
            found = {name.strip(): i for i, layer in enumerate(contract["layers"]) for name in re.split("[|:]", layer)}
            yield from ((container, found) for container in contract["containers"])


def points_up(user: str, named: str) -> bool:
    """Tell whether a module names one that no layer puts below it."""
    for container, layer in layers():
        child, other = (_child(container, module) for module in (user, named))
        if child in layer and other in layer and child != other and layer[child] >= layer[other]:
            return True
    return False


def _child(container: str, module: str) -> str:
    return module.removeprefix(f"{container}.").split(".")[0] if module.startswith(f"{container}.") else ""


def test_modules_are_named_by_those_above_them() -> None:
    found = arrows()
    assert len(found) > 25
    assert {arrow for arrow in found if points_up(*arrow)} == set()


@pytest.mark.parametrize(
    ("user", "named"),
    [
        ("meanstream.operators.noise.keyed", "meanstream.operators.estimators.dame"),
        ("meanstream.operators.estimators.dame", "meanstream.operators.estimators.duchi"),  # of one layer
        ("meanstream.streaming.sources.csv_file", "meanstream.streaming.open_source"),
        ("meanstream.streaming.clock", "meanstream.pipelines.rounds"),
    ],
)
def test_one_that_points_up_would_be_found(user: str, named: str) -> None:
    assert points_up(user, named)
    assert not points_up("meanstream.operators.estimators.registry", "meanstream.operators.estimators.dame")
    assert not points_up(user, user)


def test_a_name_in_a_text_would_be_found() -> None:
    source = (
        'A = {"x": "meanstream.streaming.clock:Clock"}\ndef f():\n    """meanstream.beam"""\n    return "meanstream.no"'
    )
    assert named_modules(source) == {"meanstream.streaming.clock", "meanstream.beam"}

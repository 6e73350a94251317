"""What the pages import is there for a reader who installed what they name.

The blocks run in the contributors' environment, which has more.
"""

from __future__ import annotations

import ast
import sys
from functools import cache
from importlib.metadata import PackageNotFoundError, packages_distributions, requires

import pytest
from packaging.requirements import Requirement

from tests.code_blocks import PAGES, ROOT, blocks_of
from tests.contracts.test_dependencies import SHIPPED

FIRST = {
    "README.md": frozenset({"demo"}),
    "docs/tutorials/frame.md": frozenset({"demo", "plot"}),
    "docs/tutorials/frame-windows.md": frozenset({"demo", "plot"}),
}
"""Extras that a reader of the first pages has: the flights come with `demo`."""
LATER = frozenset(SHIPPED) - {"core"}
NAMES = {str(page.relative_to(ROOT)): page for page in PAGES}


@cache
def installed(requirement: str) -> frozenset[str]:
    """Names of the distributions that a requirement installs, itself included."""
    wanted = Requirement(requirement)
    names = {wanted.name.lower().replace("_", "-")}
    try:
        needed = requires(wanted.name) or []
    except PackageNotFoundError:
        return frozenset(names)

    for line in needed:
        marker = Requirement(line).marker
        extras = ["", *wanted.extras]
        if marker is None or any(marker.evaluate({"extra": extra}) for extra in extras):
            names |= installed(line.partition(";")[0].strip())

    return frozenset(names)


@cache
def modules_with(extras: frozenset[str]) -> set[str]:
    """Modules that an installation with some extras has."""
    requirements = [line for extra in ("core", *sorted(extras)) for line in SHIPPED[extra]]
    names = {name for line in requirements for name in installed(line)}
    modules = packages_distributions().items()

    return {
        module
        for module, owners in modules
        if any(owner.lower().replace("_", "-") in names for owner in owners)
    }


def imported_by(text: str) -> set[str]:
    tree = ast.walk(ast.parse(text))
    names = [
        [alias.name for alias in node.names] if isinstance(node, ast.Import) else [node.module]
        for node in tree
        if isinstance(node, ast.Import | ast.ImportFrom)
    ]

    return {(name or "").partition(".")[0] for group in names for name in group}


@pytest.mark.parametrize("name", NAMES)
def test_a_page_imports_only_what_its_extras_install(name: str) -> None:
    blocks = [block for block in blocks_of(NAMES[name]) if block.language == "python"]
    needed = {module for block in blocks for module in imported_by(block.text)}
    had = modules_with(FIRST.get(name, LATER)) | sys.stdlib_module_names | {"meanstream"}
    assert needed - had == set()


def test_polars_comes_with_no_extra() -> None:
    assert "polars" not in modules_with(LATER)
    assert "pandas" in modules_with(frozenset({"demo"}))

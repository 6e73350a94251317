"""Defaults are what their docstrings say: a default that changes is a change that users notice."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from importlib import import_module
from typing import Any

import pytest

from tests.lint.sources import sources

ROW = re.compile(r"^ +(?P<names>\w+(?:, \w+)*) : .*, default (?P<value>\S.*)$", re.MULTILINE)


def told() -> Iterator[tuple[str, str, str, str]]:
    """Module, object, parameter, and the default of it that the docstring tells."""
    for source in sources():
        if ROW.search(source.text):
            for owner, document in documents(source.tree):
                for row in ROW.finditer(document):
                    yield from (
                        (source.module, owner, name, row["value"])
                        for name in row["names"].split(", ")
                    )


def documents(tree: ast.AST, prefix: str = "") -> Iterator[tuple[str, str]]:
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.ClassDef | ast.FunctionDef):
            yield prefix + node.name, ast.get_docstring(node, clean=False) or ""
            yield from documents(node, f"{prefix}{node.name}.")


def default(module: str, owner: str, name: str) -> Any:
    """Give the default of a parameter, of the class itself or of the nearest base that has it."""
    found: Any = import_module(module)
    for part in owner.split("."):
        found = getattr(found, part)
    for candidate in inspect.getmro(found) if inspect.isclass(found) else (found,):
        parameter = inspect.signature(candidate).parameters.get(name)
        if parameter is not None:
            return parameter.default
    raise LookupError(f"{module}.{owner} has no parameter {name}")


TOLD = list(told())


def test_docstrings_tell_many_defaults() -> None:
    assert len(TOLD) >= 25


@pytest.mark.parametrize(("module", "owner", "name", "value"), TOLD)
def test_the_default_is_the_one_that_is_told(
    module: str, owner: str, name: str, value: str
) -> None:
    found = default(module, owner, name)
    try:
        expected = eval(value, {"__builtins__": {}})  # noqa: S307 - our own docstrings
    except NameError:
        expected = None  # it follows from other parameters: `min(6, bins)`
    assert (found, type(found) is bool) == (expected, type(expected) is bool)

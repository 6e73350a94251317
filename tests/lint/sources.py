"""The Python files of the repository, each parsed once, for every check that reads them."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Source:
    """A Python file: its path from the top of the repository, its text, and what it parses to."""

    path: str
    text: str

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text)

    @cached_property
    def nodes(self) -> tuple[ast.AST, ...]:
        return tuple(ast.walk(self.tree))

    @property
    def module(self) -> str:
        return self.path.removesuffix(".py").replace("/", ".").removesuffix(".__init__")

    def strings(self) -> Iterator[tuple[int, str]]:
        """Give the line and text of every string that is not a docstring."""
        prose = {id(node.value) for node in self.nodes if isinstance(node, ast.Expr)}
        for node in self.nodes:
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in prose:
                yield node.lineno, node.value


def sources(folder: str = "meanstream") -> tuple[Source, ...]:
    """Give every Python file of a folder, in the order of their paths; each is read and parsed once."""
    return _read(folder)


@cache
def _read(folder: str) -> tuple[Source, ...]:
    paths = sorted((ROOT / folder).rglob("*.py"))
    return tuple(Source(path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8")) for path in paths)

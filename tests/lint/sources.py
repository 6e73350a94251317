"""The Python files of the repository, each parsed once, for every check that reads them."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

ROOT = Path(__file__).parents[2]
CORE = ("operators", "streaming", "pipelines")
"""The three folders of the core; `meanstream` holds a link to each, by which it is imported."""


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
        path = f"meanstream/{self.path}" if self.path.startswith(CORE) else self.path
        return path.removesuffix(".py").replace("/", ".").removesuffix(".__init__")

    def strings(self) -> Iterator[tuple[int, str]]:
        """Give the line and text of every string that is not a docstring."""
        prose = {id(node.value) for node in self.nodes if isinstance(node, ast.Expr)}
        for node in self.nodes:
            if (
                isinstance(node, ast.Constant)
                and isinstance(node.value, str)
                and id(node) not in prose
            ):
                yield node.lineno, node.value


def sources(folder: str = "meanstream") -> tuple[Source, ...]:
    """Give every Python file of a folder, in the order of their paths; the package is `meanstream`
    and the core."""
    return _read(folder)


@cache
def _read(folder: str) -> tuple[Source, ...]:
    folders = ("meanstream", *CORE) if folder == "meanstream" else (folder,)
    paths = sorted(path for name in folders for path in (ROOT / name).rglob("*.py"))
    return tuple(
        Source(path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8"))
        for path in paths
    )

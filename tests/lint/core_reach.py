"""Core modules that only a ring uses: they belong to the ring.

The core is what a command of the core, the page or a frame reaches by imports, or by a name in a
string. What only the lab, Beam or an integration reaches stands in the wrong folder.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from tests.lint.imports import NAMED
from tests.lint.sources import CORE, Source, sources

BEAM = "pipelines/beam/"
ROOTS = ("pipelines/commands/", "pipelines/page/", "pipelines/frames/")
"""Folders of the core that a user enters."""


def is_core(path: str) -> bool:
    """Decide whether a file is of the core, and not of a ring."""
    return path.startswith(tuple(f"{folder}/" for folder in CORE)) and not path.startswith(BEAM)


def modules_used(source: Source, modules: set[str]) -> set[str]:
    """Find the modules that a file imports, or names in a string."""
    names: set[str] = set()
    for node in source.nodes:
        if isinstance(node, ast.ImportFrom) and node.module:
            imported = {f"{node.module}.{alias.name}" for alias in node.names}
            names |= imported | {node.module}
        elif isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}

    matches = (NAMED.fullmatch(text) for _, text in source.strings())
    names |= {match[1] for match in matches if match}

    return names & modules


def used_by_rings_only(files: Iterable[Source]) -> Iterator[str]:
    """Report modules of the core that nothing of the core reaches."""
    by_module = {source.module: source for source in files}
    core = {module for module, source in by_module.items() if is_core(source.path)}
    reached: set[str] = set()
    waiting = [module for module in core if by_module[module].path.startswith(ROOTS)]
    if "meanstream" in by_module:
        waiting += modules_used(by_module["meanstream"], core)

    while waiting:
        module = waiting.pop()
        if module in core and module not in reached:
            reached.add(module)
            waiting += modules_used(by_module[module], core)

    for module in sorted(core - reached):
        path = by_module[module].path
        if not path.endswith("/__init__.py"):
            yield f"{path} must be in the ring that alone uses it: no module of the core does"


def check_core_reach() -> Iterator[str]:
    """Report modules of the core that only a ring uses."""
    yield from used_by_rings_only(sources())

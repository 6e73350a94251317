"""Files and modules that prose names exist: a move that forgets the docs does not pass."""

from __future__ import annotations

import ast
import re
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from tests.lint.sources import CORE, ROOT, sources

TOPS = ("meanstream", *CORE, "tests", "benchmarks", "docs", "docker", "requirements")
PATH = re.compile(
    rf"(?:{'|'.join(TOPS)}|\.ci|\.github)/[\w./-]*\w/?|[\w./-]*\w\.(?:py|toml|yml|yaml|sh|md)"
)
DOTTED = re.compile(r"meanstream(?:\.\w+)+")
QUOTED = re.compile(r"`([^`\n]+)`")
LOGGER = re.compile(r'getLogger\("([\w.]+)"\)')


@cache
def files() -> tuple[str, ...]:
    """List the files of the repository."""
    listed = subprocess.run(
        ("git", "ls-files"), cwd=ROOT, capture_output=True, text=True, check=True
    )
    return tuple(listed.stdout.splitlines())


@cache
def places() -> frozenset[str]:
    """List files, folders, and the ends of their paths, which prose may shorten them to."""
    whole = {str(folder) for name in files() for folder in (Path(name), *Path(name).parents)}
    return frozenset(
        "/".join(name.split("/")[start:]) for name in whole for start in range(name.count("/") + 1)
    )


def is_place(path: str) -> bool:
    """Decide whether a path is one; whole, if it begins at the top."""
    path = path.rstrip("/").removeprefix("./")
    return (
        (ROOT / path).exists()
        if path.split("/")[0] in TOPS
        else path.removeprefix("../") in places()
    )


@cache
def loggers() -> frozenset[str]:
    """List the names under which the package logs."""
    return frozenset(name for source in sources() for name in LOGGER.findall(source.text))


@cache
def names_of(module: str) -> frozenset[str]:
    """List what a module defines or imports, and the words that a lazy one keeps in strings."""
    (source,) = (source for source in sources() if source.path == module)
    found = {
        node.name
        for node in source.nodes
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.alias)
    }
    found |= {node.id for node in source.nodes if isinstance(node, ast.Name)}
    return frozenset(
        found | {str(node.value) for node in source.nodes if isinstance(node, ast.Constant)}
    )


def is_module_or_name(dotted: str) -> bool:
    """Decide whether a dotted name is a logger, a folder, a module, or the first name in it that a
    module defines."""
    if dotted in loggers():
        return True
    path = ROOT
    for part in dotted.split("."):
        if path.is_dir() and (path / part).is_dir():
            path /= part
        elif path.is_dir() and (path / f"{part}.py").exists():
            path /= f"{part}.py"
        else:
            module = path / "__init__.py" if path.is_dir() else path
            return part in names_of(module.resolve().relative_to(ROOT.resolve()).as_posix())
    return True


def stale_modules(text: str) -> list[str]:
    """Give the quoted dotted names of a text that do not exist."""
    return [
        word
        for word in QUOTED.findall(text)
        if DOTTED.fullmatch(word) and not is_module_or_name(word)
    ]


def stale_paths(text: str) -> list[str]:
    """Give the quoted paths of a text that do not exist."""
    return [word for word in QUOTED.findall(text) if PATH.fullmatch(word) and not is_place(word)]


def check_prose() -> Iterator[str]:
    """Report what documents and docstrings name that does not exist."""
    for name in CORE:
        if (ROOT / "meanstream" / name).resolve() != ROOT / name:
            yield f"meanstream/{name} must be a link to {name}"
    for name in files():
        if name.endswith(".md") and (ROOT / name).exists():
            text = (ROOT / name).read_text(encoding="utf-8")
            yield from (
                f"{name} names `{word}`, which does not exist" for word in stale_paths(text)
            )
            yield from (
                f"{name} names `{word}`, which does not exist" for word in stale_modules(text)
            )
    for source in sources():
        yield from (
            f"{source.path} names `{word}`, which does not exist"
            for word in stale_modules(source.text)
        )

"""A file's name is its address: no two Python files share one, and a folder has no more than a
reader can look over."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import PurePath

from tests.lint.prose import files

SHARED = {
    "__init__.py",
    "__main__.py",
    "base.py",
    "command.py",
    "conftest.py",
    "registry.py",
    "testing.py",
}
"""Names that say what a file is to its folder."""
MOST_FILES = 28


def shared_names(paths: Iterable[str]) -> Iterator[str]:
    """Report Python files with the name of another."""
    homes: dict[str, list[str]] = defaultdict(list)
    for path in paths:
        homes[PurePath(path).name].append(path)
    for name, found in sorted(homes.items()):
        if len(found) > 1 and name not in SHARED:
            yield f"{name} must be the name of one file, got {', '.join(found)}"


def full_folders(paths: Iterable[str]) -> Iterator[str]:
    """Report folders with too many Python files."""
    held: dict[str, int] = defaultdict(int)
    for path in paths:
        held[str(PurePath(path).parent)] += PurePath(path).name != "__init__.py"
    for folder, number in sorted(held.items()):
        if number > MOST_FILES:
            yield f"{folder} must have at most {MOST_FILES} files, got {number}"


def check_addresses() -> Iterator[str]:
    """Report names and folders against the rules."""
    python = [path for path in files() if path.endswith(".py")]
    yield from shared_names(python)
    yield from full_folders(python)

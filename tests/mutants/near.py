"""Which tests try a change where nothing was measured: those that name its file, then those beside
it.

It costs nothing but to read the imports. What these tests do not notice another may: the map of
`reach.py` says which.
"""

from __future__ import annotations

import re
from collections import defaultdict
from functools import cache
from pathlib import Path

from tests.mutants.mutable_places import ROOT, package_files
from tests.mutants.reach import files_of_tests

_MODULE = re.compile(r"\bmeanstream(?:\.\w+)+")


def near_tests(path: str) -> list[str]:
    """Order files of tests for a file of the package, the nearest first.

    Its own doctests, tests of its folder that name it, the others of its folder, others that name
    it, and those that name a module that names it.
    """
    module = ".".join(Path(path).with_suffix("").parts)
    folder = f"tests/{'/'.join(Path(path).parts[1:-1])}/"
    naming = _naming()
    named = naming[module]
    users = {_path(name) for name in named if not name.startswith("tests.")} - {path}
    through = {user for one in users for user in naming[".".join(Path(one).with_suffix("").parts)]}
    own = {path} & set(files_of_tests((path,)))
    tests = set(files_of_tests(("tests/",)))
    direct = {_path(name) for name in named} & tests
    of_folder = {test for test in tests if test.startswith(folder)}
    far = {_path(name) for name in through} & tests
    return [
        *own,
        *(
            test
            for ring in (
                direct & of_folder,
                of_folder - direct,
                direct - of_folder,
                far - direct - of_folder,
            )
            for test in sorted(ring)
        ),
    ]


def _path(module: str) -> str:
    return f"{module.replace('.', '/')}.py"


@cache
def _naming() -> defaultdict[str, set[str]]:
    """Modules of the package and of the tests, by the module of the package that they name."""
    found: defaultdict[str, set[str]] = defaultdict(set)
    for top in ("meanstream", "tests"):
        for file in package_files(ROOT) if top == "meanstream" else (ROOT / top).rglob("*.py"):
            name = ".".join(file.relative_to(ROOT).with_suffix("").parts)
            for module in set(_MODULE.findall(file.read_text(encoding="utf-8"))):
                found[module].add(name)
    return found

"""Noise comes from the keyed source: no other generator of random numbers is where a release is made."""

from __future__ import annotations

import ast
from pathlib import Path

PACKAGE = Path(__file__).parents[2] / "meanstream"
NUMPY = {
    "operators/audit": "made-up data and the auditor's coins",
    "operators/simulation": "made-up data",
    "pipelines/commands/audit": "made-up data and the auditor's coins",
}
"""Folders that may draw by NumPy, which anybody can who knows the seed, and what."""
STANDARD = {"streaming/kafka/claims/ownership.py": "how long to wait before a claim is tried again"}
"""Files that may draw by the standard library's generator, and what."""


def generators(source: str) -> set[str]:
    """Name the generators of numbers that a module makes or draws from, those of NumPy and of the standard library."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found |= {one.name for one in node.names if one.name in ("random", "numpy.random")}
        elif isinstance(node, ast.ImportFrom) and node.module in ("random", "numpy.random"):
            found.add(node.module)
        elif isinstance(node, ast.Attribute) and ast.unparse(node.value) in ("np.random", "numpy.random"):
            found |= {"numpy.random"} if node.attr != "Generator" else set()  # the name of a type draws nothing
    return found


def drawn(kind: str) -> set[str]:
    """Give the modules that draw by one kind of generator, by their paths."""
    files = {path.relative_to(PACKAGE).as_posix(): path.read_text(encoding="utf-8") for path in PACKAGE.rglob("*.py")}
    return {name for name, source in files.items() if kind in generators(source)}


def test_numpy_draws_where_nothing_is_released() -> None:
    found = drawn("numpy.random")
    assert {name for name in found if not name.startswith(tuple(f"{folder}/" for folder in NUMPY))} == set()
    assert all(any(name.startswith(f"{folder}/") for name in found) for folder in NUMPY)  # no folder needs no leave


def test_the_standard_library_draws_waits_only() -> None:
    assert drawn("random") == STANDARD.keys()


def test_another_generator_would_be_found() -> None:
    assert generators("import numpy as np\nx = np.random.default_rng(1).normal()") == {"numpy.random"}
    assert generators("from numpy.random import default_rng") == {"numpy.random"}
    assert generators("import random\nrandom.gauss()") == {"random"}
    assert generators("def f(rng: np.random.Generator) -> None: pass") == set()

"""Noise comes from the keyed source: no other generator of random numbers is where a release is
made."""

from __future__ import annotations

import ast

from tests.lint.sources import Source, sources

NUMPY = (
    "meanstream/lab/evidence/",  # made-up data and the auditor's coins
    "meanstream/lab/simulation/",  # made-up data
    "meanstream/lab/random_words.py",
    "operators/collaboration/joint_means.py",
    "operators/forecast/shares_forecast.py",
    "operators/forecast/simulated_noise.py",
    "meanstream/lab/audits/",  # made-up data and the auditor's coins
)
"""Folders that may draw by NumPy, which anybody can who knows the seed."""
STANDARD = {"streaming/kafka/claims/ownership.py"}
"""Files that may draw by the standard library's generator: how long to wait before a claim is tried
again."""


def generators(source: Source) -> set[str]:
    """Name the generators of numbers that a module makes or draws from, those of NumPy and of the
    standard library."""
    found: set[str] = set()
    for node in source.nodes:
        if isinstance(node, ast.Import):
            found |= {one.name for one in node.names if one.name in ("random", "numpy.random")}
        elif isinstance(node, ast.ImportFrom):
            found |= {node.module} if node.module in ("random", "numpy.random") else set()
            found |= (
                {"numpy.random"}
                if node.module == "numpy" and "random" in {n.name for n in node.names}
                else set()
            )
        elif (
            isinstance(node, ast.Attribute)
            and isinstance(node.value, ast.Attribute)
            and node.value.attr == "random"
        ):
            module = node.value.value
            if (
                isinstance(module, ast.Name)
                and module.id in ("np", "numpy")
                and node.attr != "Generator"
            ):
                found.add("numpy.random")  # but the name of a type draws nothing
    return found


def drawn(kind: str) -> set[str]:
    """Give the modules that draw by one kind of generator, by their paths."""
    return {
        source.path
        for source in sources()
        if "random" in source.text and kind in generators(source)
    }


def test_numpy_draws_where_nothing_is_released() -> None:
    found = drawn("numpy.random")
    assert {path for path in found if not path.startswith(NUMPY)} == set()
    assert all(
        any(path.startswith(folder) for path in found) for folder in NUMPY
    )  # no folder needs no leave


def test_the_standard_library_draws_waits_only() -> None:
    assert drawn("random") == STANDARD


def test_another_generator_would_be_found() -> None:
    def of(text: str) -> set[str]:
        return generators(Source("meanstream/x.py", text))

    assert of("import numpy as np\nx = np.random.default_rng(1).normal()") == {"numpy.random"}
    assert of("from numpy.random import default_rng") == {"numpy.random"}
    assert of("from numpy import random as r") == {"numpy.random"}
    assert of("import random\nrandom.gauss()") == {"random"}
    assert of("def f(rng: np.random.Generator) -> None: pass") == set()

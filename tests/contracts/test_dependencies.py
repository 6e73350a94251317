"""What pyproject.toml asks users to install is imported by what is shipped, and nothing else is
imported."""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Iterable
from functools import cache
from pathlib import Path

from tests.lint.sources import sources

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
SHIPPED = {
    "core": PROJECT["dependencies"],
    **{
        extra: needed
        for extra, needed in PROJECT["optional-dependencies"].items()
        if extra != "dev"
    },
}
"""Requirements by the extra that a user installs; the extra `dev` is for contributors alone."""
OTHER_NAMES = {
    "pyyaml": "yaml",
    "apache-beam[gcp]": "google",
    "apache-beam[yaml]": "apache_beam",
    "grpcio": "grpc",
    "flwr[simulation]": "flwr",
}
"""Modules whose name is not that of the requirement."""
OPTIONAL = {"duckdb", "ipywidgets", "polars"}
"""Users of frames and notebooks have these already: the package works without them."""
TYPES_ALONE = {"_typeshed"}

DOCSTRING = re.compile(r'(?s)""".*?"""')
IMPORT = re.compile(r"(?m)^[ ]*(?:from|import) ([A-Za-z]\w*|_typeshed)\b")
SEARCH = re.compile(r"find_spec\(\"(\w+)")
"""Data files of a package are found without an import of it."""


def modules_of(text: str) -> set[str]:
    """Give the top-level modules that a file imports or searches for."""
    code = DOCSTRING.sub('""', text)
    return {*IMPORT.findall(code), *SEARCH.findall(code)}


@cache
def imported() -> frozenset[str]:
    return frozenset(name for source in sources() for name in modules_of(source.text))


def module_of(requirement: str) -> str:
    name = re.match(r"[\w.-]+(\[\w+\])?", requirement)[0]  # type: ignore[index]
    return OTHER_NAMES.get(name, name.replace("-", "_"))


def unused(shipped: dict[str, list[str]]) -> list[str]:
    return [
        f"{extra}: {one}"
        for extra, needed in shipped.items()
        for one in needed
        if module_of(one) not in imported()
    ]


def undeclared(modules: Iterable[str]) -> set[str]:
    declared = {module_of(one) for needed in SHIPPED.values() for one in needed}
    return {*modules} - {*sys.stdlib_module_names, "meanstream"} - declared - OPTIONAL - TYPES_ALONE


def test_what_is_shipped_imports_every_requirement() -> None:
    assert unused(SHIPPED) == [], "contributors' tools belong to the extra dev"
    assert set(OTHER_NAMES) <= {
        re.split("[>=]", one)[0] for needed in SHIPPED.values() for one in needed
    }


def test_every_import_is_a_requirement() -> None:
    assert undeclared(imported()) == set()
    assert imported() >= OPTIONAL | TYPES_ALONE


def test_the_checks_see_a_requirement_too_many_and_one_too_few() -> None:
    assert unused({"page": ["plotly>=6.0", "dp-accounting>=0.6"]}) == ["page: dp-accounting>=0.6"]
    text = '"""Of:\n\n    import pandas\n"""\nimport numpy as np\n\ndef f():\n    from river.stats import Mean\n'
    assert modules_of(text + 'find_spec("dotenv")') == {"numpy", "river", "dotenv"}
    assert undeclared(modules_of("from attrs import define\nimport numpy\nimport json")) == {
        "attrs"
    }

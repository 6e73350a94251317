"""The names under which the package is imported, and the ones that it shows."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import meanstream

ROOT = Path(__file__).parents[2]
LINKS = ("operators", "streaming", "pipelines")
PROGRAM = """
import importlib
for name in ("operators.counters.pm2", "streaming.clock", "pipelines.own_errors"):
    try:
        importlib.import_module(name)
    except ImportError as error:
        print(error)
"""


def test_an_import_through_a_link_says_what_to_import() -> None:
    ran = subprocess.run([sys.executable, "-c", PROGRAM], cwd=ROOT, capture_output=True, text=True, check=True)
    assert ran.stdout.splitlines() == [
        f"{name} is a link for readers of the code: import meanstream.{name} instead" for name in LINKS
    ]


def test_the_package_shows_its_public_names_alone() -> None:
    assert dir(meanstream) == sorted(meanstream.__all__)
    assert {*meanstream._HOME, "__version__"} == {*meanstream.__all__}


def literal(module: str, name: str) -> set[str]:
    """Read a list of strings off a module's text: importing Beam takes seconds."""
    tree = ast.parse((ROOT / f"{module}.py").read_text(encoding="utf-8"))
    (value,) = (
        node.value for node in tree.body if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == name
    )
    return set(ast.literal_eval(value))


def test_the_names_that_the_docstring_of_beam_explains_are_its_own() -> None:
    docstring = ast.get_docstring(ast.parse((ROOT / "meanstream" / "beam.py").read_text(encoding="utf-8")))
    explained = re.findall(r"`([A-Z]\w+)`", docstring or "")
    own = literal("meanstream/pipelines/beam/agents/agent_transforms", "__all__")
    own |= literal("meanstream/pipelines/beam/rounds/round_transforms", "__all__")
    assert set(explained) <= own
    assert 8 <= len(explained) <= 12

"""The names under which the package is imported, and the ones that it shows."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import meanstream

ROOT = Path(__file__).parents[2]
CORE = ("operators", "streaming", "pipelines")
PROGRAM = """
import importlib
for name in ("operators.counters.pm2", "streaming.clock", "pipelines.own_errors"):
    try:
        importlib.import_module(name)
    except ImportError as error:
        print(error)
"""


def test_an_import_by_a_bare_folder_says_what_to_import() -> None:
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert ran.stdout.splitlines() == [
        f"{name} is imported by its full name: import meanstream.{name} instead" for name in CORE
    ]


def test_the_package_shows_its_public_names_alone() -> None:
    assert dir(meanstream) == sorted(meanstream.__all__)
    assert {*meanstream._HOME, "__version__"} == {*meanstream.__all__}


def test_the_public_names_of_beam_are_few_and_each_is_explained() -> None:
    program = "import meanstream.beam as b; print(*dir(b)); print(b.__doc__)"
    ran = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True
    )
    names, _, docstring = ran.stdout.partition("\n")
    assert len(names.split()) <= 13
    assert {*names.split()} == set(re.findall(r"`([A-Z]\w+)`", docstring))

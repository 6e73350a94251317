"""`--help` is quick because it imports nothing heavy: heavy imports happen where they are used."""

from __future__ import annotations

import json
import subprocess
import sys

HEAVY = {
    "apache_beam",
    "confluent_kafka",
    "cryptography",
    "matplotlib",
    "meanstream.streaming",
    "msgspec",
    "numpy",
    "pandas",
    "prometheus_client",
    "pyarrow",
    "pydantic",
    "river",
    "scipy",
    "sqlite3",
    "yaml",
}
LISTS = {
    "meanstream.operators",
    *(f"meanstream.operators.{name}" for name in ("estimators", "estimators.registry")),
}
LISTS |= {
    f"meanstream.operators.{name}" for name in ("entry_points", "limits", "rings", "validation")
}
"""Names that may be chosen from and limits are strings and numbers; every other module of the
mathematics is heavy."""
TYPER_ITSELF = {"pydantic"}
"""What typer imports to convert option values, once a command is named."""

PROGRAM = """
import io, json, sys
from contextlib import redirect_stdout
from meanstream.pipelines.commands.main import main

def paths(command, path):
    yield path
    for name, child in getattr(command, "commands", {}).items():
        yield from paths(child, [*path, name])

def imported(path):
    sys.argv = ["meanstream", *path, "--help"]
    with redirect_stdout(io.StringIO()):
        try:
            main()
        except SystemExit as end:
            assert not end.code
    return sorted({".".join(name.split(".")[:n]) for name in sys.modules for n in (1, 2, 3, 4)})

loaded = {"": imported([])}  # before the options of any command are read
from meanstream.pipelines.commands.main import app
import typer
loaded |= {" ".join(path): imported(path) for path in paths(typer.main.get_command(app), []) if path}
print(json.dumps(loaded))
"""


def heavy(modules: list[str]) -> set[str]:
    ours = {name for name in modules if name.startswith("meanstream.operators")}
    return HEAVY & set(modules) | ours - LISTS


def test_help_of_every_command_imports_nothing_heavy() -> None:
    ran = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, check=True)
    loaded = json.loads(ran.stdout)
    assert {"", "run agents", "explain agents", "budget", "schema"} <= set(loaded)
    assert heavy(loaded.pop("")) == set()
    for modules in loaded.values():
        assert heavy(modules) <= TYPER_ITSELF


def test_the_check_sees_a_heavy_import() -> None:
    program = PROGRAM.replace(
        "loaded = {", "import numpy, meanstream.operators.noise; loaded = {", 1
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    assert heavy(json.loads(ran.stdout)[""]) == {"numpy", "meanstream.operators.noise"}


def test_the_package_alone_imports_nothing_heavy() -> None:
    program = "import json, sys, meanstream; print(json.dumps([*sys.modules]))"
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    loaded = {".".join(name.split(".")[:2]) for name in json.loads(ran.stdout)}
    assert (HEAVY | {"meanstream.operators"}) & loaded == set()

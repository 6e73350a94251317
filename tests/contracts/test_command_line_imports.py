"""`--help` is quick because it imports nothing heavy: heavy imports happen where they are used."""

from __future__ import annotations

import json
import subprocess
import sys

HEAVY = {
    "apache_beam",
    "confluent_kafka",
    "cryptography",
    "dp_accounting",
    "matplotlib",
    "msgspec",
    "numpy",
    "operators",
    "pandas",
    "prometheus_client",
    "pyarrow",
    "pydantic",
    "river",
    "scipy",
    "sqlite3",
    "streaming",
    "yaml",
}
TYPER_ITSELF = {"pydantic"}
"""What typer imports to convert option values, once a command is named."""

PROGRAM = """
import io, json, sys
from contextlib import redirect_stdout
from pipelines.commands.main import app, main
import typer

def paths(command, path):
    yield path
    for name, child in getattr(command, "commands", {}).items():
        yield from paths(child, [*path, name])

loaded = {}
for path in paths(typer.main.get_command(app), []):
    sys.argv = ["meanstream", *path, "--help"]
    with redirect_stdout(io.StringIO()):
        try:
            main()
        except SystemExit as end:
            assert not end.code
    loaded[" ".join(path)] = sorted({name.partition(".")[0] for name in sys.modules})
print(json.dumps(loaded))
"""


def test_help_of_every_command_imports_nothing_heavy() -> None:
    ran = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, check=True)
    loaded = json.loads(ran.stdout)
    assert {"", "run agents", "explain agents", "budget", "schema"} <= set(loaded)
    assert HEAVY & set(loaded.pop("")) == set()
    for modules in loaded.values():
        assert HEAVY & set(modules) <= TYPER_ITSELF


def test_the_check_sees_a_heavy_import() -> None:
    program = PROGRAM.replace("loaded = {}", "loaded = {}; import numpy")
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    assert HEAVY & set(json.loads(ran.stdout)[""]) == {"numpy"}

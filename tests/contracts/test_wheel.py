"""The wheel in an environment of its own: one import name, whoever else is called `streaming` or
`pipelines`."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.code_blocks import blocks_of

ROOT = Path(__file__).parents[2]
WEEKLY = ROOT / "docs" / "tutorials" / "weekly.md"
PROGRAMS = {
    "frame": (ROOT / "examples" / "mean_delays.py").read_text(encoding="utf-8"),
    "river": (ROOT / "examples" / "river_statistic.py").read_text(encoding="utf-8"),
    "Beam": next(block.text for block in blocks_of(WEEKLY) if "import apache_beam" in block.text),
}
"""What a user writes, with no file but its own."""
SOURCE = "streaming/sources/compiled_records.c"
UV = Path(sys.executable).with_name("uv")
OTHERS = """
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"
[project]
name = "somebody-elses"
version = "1"
[tool.hatch.build.targets.wheel]
packages = ["streaming"]
"""

pytestmark = pytest.mark.skipif(not UV.exists(), reason="uv is of the Makefile's environment")


def run(*command: object, folder: Path) -> str:
    clean = {
        name: value
        for name, value in os.environ.items()
        if name not in ("PYTHONPATH", "VIRTUAL_ENV")
    }
    ran = subprocess.run(
        [str(word) for word in command], cwd=folder, env=clean, capture_output=True, check=False
    )
    assert ran.returncode == 0, ran.stderr.decode()[-4000:]
    return ran.stdout.decode()


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    run(UV, "build", "-q", "--wheel", "-o", folder, ROOT, folder=folder)
    return next(folder.glob("meanstream-*.whl"))


@pytest.fixture(scope="module")
def python(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An interpreter that has the wheel, and a distribution that owns a top-level `streaming`."""
    folder = tmp_path_factory.mktemp("environment")
    others = folder / "others"
    (others / "streaming").mkdir(parents=True)
    (others / "streaming" / "__init__.py").write_text("WHOSE = 'somebody else'\n")
    (others / "pyproject.toml").write_text(OTHERS)
    run(UV, "venv", "-q", "-p", sys.executable, folder / "venv", folder=folder)
    python = folder / "venv" / "bin" / "python"
    locked = ("-c", ROOT / "requirements" / "dev.lock")
    run(UV, "pip", "install", "-q", "-p", python, *locked, f"{wheel}[beam,kafka]", folder=folder)
    run(UV, "pip", "install", "-q", "-p", python, others, folder=folder)
    return python


def test_the_wheel_owns_one_name(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        tops = {name.partition("/")[0] for name in archive.namelist()}
    version = wheel.name.split("-")[1]
    assert tops == {"meanstream", f"meanstream-{version}.dist-info"}


def test_neither_hides_the_other(python: Path, tmp_path: Path) -> None:
    (tmp_path / "pipelines").mkdir()
    (tmp_path / "pipelines" / "__init__.py").write_text(
        "raise RuntimeError('the user has a folder of this name')\n"
    )
    program = (
        "import streaming, meanstream.beam, meanstream.streaming.clock; print(streaming.WHOSE)"
    )
    assert run(python, "-c", program, folder=tmp_path) == "somebody else\n"
    assert run(python.with_name("meanstream"), "--version", folder=tmp_path).startswith(
        "meanstream "
    )


@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS)
def test_a_users_program_runs_there(program: str, python: Path, tmp_path: Path) -> None:
    (tmp_path / "pipelines").mkdir()
    (tmp_path / "pipelines" / "__init__.py").touch()
    (tmp_path / "program.py").write_text(program)
    assert run(python, "program.py", folder=tmp_path)


@pytest.mark.parametrize("compiler", ["cc", "false"])
def test_the_wheel_is_pure_without_a_compiler(tmp_path: Path, compiler: str) -> None:
    """What a clone without C parts builds; the tree's own are for other tests."""
    clone = tmp_path / "clone"
    run("git", "clone", "-q", "--no-hardlinks", "--depth=1", f"file://{ROOT}", clone, folder=ROOT)
    for name in ("hatch_build.py", "pyproject.toml", SOURCE):
        shutil.copy(ROOT / name, clone / name)

    run("env", f"CC={compiler}", UV, "build", "-q", "--wheel", "-o", tmp_path, folder=clone)
    (built,) = tmp_path.glob("meanstream-*.whl")
    with zipfile.ZipFile(built) as archive:
        parts = [name for name in archive.namelist() if name.endswith(".so")]

    pure = compiler == "false" or shutil.which("cc") is None
    assert built.name.endswith("-py3-none-any.whl") == pure
    assert parts == ([] if pure else ["meanstream/streaming/sources/compiled_records.abi3.so"])

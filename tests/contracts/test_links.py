"""The user's folders stand at the top level as links; nothing imports, collects, lints or packs through them."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LINKS = ("operators", "streaming", "pipelines")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", LINKS)
def test_the_users_folders_are_links_into_the_package(name: str) -> None:
    link = ROOT / name
    assert link.is_symlink()
    assert link.readlink() == Path("meanstream") / name
    assert (link / "__init__.py").is_file()


def test_no_tool_looks_through_a_link() -> None:
    tool = PROJECT["tool"]
    assert tool["mypy"]["packages"] == tool["importlinter"]["root_packages"] == ["meanstream"]
    assert set(tool["ruff"]["lint"]["flake8-tidy-imports"]["banned-api"]) == set(LINKS)
    packed = [
        *tool["hatch"]["build"]["targets"]["wheel"]["packages"],
        *tool["hatch"]["build"]["targets"]["sdist"]["include"],
        *tool["pytest"]["ini_options"]["testpaths"],
    ]
    assert not set(packed) & set(LINKS)


def test_a_bare_import_is_a_finding() -> None:
    ran = subprocess.run(
        [
            sys.executable,
            "-m",
            "ruff",
            "check",
            "--config",
            str(ROOT / "pyproject.toml"),
            "--stdin-filename",
            "x.py",
            "-",
        ],
        input="from streaming import clock\n",
        capture_output=True,
        text=True,
        check=False,
    )
    assert "TID251" in ran.stdout

"""Builds the reader of alike JSON records in C with the wheel, where there is a compiler.

Without one the wheel is pure Python, and records are read by msgspec: the same columns, slower.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from packaging.tags import sys_tags

SOURCE = Path("streaming/sources/compiled_records.c")
BUILT = SOURCE.with_suffix(".abi3.so")


class CompileRecords(BuildHookInterface[Any]):
    """Compiles one file against Python's stable interface."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:  # noqa: ARG002 - the interface
        """Compile, and tell which machines the wheel is for."""
        root = Path(self.root)
        source = root / SOURCE if (root / SOURCE).exists() else root / "meanstream" / SOURCE
        built = source.with_name(BUILT.name)

        if compiled(source, built):
            platform = next(sys_tags()).platform
            build_data["pure_python"] = False
            build_data["tag"] = f"cp311-abi3-{platform}"
            build_data["force_include"][str(built)] = str("meanstream" / BUILT)
        else:
            self.app.display_warning("no C compiler: records are read by msgspec alone")


def compiled(source: Path, built: Path) -> bool:
    """Compile a file; say whether that could be done."""
    built.unlink(missing_ok=True)
    if sys.platform == "win32":
        return False

    compiler = shlex.split(os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc")
    linked = (
        ["-bundle", "-undefined", "dynamic_lookup"] if sys.platform == "darwin" else ["-shared"]
    )
    include = f"-I{sysconfig.get_path('include')}"
    options = ["-std=c11", "-O2", "-Wall", "-Wextra", "-Wno-unused-parameter", "-fPIC", include]

    try:
        command = [*compiler, *options, *linked, str(source), "-o", str(built)]
        subprocess.run(command, check=True)  # noqa: S603 - the compiler that Python was built with
    except (OSError, subprocess.CalledProcessError):
        return False
    return True

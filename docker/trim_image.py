"""Make an image smaller: remove what its programs never read, and compile what they import.

The builds of both images run it with the interpreter of the image:
`python trim_image.py [--compile]`.
"""

from __future__ import annotations

import ast
import compileall
import importlib
import pkgutil
import shutil
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path

UNNEEDED = (
    "**/tests",  # a quarter of NumPy, SciPy and Arrow
    "**/*.pyi",
    "**/*.pxd",
    "**/*.a",
    "*/include",
    "numpy/_core/include",
    "numpy/distutils",
    "pyarrow/src",
    "pyarrow/*flight*",  # a server of Arrow data
    "pyarrow/*.pyx",
    "river/datasets/*.*z*",  # data sets; their code stays
)
"""Of the installed packages, by their paths; a test imports everything else without them."""


def unneeded(packages: Path) -> Iterator[Path]:
    """Give the files and folders that go."""
    for pattern in UNNEEDED:
        yield from packages.glob(pattern)


def trim(packages: Path) -> None:
    """Remove them."""
    for path in [*unneeded(packages)]:
        shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)


def import_all(name: str = "meanstream") -> None:
    """Import a package whole, and whatever its functions import.

    Modules that are not there are left out.
    """
    package = importlib.import_module(name)
    for module in pkgutil.walk_packages(package.__path__, f"{name}.", onerror=lambda _: None):
        _import_if_there(module.name)
    for path in Path(package.__path__[0]).rglob("*.py"):
        for imported in _imports(path):
            _import_if_there(imported)


def _import_if_there(name: str) -> None:
    try:
        importlib.import_module(name)
    except ModuleNotFoundError:
        return
    except ValueError as error:  # an adapter says which extra it needs
        if "must be installed" not in str(error):
            raise


def _imports(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def main() -> None:
    """Trim the packages of this interpreter."""
    packages = Path(sysconfig.get_path("purelib"))
    trim(packages)
    if "--compile" in sys.argv:
        sys.dont_write_bytecode = False
        compileall.compile_dir(packages / "meanstream", quiet=1)
        import_all()


if __name__ == "__main__":
    main()

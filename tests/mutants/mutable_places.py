"""Marks every place of the code where a program may branch: a copy of the tree then notes by itself
what runs.

A tracer costs as much again as the tests; here each block begins with one store into a file that is
mapped into memory, which child processes, and processes that are killed, share. A place is named by
its function and its number there, so that what was measured stands while other functions change.
"""

from __future__ import annotations

import ast
import glob
import shutil
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[2]
MARK = "_reached_"
MODULE = f"""
import mmap
import os


class Shared(mmap.mmap):
    def __reduce__(self):
        return opened, ()


def opened():
    return {MARK}


if place := os.environ.get("MUTANTS_SHARED"):
    with open(place, "r+b") as file:
        {MARK} = Shared(file.fileno(), 0)
else:  # a process that was given an environment of its own
    {MARK} = bytearray(1 << 20)
"""


def package_files(tree: Path) -> list[Path]:
    """List the Python files of the package; its three folders of the core are links."""
    return sorted(Path(name) for name in glob.glob(f"{tree}/meanstream/**/*.py", recursive=True))


def copied(folder: Path) -> Path:
    """A copy of the tree, of what belongs to it; links stay links, and files as old as they
    were."""
    listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    for name in subprocess.run(
        listed, cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.split("\0"):
        if name and ((ROOT / name).is_symlink() or (ROOT / name).is_file()):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name, follow_symlinks=False)
    return folder


class Places:
    """The places of one file, and the innermost one of each line that is in a function."""

    def __init__(self, path: str, source: str) -> None:
        self._path = path
        self.tree = ast.parse(source)
        self.names: list[str] = []
        self.of_line: dict[int, str] = {}
        self._scope(self.tree.body, "")

    def marked(self, numbers: dict[str, int]) -> str:
        """Give the source whose places store under these numbers that they were reached."""
        tree = _Marked(numbers).visit(self.tree)
        after = int(bool(tree.body) and _is_docstring(tree.body[0]))
        while after < len(tree.body) and getattr(tree.body[after], "module", "") == "__future__":
            after += 1
        tree.body.insert(after, ast.parse(f"from meanstream._reached import {MARK}").body[0])
        return ast.unparse(ast.fix_missing_locations(tree)) + "\n"

    def _scope(self, body: list[ast.stmt], name: str) -> None:
        """Look for functions in what runs at import."""
        for node in body:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                self._count = 0
                node.body = self._block(node.body, f"{name}{node.name}")
            elif isinstance(node, ast.ClassDef):
                self._scope(node.body, f"{name}{node.name}.")
            else:
                for block in _blocks(node):
                    self._scope(block, name)

    def _block(self, body: list[ast.stmt], function: str) -> list[ast.stmt]:
        """Give a block of a function with marks: at its beginning, and after what may have left
        it."""
        marked: list[ast.stmt] = []
        place: str | None = None
        for i, node in enumerate(body):
            if i == 0 and _is_docstring(node):
                marked.append(node)
                continue
            if place is None:
                place = self._place(function, marked)
            for line in range(node.lineno, (node.end_lineno or node.lineno) + 1):
                self.of_line[line] = place
            if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                inner = node.body
                if isinstance(node, ast.ClassDef):
                    self._inner_class(inner, function)
                else:
                    node.body = self._block(inner, function)
            elif blocks := _blocks(node):
                for block in blocks:
                    block[:] = self._block(block, function)
                place = None
            marked.append(node)
        return marked

    def _inner_class(self, body: list[ast.stmt], function: str) -> None:
        for node in body:
            if isinstance(node, ast.FunctionDef):
                node.body = self._block(node.body, function)

    def _place(self, function: str, marked: list[ast.stmt]) -> str:
        name = f"{self._path}:{function}:{self._count}"
        self._count += 1
        self.names.append(name)
        marked.append(ast.Expr(ast.Constant(f"{MARK} {name}")))
        return name


class _Marked(ast.NodeTransformer):
    """Names of places become stores."""

    def __init__(self, numbers: dict[str, int]) -> None:
        self._numbers = numbers

    def visit_Expr(self, node: ast.Expr) -> ast.AST:
        text = node.value.value if isinstance(node.value, ast.Constant) else None
        if isinstance(text, str) and text.startswith(f"{MARK} "):
            return ast.parse(f"{MARK}[{self._numbers[text.split(' ')[1]]}] = 1").body[0]
        return node


def marked_copy(folder: Path, numbers: dict[str, int]) -> None:
    """Mark a copy of the tree; places that have no number yet get the next ones."""
    package = folder / "meanstream"
    (package / "_reached.py").write_text(MODULE)
    for path in package_files(folder):
        if path.name != "_reached.py":
            found = Places(path.relative_to(folder).as_posix(), path.read_text(encoding="utf-8"))
            for name in found.names:
                numbers.setdefault(name, len(numbers))
            path.write_text(found.marked(numbers), encoding="utf-8")


def _is_docstring(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _blocks(node: ast.stmt) -> list[list[ast.stmt]]:
    """The blocks of a compound statement."""
    found = [
        block for name in ("body", "orelse", "finalbody") if (block := getattr(node, name, None))
    ]
    found += [part.body for name in ("handlers", "cases") for part in getattr(node, name, ())]
    return found

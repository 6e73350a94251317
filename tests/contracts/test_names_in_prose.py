"""Files and modules that prose names exist: a move that forgets the docs does not pass."""

from __future__ import annotations

import ast
import re
import subprocess
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
TOPS = ("meanstream", "operators", "streaming", "pipelines", "tests", "benchmarks", "docs", "docker", "requirements")
PATH = re.compile(rf"(?:{'|'.join(TOPS)}|\.ci|\.github)/[\w./-]*\w/?|[\w./-]*\w\.(?:py|toml|yml|yaml|sh|md)")
DOTTED = re.compile(r"meanstream(?:\.\w+)+")
QUOTED = re.compile(r"`([^`\n]+)`")


@cache
def places() -> frozenset[str]:
    """List what the repository holds: files, folders, and the ends of their paths, which prose may shorten them to."""
    listed = subprocess.run(("git", "ls-files"), cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    whole = {str(folder) for name in listed for folder in (Path(name), *Path(name).parents)}
    return frozenset("/".join(name.split("/")[start:]) for name in whole for start in range(name.count("/") + 1))


def is_place(path: str) -> bool:
    """Tell whether a path is one; whole, if it begins at the top."""
    path = path.rstrip("/").removeprefix("./")
    return (ROOT / path).exists() if path.split("/")[0] in TOPS else path.removeprefix("../") in places()


def is_module_or_name(dotted: str) -> bool:
    """Tell whether a dotted name is a logger, a folder, a module, or the first name in it that a module defines."""
    if dotted in loggers():
        return True
    path = ROOT
    for part in dotted.split("."):
        if path.is_dir() and (path / part).is_dir():
            path /= part
        elif path.is_dir() and (path / f"{part}.py").exists():
            path /= f"{part}.py"
        else:
            module = path / "__init__.py" if path.is_dir() else path
            return part in names_of(module)
    return True


@cache
def loggers() -> frozenset[str]:
    """List the names under which the package logs."""
    named = re.compile(r'getLogger\("([\w.]+)"\)')
    return frozenset(
        name for path in (ROOT / "meanstream").rglob("*.py") for name in named.findall(path.read_text("utf-8"))
    )


@cache
def names_of(module: Path) -> frozenset[str]:
    """List what a module defines or hands on, and the words that a lazy one keeps in strings."""
    nodes = list(ast.walk(ast.parse(module.read_text(encoding="utf-8"))))
    found = {node.name for node in nodes if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.alias)}
    found |= {node.id for node in nodes if isinstance(node, ast.Name)}
    return frozenset(found | {str(node.value) for node in nodes if isinstance(node, ast.Constant)})


def stale(text: str) -> list[str]:
    """Give the quoted paths and dotted names of a text that are no more."""
    words = QUOTED.findall(text)
    paths = [word for word in words if PATH.fullmatch(word) and not is_place(word)]
    return paths + [word for word in words if DOTTED.fullmatch(word) and not is_module_or_name(word)]


def test_prose_names_what_exists() -> None:
    documents = subprocess.run(("git", "ls-files", "*.md"), cwd=ROOT, capture_output=True, text=True, check=True)
    texts = {name: (ROOT / name).read_text(encoding="utf-8") for name in documents.stdout.split()}
    assert len(texts) > 5
    assert {name: found for name, text in texts.items() if (found := stale(text))} == {}


def test_docstrings_name_modules_that_exist() -> None:
    found = {
        str(path.relative_to(ROOT)): gone
        for path in (ROOT / "meanstream").rglob("*.py")
        if (gone := [w for w in QUOTED.findall(path.read_text("utf-8")) if DOTTED.fullmatch(w) and stale(f"`{w}`")])
    }
    assert found == {}


def test_a_stale_name_would_be_found() -> None:
    gone = [
        "meanstream/operators/noise/moved.py",
        "no_such_file.py",
        "docs/no_such_folder/",
        "meanstream.streaming.nine",
    ]
    gone += ["meanstream.operators.agents.running_mean.PrivateMedian"]
    kept = ["meanstream/operators/noise/keyed.py", "operators/noise/keyed.py", "noise/keyed.py", "docs/"]
    kept += ["meanstream.operators.agents.running_mean.PrivateMean", "meanstream.beam"]
    assert sorted(stale(" and ".join(f"`{name}`" for name in gone + kept))) == sorted(gone)

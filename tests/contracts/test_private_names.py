"""A class or function that only its own module uses is private: what is public, somebody else may use, or reads."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from meanstream.pipelines.commands.parts import PARTS

COMMANDS = "meanstream/pipelines/commands/parts.py"
"""Lists commands by the name of their module and function, so that none is imported to be listed."""
ROOT = Path(__file__).parents[2]
BUT = {
    "meanstream/pipelines/beam/": "Beam shows the names of its classes, and updates of a job go by them",
    "meanstream/operators/simulation/round_laws.py": "a family: laws are compared and shown by name",
    "meanstream/operators/simulation/vector_laws.py": "a family: laws are compared and shown by name",
}
"""Where classes are public whoever uses them, and why."""


def uses(path: str, text: str) -> Iterator[tuple[str, str]]:
    """Give what a file names of modules: what it imports, what it reads of them, and what its strings name."""
    tree = ast.parse(text)
    known: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            known |= {one.asname or one.name: f"{node.module}.{one.name}" for one in node.names}
            yield from ((node.module, one.name) for one in node.names)
    yield from ((found[1], found[2]) for found in re.finditer(r"(meanstream(?:\.\w+)*)[:.](\w+)", text))
    if path == COMMANDS:
        yield from ((f"meanstream.pipelines.commands.{part.module}", part.name) for part in PARTS.values())
    strings = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            yield known.get(node.value.id, ""), node.attr
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.isidentifier():
            strings.add(node.value)
    if not path.startswith("meanstream/"):  # what tests put in a place
        yield from ((module, name) for name in strings for module in known.values() if module.startswith("meanstream"))


def own(text: str) -> Iterator[tuple[str, bool]]:
    """Give a module's public classes and functions, but no commands and no types that it says something is of."""
    tree = ast.parse(text)
    hints = [getattr(node, "annotation", None) or getattr(node, "returns", None) for node in ast.walk(tree)]
    hints += [base for node in tree.body if isinstance(node, ast.ClassDef) for base in node.bases]
    read = set(re.findall(r"\w+", " ".join(ast.unparse(hint) for hint in hints if hint)))
    for node in tree.body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef) and not node.name.startswith("_"):
            called = any("command" in ast.unparse(one) or "callback" in ast.unparse(one) for one in node.decorator_list)
            if not called and not (isinstance(node, ast.ClassDef) and node.name in read):
                yield node.name, isinstance(node, ast.ClassDef)


def alone(files: dict[str, str]) -> list[str]:
    """Give the public names that no file names but the one that defines them."""
    named = {(*use, path) for path, text in files.items() for use in uses(path, text)}
    seen: dict[tuple[str, str], set[str]] = {}
    for module, name, path in named:
        seen.setdefault((module, name), set()).add(path)
    return [
        f"{path} {name}"
        for path, text in files.items()
        if path.startswith("meanstream/")
        for name, is_class in own(text)
        if not (is_class and any(path.startswith(place) for place in BUT))
        if not seen.get((path.removesuffix(".py").replace("/", ".").removesuffix(".__init__"), name), set()) - {path}
    ]


def test_what_only_its_module_uses_is_private() -> None:
    folders = ("meanstream", "tests", "benchmarks", "docker")
    paths = [path for folder in folders for path in (ROOT / folder).rglob("*.py")]
    assert alone({path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8") for path in paths}) == []


def test_a_name_that_is_used_nowhere_else_would_be_found() -> None:
    defined = "class A: ...\nclass B: ...\ndef f() -> A: ...\ndef g(): ...\ndef h(): ...\ndef _k(): ..."
    files = {
        "meanstream/a.py": defined,
        "tests/a.py": "from meanstream import a\nfrom meanstream.a import f\na.g",
    }
    assert alone(files) == ["meanstream/a.py B", "meanstream/a.py h"]

"""What a user reads is plain: no banned word, short sentences; on the site, in help, messages, logs
and metrics."""

from __future__ import annotations

import ast
import re
import statistics
from collections.abc import Iterable, Iterator
from pathlib import Path

from tests.lint.sources import ROOT, Source, sources

BANNED = re.compile(
    r"\b(?:told|nobody|everybody|somebody|anybody|anew|whoever|beside|so many|of whom|in the place of|gives up nothing|"
    r"(?:is|are|was|were) asked)\b",
    re.IGNORECASE,
)
"""Words of a translation; a guide for writers is in CONTRIBUTING.md."""
HEADLESS = re.compile(r"\bwhat (?:is|are|was|were)\b", re.IGNORECASE)
"""A clause without its noun, unless the sentence is a question."""
WORDS, MEDIAN, SHARE = 25, 20, 0.9
"""Nine in ten sentences of a page have at most `WORDS` words, and half of them at most `MEDIAN`."""
LONGEST = 25
"""Words of the longest sentence of a help text, and of a message with its reason and cure."""
OUTPUT = re.compile(r"(?ms)^( *)(?:```|~~~).*?^\1(?:```|~~~)|<!--.*?-->|\$\$.*?\$\$")
LEFT_OUT = re.compile(r"(?m)^ *\|.*$|^#.*$|^ *\[\^\w+\]:")
LINK, CODE = re.compile(r"!?\[([^\]]*)\]\([^)]*\)"), re.compile(r"`[^`]*`|\"[^\"\n]*\"")
ENDS = re.compile(r"(?<=[.!?])\s+|\n\s*\n|(?m:^\s*(?:[-*]|\d+\.)\s)")
OWN = ("README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md", "docker/README.md")
"""Pages outside of the site; of CHANGELOG.md only the version to come: the past stays in its
words."""
PAST = re.compile(r"(?ms)^## \[\d.*")
PUBLIC = (
    "meanstream/__init__.py",
    "pipelines/beam/agents/agent_transforms.py",
    "pipelines/beam/rounds/round_transforms.py",
)
LOGGED = {"debug", "info", "warning", "error", "critical", "exception"}


def sentences_of(page: str) -> list[str]:
    """Split the prose of a page in Markdown; code, tables and headings are left out."""
    text = CODE.sub("X", LINK.sub(r"\1", LEFT_OUT.sub("", OUTPUT.sub("", page))))
    return [" ".join(part.split()) for part in ENDS.split(text) if len(part.split()) > 2]


def page_faults(name: str, page: str) -> Iterator[str]:
    """Report what makes a page hard to read; its tables and headings may hold no banned word,
    either."""
    prose = CODE.sub("X", LINK.sub(r"\1", OUTPUT.sub("", page)))
    yield from (
        f"{name} says {word!r}" for word in sorted({word.lower() for word in BANNED.findall(prose)})
    )
    said = sentences_of(page)
    yield from (
        f"{name} has a clause without its noun: {one!r}" for one in said if _is_headless(one)
    )
    if not said:
        return
    lengths = sorted(len(one.split()) for one in said)
    if statistics.median(lengths) > MEDIAN:
        yield f"{name} has a median of {statistics.median(lengths):g} words per sentence, at most {MEDIAN}"
    if lengths[int(SHARE * len(lengths))] > WORDS:
        longest = max(said, key=lambda one: len(one.split()))
        yield f"{name} must have nine in ten sentences of at most {WORDS} words, its longest: {longest[:80]!r}"


def _is_headless(sentence: str) -> bool:
    return bool(HEADLESS.search(sentence)) and "?" not in sentence


def texts_of(source: Source) -> Iterator[tuple[int, str]]:
    """Give the texts of a file that a user reads: help, docstrings of commands, errors and log
    lines."""
    for node in source.nodes:
        if isinstance(node, ast.FunctionDef) and _is_command(node):
            prose = (
                (ast.get_docstring(node) or "")
                .partition("\\b")[0]
                .partition("\b")[0]
                .partition("Example")[0]
            )
            yield node.lineno, prose
        elif isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call):
            yield from ((node.lineno, _text(argument)) for argument in node.exc.args)
        elif isinstance(node, ast.Call):
            yield from (
                (node.lineno, _text(one.value))
                for one in node.keywords
                if one.arg in ("help", "description")
            )
            name = (
                node.func.attr
                if isinstance(node.func, ast.Attribute)
                else getattr(node.func, "id", "")
            )
            if name in LOGGED | {"cli_option", "_option"} and node.args:
                yield node.lineno, _text(node.args[0])


def _is_command(node: ast.FunctionDef) -> bool:
    calls = (one.func for one in node.decorator_list if isinstance(one, ast.Call))
    return any(
        isinstance(one, ast.Attribute) and one.attr in ("command", "callback") for one in calls
    )


def _text(node: ast.AST) -> str:
    """Give the text of a string, its parts that depend on values as X."""
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else ""
    if isinstance(node, ast.JoinedStr):
        return "".join(
            _text(part) if isinstance(part, ast.Constant) else "X" for part in node.values
        )
    if isinstance(node, ast.BinOp):
        return _text(node.left) + _text(node.right)
    return ""


def source_faults(source: Source) -> Iterator[str]:
    """Report banned words in all strings of a file, and long sentences in those that a user surely
    reads."""
    for line, text in source.strings():
        if " " in text:
            words = {word.lower() for word in BANNED.findall(text)} | (
                {"what is"} if _is_headless(text) else set()
            )
            yield from (f"{source.path}:{line} says {word!r} to the user" for word in sorted(words))
    for line, text in texts_of(source):
        for one in re.split(r"(?<=[.!?;:])\s+", text):
            if len(one.split()) > LONGEST:
                said = f"a sentence of {len(one.split())} words, at most {LONGEST}"
                yield f"{source.path}:{line} has {said}: {one[:60]!r}"


def public_names() -> set[str]:
    """List the names that the reference on the site shows."""
    lists = (
        ast.literal_eval(node.value)
        for name in PUBLIC
        for node in ast.walk(ast.parse((ROOT / name).read_text()))
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__"
    )
    return {name for names in lists for name in names}


def docstring_faults(source: Source, public: set[str]) -> Iterator[str]:
    """Report banned words in the docstrings of public classes and functions, and of the methods of
    these classes."""
    for node in source.tree.body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef) and node.name in public:
            methods = [
                one
                for one in node.body
                if isinstance(one, ast.FunctionDef) and not one.name.startswith("_")
            ]
            for one in [node, *methods]:
                words = {word.lower() for word in BANNED.findall(ast.get_docstring(one) or "")}
                yield from (
                    f"{source.path}:{one.lineno} {one.name} says {word!r} to the reader"
                    for word in sorted(words)
                )


def pages() -> Iterable[Path]:
    """List the pages that a user reads."""
    return [*map(ROOT.joinpath, OWN), *sorted((ROOT / "docs").rglob("*.md"))]


def check_words() -> Iterator[str]:
    """Report what is not plain."""
    for path in pages():
        page = path.read_text(encoding="utf-8")
        name = path.relative_to(ROOT).as_posix()
        yield from page_faults(name, PAST.sub("", page) if path.name == "CHANGELOG.md" else page)
    public = public_names()
    for source in sources():
        yield from source_faults(source)
        yield from docstring_faults(source, public)

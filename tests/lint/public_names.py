"""Names: each public one is used somewhere, and estimators are named where they are registered."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterable, Iterator

from meanstream.operators.estimators.registry import ESTIMATORS
from tests.lint.sources import CORE, Source, sources

USERS = ("meanstream", "tests", "benchmarks", "docker", "docs/examples")
"""Folders whose files may use a public name."""
WHOLE = {"adaptive", "repeating", "item", "semi", "split", "plan"}
"""Estimators whose names are words: only a string that is nothing else names one."""
IN_TEXT = re.compile(
    rf"\b({'|'.join(re.escape(name) for name in sorted(ESTIMATORS.keys() - WHOLE | {'cummings'}))})\b"
)
ESTIMATORS_NAMED_IN = (
    "operators/estimators/",
    "meanstream/lab/papers/",
    "meanstream/lab/simulation/",
    "meanstream/lab/reproduce/",  # figures of the papers, each of its own estimator
    "pipelines/commands/command_parts.py",  # `meanstream plan` is a command
    "meanstream/integrations/public_answers.py",  # `plan` is a tool
    "meanstream/lab/simulate/simulate_rounds.py",  # help
)


def unused(files: Iterable[Source]) -> Iterator[str]:
    """Report public classes and functions of the package whose name stands nowhere but where they
    are defined."""
    files = list(files)
    words: Counter[str] = Counter()
    for source in files:
        words.update(re.findall(r"\w+", source.text))
    for source in files:
        if not source.path.startswith(("meanstream/", *CORE)):
            continue
        for node in source.tree.body:
            if isinstance(node, ast.ClassDef | ast.FunctionDef) and not node.name.startswith("_"):
                registered = bool(node.decorator_list) and isinstance(node, ast.FunctionDef)
                if words[node.name] == 1 and not registered:
                    yield f"{source.path}:{node.lineno} {node.name} is used nowhere"


def estimators_named(files: Iterable[Source]) -> Iterator[str]:
    """Report strings that name an estimator: what differs is an attribute of its class. Docstrings
    may."""
    for source in files:
        for line, text in source.strings():
            if text in ESTIMATORS or IN_TEXT.search(text):
                yield f"{source.path}:{line} must not name an estimator, got {text!r}"


def check_names() -> Iterator[str]:
    """Report names against the rules."""
    yield from unused([source for folder in USERS for source in sources(folder)])
    yield from estimators_named(s for s in sources() if not s.path.startswith(ESTIMATORS_NAMED_IN))

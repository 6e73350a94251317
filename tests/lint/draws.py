"""Draws of tests: each has a seed, or stands in `tests/chance.py` with its chance of making a test
red."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

from tests.chance import MOST, UNSEEDED
from tests.lint.sources import Source, sources

DRAW = re.compile(
    r"(?:default_rng|RandomState|SeedSequence|PCG64|\bRandom)\(\)|\bSystemRandom\b|\burandom\(|\buuid[14]\(|"
    r"\bsecrets\.(?:token_\w+|choice|rand\w+)\(|use_true_random=True"
)
OF_THE_MODULE = re.compile(r"(?m)^import random$[\s\S]*(?<![\w.])random\.(?!seed\b)[a-z]\w*\(")
"""The standard library's generator that all share; a variable of this name is one with a seed."""


def unseeded(files: Iterable[Source], listed: Mapping[str, tuple[float, str]]) -> Iterator[str]:
    """Report files that draw without a seed and are not listed, and listed ones that do not."""
    drawing = {
        source.path
        for source in files
        if DRAW.search(source.text) or OF_THE_MODULE.search(source.text)
    }
    for path in sorted(drawing - set(listed)):
        yield f"{path} draws without a seed: give it one, or list it in tests/chance.py"
    yield from (
        f"tests/chance.py lists {path}, which draws nothing without a seed"
        for path in set(listed) - drawing
    )
    if (total := sum(chance for chance, _ in listed.values())) > MOST:
        yield f"tests/chance.py must add up to at most {MOST:g}, got {total:g}"


def check_draws() -> Iterator[str]:
    """Report draws against the rules."""
    yield from unseeded(
        (source for source in sources("tests") if not source.path.startswith("tests/lint/")),
        UNSEEDED,
    )

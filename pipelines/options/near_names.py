"""What a word that no command and no option has was meant for: a slip, or another tool's word."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from difflib import get_close_matches
from typing import Any

NEAR = 0.8
"""Share of equal letters from which on a name may be meant by a misspelled one."""
ALIKE = 0.65
"""The same for short names of commands."""
SHORTEST = 3
"""Letters from which on the beginning of one option alone is taken for it."""
FIRST = ("run", "explain")
"""Groups whose commands are named before those of others."""
MOST_COMPARED = 10_000
"""Agents among which a misspelled one is looked for."""
SHOWN = 3
"""Commands that a message names, at most."""
OTHER_WORDS = {
    "--source": ("--input", "--in", "--src", "--file", "--topic", "--from", "--path"),
    "--sink": ("--output", "--out", "--to", "--estimates"),
    "--agent": ("--by", "--group-by", "--groupby", "--group", "--key", "--entity"),
    "--user": ("--by", "--group-by", "--key"),
    "--value": ("--column", "--field", "--measure"),
    "--time": ("--timestamp", "--ts", "--event-time"),
    "--lower": ("--min", "--bounds", "--range"),
    "--upper": ("--max",),
    "--level": ("--confidence", "--alpha"),
    "--secret-file": ("--seed", "--key-file", "--secret"),
    "--store": ("--state", "--db", "--checkpoint"),
    "--config": ("--yaml", "--settings"),
    "--dead-letters": ("--dlq", "--errors", "--rejects"),
    "--person": ("--user", "--customer"),
    "--help-all": ("--verbose", "--all"),
}
"""Options by the words that other tools have for them."""
OTHER_COMMANDS = {
    "start": "run",
    "status": "store show",
    "erase": "store forget",
    "delete": "store forget",
    "example": "demo",
    "examples": "demo",
    "config": "init",
    "estimate": "run agents",
    "mean": "run agents",
    "means": "run agents",
    "privacy": "explain",
    "dead-letters": "dlq",
    "key": "secret",
}
"""Commands by the words that other tools have for them."""


def near_option(unknown: str, known: Sequence[str]) -> str:
    """End of a message on an unknown option: a slip, a beginning, or another tool's word for one.

    Examples
    --------
    >>> known = ["--epsilon", "--source", "--sink"]
    >>> near_option("--epsilonn", known), near_option("--eps", known), near_option("--input", known)
    ("; did you mean '--epsilon'?", "; did you mean '--epsilon'?", "; did you mean '--source'?")
    >>> near_option("--nothing-like-it", known)
    ''
    """
    near = get_close_matches(unknown, known, n=1, cutoff=NEAR)
    begins = [name for name in known if name.startswith(unknown)]

    if not near and len(begins) == 1 and len(unknown.lstrip("-")) >= SHORTEST:
        near = begins
    if not near:
        near = [name for name, words in OTHER_WORDS.items() if unknown in words and name in known]

    if near:
        return f"; did you mean {near[0]!r}?"
    return ""


def near_command(message: str, root: Any) -> str:
    """Message on an unknown command of the first level, with the commands that may be meant.

    The framework compares with names of the first level alone, and finds `get` for `agents`.
    """
    unknown = re.match(r"No such command '([^']*)'\.", message)
    if unknown is None:
        return message

    near = _near_commands(unknown[1], [*_paths(root)])
    if not near:
        return f"{unknown[0]} `meanstream --help` lists them."

    return f"{unknown[0]} Did you mean {', '.join(map(repr, near[:SHOWN]))}?"


def near_agent(unknown: str, known: Sequence[str]) -> str:
    """End of a message on an unknown agent: one that differs in case or blanks, or by a slip.

    Examples
    --------
    >>> near_agent("D10 ", ["d10", "d11"]), near_agent("d10", ["d10"])
    ("; did you mean 'd10'?", '')
    """
    plain = unknown.strip().casefold()
    others = [name for name in known if name != unknown]
    near = [name for name in others if name.strip().casefold() == plain]
    near = near or get_close_matches(unknown, others[:MOST_COMPARED], n=1, cutoff=NEAR)

    if near:
        return f"; did you mean {near[0]!r}?"
    return ""


def _near_commands(unknown: str, paths: list[str]) -> list[str]:
    if unknown in OTHER_COMMANDS:
        return [OTHER_COMMANDS[unknown]]

    # The last word of a command of two, as in `run agents`.
    ends = [path for path in paths if path.partition(" ")[2] == unknown]
    if ends:
        return sorted(ends, key=lambda path: path.partition(" ")[0] not in FIRST)

    groups = [path for path in paths if " " not in path]
    near = get_close_matches(unknown, groups, n=1, cutoff=ALIKE)
    if near:
        return near

    joined = {re.sub(r"[ _-]", "", path): path for path in paths}
    plain = re.sub(r"[ _-]", "", unknown)
    return [joined[name] for name in get_close_matches(plain, joined, n=1, cutoff=NEAR)]


def _paths(command: Any, above: str = "") -> Iterator[str]:
    """Names of all commands below one, those of a group after it."""
    for name, part in getattr(command, "commands", {}).items():
        if getattr(part, "hidden", False):
            continue
        yield f"{above}{name}"
        yield from _paths(part, f"{above}{name} ")

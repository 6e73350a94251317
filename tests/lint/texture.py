"""Texture of code: how much air its functions have, and how large they are.

Limits stand in `texture.json`, a folder each. A number may only get better: `python -m
tests.lint.texture --write` stores what is measured where it is better than the limit, and for a
folder without limits. `make lint` also prints the syntax nodes of each folder beside those of the
last release.
"""

from __future__ import annotations

import ast
import json
import math
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path

from tests.lint.sources import Source, sources

LIMITS = Path(__file__).with_suffix(".json")
FOLDERS = (
    "pipelines/beam",
    "operators",
    "streaming",
    "pipelines",
    "meanstream/integrations",
    "meanstream/lab",
    "meanstream",
)
"""Folders with limits; a file belongs to the first that holds it."""
WIDEST = 100
LONGEST_RUN = 15
MOST_NODES_OF_A_FUNCTION = 350
MOST_NODES_OF_A_FILE = 3_500
GENERIC = frozenset(
    {
        *("found", "one", "some", "part", "place", "at", "this", "mine", "told", "given", "kept"),
        *("own", "here", "there", "again", "known", "last", "first", "rest", "both", "many"),
        *("more", "most", "away", "taken", "asked", "now", "who", "what", "which", "other"),
        *("result", "res", "tmp", "ret", "data", "x"),
    }
)
"""Names of locals that say nothing about the thing."""
AT_LEAST = frozenset({"blank_lines", "comments"})
"""Measures that may only rise; all others may only fall."""
EXACT = frozenset({"wide_lines", "large_functions", "large_files"})
"""Measures that are counts; a ratio may be worse by one, as a new file without fault moves it."""
FUNCTIONS = ast.FunctionDef | ast.AsyncFunctionDef


def folder_of(path: str) -> str:
    """Find the folder whose limits hold for a file."""
    return next(folder for folder in FOLDERS if path.startswith(f"{folder}/"))


def comment_lines(source: Source) -> set[int]:
    """Find the lines that hold nothing but a comment for a reader."""
    marks = ("# noqa", "# type:", "# fmt:")
    lines = enumerate((line.lstrip() for line in source.text.split("\n")), 1)
    comments = {n for n, line in lines if line.startswith("#") and not line.startswith(marks)}

    # A text of several lines may hold lines that look like comments.
    for node in source.nodes:
        if isinstance(node, ast.Constant | ast.JoinedStr):
            comments.difference_update(range(node.lineno + 1, (node.end_lineno or 0) + 1))

    return comments


def sizes_of_functions(tree: ast.AST) -> dict[int, int]:
    """Count the syntax nodes of each function, by its identity."""
    sizes: dict[int, int] = {}

    def size(node: ast.AST) -> int:
        nodes = 1 + sum(size(child) for child in ast.iter_child_nodes(node))
        if isinstance(node, FUNCTIONS):
            sizes[id(node)] = nodes
        return nodes

    size(tree)
    return sizes


def is_packed(node: ast.AST) -> bool:
    """Decide whether a statement assigns several values to several names; a swap may."""
    if not isinstance(node, ast.Assign) or not isinstance(node.value, ast.Tuple):
        return False

    target = node.targets[0]
    if not isinstance(target, ast.Tuple):
        return False

    names = {ast.unparse(element) for element in target.elts}
    return names != {ast.unparse(element) for element in node.value.elts}


def longest_run(lines: Iterable[bool]) -> int:
    """Count the lines of the longest run without a blank line or a comment.

    >>> longest_run([True, True, False, True])
    2
    """
    longest = run = 0
    for is_code in lines:
        run = run + 1 if is_code else 0
        longest = max(longest, run)

    return longest


def counts(source: Source) -> Counter[str]:
    """Count what the measures of a folder are made of, in one file."""
    lines = source.text.split("\n")
    comments = comment_lines(source)
    sizes = sizes_of_functions(source.tree)
    count: Counter[str] = Counter(files=1, nodes=len(source.nodes))
    count["wide"] = sum(len(line) > WIDEST for line in lines)
    count["large_files"] = len(source.nodes) > MOST_NODES_OF_A_FILE
    body: set[int] = set()

    for node in source.nodes:
        count["packed"] += is_packed(node)
        count["conditional"] += isinstance(node, ast.IfExp)

        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            count["locals"] += 1
            count["generic"] += node.id in GENERIC

        if not isinstance(node, FUNCTIONS):
            continue

        count["large_functions"] += sizes[id(node)] > MOST_NODES_OF_A_FUNCTION
        statements = node.body[1:] if ast.get_docstring(node) else node.body
        if not statements:
            continue

        numbers = range(statements[0].lineno, (node.end_lineno or 0) + 1)
        body.update(numbers)
        is_code = [bool(lines[n - 1].strip()) and n not in comments for n in numbers]
        if sum(is_code) > LONGEST_RUN:
            count["long"] += 1
            count["walls"] += longest_run(is_code) > LONGEST_RUN

    count["body"] = len(body)
    count["blank"] = sum(not lines[n - 1].strip() for n in body)
    count["commented"] = len(body & comments)
    return count


def measures(count: Mapping[str, int]) -> dict[str, float]:
    """Compute the measures of a folder; ratios are per 1,000 lines of function bodies or percent."""
    body = max(count["body"], 1)
    return {
        "blank_lines": 1000 * count["blank"] / body,
        "comments": 1000 * count["commented"] / body,
        "packed_assignments": 1000 * count["packed"] / body,
        "conditional_expressions": 1000 * count["conditional"] / body,
        "percent_of_walls": 100 * count["walls"] / max(count["long"], 1),
        "percent_of_generic_locals": 100 * count["generic"] / max(count["locals"], 1),
        "wide_lines": count["wide"],
        "large_functions": count["large_functions"],
        "large_files": count["large_files"],
    }


def is_better(name: str, value: float, limit: float) -> bool:
    """Decide whether a measure is better than its limit."""
    return value > limit if name in AT_LEAST else value < limit


def rounded(name: str, value: float) -> int:
    """Round a measure to the limit that it keeps."""
    slack = 0 if name in EXACT else 1
    return math.floor(value) - slack if name in AT_LEAST else math.ceil(value) + slack


def texture_faults(
    measured: Mapping[str, Mapping[str, float]], limits: Mapping[str, Mapping[str, float]]
) -> Iterator[str]:
    """Report each folder's measures that are worse than their limit."""
    for folder, values in measured.items():
        for name, value in values.items():
            limit = limits[folder][name]
            if is_better(name, limit, value):
                rule = "at least" if name in AT_LEAST else "at most"
                yield f"{folder}/ must have {name.replace('_', ' ')} of {rule} {limit}, got {value:.1f}"


@cache
def by_folder(files: tuple[Source, ...]) -> dict[str, Counter[str]]:
    """Add up the counts of the files of each folder."""
    totals: dict[str, Counter[str]] = {folder: Counter() for folder in FOLDERS}
    for source in files:
        totals[folder_of(source.path)] += counts(source)

    return totals


def check_texture() -> Iterator[str]:
    """Report the folders whose texture is worse than its limits."""
    measured = {folder: measures(count) for folder, count in by_folder(sources()).items()}
    yield from texture_faults(measured, json.loads(LIMITS.read_text())["limits"])


def size_lines() -> Iterator[str]:
    """Write a table of the folders' syntax nodes beside those of the last release."""
    release = json.loads(LIMITS.read_text())["release"]
    totals = by_folder(sources())
    yield f"{'syntax nodes':24}{'files':>7}{'now':>10}{release['commit']:>12}"

    for folder, count in totals.items():
        before = release["nodes"][folder]
        yield f"{folder:24}{count['files']:>7,}{count['nodes']:>10,}{before:>12,}"

    files = sum(count["files"] for count in totals.values())
    nodes = sum(count["nodes"] for count in totals.values())
    yield f"{'all':24}{files:>7,}{nodes:>10,}{sum(release['nodes'].values()):>12,}"


def write_limits() -> None:
    """Store each measure that is better than its limit, and those of folders without limits."""
    stored = json.loads(LIMITS.read_text())
    for folder, count in by_folder(sources()).items():
        values = {name: rounded(name, value) for name, value in measures(count).items()}
        limits = stored["limits"].setdefault(folder, values)
        limits.update({n: v for n, v in values.items() if is_better(n, v, limits[n])})

    LIMITS.write_text(json.dumps(stored, indent=1) + "\n")


if __name__ == "__main__":
    if "--write" in sys.argv[1:]:
        write_limits()

    sys.stdout.writelines(f"{line}\n" for line in (*size_lines(), *check_texture()))

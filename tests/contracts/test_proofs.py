"""Every mechanism has a proof sketch in docs/privacy.md, and each was read against the code as it
is now.

A sketch carries a digest of its file's code. When the code has changed the sketch is read again,
and mended where it no longer holds; then `make proofs` (this program) notes the new digest.
Comments, docstrings and white space play no part.
"""

from __future__ import annotations

import ast
import hashlib
import io
import re
import tokenize
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

from meanstream.lab.evidence.mechanisms_audit import mechanism_audits

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "privacy.md"
ROW = re.compile(
    r"^\| (?P<about>[^|]+) \| (?P<why>[^|]+) \| \[[\w.]+\]\(\.\./(?P<file>[\w/]+\.py)\) (?P<names>[^|]+) \| "
    r"`(?P<digest>[0-9a-f]{12})` \|$"
)


@dataclass(frozen=True)
class Sketch:
    """A row of the table."""

    about: tuple[str, ...]
    why: str
    file: str
    names: tuple[str, ...]
    digest: str


def sketches(text: str) -> list[Sketch]:
    rows = filter(None, map(ROW.match, text.splitlines()))
    return [
        Sketch(
            tuple(row["about"].split(", ")),
            row["why"],
            row["file"],
            tuple(re.findall(r"\w+", row["names"])),
            row["digest"],
        )
        for row in rows
    ]


def digest_of(source: str) -> str:
    """Reduce code to twelve digits, the same on every Python: its text without comments, docstrings
    and white space."""
    text = source.splitlines(keepends=True)
    lines = [line.encode() for line in text]  # ast counts bytes
    left_out = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            first = node.body[0] if node.body else None
            if (
                isinstance(first, ast.Expr)
                and isinstance(first.value, ast.Constant)
                and isinstance(first.value.value, str)
            ):
                left_out.append(
                    (
                        (first.lineno, first.col_offset),
                        (first.end_lineno or 0, first.end_col_offset or 0),
                    )
                )
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            row, column = token.start
            start = len(text[row - 1][:column].encode())
            left_out.append(((row, start), (row, start + len(token.string.encode()))))
    for (row, column), (end_row, end_column) in sorted(left_out, reverse=True):
        before, after = lines[row - 1][:column], lines[end_row - 1][end_column:]
        lines[row - 1 : end_row] = [before + after, *[b""] * (end_row - row)]
    return hashlib.sha256(b"".join(b"".join(lines).split())).hexdigest()[:12]


@cache
def digest_of_file(file: str) -> str:
    return digest_of((ROOT / file).read_text(encoding="utf-8"))


def changed(text: str) -> dict[str, str]:
    """Give the files whose code is not what their sketch was read against, with the digest of
    today."""
    return {
        one.file: digest_of_file(one.file)
        for one in sketches(text)
        if digest_of_file(one.file) != one.digest
    }


def test_every_sketch_was_read_against_the_code_as_it_is() -> None:
    found = changed(PAGE.read_text(encoding="utf-8"))
    assert not found, (
        f"the code of {', '.join(found)} has changed: read its proof sketch in docs/privacy.md again, mend it if it no "
        "longer holds, then run `make proofs` and commit the page"
    )


def test_every_mechanism_has_one_sketch() -> None:
    """The names are the registries': a new mechanism needs a sketch."""
    about = [name for one in sketches(PAGE.read_text(encoding="utf-8")) for name in one.about]
    for mechanism in mechanism_audits(epsilon=1.0, delta=1e-6):
        told = [
            name for name in about if name != "counter" and f"{mechanism}.".startswith(f"{name}.")
        ]
        assert len(told) == 1, (
            f"{mechanism} must have one proof sketch in docs/privacy.md, got {told}"
        )


def test_a_sketch_names_code_that_is_there_and_says_why() -> None:
    found = sketches(PAGE.read_text(encoding="utf-8"))
    assert len(found) > 20
    assert len(
        re.findall(r"`[0-9a-f]{12}` \|$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    ) == len(found)
    for one in found:
        source = (ROOT / one.file).read_text(encoding="utf-8")
        defined = {
            node.name
            for node in ast.parse(source).body
            if isinstance(node, ast.ClassDef | ast.FunctionDef)
        }
        assert set(one.names) <= defined, one.file
        assert len(one.why) > 30, one.file


CODE = '"""A file."""\n\ndef f(x):\n    """Do."""\n    return x + 1  # why\n'


@pytest.mark.parametrize(
    ("other", "same"),
    [
        ("def f(x):\n    return x + 1\n", True),
        ('def f(\n    x\n):\n    "Ünï."\n    # why\n    return x + 1\n', True),
        ("def f(x):\n    return x + 2\n", False),
        ('def f(x):\n    return "# no comment"\n', False),
    ],
)
def test_a_digest_is_of_the_code_alone(other: str, same: bool) -> None:
    assert (digest_of(CODE) == digest_of(other)) is same


def test_a_changed_file_is_named() -> None:
    text = PAGE.read_text(encoding="utf-8")
    first = sketches(text)[0]
    assert first.file in changed(text.replace(first.digest, "0" * 12, 1))


if __name__ == "__main__":
    page = PAGE.read_text(encoding="utf-8")
    for file, digest in changed(page).items():
        page = re.sub(
            rf"(\({re.escape(f'../{file}')}\).*)`[0-9a-f]{{12}}` \|", rf"\1`{digest}` |", page
        )
        print(f"{file}: as of {digest}")  # noqa: T201 - what it is for
    PAGE.write_text(page, encoding="utf-8")

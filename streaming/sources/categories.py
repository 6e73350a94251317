"""Declared categories of a column: their names, and the number of each text."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

from meanstream.operators.rounds.round_grids import MAX_CATEGORIES
from meanstream.operators.validation import require
from meanstream.streaming.events.base import MAX_NAME

OTHER = "=*"
"""A category that is declared as `NAME=*` takes every text that is no other category."""

FILES = (".txt",)
_MOST_BYTES = 4 * MAX_NAME * MAX_CATEGORIES


def read_categories(text: str) -> tuple[str, ...]:
    """Read `a,b,c`, or `FILE.txt` with one category per line.

    Raises
    ------
    ValueError
        If they cannot be categories.

    Examples
    --------
    >>> read_categories("phone, desktop, other=*")
    ('phone', 'desktop', 'other=*')
    """
    if text.endswith(FILES):
        path = Path(text)
        readable = path.is_file() and path.stat().st_size <= _MOST_BYTES
        require(
            readable, "categories", f"be a,b,c or a file of at most {_MOST_BYTES:,} bytes", text
        )

        try:
            lines = path.read_text("utf-8-sig").splitlines()
        except UnicodeDecodeError:
            raise ValueError(f"categories must be a file of UTF-8, got {text!r}") from None

        found = [line.strip() for line in lines if line.strip()]
    else:
        found = [name.strip() for name in text.strip("[]()").split(",")]

    return require_categories(found)


def require_categories(entries: Sequence[str]) -> tuple[str, ...]:
    """Refuse what cannot be categories; give them as a tuple.

    Examples
    --------
    >>> require_categories(["a", "a"])
    Traceback (most recent call last):
    ValueError: categories must be different, got 'a' twice
    """
    texts = not isinstance(entries, str) and all(isinstance(entry, str) for entry in entries)
    require(
        texts,
        "categories",
        "be a sequence of texts",
        entries if isinstance(entries, str) else "others",
    )
    require(
        2 <= len(entries) <= MAX_CATEGORIES, "categories", f"be 2 to {MAX_CATEGORIES}", len(entries)
    )
    names = category_names(entries)

    for name in names:
        shaped = 0 < len(name) <= MAX_NAME and name.isprintable() and name == name.strip()
        rule = f"be of 1 to {MAX_NAME} printable characters, without spaces around them"
        require(shaped, "categories", rule, name[:60])

        if names.count(name) > 1:
            raise ValueError(f"categories must be different, got {name!r} twice")

    others = [entry for entry in entries if entry.endswith(OTHER)]
    require(len(others) <= 1, "categories", f"have at most one NAME{OTHER}", ", ".join(others))
    return tuple(entries)


def category_names(entries: Sequence[str]) -> list[str]:
    """Give the names alone.

    Examples
    --------
    >>> category_names(("phone", "other=*"))
    ['phone', 'other']
    """
    return [entry.removesuffix(OTHER) for entry in entries]


class CategoryNumbers:
    """Private: numbers of texts, by their category.

    Parameters
    ----------
    entries : sequence of str
        As declared.

    Examples
    --------
    >>> numbers = CategoryNumbers(("phone", "other=*"))
    >>> numbers.of(b" phone "), numbers.of(b"tablet"), CategoryNumbers(("a", "b")).of(b"c")
    (0.0, 1.0, nan)
    """

    def __init__(self, entries: Sequence[str]) -> None:
        self._number = {
            name.encode(): float(number) for number, name in enumerate(category_names(entries))
        }
        other = [number for number, entry in enumerate(entries) if entry.endswith(OTHER)]
        self._other = float(other[0]) if other else math.nan

    def of(self, text: bytes) -> float:
        """Give the number of a text's category, from 0; nan where it has none."""
        return self._number.get(text.strip(), self._other)

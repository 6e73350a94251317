"""What the tables of a store hold, in a few bytes: how many rows, and the sum of their marks."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Any

_MODULUS = 2**128


def content_mark(key: str, content: bytes) -> int:
    """Reduce a row, by its key and its content, to a number of 128 bits."""
    return int.from_bytes(
        hashlib.blake2b(key.encode() + b"\0" + content, digest_size=16).digest(), "big"
    )


class Contents:
    """Number of rows and sum of marks per group of rows.

    Sealed in each commit, it finds changed, lost and added rows.

    A sum follows rows that come and go without a look at the others. It finds faults, not a forger:
    anyone who can write the file can also compute the sum. For the ledger there is a chain.

    Examples
    --------
    >>> contents = Contents()
    >>> rows = [content_mark("ann", b"1"), content_mark("bob", b"2")]
    >>> contents.add("names", rows)
    >>> contents.agrees("names", rows), contents.agrees("names", rows[:1])
    (True, False)
    >>> contents.remove("names", rows[1:])
    >>> contents.agrees("names", rows[:1])
    True
    """

    def __init__(self, plain: dict[str, Any] | None = None) -> None:
        self._groups = {
            name: (rows, int(total, 16)) for name, (rows, total) in (plain or {}).items()
        }

    def add(self, group: str, marks: Iterable[int]) -> None:
        """Count new rows in."""
        self._change(group, list(marks), 1)

    def remove(self, group: str, marks: Iterable[int]) -> None:
        """Count rows out."""
        self._change(group, list(marks), -1)

    def agrees(self, group: str, marks: Iterable[int]) -> bool:
        """Say whether these are the marks of all rows of a group."""
        found = list(marks)
        return self._groups.get(group, (0, 0)) == (len(found), sum(found) % _MODULUS)

    def groups(self) -> list[str]:
        """List the groups that have rows."""
        return list(self._groups)

    def plain(self) -> dict[str, Any]:
        """Give the groups that have rows, as plain values."""
        return {name: (rows, f"{total:032x}") for name, (rows, total) in self._groups.items()}

    def _change(self, group: str, marks: list[int], sign: int) -> None:
        rows, total = self._groups.pop(group, (0, 0))
        rows, total = rows + sign * len(marks), (total + sign * sum(marks)) % _MODULUS
        if rows or total:
            self._groups[group] = (rows, total)

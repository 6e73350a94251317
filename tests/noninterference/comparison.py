"""What was seen in two worlds, compared to the byte; and the sum of all that was compared."""

from __future__ import annotations

import re
from dataclasses import dataclass

import msgspec

from tests.noninterference.surfaces import PRIVATE_FIGURES

Seen = dict[str, bytes]
"""What was seen on each surface, over the whole life of a world."""


@dataclass
class Totals:
    """Of the worlds that have to be equal; `python -m tests.noninterference` prints them."""

    worlds: int = 0
    surfaces: int = 0
    bytes: int = 0
    differing: int = 0


TOTALS = Totals()


def nothing_differs(first: Seen, *others: Seen) -> bool:
    """Compare a world with others that differ from it in what nobody else may learn; say on which
    surface they differ.

    Raises
    ------
    AssertionError
        If a byte differs.
    """
    TOTALS.worlds += 1
    for other in others:
        compared = Compared(first, other)
        TOTALS.worlds += 1
        TOTALS.surfaces += compared.surfaces
        TOTALS.bytes += compared.bytes
        TOTALS.differing += sum(compared.values())
        if compared:
            raise AssertionError(
                "\n".join(f"{name}: {_where(first[name], other[name])}" for name in compared)
            )
    return True


def _where(one: bytes, other: bytes) -> str:
    """Show two surfaces around the first byte that differs."""
    pairs = enumerate(zip(one, other, strict=False))
    at = next((i for i, (a, b) in pairs if a != b), min(len(one), len(other)))
    shown = slice(max(at - 120, 0), at + 60)
    return f"{one[shown]!r} is {other[shown]!r}"


def of_others(seen: Seen, changed: str) -> Seen:
    """Leave out what is addressed to the one whose datum differs, and what is the operator's."""
    mine = re.compile(rb'^.*"agent":\s?"%b".*$\n?' % re.escape(changed).encode(), re.MULTILINE)
    shown: Seen = {}
    for name, data in seen.items():
        if name.startswith(("file estimates.", "topic estimates")):
            shown[name] = mine.sub(b"", data)
        elif name == "GET /data of the page":
            shown[name] = _public_figures(data)
        elif f"name={changed} " not in name:
            shown[name] = data
    return shown


def _public_figures(data: bytes) -> bytes:
    """The page's data without the operator's figures, and without the length that these decide."""
    kept = []
    for line in data.splitlines():
        if line.startswith(b"Content-Length"):
            continue
        figures = msgspec.json.decode(line) if line.startswith(b"{") else None
        shown = figures and {
            name: value for name, value in figures.items() if name not in PRIVATE_FIGURES
        }
        kept.append(msgspec.json.encode(shown) if shown else line)
    return b"\n".join(kept)


class Compared(dict[str, int]):
    """Bytes that differ, by surface; only the surfaces on which some do."""

    surfaces = 0
    bytes = 0

    def __init__(self, first: Seen, other: Seen) -> None:
        super().__init__()
        assert first.keys() == other.keys()
        for name, data in first.items():
            there = other[name]
            differing = (
                sum(a != b for a, b in zip(data, there, strict=False)) if data != there else 0
            )
            if data != there:
                self[name] = differing + abs(len(data) - len(there))
        self.surfaces, self.bytes = len(first), sum(map(len, first.values()))

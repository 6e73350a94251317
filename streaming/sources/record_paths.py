"""Names of fields to places in nested records.

`data.delay`, and where the rest of a sample lies.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from meanstream.operators.validation import require

Path = tuple[str, ...]
"""Names of fields, from the outermost one in."""

Places = tuple[Path, ...]
"""Where a part of a sample may be; the first place that holds something decides."""

MAX_PATH = 16
"""Names of a path, at most."""


class Ambiguous(dict[str, Any]):
    """A JSON object that holds some fields twice: which one is meant is unknown.

    Attributes
    ----------
    twice : frozenset of str
        Those fields.
    """

    twice: frozenset[str] = frozenset()


def field_paths(name: str, within: Path = ()) -> Places:
    """Find where a field may be: under its whole name, and where the name has dots, along the path.

    Examples
    --------
    >>> field_paths("delay"), field_paths("data.delay"), field_paths(".@timestamp")
    ((('delay',),), (('data.delay',), ('data', 'delay')), (('@timestamp',),))
    """
    if name.startswith("."):
        return ((*within, name[1:]),)
    whole = (*within, name)
    path = (*within, *name.split("."))

    if len(path) == len(whole) or not all(path):
        return (whole,)
    require(len(path) <= MAX_PATH, "path", f"have at most {MAX_PATH} names", name)
    return whole, path


def require_apart(places: Mapping[str, Places]) -> None:
    """Refuse parts of a sample of which one holds another.

    Examples
    --------
    >>> require_apart({"agent": field_paths("data"), "value": field_paths("data.delay")})
    Traceback (most recent call last):
    ValueError: value must not lie within agent, got 'data.delay' within 'data'
    """
    every = [(part, path) for part, several in places.items() for path in several]
    for part, path in every:
        for other, outer in every:
            if len(outer) < len(path) and path[: len(outer)] == outer:
                raise ValueError(
                    f"{part} must not lie within {other}, got {'.'.join(path)!r} within {'.'.join(outer)!r}"
                )


def find_value(record: Mapping[str, Any], places: Iterable[Path]) -> Any:
    """Give what is at the first place that holds something; None if none does."""
    for path in places:
        found = _follow(record, path)
        if found is not None:
            return found

    return None


def _follow(record: Any, path: Path) -> Any:
    found = record
    for name in path:
        if found is None:
            return None
        if not isinstance(found, Mapping):
            raise TypeError(name)
        if isinstance(found, Ambiguous) and name in found.twice:
            raise LookupError(name)

        found = found.get(name)

    return found

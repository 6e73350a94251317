"""One message format for a bad parameter: its name, the rule, the value found (never a datum)."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from numbers import Integral, Real
from typing import Any
from unicodedata import is_normalized

_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?", re.ASCII | re.IGNORECASE)
MAX_NAME = 64
"""Greatest length of the name of a deployment, in characters."""
LONGEST_TEXT = 1000
"""Characters of a value that an error shows."""


def require(ok: bool, name: str, rule: str, value: object) -> None:
    """Raise `ValueError` naming the parameter, the rule and the value unless `ok`.

    Examples
    --------
    >>> require(-1.0 > 0, "epsilon", "be positive", -1.0)
    Traceback (most recent call last):
    ValueError: epsilon must be positive, got -1.0
    """
    if not ok:
        raise ValueError(f"{name} must {rule}, got {value_text(value)}")


def value_text(value: object) -> str:
    """Write a value as it was typed: a path is a text here, and no text is longer than a screen.

    Examples
    --------
    >>> from pathlib import Path
    >>> value_text(Path("a.csv")), value_text(-1.0), value_text("x" * 5000)[-24:]
    ("'a.csv'", '-1.0', ' ... of 5,002 characters')
    """
    try:
        text = repr(os.fspath(value) if isinstance(value, os.PathLike) else value)
    except ValueError:  # of more digits than Python writes
        return "a number of thousands of digits"

    if len(text) <= LONGEST_TEXT:
        return text
    return f"{text[:LONGEST_TEXT]} ... of {len(text):,} characters"


def require_positive(**parameters: float) -> None:
    """Refuse every parameter that is not positive and finite."""
    for name, value in parameters.items():
        require(math.isfinite(value) and value > 0, name, "be positive and finite", value)


LARGEST = 1e30
"""Of made-up data: squares of larger numbers times squares of noise, or of much smaller ones, are
no floats."""


def require_size(**parameters: float) -> None:
    """Refuse every parameter that is not positive, or whose square arithmetic in floats cannot take."""
    require_positive(**parameters)
    for name, value in parameters.items():
        require(
            1 / LARGEST <= value <= LARGEST, name, f"be from {1 / LARGEST:g} to {LARGEST:g}", value
        )


def require_epsilon(epsilon: float, *, least: float = 1e-100) -> None:
    """Refuse an epsilon that arithmetic in floats cannot take, or that no noise is known for."""
    require_positive(epsilon=epsilon)
    require(least <= epsilon <= 1e100, "epsilon", f"be from {least:g} to 1e100", epsilon)


def require_least(least: float, **parameters: float) -> None:
    """Refuse every parameter below a number."""
    for name, value in parameters.items():
        require(value >= least, name, f"be at least {least}", value)


def require_between(low: float, high: float, **parameters: float) -> None:
    """Refuse every parameter outside the open interval (low, high)."""
    for name, value in parameters.items():
        require(low < value < high, name, f"lie strictly between {low} and {high}", value)


def require_version(state: Mapping[str, Any], version: int) -> None:
    """Refuse a snapshot of another version."""
    got = int(state["version"])
    require(got == version, "snapshot version", f"be {version}", got)


def require_bounds(lower: float, upper: float) -> None:
    """Refuse declared bounds that are not finite or not in order."""
    require(math.isfinite(lower), "lower", "be finite", lower)
    require(math.isfinite(upper), "upper", "be finite", upper)
    require(lower < upper, "lower", f"be below upper ({upper!r})", lower)


def valid_float(name: str, value: object) -> float:
    """Give a number its one spelling.

    An int, a NumPy scalar or a text such as "-30" become the float.

    Examples
    --------
    >>> valid_float("lower", "-30"), valid_float("lower", -30), valid_float("lower", -0.0)
    (-30.0, -30.0, 0.0)
    """
    if isinstance(value, str) and _NUMBER.fullmatch(value.strip()):
        return float(value) + 0.0
    require(not isinstance(value, bool) and isinstance(value, Real), name, "be a number", value)
    try:
        return float(value) + 0.0  # type: ignore[arg-type]  # -0.0 is 0.0
    except OverflowError:
        raise ValueError(f"{name} must be below 1.8e308, got {value_text(value)}") from None


def valid_floats(name: str, values: object) -> list[float]:
    """Give each number of a sequence its one spelling.

    Examples
    --------
    >>> valid_floats("exceeds", [30, "15"])
    [30.0, 15.0]
    >>> valid_floats("quantiles", 0.5)
    Traceback (most recent call last):
    ValueError: quantiles must be a sequence of numbers, such as [0.5], got 0.5
    """
    listed = isinstance(values, Iterable) and not isinstance(values, str | bytes)
    require(listed, name, "be a sequence of numbers, such as [0.5]", values)
    return [valid_float(name, value) for value in values]  # type: ignore[attr-defined]


def valid_int(name: str, value: object) -> int:
    """Give a whole number its one spelling, also `40.0` and "40"."""
    if not isinstance(value, bool) and isinstance(value, Integral):
        return int(value)
    number = valid_float(name, value)
    require(number.is_integer(), name, "be a whole number", value)

    return int(number)


def require_name(name: str) -> None:
    """Refuse a name of a deployment that could not stand in the id of a release.

    Examples
    --------
    >>> require_name("clinics/2026")
    Traceback (most recent call last):
    ValueError: name must be 1 to 64 printable characters in Unicode's NFC, without '/', got 'clinics/2026'
    """
    ok = (
        isinstance(name, str)
        and 0 < len(name) <= MAX_NAME
        and name.isprintable()
        and "/" not in name
        and is_normalized("NFC", name)
    )
    require(
        ok and bool(name.strip()),
        "name",
        f"be 1 to {MAX_NAME} printable characters in Unicode's NFC, without '/'",
        name,
    )


def printable(text: str) -> str:
    r"""Write a name so that a terminal shows it as it is.

    What is invisible, or turns text around, is written out.

    Examples
    --------
    >>> print(printable("Zoë"), printable("ab\u202ecd\u200b"))
    Zoë ab\u202ecd\u200b
    """
    if text.isprintable():
        return text
    return "".join(
        one if one.isprintable() else one.encode("unicode_escape").decode() for one in text
    )


def closest_valid(name: str, known: Sequence[str], *, listed: str = "known:") -> str:
    """Say which known name is meant by a misspelled one, to end a message with.

    Examples
    --------
    >>> closest_valid("tailnumber", ["tailnum", "carrier"])
    "; did you mean 'tailnum'?"
    >>> closest_valid("altitude", ["tailnum", "carrier"])
    '; known: tailnum, carrier'
    """
    match = get_close_matches(name, known, n=1)

    if match:
        return f"; did you mean {match[0]!r}?"
    return f"; {listed} {', '.join(map(printable, known[:20])) or 'none'}"

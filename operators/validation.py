"""One message format for a bad parameter: its name, the rule, the value found (never a datum)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from difflib import get_close_matches


def require(ok: bool, name: str, rule: str, value: object) -> None:
    """Raise `ValueError` naming the parameter, the rule and the value unless `ok`.

    Examples
    --------
    >>> require(-1.0 > 0, "epsilon", "be positive", -1.0)
    Traceback (most recent call last):
    ValueError: epsilon must be positive, got -1.0
    """
    if not ok:
        raise ValueError(f"{name} must {rule}, got {value!r}")


def require_positive(**parameters: float) -> None:
    """Refuse every parameter that is not positive and finite."""
    for name, value in parameters.items():
        require(math.isfinite(value) and value > 0, name, "be positive and finite", value)


def require_between(low: float, high: float, **parameters: float) -> None:
    """Refuse every parameter outside the open interval (low, high)."""
    for name, value in parameters.items():
        require(low < value < high, name, f"lie strictly between {low} and {high}", value)


def require_bounds(lower: float, upper: float) -> None:
    """Refuse declared bounds that are not finite or not in order."""
    require(math.isfinite(lower), "lower", "be finite", lower)
    require(math.isfinite(upper), "upper", "be finite", upper)
    require(lower < upper, "lower", f"be below upper ({upper!r})", lower)


def closest(name: str, known: Sequence[str], *, listed: str = "known:") -> str:
    """Say which known name is meant by a misspelled one, to end a message with.

    Examples
    --------
    >>> closest("tailnumber", ["tailnum", "carrier"])
    "; did you mean 'tailnum'?"
    >>> closest("altitude", ["tailnum", "carrier"])
    '; known: tailnum, carrier'
    """
    match = get_close_matches(name, known, n=1)
    return f"; did you mean {match[0]!r}?" if match else f"; {listed} {', '.join(known[:20]) or 'none'}"

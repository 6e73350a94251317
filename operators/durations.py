"""Durations as they are typed and shown: 30s, 15m, 6h, 7d, 2w."""

from __future__ import annotations

import math

from meanstream.operators.validation import require

DURATION_RULE = "be a duration such as 90s, 15m (minutes), 1h, 1d or 2w"
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}


def duration_text(seconds: float) -> str:
    """Give the one text of a duration, which `parse_duration` reads.

    In the largest of d, h, m, s that divides it.

    Examples
    --------
    >>> duration_text(3600.0), duration_text(7 * 86400), duration_text(1.5)
    ('1h', '7d', '1.5s')
    """
    unit = next((u for u in ("d", "h", "m") if seconds % _UNITS[u] == 0), "s")
    number = repr(float(seconds / _UNITS[unit])).removesuffix(".0")
    return f"{number}{unit}"


def parse_duration(name: str, text: str) -> float:
    """Return the seconds that a text such as `90s`, `15m`, `1h`, `1d` or `2w` names.

    `15min` is `15m`.

    Examples
    --------
    >>> parse_duration("lateness", "1.5h"), parse_duration("lateness", "2min")
    (5400.0, 120.0)
    """
    short = text.removesuffix("in") if text.endswith("min") else text
    try:
        seconds = float(short[:-1]) * _UNITS[short[-1:]]
    except (ValueError, KeyError):
        seconds = math.nan

    require(math.isfinite(seconds) and seconds >= 0, name, DURATION_RULE, text)
    return seconds

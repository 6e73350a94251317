"""Numbers as others write them, to floats: a number beyond all floats is still a number."""

from __future__ import annotations

import re
import sys

NUMBER = re.compile(r"[+-]?(\d++\.?\d*+|\.\d++)([eE][+-]?\d++)?", re.ASCII)
"""A decimal number. It gives nothing back: of megabytes of digits with a letter after them it fails
at once."""

MOST_DIGITS = 320
"""A whole number of more digits is beyond all floats, and too long for a name or an id."""

LARGEST = sys.float_info.max


def nearest_float_number(text: str) -> float:
    """Read a decimal number; of one beyond all floats, the largest one of its sign.

    Whether a sample is one is public and its value is not: that must follow from its form, not from
    its size.

    Examples
    --------
    >>> nearest_float_number("2.5"), nearest_float_number("-1e400"), nearest_float_number("1" + "0" * 400)
    (2.5, -1.7976931348623157e+308, 1.7976931348623157e+308)
    """
    return min(max(float(text), -LARGEST), LARGEST)


def whole_number(text: str) -> int | float:
    """Read a whole number; one of too many digits as a float.

    Examples
    --------
    >>> whole_number("-12"), whole_number("9" * 5000)
    (-12, 1.7976931348623157e+308)
    """
    if len(text) <= MOST_DIGITS:
        return int(text)
    return nearest_float_number(text)

"""Settings that are handed on: one that nobody has is told by the name of the function that was called."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields
from typing import Any


def check_given(function: str, settings: type[Any], given: Iterable[str]) -> None:
    """Refuse what is no field of some settings, as Python refuses an argument.

    Raises
    ------
    TypeError
        If there is one.
    """
    known = [field.name for field in fields(settings)]
    for name in given:
        if name not in known:
            raise TypeError(f"{function}() got an unexpected argument {name!r}: it may be one of {', '.join(known)}")

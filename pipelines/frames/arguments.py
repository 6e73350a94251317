"""Settings that are passed on.

A misspelled one gets a suggestion and the list of what the function accepts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from difflib import get_close_matches
from inspect import Parameter, signature
from typing import Any

from meanstream.operators.validation import require


def require_numbers(**values: Any) -> None:
    """Refuse a text in place of a number, which would be read as one elsewhere.

    Examples
    --------
    >>> require_numbers(lower=0, epsilon="1")
    Traceback (most recent call last):
    ValueError: epsilon must be a number, got the text '1'
    """
    for name, value in values.items():
        if isinstance(value, str | bytes):
            raise ValueError(f"{name} must be a number, got the text {value!r}")


def require_texts(**values: Any) -> None:
    """Refuse what is no text where a name or a duration is needed.

    Examples
    --------
    >>> require_texts(time="at", window=7)
    Traceback (most recent call last):
    ValueError: window must be text, got 7
    """
    for name, value in values.items():
        require(isinstance(value, str), name, "be text", value)


def require_columns(option: str, names: Any) -> None:
    """Refuse what names no columns.

    Examples
    --------
    >>> require_columns("by", None)
    Traceback (most recent call last):
    ValueError: by must be the name of a column or several, got None
    """
    require(isinstance(names, Iterable), option, "be the name of a column or several", names)


def check_arguments(
    function: Callable[..., Any],
    more: Iterable[str],
    given: Iterable[str],
    hints: Mapping[str, str] | None = None,
) -> None:
    """Refuse an argument that a function does not have, as Python does, and say which one is close.

    Examples
    --------
    >>> def means(frame, *, quantiles=(), **settings): ...
    >>> check_arguments(means, ["noise"], ["quantile"])
    Traceback (most recent call last):
    TypeError: means() got an unexpected argument 'quantile'; did you mean 'quantiles'?
    """
    own = [
        name
        for name, one in signature(function).parameters.items()
        if one.kind is not Parameter.VAR_KEYWORD
    ]
    known = [*own, *(name for name in more if name not in own)]

    for name in given:
        if name in known:
            continue
        said = f"{function.__name__}() got an unexpected argument {name!r}"
        close = get_close_matches(name, known, n=1)

        if hints and name in hints:
            raise TypeError(f"{said}: {hints[name]}")
        if close:
            raise TypeError(f"{said}; did you mean {close[0]!r}?")

        raise TypeError(f"{said}; it accepts {', '.join(known)}")

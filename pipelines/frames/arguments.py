"""Settings that are passed on.

A misspelled one gets a suggestion and the list of what the function accepts.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Iterable, Mapping
from difflib import get_close_matches
from functools import wraps
from inspect import Parameter, signature
from typing import Any, ParamSpec, TypeVar

from meanstream.operators.validation import require
from meanstream.streaming.store.secret_source import require_secret_key

Accepted = ParamSpec("Accepted")
Answer = TypeVar("Answer")
FRAME_NEEDS = {
    "by": "the column of groups",
    "value": "the column of numbers",
    "time": "the column of event times",
    "lower": "the lower bound of a value, chosen without a look at the data",
    "upper": "the upper bound of a value, chosen without a look at the data",
    "epsilon": "the privacy budget",
}
"""What arguments of frames are, to say which one is missing."""


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
    parameters = [
        name
        for name, parameter in signature(function).parameters.items()
        if parameter.kind is not Parameter.VAR_KEYWORD
    ]
    known = [*parameters, *(name for name in more if name not in parameters)]

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


def named_arguments(
    needs: Mapping[str, str], hints: Mapping[str, str] | None = None
) -> Callable[[Callable[Accepted, Answer]], Callable[Accepted, Answer]]:
    """Decorate a function of a frame: a missing or unknown argument is answered with what it is.

    Examples
    --------
    >>> @named_arguments({"spread": "your guess at how far means differ"})
    ... def plan(frame, *, spread): ...
    >>> plan({})
    Traceback (most recent call last):
    TypeError: plan() needs spread=, your guess at how far means differ
    >>> plan({}, "group")
    Traceback (most recent call last):
    TypeError: plan() takes the frame alone by position: name the others, such as spread=...
    """
    said = {**FRAME_NEEDS, **needs}

    def decorate(function: Callable[Accepted, Answer]) -> Callable[Accepted, Answer]:
        parameters = signature(function).parameters
        needed = [name for name in said if _has_no_default(parameters.get(name))]
        open_ended = any(
            parameter.kind is Parameter.VAR_KEYWORD for parameter in parameters.values()
        )

        @wraps(function)
        def checked(*args: Accepted.args, **kwargs: Accepted.kwargs) -> Answer:
            if not open_ended:
                check_arguments(function, (), kwargs, hints)
            if len(args) > 1:
                first = f"{function.__name__}() takes the frame alone by position"
                raise TypeError(f"{first}: name the others, such as {needed[0]}=...")

            missing = next((name for name in needed if name not in kwargs), None)
            if missing is not None:
                raise TypeError(f"{function.__name__}() needs {missing}=, {said[missing]}")

            return function(*args, **kwargs)

        return checked

    return decorate


def _has_no_default(parameter: Parameter | None) -> bool:
    return parameter is not None and parameter.default is Parameter.empty


NAME = "frame"
"""Of a deployment whose key no one keeps."""


def frame_key(secret: str | bytes | None, name: str | None) -> tuple[bytes, str]:
    """Give a key and a name of the deployment.

    Those that were given, or random bits that no one keeps.
    """
    if secret is None:
        return secrets.token_hex(32).encode(), name or NAME
    if name is None:
        raise ValueError(
            "name must be given with secret, since it separates deployments with one key, got None"
        )

    # Not the key itself: an error is no place for it.
    if not isinstance(secret, str | bytes):
        raise ValueError(f"secret must be text or bytes, got {type(secret).__name__}")

    try:
        return require_secret_key(os.fsencode(secret), "secret"), name
    except UnicodeEncodeError:
        raise ValueError("secret must be text that UTF-8 can hold, got another") from None

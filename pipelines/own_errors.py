"""What an error may say where others read it.

Of one of ours its text, of any other its type and its place.
"""

from __future__ import annotations

import dis
import os
import sys
import traceback
from pathlib import Path
from typing import Any

import meanstream

PACKAGE = meanstream.__name__
HOMES = tuple(
    (Path(meanstream.__file__).parent / folder).resolve()
    for folder in ("", "operators", "streaming", "pipelines")
)
"""The folders of this package, whose errors say what they may say: never a datum. In a checkout
three are links."""

_RAISE = dis.opmap["RAISE_VARARGS"]


def describe_own_error(error: BaseException) -> dict[str, str]:
    """Say what kind of error it is and where it was raised; its message only if it is one of ours.

    Examples
    --------
    >>> from meanstream.streaming.store.state_store import StoreError
    >>> describe_own_error(ValueError("could not convert 12.5")), describe_own_error(StoreError("store must be a file"))
    ({'error': 'ValueError'}, {'error': 'StoreError', 'reason': 'store must be a file'})
    """
    said = {"error": type(error).__name__}
    if is_own_error(error):
        said["reason"] = " ".join(str(error).split())
    elif isinstance(error, OSError) and isinstance(error.errno, int):
        said["reason"] = os.strerror(error.errno)  # its own words could be anyone's

    frames = traceback.extract_tb(error.__traceback__)
    if frames:
        said["at"] = f"{Path(frames[-1].filename).name}:{frames[-1].lineno} {frames[-1].name}"

    return said


def is_own_error(error: BaseException) -> bool:
    """Say whether an error's class is one of this package.

    Found under its name in a module that lies in its folder.

    Examples
    --------
    >>> from meanstream.streaming.store.state_store import StoreError
    >>> is_own_error(StoreError("store must be a file")), is_own_error(ValueError("12.5"))
    (True, False)
    """
    kind = type(error)
    if kind.__module__.partition(".")[0] != PACKAGE:
        return False
    module: Any = sys.modules.get(kind.__module__)
    file = getattr(module, "__file__", None)

    if file is None or not _is_at_home(file):
        return False
    found = module
    for name in kind.__qualname__.split("."):
        found = getattr(found, name, None)

    return found is kind


def is_own_error_raised(error: BaseException) -> bool:
    """Say whether a statement `raise` of this package made an error, whatever its class.

    What it says is ours then.

    What a line of this package calls may fail in C, which has no frame of its own: such an error is
    foreign.

    Examples
    --------
    >>> from meanstream.operators.validation import require
    >>> try:
    ...     require(False, "shards", "be 8", 4)
    ... except ValueError as error:
    ...     print(is_own_error_raised(error))
    True
    """
    place = error.__traceback__
    while place is not None and place.tb_next is not None:
        place = place.tb_next

    if place is None:
        return False
    code = place.tb_frame.f_code
    return code.co_code[place.tb_lasti] == _RAISE and _is_at_home(code.co_filename)


def _is_at_home(file: str) -> bool:
    """Whether a file lies in a folder of this package."""
    return any(Path(file).resolve().is_relative_to(home) for home in HOMES)

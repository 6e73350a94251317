"""How much of a worker's cache a state takes.

Told by its length where it is bytes, as all state of ours is.

Beam (2.77) weighs whatever it caches by a walk over the globals of all modules that are loaded: 2
ms for each read and write of a state, whatever its size, which is more than all of our work on it.
"""

from __future__ import annotations

import sys
from typing import Any

from apache_beam.runners.worker import statecache

_PLAIN = (bytes, int, float, str, bool, type(None))


def weigh_state_by_length() -> None:
    """Let this worker's cache weigh lists of bytes by their lengths; anything else as it did."""
    whole = getattr(statecache, "get_deep_size", None)
    if whole is None or getattr(whole, "by_length", False):
        return

    def weight(*values: Any) -> int:
        found = 0
        for value in values:
            one = _length(value)
            if one is None:
                return int(whole(*values))
            found += one

        return found

    weight.by_length = True  # type: ignore[attr-defined]
    statecache.get_deep_size = weight


def _length(value: Any) -> int | None:
    """Add up lists of plain values; None for anything else.

    Examples
    --------
    >>> _length([b"a" * 1000]) > 1000, _length([object()])
    (True, None)
    """
    if isinstance(value, _PLAIN):
        return sys.getsizeof(value)
    if type(value) not in {list, tuple}:
        return None

    parts = [_length(one) for one in value]

    if None in parts:
        return None
    return sys.getsizeof(value) + sum(part for part in parts if part is not None)

"""Designing an estimator for so many users, from the protocol of its rounds."""

from __future__ import annotations

import json
from functools import lru_cache
from typing import Any

import numpy as np

from operators.rounds import Estimator, build_estimator
from operators.validation import require

UNKNOWN_SIZES = "unknown"
"""As a law of sizes: it is not known, and the estimator asks for it."""


def canonical(value: Any) -> bytes:
    """Plain data as bytes: equal data, equal bytes."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), default=_plain).encode()


def _plain(value: Any) -> Any:
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    raise TypeError(f"public data must be plain, got {type(value).__name__}")


MOST_LEAST = 2**20
"""An estimator that cannot be designed for so many users cannot be designed: one of its options is wrong."""


@lru_cache(maxsize=64)
def least_users(protocol: bytes) -> int:
    """Find a number of users, a power of two, that the estimator can be designed for: most need one, vectors more."""
    users = 1
    while True:
        try:
            designed(protocol, users)
        except ValueError:
            if users >= MOST_LEAST:
                raise
            users *= 2
        else:
            return users


@lru_cache(maxsize=64)
def designed(protocol: bytes, users: int) -> Estimator:
    """Design an estimator, once for each protocol (as `canonical` gives it) and number of users."""
    s = json.loads(protocol)
    options: dict[str, Any] = {"mode": s["mode"], "level": s["level"], **s["options"]}
    if s.get("values") is not None:
        options["dimension"] = len(s["values"])
    if s["sizes"] is not None:
        from streaming.sizes_file import read_sizes

        unknown = s["sizes"] == UNKNOWN_SIZES
        require(not unknown or s["estimator"] == "plan", "sizes", "be known unless the estimator is 'plan'", s["sizes"])
        options["sizes"] = UNKNOWN_SIZES if unknown else read_sizes(s["sizes"])
    if s["between_users"] is not None:
        # Coordinates of different widths: the bound holds for all on the scale of the narrowest.
        width = np.min(np.asarray(s["upper"], np.float64) - np.asarray(s["lower"], np.float64))
        options["between_users"] = s["between_users"] / (float(width) / 2)
    return build_estimator(s["estimator"], epsilon=s["epsilon"], users=users, **options)

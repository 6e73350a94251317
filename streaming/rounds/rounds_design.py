"""Designing an estimator for that many users, from the protocol of its rounds."""

from __future__ import annotations

import json
from functools import lru_cache
from typing import Any

import numpy as np

from meanstream.operators.estimators.registry import (
    ESTIMATORS,
    build_estimator,
    build_estimator_of_budget,
    estimator_class,
)
from meanstream.operators.noise.window_budget import WindowBudget
from meanstream.operators.rounds.round_protocol import Estimator
from meanstream.operators.validation import require

UNKNOWN_SIZES = "unknown"
"""As a law of sizes: it is not known, and the estimator asks for it."""


MOST_LEAST = 2**20
"""An estimator that cannot be designed for that many users cannot be designed: one of its options
is wrong."""


@lru_cache(maxsize=64)
def design_least_users(protocol: bytes) -> int:
    """Find a number of users, a power of two, that the estimator can be designed for.

    Most need one, vectors more.
    """
    users = 1
    while True:
        try:
            designed_estimator(protocol, users)
        except ValueError:
            if users >= MOST_LEAST:
                raise
            users *= 2
        else:
            return users


@lru_cache(maxsize=64)
def designed_estimator(protocol: bytes, users: int) -> Estimator:
    """Design an estimator, once for each protocol (as `canonical` gives it) and number of users."""
    s = json.loads(protocol)
    options: dict[str, Any] = {"mode": s["mode"], "level": s["level"], **s["options"]}
    if s.get("tails") is not None:
        options["tails"] = s["tails"]

    if s.get("values") is not None:
        options["dimension"] = len(s["values"])

    if s.get("categories") is not None:
        options["categories"] = len(s["categories"])

    if s.get("quantiles") is not None:
        options["quantiles"] = s["quantiles"]

    if s["sizes"] is not None:
        from meanstream.streaming.rounds.sizes_file import read_sizes

        unknown = s["sizes"] == UNKNOWN_SIZES
        asks = [name for name in ESTIMATORS if estimator_class(name).sizes_unknown]
        rule = f"be known unless the estimator is {' or '.join(map(repr, asks))}"
        require(not unknown or s["estimator"] in asks, "sizes", rule, s["sizes"])
        options["sizes"] = UNKNOWN_SIZES if unknown else read_sizes(s["sizes"])

    if s["between_users"] is not None:
        # Coordinates of different widths: the bound holds for all on the scale of the narrowest.
        width = np.min(np.asarray(s["upper"], np.float64) - np.asarray(s["lower"], np.float64))
        half = float(width) / 2
        between = s["between_users"]
        require(between <= half, "between_users", f"lie in [0, {half:g}], half the range", between)
        options["between_users"] = between / half

    # Windows that share a budget get their parts of it, or Gaussian noise for all of them.
    if s.get("user_windows") is not None:
        budget = WindowBudget(
            epsilon=s["epsilon"], delta=s.get("user_delta", 0.0), windows=s["user_windows"]
        )
        return build_estimator_of_budget(s["estimator"], budget, users=users, **options)

    return build_estimator(s["estimator"], epsilon=s["epsilon"], users=users, **options)

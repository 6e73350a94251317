"""What audits of stores share: faults of rows in words, and the secret of a store."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path

from meanstream.streaming.store.secret_source import load_secret
from meanstream.streaming.store.state_store import Store

SAYS = {
    "conflict": "release ids with a second value",
    "wrong_id": "ids that do not match their agent and index",
    "wrong_reader": "releases to a reader that is none",
    "other_promise": "releases that state another promise",
    "out_of_turn": "releases that repeat or leave out a number of their pair",
    "other_spend": "agents whose spend the saved state has not",
    "other_pairs": "sets of pairs whose spend the saved state has not",
    "over_budget": "releases past the budget",
    "second_release": "rounds with a second release",
    "wrong_variance": "releases with another noise variance than promised",
    "impossible_index": "releases past the horizon",
    "impossible_count": "impossible counts",
    "impossible_total": "impossible sums",
    "impossible_mean": "means that do not match their sum on the grid",
    "too_precise": "releases that declare less noise than promised",
}
"""Reasons for which a release is none that the settings allow, in words."""


def fault_of_rejects(rejected: Mapping[str, int]) -> str | None:
    """Say which releases are none that the settings allow, and how many."""
    counted = [f"{rejected[reason]:,} {what}" for reason, what in SAYS.items() if rejected[reason]]
    return ", ".join(counted) or None


def opened_secret(store: Path) -> bytes:
    """Find the secret of a store where a run finds it, and compare it with the store's.

    Raises
    ------
    ValueError, StoreError
        If there is none, or it is another one.
    """
    secret = load_secret(store, environment=os.environ, create=False)
    with closing(Store.read(store)) as opened:
        opened.require_same(opened.settings() or {}, secret)

    return secret

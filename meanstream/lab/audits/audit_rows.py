"""What audits share: faults of rows in words, the secret of a store, and one for made-up samples."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import TypeVar

import msgspec

from meanstream.streaming.store.ledger_reader import LedgerBlock
from meanstream.streaming.store.secret_source import (
    is_named_secret,
    load_secret,
    secret_path,
)
from meanstream.streaming.store.state_store import Store

THROWN_AWAY = 1
"""Apart from the coins of the same seed."""


def thrown_away_secret(seed: int | None) -> str:
    """Draw a secret for an audit.

    One that a seed repeats, so that what was found can be looked at again.

    **Privacy.** Anyone who knows the seed knows the noise. It is never that of a deployment, which `run` makes by
    itself.

    Examples
    --------
    >>> thrown_away_secret(1) == thrown_away_secret(1) != thrown_away_secret(2)
    True
    """
    import numpy as np

    if seed is None:
        return secrets.token_hex(32)
    return np.random.default_rng([seed, THROWN_AWAY]).bytes(32).hex()


Row = TypeVar("Row")
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


def decoded_blocks(
    store: Store, decode: Callable[[bytes], Row]
) -> Iterator[tuple[LedgerBlock, list[Row]]]:
    """Give the blocks of a ledger, each with what its rows say.

    Raises
    ------
    DamagedStoreError
        Naming the first row that is none of its kind.
    """
    for block in store.ledger.verified():
        said = []
        for seq, output in zip(block.rows.seq, block.rows.output, strict=True):
            try:
                said.append(decode(output))
            except (msgspec.MsgspecError, ValueError, TypeError):
                raise store.ledger.fault(seq) from None

        yield block, said


def found_secret(store: Path) -> bytes | None:
    """Find the secret of a store where a run finds it; None where there is none.

    Raises
    ------
    ValueError, StoreError
        If it is no secret, or that of another store.
    """
    if not is_named_secret(os.environ) and not secret_path(store).exists():
        return None

    secret = load_secret(store, environment=os.environ, create=False)
    with closing(Store.read(store)) as opened:
        opened.require_same(opened.settings() or {}, secret)

    return secret


NOT_MADE_AGAIN = (
    "samples hide most of the noise from public checks: with the store's secret, which is not here, "
    "each draw is made again"
)

"""The pairs of a store as its last commit has them, to be looked at, never to release."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from meanstream.operators.noise.keyed import KeyedNoise
from meanstream.operators.rings import ring_module
from meanstream.streaming.agents.pairwise.pairwise_deployment import saved_pairwise_settings
from meanstream.streaming.agents.pairwise.pairwise_engine import restore_pairs
from meanstream.streaming.agents.pairwise.partners_file import read_partners_file
from meanstream.streaming.store.database import StoreError
from meanstream.streaming.store.state_store import Store


def pairs_at_rest(store: Store, saved: Mapping[str, Any]) -> Any:
    """Private: the `PairwiseStream` of a store, with noise that is never asked for.

    Raises
    ------
    StoreError
        If the store has a graph of partners that the file of the last run does not hold any more.
    """
    settings = saved_pairwise_settings(saved, _partners(store, saved))
    noise = KeyedNoise(secrets.token_bytes(32), deployment="copy", purpose="none")
    names = store.agents()

    kind = ring_module("lab.papers.colme.pairwise_stream").PairwiseStream
    stream = kind(settings, noise, capacity=max(len(names), 2))
    restore_pairs(store, stream, names)

    return stream


def _partners(store: Store, saved: Mapping[str, Any]) -> dict[str, tuple[str, ...]] | None:
    """Public: read who may query whom from the file of the last run; the store has its digest."""
    if saved["partners"] is None:
        return None

    place = (store.state("delivered") or {}).get("answers", {}).get("partners")
    way_out = "run once more with --partners, which may be where the file is now"
    if place is None:
        raise StoreError(f"store must know its file of partners, got none: {way_out}")

    try:
        partners = read_partners_file(Path(place))
    except ValueError as error:
        raise StoreError(f"{error}: {way_out}") from None

    if saved_pairwise_settings(saved, partners).plain()["partners"] != saved["partners"]:
        raise StoreError(
            f"partners must be those that the store began with, got others in {place!r}: {way_out}"
        )

    return partners

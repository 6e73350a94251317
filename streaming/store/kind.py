"""Whose a store is, by its settings.

Of agents, of pairs of them, of users in rounds, or of a statistician.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from meanstream.streaming.store.database import StoreError

SIDE = "side"
"""The setting that tells kinds of stores apart; a store of agents has none."""
OF_AGENTS = "agents"
OF_USERS = "users in rounds"
OF_STATISTICIAN = "a statistician in rounds"
OF_PAIRS = "agents that query each other"
OF_SITE = "a federated site"

_KINDS = {None: OF_AGENTS, "users": OF_USERS, "statistician": OF_STATISTICIAN, "pairs": OF_PAIRS}


def store_kind(settings: Mapping[str, Any]) -> str:
    """Tell whose a store is.

    Examples
    --------
    >>> store_kind({"epsilon": 1.0}), store_kind({"side": "users", "epsilon": 1.0})
    ('agents', 'users in rounds')
    """
    side = settings.get(SIDE)
    return _KINDS.get(side, str(side))


def require_store_kind(
    path: Path, settings: Mapping[str, Any], *kinds: str, with_pairs: str = ""
) -> None:
    """Refuse a store of another kind, before anything is made of its settings.

    `with_pairs` says what can be done with a store of agents that query each other instead.
    """
    found = store_kind(settings)
    if found in kinds:
        return

    way_out = f": {with_pairs}" if with_pairs and found == OF_PAIRS else ""
    raise StoreError(
        f"store must be one of {' or of '.join(kinds)}, got {str(path)!r}, one of {found}{way_out}"
    )

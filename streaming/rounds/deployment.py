"""A store of rounds with the secret that belongs to it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from streaming.deployment import check_store, open_store
from streaming.rounds.settings import RoundsSettings
from streaming.secret import derived_key
from streaming.store.store import Store


@dataclass(frozen=True, slots=True, repr=False)
class RoundsDeployment:
    """A store that is open for writing, the secret of its noise, and the key of the hash of sample ids."""

    store: Store
    secret: bytes
    id_key: bytes


def open_rounds_store(path: Path, settings: RoundsSettings, *, environment: Mapping[str, str]) -> RoundsDeployment:
    """Open or create a store of rounds, and find or make its secret; see `streaming.deployment.open_store`.

    Parameters
    ----------
    path : Path
        The store's file.
    settings : RoundsSettings
        All but the allowed lateness cannot change over the life of a store.
    environment : mapping
        Usually `os.environ`.
    """
    store, secret = open_store(path, rounds_identity(settings), environment=environment)
    return RoundsDeployment(store, secret, derived_key(secret, "sample ids"))


def check_rounds_store(path: Path, settings: RoundsSettings, *, environment: Mapping[str, str]) -> bool:
    """Refuse what `open_rounds_store` would refuse, without making anything; say whether there is a store."""
    return check_store(path, rounds_identity(settings), environment=environment)


def rounds_identity(settings: RoundsSettings) -> dict[str, Any]:
    """Give what cannot change over the life of a store, as plain data."""
    return {"side": "users", **{k: v for k, v in settings.plain().items() if k != "allowed_lateness"}}

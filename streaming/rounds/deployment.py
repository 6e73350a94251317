"""A store of rounds with the secret that belongs to it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from streaming.rounds.settings import RoundsSettings
from streaming.secret import derived_key, is_named, load_secret, secret_path
from streaming.store import Store


@dataclass(frozen=True, slots=True, repr=False)
class RoundsDeployment:
    """A store that is open for writing, the secret of its noise, and the key of the hash of sample ids."""

    store: Store
    secret: bytes
    id_key: bytes


def open_rounds_store(path: Path, settings: RoundsSettings, *, environment: Mapping[str, str]) -> RoundsDeployment:
    """Open or create a store of rounds, and find or make its secret.

    Parameters
    ----------
    path : Path
        The store's file.
    settings : RoundsSettings
        All but the allowed lateness cannot change over the life of a store.
    environment : mapping
        Usually `os.environ`: see `streaming.secret.load_secret`.

    Raises
    ------
    StoreError
        If the store is in use, is no store, or was made with other settings or another secret.
    ValueError
        If the secret is missing or too short.
    """
    secret = load_secret(path, environment=environment)
    store = Store.open(path, settings=rounds_identity(settings), secret=secret)
    return RoundsDeployment(store, secret, derived_key(secret, "sample ids"))


def check_rounds_store(path: Path, settings: RoundsSettings, *, environment: Mapping[str, str]) -> bool:
    """Refuse what `open_rounds_store` would refuse, without making anything; say whether there is a store.

    A store that another process uses is not refused here.

    Raises
    ------
    StoreError
        If the store is no store, damaged, or was made with other settings or another secret.
    ValueError
        If the secret is missing or too short.
    """
    exists = path.exists()
    if exists or is_named(environment) or secret_path(path).exists():
        secret = load_secret(path, environment=environment, create=False)
    if not exists:
        return False
    store = Store.read(path)
    try:
        store.require_same(rounds_identity(settings), secret)
    finally:
        store.close()
    return True


def rounds_identity(settings: RoundsSettings) -> dict[str, Any]:
    """Give what cannot change over the life of a store, as plain data."""
    return {"side": "users", **{k: v for k, v in settings.plain().items() if k != "allowed_lateness"}}

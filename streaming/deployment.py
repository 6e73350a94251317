"""A store with the secrets that belong to it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from operators.agents import AgentsSettings
from operators.noise import KeyedNoise
from streaming.secret import deployment_noise, derived_key, is_named, load_secret, secret_path
from streaming.store.store import Store


@dataclass(frozen=True, slots=True)
class Deployment:
    """A store that is open for writing, its noise, and the key of the hash of sample ids (for `open_source`)."""

    store: Store
    noise: KeyedNoise
    id_key: bytes


def open_deployment(path: Path, settings: AgentsSettings, *, environment: Mapping[str, str]) -> Deployment:
    """Open or create a store of agents, and find or make its secret; see `open_store`.

    Parameters
    ----------
    path : Path
        The store's file.
    settings : AgentsSettings
        Bounds, privacy parameters, counter and schedule; they cannot change over the life of a store.
    environment : mapping
        Usually `os.environ`.
    """
    plain = asdict(settings)
    store, secret = open_store(path, plain, environment=environment)
    return Deployment(store, deployment_noise(secret, plain), derived_key(secret, "sample ids"))


def check_deployment(path: Path, settings: AgentsSettings, *, environment: Mapping[str, str]) -> bool:
    """Refuse what `open_deployment` would refuse, without making anything; say whether there is a store."""
    return check_store(path, asdict(settings), environment=environment)


def open_store(path: Path, identity: dict[str, Any], *, environment: Mapping[str, str]) -> tuple[Store, bytes]:
    """Open or create a store, and find or make its secret.

    Parameters
    ----------
    path : Path
        The store's file.
    identity : dict
        What cannot change over the life of the store, as plain data.
    environment : mapping
        Usually `os.environ`: see `streaming.secret.load_secret`.

    Raises
    ------
    StoreError
        If the store is in use, is no store, or was made with another identity or another secret.
    ValueError
        If the secret is missing or too short.
    """
    secret = load_secret(path, environment=environment)
    return Store.open(path, settings=identity, secret=secret), secret


def check_store(path: Path, identity: dict[str, Any], *, environment: Mapping[str, str]) -> bool:
    """Refuse what `open_store` would refuse, without making anything; say whether there is a store.

    A store that another process uses is not refused here.

    Raises
    ------
    StoreError
        If the store is no store, damaged, or was made with another identity or another secret.
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
        store.require_same(identity, secret)
    finally:
        store.close()
    return True

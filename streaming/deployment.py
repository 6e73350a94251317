"""A store with the secrets that belong to it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from operators.agents import AgentsSettings
from operators.noise import KeyedNoise
from streaming.secret import deployment_noise, derived_key, is_named, load_secret, secret_path
from streaming.store import Store


@dataclass(frozen=True, slots=True)
class Deployment:
    """A store that is open for writing, its noise, and the key of the hash of sample ids (for `open_source`)."""

    store: Store
    noise: KeyedNoise
    id_key: bytes


def open_deployment(path: Path, settings: AgentsSettings, *, environment: Mapping[str, str]) -> Deployment:
    """Open or create a store, and find or make its secret.

    Parameters
    ----------
    path : Path
        The store's file.
    settings : AgentsSettings
        Bounds, privacy parameters, counter and schedule; they cannot change over the life of a store.
    environment : mapping
        Usually `os.environ`: see `streaming.secret.load_secret`.

    Raises
    ------
    StoreError
        If the store is in use, is no store, or was made with other settings or another secret.
    ValueError
        If the secret is missing or too short.
    """
    plain = asdict(settings)
    secret = load_secret(path, environment=environment)
    store = Store.open(path, settings=plain, secret=secret)
    return Deployment(store, deployment_noise(secret, plain), derived_key(secret, "sample ids"))


def check_deployment(path: Path, settings: AgentsSettings, *, environment: Mapping[str, str]) -> bool:
    """Refuse what `open_deployment` would refuse, without making anything; say whether there is a store.

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
        store.require_same(asdict(settings), secret)
    finally:
        store.close()
    return True

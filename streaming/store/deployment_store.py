"""A store and its secret, opened or made together, whatever it is a store of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from meanstream.operators.agents.agents_settings import AgentsSettings, settings_identity
from meanstream.operators.noise.keyed import KeyedNoise
from meanstream.streaming.store.secret_source import (
    is_named_secret,
    key_derived_from_secret,
    load_secret,
    noise_from_secret,
    secret_path,
    warn_if_secret_shared,
)
from meanstream.streaming.store.state_store import Store
from meanstream.streaming.store.store_identity import store_kind


def kind_of_store(path: Path) -> str | None:
    """Read whose a store is; None if no engine has begun it."""
    with Store.read(path) as store:
        settings = store.settings()

    if settings is None:
        return None
    return store_kind(settings)


def open_deployment_store(
    path: Path, identity: dict[str, Any], *, environment: Mapping[str, str]
) -> tuple[Store, bytes]:
    """Open or create a store, and find or make its secret."""
    own = secret_path(path)
    made = [] if own.exists() else [own]
    secret = load_secret(path, environment=environment)
    store = Store.open(path, settings=identity, secret=secret)

    if store.made:
        store.made = [*made, *store.made]

    if (
        not is_named_secret(environment) and not own.exists()
    ):  # a start that was refused just now has taken it away
        store.undo()
        raise ValueError(f"secret must be in a readable file, got no {str(own)!r}")

    warn_if_secret_shared(path, "store")
    return store, secret


def check_deployment_store(
    path: Path, identity: dict[str, Any], *, environment: Mapping[str, str]
) -> bool:
    """Refuse what `open_deployment_store` would refuse, without making anything.

    Say whether there is a store.

    A store that another process uses is not refused here.
    """
    exists = path.exists()
    if exists or is_named_secret(environment) or secret_path(path).exists():
        secret = load_secret(path, environment=environment, create=False)

    if not exists:
        return False
    with Store.read(path) as store:
        store.require_same(identity, secret)

    return True


@dataclass(frozen=True, slots=True)
class Deployment:
    """A store that is open for writing, the settings with the deployment's name, its noise, and the key of sample ids.

    The last is for `open_source`.
    """

    store: Store
    settings: AgentsSettings
    noise: KeyedNoise
    id_key: bytes


def open_deployment(
    path: Path, settings: AgentsSettings, *, environment: Mapping[str, str]
) -> Deployment:
    """Open or create a store of agents, and find or make its secret.

    See `open_deployment_store`.
    """
    store, secret = open_deployment_store(
        path, settings_identity(settings), environment=environment
    )
    named = replace(settings, name=store.begun_settings()["name"])
    noise = noise_from_secret(secret, named.name)

    return Deployment(store, named, noise, key_derived_from_secret(secret, "sample ids"))


SHARDS = "shards"
"""Name of the state that holds of how many shards a store is one."""


def keep_shard_count(store: Store, count: int) -> None:
    """Note of how many shards a store is one; refuse another number than it has noted."""
    known = store.state(SHARDS)
    if known is None:
        with store.transaction():
            store.put_state(SHARDS, count)
    elif known != count:
        raise ValueError(f"shards must be {known} as in the store that is continued, got {count}")


def saved_deployment_settings(saved: Mapping[str, Any]) -> AgentsSettings:
    """Read settings of agents as a store keeps them."""
    return AgentsSettings(**saved)


def check_deployment(
    path: Path, settings: AgentsSettings, *, environment: Mapping[str, str]
) -> bool:
    """Refuse what `open_deployment` would refuse, without making anything.

    Say whether there is a store.
    """
    return check_deployment_store(path, settings_identity(settings), environment=environment)

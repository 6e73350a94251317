"""A store of agents with the secrets that belong to it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from meanstream.operators.agents.agents_settings import AgentsSettings, settings_identity
from meanstream.operators.noise.keyed import KeyedNoise
from meanstream.streaming.store.deployment_store import (
    check_deployment_store,
    kept_deployment_settings,
    open_deployment_store,
)
from meanstream.streaming.store.secret_source import key_derived_from_secret, noise_from_secret
from meanstream.streaming.store.state_store import Store


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
    named = replace(settings, name=kept_deployment_settings(store)["name"])
    noise = noise_from_secret(secret, named.name)

    return Deployment(store, named, noise, key_derived_from_secret(secret, "sample ids"))


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

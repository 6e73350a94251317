"""A store of rounds with the secret that belongs to it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from meanstream.operators.estimators.registry import DEFAULT_ESTIMATOR, LEARNING_ESTIMATOR
from meanstream.streaming.rounds.rounds_settings import RoundsSettings
from meanstream.streaming.rounds.window_widths import Windows
from meanstream.streaming.store.deployment_store import (
    check_deployment_store,
    open_deployment_store,
)
from meanstream.streaming.store.secret_source import key_derived_from_secret
from meanstream.streaming.store.state_store import Store, StoreError
from meanstream.streaming.store.store_identity import (
    OF_STATISTICIAN,
    OF_USERS,
    SIDE,
)


@dataclass(frozen=True, slots=True, repr=False)
class RoundsDeployment:
    """A store that is open for writing, the settings with the deployment's name, its secret, the key of sample ids."""

    store: Store
    settings: RoundsSettings
    secret: bytes
    id_key: bytes


def open_rounds_deployment(
    path: Path, settings: RoundsSettings, *, environment: Mapping[str, str]
) -> RoundsDeployment:
    """Open or create a store of rounds, and find or make its secret.

    See `open_deployment_store`.
    """
    store, secret = open_deployment_store(
        path, rounds_deployment_identity(settings), environment=environment
    )
    return RoundsDeployment(
        store,
        named_rounds_deployment(store, settings),
        secret,
        key_derived_from_secret(secret, "sample ids"),
    )


def named_rounds_deployment(store: Store, settings: RoundsSettings) -> RoundsSettings:
    """Give the settings the name that a store has kept."""
    return replace(settings, name=store.begun_settings()["name"])


def rounds_default_estimator(
    path: Path | None, window: str, *, alone: bool, side: str = "users"
) -> str:
    """Name the estimator of a deployment that names none.

    That of the store that it continues, or today's default.

    Returns
    -------
    str
        The one that learns from the windows before, where there are such; else the one for a window
        by itself.
    """
    saved = None if path is None else _kept_settings(path)
    if saved is not None and saved.get(SIDE) == side and "estimator" in saved:
        return str(saved["estimator"])

    if alone and Windows.parse(window).kind == "fixed":
        return LEARNING_ESTIMATOR
    return DEFAULT_ESTIMATOR


def _kept_settings(path: Path) -> dict[str, Any] | None:
    """Give the settings that a store was made with.

    None where there is none, or what opening it says.
    """
    if not path.is_file():
        return None

    try:
        store = Store.read(path)
    except StoreError:
        return None

    try:
        return store.settings()
    finally:
        store.close()


def check_rounds_deployment(
    path: Path, settings: RoundsSettings, *, environment: Mapping[str, str]
) -> bool:
    """Refuse what `open_rounds_deployment` would refuse, without making anything.

    Say whether there is a store.
    """
    return check_deployment_store(
        path, rounds_deployment_identity(settings), environment=environment
    )


def own_rounds_settings(path: Path) -> RoundsSettings:
    """Read the settings that a store of rounds was begun with."""
    with Store.read(path) as store:
        saved = store.begun_settings(OF_USERS, OF_STATISTICIAN)

    return RoundsSettings.of_plain({name: value for name, value in saved.items() if name != SIDE})


def rounds_deployment_identity(settings: RoundsSettings) -> dict[str, Any]:
    """Give what cannot change over the life of a store, as plain data."""
    return {SIDE: "users", **{k: v for k, v in settings.plain().items() if k != "allowed_lateness"}}

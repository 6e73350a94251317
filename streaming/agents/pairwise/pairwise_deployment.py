"""A store of agents that query each other, with the secret that belongs to it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow import csv

from meanstream.operators.agents.agents_settings import AgentsSettings
from meanstream.operators.noise.keyed import KeyedNoise
from meanstream.operators.rings import ring_module
from meanstream.operators.validation import require
from meanstream.streaming.store.deployment_store import (
    check_deployment_store,
    open_deployment_store,
)
from meanstream.streaming.store.secret_source import key_derived_from_secret, noise_from_secret
from meanstream.streaming.store.state_store import Store
from meanstream.streaming.store.store_identity import OF_PAIRS, SIDE, store_kind

COLUMNS = ("agent", "partner")


def read_partners_file(path: Path) -> dict[str, tuple[str, ...]]:
    """Read the partners of each agent, in the order of the rows.

    Raises
    ------
    ValueError
        Naming the option, the rule and the file.
    """
    options = csv.ConvertOptions(
        column_types=dict.fromkeys(COLUMNS, pa.string()), strings_can_be_null=False
    )
    try:
        table = csv.read_csv(path, convert_options=options)
        names = set(table.column_names)  # which are no UTF-8, perhaps
    except OSError as error:
        raise ValueError(
            f"partners must be a readable file, got {str(path)!r} ({error.strerror})"
        ) from None
    except (pa.ArrowException, UnicodeDecodeError):  # whose texts show rows
        raise ValueError(
            f"partners must be CSV with columns agent and partner, got {str(path)!r}"
        ) from None

    require(
        set(COLUMNS) <= names,
        "partners",
        "have columns agent and partner",
        str(path),
    )
    partners_of: dict[str, list[str]] = {}

    for agent, partner in zip(*(table[name].to_pylist() for name in COLUMNS), strict=True):
        require(
            bool(agent) and bool(partner),
            "partners",
            "name an agent and a partner in each row",
            str(path),
        )
        partners_of.setdefault(agent, []).append(partner)

    return {agent: tuple(partners) for agent, partners in partners_of.items()}


_OWN = ("schedule", "weights", "variance", "stddev", "significance")
"""Settings of pairs that a store keeps, besides those of a release."""


@dataclass(frozen=True, slots=True, repr=False)
class PairwiseDeployment:
    """A store that is open for writing, the settings with the deployment's name, its noise, and the key of sample ids.

    `settings` is how one agent releases to one reader; `pairs` is all of it, a
    `PairwiseStreamSettings`.
    """

    store: Store
    pairs: Any
    noise: KeyedNoise
    id_key: bytes

    @property
    def settings(self) -> AgentsSettings:
        """How one agent releases to one reader."""
        release: AgentsSettings = self.pairs.release
        return release


def open_pairwise_deployment(
    path: Path, pairs: Any, *, environment: Mapping[str, str]
) -> PairwiseDeployment:
    """Open or create a store of pairs, and find or make its secret; see `open_deployment_store`."""
    store, secret = open_deployment_store(path, _identity(pairs), environment=environment)
    named = pairs.with_name(store.begun_settings()["name"])
    noise = noise_from_secret(secret, named.release.name)
    return PairwiseDeployment(store, named, noise, key_derived_from_secret(secret, "sample ids"))


def check_pairwise_deployment(path: Path, pairs: Any, *, environment: Mapping[str, str]) -> bool:
    """Refuse what `open_pairwise_deployment` would refuse, without making anything.

    Say whether there is a store.
    """
    return check_deployment_store(path, _identity(pairs), environment=environment)


def saved_pairwise_settings(saved: Mapping[str, Any], partners: Any = None) -> Any:
    """Read the settings of pairs as a store keeps them, with the graph of partners if it is known.

    A store keeps a digest of the graph: without it, everyone may query everyone.
    """
    # What has no meaning among pairs is not kept, and is as `PairwiseStreamSettings` wants it.
    named = {setting.name for setting in fields(AgentsSettings)} - {"schedule"}
    release = AgentsSettings(
        **{name: value for name, value in saved.items() if name in named}, spread_share=0.0
    )

    kind = ring_module("lab.papers.colme.pairwise_stream_settings").PairwiseStreamSettings
    own = {name: saved[name] for name in _OWN}
    return kind(release=release, partners=partners, **own)


def pooled_epsilon(pairs: Any, readers: int) -> float:
    """Give what epsilon becomes, at the same delta, if so many readers of an agent pool.

    Of one reader it is the promise.
    """
    if readers <= 1:
        return float(pairs.release.epsilon)
    return float(pairs.coalition_epsilon(readers))


def pairs_settings_of_store(path: Path) -> tuple[Any, int] | None:
    """Read the settings of a store of pairs, and how many agents it has; None if it is of others."""
    with Store.read(path) as store:
        saved = store.settings()
        agents = len(store.agents())

    if saved is None or store_kind(saved) != OF_PAIRS:
        return None
    return saved_pairwise_settings(saved), agents


def _identity(pairs: Any) -> dict[str, Any]:
    return {SIDE: "pairs", **pairs.plain()}

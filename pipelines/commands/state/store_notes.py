"""What `meanstream store` shows, notes and erases."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

import typer

from meanstream.operators.durations import parse_duration
from meanstream.pipelines.options.base import print_options_json
from meanstream.pipelines.options.option_errors import BadOption, refusing_options
from meanstream.streaming.agents.forget_agent import forget_agent
from meanstream.streaming.agents.move_agents import moves_summary
from meanstream.streaming.agents.pairwise.pairwise_engine import forget_paired_agent
from meanstream.streaming.own_paths import stores_at
from meanstream.streaming.replay.reopen import reopened_source_name
from meanstream.streaming.rounds.rounds_engine import forget_user
from meanstream.streaming.store.source_identity import (
    adopt_source_identity,
    adopt_source_identity_of_copy,
    source_identity_adoptions,
    source_identity_of,
)
from meanstream.streaming.store.state_store import Store, StoreError
from meanstream.streaming.store.store_identity import OF_PAIRS, OF_USERS, store_kind

FORGETS = {OF_USERS: forget_user, OF_PAIRS: forget_paired_agent}
"""How stores forget that are not of agents whose releases everyone reads."""
STAYS = {
    OF_USERS: "rounds stay spent in the ledger",
    OF_PAIRS: "releases stay with their readers, and stay spent in the ledger",
}


def forget_in_store(*, agent: str, store: Path, as_json: bool) -> None:
    """Erase all that is private of an agent, or of a user of rounds, from a store, for good.

    From a folder of shards: from each store that has the agent.
    """
    with refusing_options():
        stores = stores_at(store)

    try:
        if len(stores) > 1:
            stores = _stores_of_agent(stores, agent, store)

        kind, gone = _forget_in(stores, agent)
    except StoreError as error:
        raise BadOption(str(error)) from None

    if as_json:
        print_options_json(asdict(gone))
        return

    stays = STAYS.get(kind, "releases stay public, and stay spent in the ledger")
    kept = (
        f"{gone.releases:,} {stays}"
        if gone.name_kept
        else "it had released nothing, and its name is gone, too"
    )
    typer.echo(f"{agent!r} is forgotten, with {gone.samples_waiting:,} samples that waited; {kept}")

    typer.echo(
        "estimates already written stay in their sinks, and older backups keep what they hold"
    )


def _stores_of_agent(stores: Sequence[Path], agent: str, folder: Path) -> list[Path]:
    """Name the stores of a folder of shards that have an agent: one, unless it had two keys."""
    holders = []
    for path in stores:
        with Store.read(path) as opened:
            if agent in opened.agents():
                holders.append(path)

    if not holders:
        rule = f"be one that a store in {str(folder)!r} has samples of"
        raise StoreError(f"agent must {rule}, got {agent!r}")

    return holders


def _forget_in(stores: Sequence[Path], agent: str) -> tuple[str, Any]:
    """Erase an agent from stores; give their kind, and what was erased from all."""
    with ExitStack() as closing:
        # All are this process's own before one is changed.
        opened = []
        for path in stores:
            opened.append(Store.amend(path))
            closing.callback(opened[-1].close)

        kind = store_kind(opened[0].settings() or {})
        first, *others = [FORGETS.get(kind, forget_agent)(each, agent) for each in opened]

    for gone in others:
        first = replace(
            first,
            releases=first.releases + gone.releases,
            samples_waiting=first.samples_waiting + gone.samples_waiting,
            name_kept=first.name_kept or gone.name_kept,
        )

    return kind, first


def show_store(*, store: Path, as_json: bool) -> None:
    """Print the name of the deployment, schema version, source and adoptions of the store."""
    try:
        opened = Store.read(store)
        try:
            settings = opened.settings() or {}
            facts = {
                "name": settings.get("name"),
                "schema": opened.schema_version,
                "source": source_identity_of(opened),
                "adopted": source_identity_adoptions(opened),
            }
            facts |= {"moved": moved} if (moved := moves_summary(opened)) is not None else {}
        finally:
            opened.close()
    except StoreError as error:
        raise BadOption(str(error)) from None

    _print_facts(facts, as_json=as_json)


def adopt_in_store(
    store: Path, typed: Mapping[str, str | None], *, older_copy: bool, as_json: bool
) -> None:
    """Record that a store's data continue under another name, for good.

    `typed` are the options by name.
    """
    columns: dict[str, Any] = dict(typed)
    with refusing_options():
        columns["source"] = (
            None if columns["source"] is None else reopened_source_name(columns["source"])
        )
        for name in ("lateness", "allowed_lateness"):
            columns[name] = None if columns[name] is None else parse_duration(name, columns[name])

    changes = {name: column for name, column in columns.items() if column is not None}
    if bool(changes) == older_copy:
        raise BadOption(
            "store adopt must be given what changes, or --older-copy, got "
            + ("both" if changes else "none")
        )

    try:
        record = _adopting(
            store,
            adopt_source_identity_of_copy
            if older_copy
            else partial(adopt_source_identity, changes=changes),
        )
    except StoreError as error:
        raise BadOption(str(error)) from None

    _print_facts(record, as_json=as_json)


def _adopting(path: Path, adopt_in: Callable[[Store], dict[str, Any]]) -> dict[str, Any]:
    opened = Store.amend(path)
    try:
        return adopt_in(opened)
    finally:
        opened.close()


def _print_facts(facts: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        print_options_json(facts)
        return

    for name, fact in facts.items():
        if isinstance(fact, dict):
            shown = ", ".join(
                f"{key} {value!r}" for key, value in fact.items() if value is not None
            )
        else:
            shown = str(fact) if fact else "-"

        sys.stdout.write(f"{name:<8} {shown}\n")

"""What `meanstream store move` does: opens or makes the other store, and moves a partition."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from meanstream.operators.validation import require
from meanstream.pipelines.options.base import option_environment, print_options_json
from meanstream.pipelines.options.option_errors import BadOption
from meanstream.streaming.agents.move_agents import move_partition
from meanstream.streaming.store.database import EmptyStoreError
from meanstream.streaming.store.deployment_store import SHARDS
from meanstream.streaming.store.secret_source import is_named_secret, load_secret, secret_path
from meanstream.streaming.store.state_store import Store, StoreError
from meanstream.streaming.store.store_identity import identity_made_with

if TYPE_CHECKING:
    from collections.abc import Mapping


def move_agents_of_partition(
    *, from_: Path, to: Path, partition: int, secret_file: Path | None, as_json: bool
) -> None:
    """Move a partition with its agents to another store; stop both engines first."""
    try:
        giver = Store.amend(from_)
    except StoreError as error:
        raise BadOption(str(error).replace("store must", "from must", 1)) from None

    try:
        if giver.state(SHARDS) is not None:
            rule = "be a store of an engine with partitions=, since shards keep their partitions"
            raise StoreError(f"from must {rule}, got {str(from_)!r}")

        taker = _taker(giver, to, option_environment(secret_file))
        try:
            facts = move_partition(giver, taker, partition)
        except BaseException:
            taker.undo()
            raise

        taker.close()
    except (StoreError, ValueError) as error:
        raise BadOption(str(error)) from None
    finally:
        giver.close()

    _print_facts(facts, as_json=as_json)


def _taker(giver: Store, path: Path, environment: Mapping[str, str]) -> Store:
    """Open the other store, or make it of the same settings and key."""
    same = path.exists() and giver.path.samefile(
        path
    )  # a file with two names would have two journals
    require(not same, "to", "be another store than from", str(path))
    identity = giver.state("identity")

    if identity is None:
        raise StoreError(f"from must have been begun by an engine, got {str(giver.path)!r}")
    secret = load_secret(giver.path, environment=environment, create=False)
    require(
        identity_made_with(identity, secret),
        "secret_file",
        "be the key that the stores began with",
        "another",
    )

    try:
        taker = _begun_taker(path) if path.exists() else None
        if taker is not None:
            if not identity_made_with(taker.state("identity"), secret):
                taker.close()
                raise StoreError(
                    f"to must be a store that began with the same key, got {str(path)!r}"
                )

            return taker

        return _made_taker(path, identity["settings"], secret, named=is_named_secret(environment))
    except StoreError as error:
        raise StoreError(str(error).replace("store must", "to must", 1)) from None


def _begun_taker(path: Path) -> Store | None:
    """Open the other store; None if anyone who made it was killed before it had settings."""
    try:
        taker = Store.amend(path)
    except EmptyStoreError:
        return None

    if taker.state("identity") is not None:
        return taker
    taker.close()

    return None


def _made_taker(path: Path, settings: Mapping[str, Any], secret: bytes, *, named: bool) -> Store:
    """Make the other store, or go on making it where someone was killed."""
    made = [] if named or not _write_secret(secret_path(path), secret) else [secret_path(path)]
    try:
        taker = Store.open(path, settings=settings, secret=secret)
    except BaseException:
        for own in made:
            own.unlink(missing_ok=True)

        raise

    taker.made = [*made, *taker.made]
    return taker


def _write_secret(path: Path, secret: bytes) -> bool:
    """Put the key next to the new store, for its owner alone; say whether it was not there yet.

    One that was begun is ended: anyone who wrote it was killed. Another one is not written over,
    and nothing is written to a file that others may read.
    """
    try:
        number = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        raise ValueError(
            f"to must be in a folder that can hold its key, got {str(path)!r} ({error.strerror})"
        ) from None

    with os.fdopen(number, "r+b") as file:
        written = file.read(len(secret) + 3)
        whole = written.rstrip(b"\r\n") == secret
        about = os.fstat(number)
        ours = about.st_uid == os.geteuid() and not about.st_mode & 0o077

        if not whole and not (ours and secret.startswith(written)):
            raise ValueError(
                f"to must be a store with the same key next to it, or none, got {str(path)!r}"
            )

        file.write(secret[len(written) :])

    return not written


def _print_facts(facts: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        print_options_json(facts)
        return

    line = (
        f"partition {facts['partition']}: {facts['agents']:,} agents, {facts['ledger_rows']:,} ledger rows, "
        f"{facts['samples_waiting']:,} waiting samples"
    )
    typer.echo(line)

    if facts["agents_of_unknown_partition"]:
        typer.echo(
            f"{facts['agents_of_unknown_partition']:,} agents without a sample since stores note partitions stay"
        )

    was, now = (facts[f"event_time_{where}"] or "-" for where in ("from", "to"))
    typer.echo(
        f"event time: {was} in the first store, {now} in the second; records older than the later of them are late "
        "there"
    )

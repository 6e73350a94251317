"""`meanstream store move`: a partition with its agents, their sums and budgets, from one store to another."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from meanstream.pipelines.options.base import ConfigOption, JsonOption, option_environment
from meanstream.pipelines.options.errors import BadOption

if TYPE_CHECKING:
    from collections.abc import Mapping

    from meanstream.streaming.store.store import Store


def move(
    *,
    from_: Annotated[Path, typer.Option("--from", help="Store that reads the partition now.")],
    to: Annotated[Path, typer.Option(help="Store of the same deployment; made if it is not there.")],
    partition: Annotated[int, typer.Option(help="Partition of the topic.", min=0)],
    secret_file: Annotated[Path | None, typer.Option(help="Key of both stores; beside them by default.")] = None,
    config: ConfigOption = None,  # noqa: ARG001 - read before the other options
    as_json: JsonOption = False,
) -> None:
    """Move a partition with its agents to another store; both engines are stopped, and go on with other `partitions=`.

    The agents are those whose newest sample came from the partition. Their sums, samples that wait, ledger rows and
    indexes of noise go on in the other store. Killed half way it has happened or not: run it again, or an engine.

    \b
    Example:
      meanstream store move --from a.db --to b.db --partition 1
      # then: --store a.db --source '...?partitions=0' and --store b.db --source '...?partitions=1'
    """  # noqa: D301 - click reads the escape
    from meanstream.streaming.agents.move import move_partition
    from meanstream.streaming.store.store import StoreError

    try:
        giver = _amended(from_, "from")
    except StoreError as error:
        raise BadOption(str(error)) from None
    try:
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
    _tell(facts, as_json=as_json)


def _amended(path: Path, option: str) -> Store:
    from meanstream.streaming.store.store import Store, StoreError

    try:
        return Store.amend(path)
    except StoreError as error:
        raise StoreError(str(error).replace("store must", f"{option} must", 1)) from None


def _taker(giver: Store, path: Path, environment: Mapping[str, str]) -> Store:
    """Open the other store, or make it of the same settings and key."""
    from meanstream.operators.validation import require
    from meanstream.streaming.store.identity import identity_made_with
    from meanstream.streaming.store.secret import is_named_secret, load_secret, secret_path
    from meanstream.streaming.store.store import Store, StoreError

    require(giver.path.resolve() != path.resolve(), "to", "be another store than from", str(path))
    identity = giver.state("identity")
    if identity is None:
        raise StoreError(f"from must have been begun by an engine, got {str(giver.path)!r}")

    def is_ours(key: bytes) -> bool:
        return identity_made_with(identity, key)

    secret = load_secret(giver.path, environment=environment, create=False, recognized=is_ours)
    require(is_ours(secret), "secret_file", "be the key that the stores began with", "another")
    if path.exists():
        taker = _amended(path, "to")
        if not identity_made_with(taker.state("identity") or identity, secret):
            taker.close()
            raise StoreError(f"to must be a store that began with the same key, got {str(path)!r}")
        return taker
    made = [] if is_named_secret(environment) else [secret_path(path)]
    for own in made:
        _write_secret(own, secret)
    try:
        taker = Store.open(path, settings=identity["settings"], secret=secret)
    except BaseException as error:
        for own in made:
            own.unlink(missing_ok=True)
        if isinstance(error, StoreError):
            raise StoreError(str(error).replace("store must", "to must", 1)) from None
        raise
    taker.made = [*made, *taker.made]
    return taker


def _write_secret(path: Path, secret: bytes) -> None:
    """Put the key beside the new store, for its owner alone; one that is there is not written over."""
    try:
        number = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        raise ValueError(f"to must be a store without a key beside it, or with its store, got {str(path)!r}") from None
    with os.fdopen(number, "wb") as file:
        file.write(secret)


def _tell(facts: dict[str, Any], *, as_json: bool) -> None:
    from meanstream.pipelines.options.base import print_options_json

    if as_json:
        print_options_json(facts)
        return
    line = (
        f"partition {facts['partition']}: {facts['agents']:,} agents, {facts['ledger_rows']:,} ledger rows, "
        f"{facts['samples_waiting']:,} samples that wait"
    )
    typer.echo(line)
    if facts["agents_of_unknown_partition"]:
        typer.echo(
            f"{facts['agents_of_unknown_partition']:,} agents have sent nothing since partitions are noted: they stay"
        )
    was, now = (facts[f"event_time_{where}"] or "-" for where in ("from", "to"))
    typer.echo(f"event time: {was} where it was, {now} where it is now; what is older than the newer one is late there")

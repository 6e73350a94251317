"""`meanstream store`: whose a store is, what it is filled from, and the recorded way to change the latter."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from meanstream.pipelines.commands.state.forget_command import forget
from meanstream.pipelines.commands.state.move_command import move
from meanstream.pipelines.options.base import JsonOption, print_options_json
from meanstream.pipelines.options.declared import INPUT, cli_option
from meanstream.pipelines.options.option_errors import BadOption, refusing_options

if TYPE_CHECKING:
    from meanstream.streaming.store.state_store import Store

app = typer.Typer(rich_markup_mode=None, no_args_is_help=True)

StoreOption = Annotated[Path, cli_option("Store of an engine.", INPUT)]


@app.callback()
def store() -> None:
    """Inspect, rename, merge and split stores, or erase an agent."""


@app.command("show")
def store_show(
    *,
    store: StoreOption,
    as_json: JsonOption = False,
) -> None:
    """Print the name of the deployment, the source of the store, and its adoptions.

    \b
    Example:
      meanstream store show --store state.db
    """  # noqa: D301 - click reads the escape
    from meanstream.streaming.agents.agents_homes import moves_summary
    from meanstream.streaming.store.source_identity import source_identity_adoptions, source_identity_of
    from meanstream.streaming.store.state_store import Store, StoreError

    try:
        opened = Store.read(store)
        try:
            settings = opened.settings() or {}
            facts = {
                "name": settings.get("name"),
                "source": source_identity_of(opened),
                "adopted": source_identity_adoptions(opened),
            }
            facts |= {"moved": moved} if (moved := moves_summary(opened)) is not None else {}
        finally:
            opened.close()
    except StoreError as error:
        raise BadOption(str(error)) from None
    _tell(facts, as_json=as_json)


@app.command("adopt")
def store_adopt(
    *,
    store: StoreOption,
    source: Annotated[str | None, cli_option("Additional file or topic of the same data.", INPUT)] = None,
    agent: Annotated[str | None, cli_option("Column of the agent.", INPUT)] = None,
    user: Annotated[str | None, cli_option("Column of the user, for rounds.", INPUT)] = None,
    value: Annotated[str | None, cli_option("Column of the value.", INPUT)] = None,
    time: Annotated[str | None, cli_option("Column of the event time.", INPUT)] = None,
    id: Annotated[str | None, cli_option("Column of the id.", INPUT)] = None,  # noqa: A002
    person: Annotated[str | None, cli_option("Column of the person within an agent.", INPUT)] = None,
    lateness: Annotated[str | None, cli_option("Largest delay of a sample, for agents.", INPUT)] = None,
    allowed_lateness: Annotated[
        str | None, cli_option("Time from the end of a window to its close, for rounds.", INPUT)
    ] = None,
    older_copy: Annotated[
        bool,
        cli_option("Confirmation that this is an older copy, on the input that it had read.", INPUT, "--older-copy"),
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Record that a store's data continue under another name, for good.

    Use it for the same data: the file or topic in which they continue, or a renamed column. Other data are another
    deployment, with its own store. A topic or file of another name is read from its beginning.

    \b
    Examples:
      meanstream store adopt --store state.db --source kafka://broker:9092/delays-v2
      meanstream store adopt --store state.db --value departure_delay --lateness 2h
      meanstream store adopt --store state.db --older-copy   # the next run may write its releases again
    """  # noqa: D301 - click reads the escape
    from meanstream.operators.durations import parse_duration
    from meanstream.streaming.replay.reopen import reopened_source_name
    from meanstream.streaming.store.source_identity import adopt_source_identity, adopt_source_identity_of_copy
    from meanstream.streaming.store.state_store import StoreError

    with refusing_options():
        given: dict[str, Any] = {"agent": agent, "user": user, "value": value, "time": time, "id": id}
        given["person"] = person
        given["source"] = None if source is None else reopened_source_name(source)
        for name, text in (("lateness", lateness), ("allowed_lateness", allowed_lateness)):
            given[name] = None if text is None else parse_duration(name, text)
    changes = {name: one for name, one in given.items() if one is not None}
    if bool(changes) == older_copy:
        raise BadOption(
            "store adopt must be given what changes, or --older-copy, got " + ("both" if changes else "none")
        )
    try:
        record = _adopting(
            store, adopt_source_identity_of_copy if older_copy else partial(adopt_source_identity, changes=changes)
        )
    except StoreError as error:
        raise BadOption(str(error)) from None
    _tell(record, as_json=as_json)


app.command("move")(move)
app.command("forget")(forget)


def _adopting(path: Path, adopt_in: Callable[[Store], dict[str, Any]]) -> dict[str, Any]:
    from meanstream.streaming.store.state_store import Store

    opened = Store.amend(path)
    try:
        return adopt_in(opened)
    finally:
        opened.close()


def _tell(facts: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        print_options_json(facts)
        return
    for name, fact in facts.items():
        if isinstance(fact, dict):
            shown = ", ".join(f"{key} {value!r}" for key, value in fact.items() if value is not None)
        else:
            shown = str(fact) if fact else "-"
        sys.stdout.write(f"{name:<8} {shown}\n")

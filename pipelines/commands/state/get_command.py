"""`meanstream get`: one agent's newest answer, from a store."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from meanstream.pipelines.options.base import JsonOption, print_options_json
from meanstream.pipelines.options.declaration import INPUT, cli_option
from meanstream.pipelines.options.option_errors import BadOption

if TYPE_CHECKING:
    from collections.abc import Mapping


def get(
    agent: Annotated[str, typer.Argument(help="Agent to show.")],
    *,
    store: Annotated[
        Path,
        cli_option("Store of `run agents` or `run agent-side`; its engine may be running.", INPUT),
    ],
    as_json: JsonOption = False,
) -> None:
    """Show the newest estimate of an agent, with its interval.

    The last run computed it from the agent's own samples and all releases; showing it spends nothing. The output is
    private to this agent and the operator of the store.

    \b
    Examples:
      meanstream get N14228 --store state.db
      meanstream get N14228 --store state.db --json
    """  # noqa: D301 - click reads the escape
    from meanstream.streaming.agents.store_answers import StoreAnswers
    from meanstream.streaming.store.state_store import StoreError

    try:
        found = StoreAnswers(store).answer(agent)
    except StoreError as error:
        raise BadOption(str(error)) from None

    if found is None:
        raise BadOption(f"agent must have a sample that counts in {str(store)!r}, got {agent!r}")

    if as_json:
        print_options_json(found)
        return

    sys.stdout.write(_shown(found))


def _shown(found: Mapping[str, Any]) -> str:
    from meanstream.operators.validation import printable

    low, high = found["interval"]
    own_low, own_high = found["local_interval"]
    budget = found["budget"]
    of = f"{budget['spent']} releases, which have no end" if budget["horizon"] is None else None
    spent = of or f"{budget['spent']} of {budget['horizon']} releases spent"

    return (
        f"{printable(found['agent'])}: {found['value']:g} [{low:g}, {high:g}] ({100 * found['level']:g} %), "
        f"of {found['n']:,} samples\n"
        f"alone: {found['local']:g} [{own_low:g}, {own_high:g}]\n"
        f"{_of_its_values(found)}"
        f"as of {found['time']}, {_duration(found['age_seconds'])} ago\n"
        f"budget: {spent}, protected at "
        f"({found['epsilon']:g}, {found['delta']:g})\n"
    )


def _of_its_values(found: Mapping[str, Any]) -> str:
    r"""Say quantiles and exceedances, where some were requested.

    Examples
    --------
    >>> _of_its_values({"quantiles": [{"quantile": 0.9, "value": 31.5, "interval": [28.0, 36.0]}]})
    'quantile 0.9: 31.5 [28, 36]\n'
    """
    asked = [
        (f"quantile {one['quantile']:g}", one["value"], one["interval"])
        for one in found.get("quantiles", ())
    ]
    asked += [
        (f"share above {one['threshold']:g}", one["share"], one["interval"])
        for one in found.get("exceeds", ())
    ]

    return "".join(f"{name}: {value:g} [{low:g}, {high:g}]\n" for name, value, (low, high) in asked)


def _duration(seconds: float) -> str:
    """Say how long something is ago.

    Examples
    --------
    >>> _duration(12.3), _duration(7300), _duration(3e5)
    ('12 s', '2.0 h', '3.5 d')
    """
    for unit, size in (("d", 86_400.0), ("h", 3_600.0), ("min", 60.0)):
        if abs(seconds) >= size:
            return f"{seconds / size:.1f} {unit}"

    return f"{seconds:.0f} s"

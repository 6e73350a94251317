"""`meanstream audit`: mechanisms, a whole engine, rounds; stores and topics by what everybody may read."""

from __future__ import annotations

from typing import Annotated

import typer

from meanstream.pipelines.commands.audit.table import show_audit
from meanstream.pipelines.options.base import ConfigOption, JsonOption
from meanstream.pipelines.options.errors import refusing_options

app = typer.Typer(rich_markup_mode=None, no_args_is_help=True)


@app.callback()
def audit() -> None:
    """Prove from below how private the code is that runs: claimed, proved, and the most that could have been proved."""


@app.command("mechanism")
def mechanism(
    names: Annotated[
        list[str] | None,
        typer.Argument(help="Names, or their beginning (`channel`); `all` by default.", metavar="NAME"),
    ] = None,
    *,
    epsilon: Annotated[float, typer.Option(help="What each mechanism is made for.")] = 1.0,
    delta: Annotated[float, typer.Option(help="Of Gaussian noise; the others spend none.")] = 1e-6,
    config: ConfigOption = None,  # noqa: ARG001 - read before the other options
    as_json: JsonOption = False,
) -> None:
    """Count the outcomes of all random bits of every mechanism that there is, on the code as it runs.

    Counters with each noise that they take, channels, votes, and a curator's releases, for all pairs of inputs that
    can be listed. A mechanism of a kind that cannot be counted is audited by its reports. What proves more than it
    claims is named, and the exit code is 1.

    \b
    Examples:
      meanstream audit mechanism
      meanstream audit mechanism counter.toeplitz channel --epsilon 0.5 --json
    """  # noqa: D301 - click reads the escape
    from meanstream.operators.audit.mechanisms import mechanism_audits
    from meanstream.operators.validation import require_between, require_positive

    with refusing_options():
        require_positive(epsilon=epsilon)
        require_between(0, 1, delta=delta)
        audits = mechanism_audits(names or ["all"], epsilon=epsilon, delta=delta)
    show_audit((audit() for audit in audits.values()), as_json=as_json)

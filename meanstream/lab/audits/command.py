"""`meanstream audit`: mechanisms, a whole engine, rounds; stores and topics by what everyone may read."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from meanstream.pipelines.commands.state.ledger_command import SignatureOption, SignerOption
from meanstream.pipelines.options.base import JsonOption, print_options_json
from meanstream.pipelines.options.declaration import INPUT, PRIVACY, cli_option
from meanstream.pipelines.options.option_errors import RunFailed, refusing_options
from meanstream.pipelines.options.shared_options import ASKED
from meanstream.pipelines.options.typer_commands import takes_options

if TYPE_CHECKING:
    from meanstream.lab.audits.audit_options import AuditEngineOptions, AuditTopicOptions
    from meanstream.lab.evidence.audit_record import AuditRow

_HEAD = f"{'mechanism':<32} {'claimed':>8} {'proved':>8} {'ratio':>6} {'ceiling':>8} {'delta':>8}"


def show_audit(
    rows: Iterable[AuditRow],
    *,
    as_json: bool,
    notes: Iterable[str] = (),
    begun: float | None = None,
) -> None:
    """Print what was claimed and proved, a line for each mechanism as it is found.

    End with 1 on a violation.

    `begun` is when the work began (`time.monotonic`), where that was before this.
    """
    begun, shown = time.monotonic() if begun is None else begun, []
    if not as_json:
        sys.stdout.write(_HEAD + "\n")

    for row in rows:
        shown.append(row)
        if not as_json:
            sys.stdout.write(_line(row))
            sys.stdout.flush()

    violated = [row.name for row in shown if row.violated]
    if as_json:
        print_options_json(
            {"rows": [row.as_dict() for row in shown], "violated": violated, "notes": list(notes)}
        )
    else:
        for text in dict.fromkeys(f"{row.method}; assumed: {row.assumption}" for row in shown):
            names = [
                row.name for row in shown if f"{row.method}; assumed: {row.assumption}" == text
            ]
            sys.stdout.write(f"- {', '.join(names)}: {text}\n")

        sys.stdout.writelines(f"- {note}\n" for note in notes)
        sys.stdout.write(
            f"{len(shown)} audited in {time.monotonic() - begun:.1f} s, {len(violated)} violated\n"
        )

    if violated:
        raise RunFailed(f"privacy must be as claimed, got less from {', '.join(violated)}")


def _line(row: AuditRow) -> str:
    end = f" VIOLATED{f': {row.fault}' if row.fault else ''}" if row.violated else ""
    return (
        f"{row.name:<32} {row.claimed:>8.4g} {row.proved:>8.4f} {row.ratio:>6.3f} {row.ceiling:>8.4f} "
        f"{row.delta:>8.1g}{end}\n"
    )


app = typer.Typer(rich_markup_mode=None, no_args_is_help=True)


@app.callback()
def audit() -> None:
    """Attack the running code for a lower bound on its privacy loss."""


@app.command("mechanism")
def mechanism(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            help="Mechanisms: names or their beginnings (`channel`); default: all.", metavar="NAME"
        ),
    ] = None,
    *,
    epsilon: Annotated[float, cli_option("Privacy budget of each mechanism.", PRIVACY)] = 1.0,
    delta: Annotated[
        float, cli_option("Delta of mechanisms with Gaussian noise; others have none.", PRIVACY)
    ] = 1e-6,
    as_json: JsonOption = False,
) -> None:
    """Count the outcomes of all random bits of each mechanism, on the code as it runs.

    Covers counters with each of their noises, channels, votes, and a curator's releases, for all pairs of inputs
    that can be listed. Other mechanisms are audited by their reports. A mechanism with a larger loss than its claim
    is named, and the exit code is 1.

    \b
    Examples:
      meanstream audit mechanism
      meanstream audit mechanism counter.toeplitz channel --epsilon 0.5 --json
    """  # noqa: D301 - click reads the escape
    from meanstream.lab.evidence.audit_record import require_auditable
    from meanstream.lab.evidence.mechanisms_audit import mechanism_audits
    from meanstream.operators.validation import require_between

    with refusing_options():
        require_auditable(epsilon)
        require_between(0, 1, delta=delta)
        audits = mechanism_audits(names or ["all"], epsilon=epsilon, delta=delta)

    show_audit((audit() for audit in audits.values()), as_json=as_json)


@app.command("engine")
@takes_options(
    "meanstream.lab.audits.audit_options:AuditEngineOptions",
    typed=(*ASKED, "through", "canaries", "kills", "seed"),
)
def engine(options: AuditEngineOptions) -> None:
    """Attack one run of the engine with planted agents, and bound epsilon from below.

    The first samples of each planted agent (canary) lie at a bound chosen by a coin. The audit guesses the coins
    from all releases. Noise that is too small, averaged, shared or reused fails, with exit code 1. The options are
    those of `run agents`. --config or --store audits that configuration, with deaths and replays in between.
    Sources, sinks and columns are ignored.

    \b
    Examples:
      meanstream audit engine
      meanstream audit engine --config run.yaml --canaries 5000
    """  # noqa: D301 - click reads the escape
    from meanstream.lab.audits.audit_engine import audit_engine_rows

    rows, notes = audit_engine_rows(options)
    show_audit(rows, as_json=options.json, notes=notes)


@app.command("store")
def store(
    file: Annotated[
        Path,
        typer.Argument(
            help="Store of `run agents` or of a federated site; its engine may be running."
        ),
    ],
    *,
    signature: SignatureOption = None,
    signer: SignerOption = None,
    as_json: JsonOption = False,
) -> None:
    """Check a store from its ledger: chain, spend, sums on the grid, law of the noise.

    Faults are named, and the exit code is 1. --signature and --signer also check that the ledger
    begins as it was signed. No secret of agents is read. The ledgers of agents that query each
    other and of federated sites are their operator's: where a run finds the secret, each release
    must be an exact sum with the draw of its id.

    \b
    Examples:
      meanstream audit store state.db
      meanstream audit store pairs.db
      meanstream audit store state.db --signature head.json --signer signing.key.pub
    """  # noqa: D301 - click reads the escape
    from meanstream.lab.audits.audit_public import audit_store_rows

    begun = time.monotonic()
    rows, notes = audit_store_rows(file, signature, signer)
    show_audit(rows, as_json=as_json, notes=notes, begun=begun)


@app.command("topic")
@takes_options(
    "meanstream.lab.audits.audit_options:AuditTopicOptions",
    typed=(*ASKED, "address"),
    also=("agents_options:AgentsOptions",),
)
def topic(options: AuditTopicOptions) -> None:
    """Check public releases against the promise: spend, one value per id, sums on the grid, law of the noise.

    The promise is that of --store or of the run's --config, or bounds, epsilon and delta. Sources, sinks and
    columns are ignored. Faults are named, and the exit code is 1.

    \b
    Example:
      meanstream audit topic releases.jsonl --config run.yaml
      meanstream audit topic releases.jsonl --lower -30 --upper 120 --epsilon 1 --delta 1e-6
    """  # noqa: D301 - click reads the escape
    from meanstream.lab.audits.audit_public import audit_topic_rows

    begun = time.monotonic()
    rows, notes = audit_topic_rows(options)
    show_audit(rows, as_json=options.json, notes=notes, begun=begun)


@app.command("rounds")
def rounds(
    names: Annotated[
        list[str] | None,
        typer.Argument(help="Estimators of local privacy; default: all.", metavar="NAME"),
    ] = None,
    *,
    epsilon: Annotated[
        float, cli_option("Privacy budget of everything that one user sends.", PRIVACY)
    ] = 1.0,
    users: Annotated[
        int, cli_option("Number of canaries, which are planted users.", INPUT)
    ] = 100_000,
    seed: Annotated[
        int | None,
        cli_option(
            "Seed of the coins and of the temporary secret; default: a new one each time.", INPUT
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Attack users' reports with planted samples, and bound epsilon from below.

    One window passes through every stage of each estimator, under a temporary secret. Estimators that cannot be
    designed for these users are listed. A report with a larger loss than its epsilon ends with exit code 1.

    \b
    Example:
      meanstream audit rounds plan dame --epsilon 2
    """  # noqa: D301 - click reads the escape
    from meanstream.lab.audits.audit_rounds import audit_rounds_rows

    rows, notes = audit_rounds_rows(names or [], epsilon=epsilon, users=users, seed=seed)
    show_audit(rows, as_json=as_json, notes=notes)

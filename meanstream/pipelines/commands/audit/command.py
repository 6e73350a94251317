"""`meanstream audit`: mechanisms, a whole engine, rounds; stores and topics by what everybody may read."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from meanstream.pipelines.commands.audit.engine import AuditEngineOptions, audit_engine_rows
from meanstream.pipelines.commands.audit.public import AuditTopicOptions, audit_store_rows, audit_topic_rows
from meanstream.pipelines.commands.audit.rounds import audit_rounds_rows
from meanstream.pipelines.commands.audit.table import show_audit
from meanstream.pipelines.commands.state.ledger import SignatureOption, SignerOption
from meanstream.pipelines.options.base import ConfigOption, JsonOption, takes_options
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
    from meanstream.operators.audit.record import require_auditable
    from meanstream.operators.validation import require_between

    with refusing_options():
        require_auditable(epsilon)
        require_between(0, 1, delta=delta)
        audits = mechanism_audits(names or ["all"], epsilon=epsilon, delta=delta)
    show_audit((audit() for audit in audits.values()), as_json=as_json)


@app.command("engine")
@takes_options(AuditEngineOptions)
def engine(options: AuditEngineOptions) -> None:
    """Guess the coins behind agents' first samples from all that one run releases; bound epsilon from below by that.

    Each canary's first samples lie at a bound by coins of their own. What is right keeps its claim; noise that is too
    small, averaged, shared or used again does not, and the exit code is 1. Options are those of `run agents`: with
    --config that configuration is audited, with deaths and replays in between. Places and columns play no part.

    \b
    Examples:
      meanstream audit engine
      meanstream audit engine --config run.yaml --canaries 5000
    """  # noqa: D301 - click reads the escape
    rows, notes = audit_engine_rows(options)
    show_audit(rows, as_json=options.json, notes=notes)


@app.command("store")
def store(
    file: Annotated[Path, typer.Argument(help="Store of `run agents`; an engine may be running on it.")],
    *,
    signature: SignatureOption = None,
    signer: SignerOption = None,
    config: ConfigOption = None,  # noqa: ARG001 - read before the other options
    as_json: JsonOption = False,
) -> None:
    """Check a store as anybody could who is given its ledger: chain, spend, sums on the grid, law of the noise.

    No secret is read. What is wrong is named, and the exit code is 1. With a signed head and its signer's public key
    the ledger must begin as was signed.

    \b
    Examples:
      meanstream audit store state.db
      meanstream audit store state.db --signature head.json --signer signing.key.pub
    """  # noqa: D301 - click reads the escape
    begun = time.monotonic()
    rows, notes = audit_store_rows(file, signature, signer)
    show_audit(rows, as_json=as_json, notes=notes, begun=begun)


@app.command("topic")
@takes_options(AuditTopicOptions)
def topic(options: AuditTopicOptions) -> None:
    """Check public releases against what was promised: spend, one value per id, sums on the grid, law of the noise.

    Bounds, epsilon, delta, counter and horizon are those of `run agents`, from --config or one by one; places, columns
    and the rest play no part. What is wrong is named, and the exit code is 1.

    \b
    Example:
      meanstream audit topic releases.jsonl --lower -30 --upper 120 --epsilon 1 --delta 1e-6
    """  # noqa: D301 - click reads the escape
    begun = time.monotonic()
    rows, notes = audit_topic_rows(options)
    show_audit(rows, as_json=options.json, notes=notes, begun=begun)


@app.command("rounds")
def rounds(
    names: Annotated[
        list[str] | None, typer.Argument(help="Estimators of local privacy; `all` by default.", metavar="NAME")
    ] = None,
    *,
    epsilon: Annotated[float, typer.Option(help="Of everything that one user sends.")] = 1.0,
    users: Annotated[int, typer.Option(help="Canaries.")] = 100_000,
    seed: Annotated[
        int | None,
        typer.Option(help="Of coins and the secret, which is thrown away; default: another one each time."),
    ] = None,
    config: ConfigOption = None,  # noqa: ARG001 - read before the other options
    as_json: JsonOption = False,
) -> None:
    """Guess from users' reports at which bound their samples lie; bound epsilon from below by how often that is right.

    One window, through every stage of each estimator, with a secret that is thrown away. Estimators that cannot be
    designed for these users are told of. A report that shows more than its epsilon ends with exit code 1.

    \b
    Example:
      meanstream audit rounds plan dame --epsilon 2
    """  # noqa: D301 - click reads the escape
    from meanstream.operators.audit.one_run import LEAST_CANARIES
    from meanstream.operators.audit.record import require_auditable
    from meanstream.operators.validation import require

    with refusing_options():
        require_auditable(epsilon)
        require(seed is None or seed >= 0, "seed", "be at least 0", seed)
        require(users >= 2 * LEAST_CANARIES, "users", f"be at least {2 * LEAST_CANARIES}", users)
    rows, notes = audit_rounds_rows(names or [], epsilon=epsilon, users=users, seed=seed)
    show_audit(rows, as_json=as_json, notes=notes)

"""`meanstream ledger`: is everything that was charged still what was written, who says so, and copies of it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from meanstream.pipelines.options.base import JsonOption
from meanstream.pipelines.options.declaration import INPUT, OUTPUT, PRIVACY, cli_option

app = typer.Typer(rich_markup_mode=None, no_args_is_help=True)

SignatureOption = Annotated[
    Path | None, cli_option("Signed head of `ledger sign`; the ledger must begin with it.", INPUT)
]
SignerOption = Annotated[
    Path | None, cli_option("Public key of the signer (FILE.pub of `secret new --signing`).", INPUT)
]


@app.callback()
def ledger() -> None:
    """Verify, sign, export and back up the ledger of releases."""


@app.command("verify")
def ledger_verify(
    *,
    store: Annotated[
        Path,
        cli_option("Store of `run agents`, or a folder of shards; it may be running.", INPUT),
    ],
    head: Annotated[
        str | None,
        cli_option("Earlier printed head, which the ledger must contain.", INPUT, metavar="DIGEST"),
    ] = None,
    rows: Annotated[
        int | None,
        cli_option(
            "Earlier printed number of rows; with --head, the position of that head.", INPUT
        ),
    ] = None,
    signature: SignatureOption = None,
    signer: SignerOption = None,
    as_json: JsonOption = False,
) -> None:
    """Recompute the hash chain of all releases and compare it with every row; print rows, agents and the head.

    The head stands for the whole ledger. Note it with the number of rows in another place: no later change of these
    rows can hide from it. `ledger sign` makes such a note with a signature. A fault is one line with the first bad
    row, and exit code 1.

    \b
    Examples:
      meanstream ledger verify --store state.db
      meanstream ledger verify --store state.db --rows 18234 --head 0f3a...9c
      meanstream ledger verify --store state.db --signature head.json --signer signing.key.pub
    """  # noqa: D301 - click reads the escape
    from meanstream.pipelines.commands.state.ledger_checks import verify_ledger

    verify_ledger(
        store=store, head=head, rows=rows, signature=signature, signer=signer, as_json=as_json
    )


@app.command("sign")
def ledger_sign(
    *,
    store: Annotated[Path, cli_option("Store of an engine, which may be running.", INPUT)],
    signing_key: Annotated[Path, cli_option("Private key of `secret new --signing`.", PRIVACY)],
    to: Annotated[Path, cli_option("New file for the signed head (public).", OUTPUT)],
    as_json: JsonOption = False,
) -> None:
    """Verify a ledger and sign its head, so that others can check its beginning and its owner.

    The signed head is public. A ledger that is changed later, or forked from an older copy, no longer matches it.

    \b
    Example:
      meanstream ledger sign --store state.db --signing-key signing.key --to heads/2026-01-31.json
    """  # noqa: D301 - click reads the escape
    from meanstream.pipelines.commands.state.ledger_checks import sign_ledger

    sign_ledger(store=store, signing_key=signing_key, to=to, as_json=as_json)


@app.command("export")
def ledger_export(
    *,
    store: Annotated[Path, cli_option("Store of an engine, which may be running.", INPUT)],
    to: Annotated[Path, cli_option("New file for the export (JSON lines).", OUTPUT)],
    rows: Annotated[
        int | None,
        cli_option(
            "Number of rows to export, such as those of a signed head (default: all).", INPUT
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Write a ledger as JSON lines that others can verify without the store: releases and chain.

    The export holds no raw data and no input digests. It is as public as the releases in it, and
    with a signed head it proves them. docs/reference/formats.md describes the format, and
    examples/verify_ledger.mjs verifies it.

    \b
    Example:
      meanstream ledger export --store state.db --to ledger.jsonl
    """  # noqa: D301 - click reads the escape
    from meanstream.pipelines.commands.state.ledger_checks import export_rows

    export_rows(store=store, to=to, rows=rows, as_json=as_json)


@app.command("backup")
def ledger_backup(
    *,
    store: Annotated[Path, cli_option("Store of an engine, which may be running.", INPUT)],
    to: Annotated[Path, cli_option("New file for the copy (private, as the store).", OUTPUT)],
    as_json: JsonOption = False,
) -> None:
    """Copy a store with its ledger at one commit, verify the copy, and print its rows, agents and head.

    The secret is not in the copy: back it up separately. docs/deployment.md explains how to restore.

    \b
    Example:
      meanstream ledger backup --store state.db --to backups/2026-01-31.db
    """  # noqa: D301 - click reads the escape
    from meanstream.pipelines.commands.state.ledger_checks import back_up_ledger

    back_up_ledger(store=store, to=to, as_json=as_json)

"""`meanstream ledger`: is everything that was charged still what was written, who says so, and copies of it."""

from __future__ import annotations

import json
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from meanstream.pipelines.options.base import JsonOption, print_options_json
from meanstream.pipelines.options.declared import INPUT, OUTPUT, PRIVACY, cli_option
from meanstream.pipelines.options.option_errors import BadOption, RunFailed, refusing_options

if TYPE_CHECKING:
    from meanstream.streaming.store.store_audit import LedgerReport, NotedLedger

app = typer.Typer(rich_markup_mode=None, no_args_is_help=True)

SignatureOption = Annotated[
    Path | None, cli_option("Signed head of `ledger sign`; the ledger must begin with it.", INPUT)
]
SignerOption = Annotated[
    Path | None, cli_option("Public key of the signer (FILE.pub of `secret new --signing`).", INPUT)
]


@app.callback()
def ledger() -> None:
    """Verify, sign and back up the ledger of releases."""


@app.command("verify")
def ledger_verify(
    *,
    store: Annotated[Path, cli_option("Store of `run agents`; its engine may be running.", INPUT)],
    head: Annotated[
        str | None, cli_option("Earlier printed head, which the ledger must contain.", INPUT, metavar="DIGEST")
    ] = None,
    rows: Annotated[
        int | None, cli_option("Earlier printed number of rows; with --head, the position of that head.", INPUT)
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
    from meanstream.streaming.store.state_store import DamagedStoreError, StoreError
    from meanstream.streaming.store.store_audit import OtherLedgerError, audit_ledger

    noted = _noted(rows, head)
    if signature is not None or signer is not None:
        if (rows, head) != (None, None):
            raise BadOption("signature must be given without rows and head, since it contains both")
        noted = ledger_signature(store, signature, signer)
    try:
        report = audit_ledger(store, noted)
    except (DamagedStoreError, OtherLedgerError) as error:
        raise RunFailed(str(error)) from None
    except StoreError as error:
        raise BadOption(str(error)) from None
    _show(report, as_json=as_json)


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
    from meanstream.streaming.own_paths import (
        own_files_of_store,
        require_own_path_beside_no_store,
        require_own_paths_apart,
    )
    from meanstream.streaming.store.ledger_signature import deployment_of_ledger, sign_head
    from meanstream.streaming.store.secret_source import write_new_secret_file
    from meanstream.streaming.store.state_store import DamagedStoreError, StoreError
    from meanstream.streaming.store.store_audit import audit_ledger

    with refusing_options():
        require_own_paths_apart({"to": to}, own_files_of_store(store) | {"the signing key": signing_key})
        require_own_path_beside_no_store("to", to)
    try:
        report, name = audit_ledger(store), deployment_of_ledger(store)
    except DamagedStoreError as error:
        raise RunFailed(str(error)) from None
    except StoreError as error:
        raise BadOption(str(error)) from None
    with refusing_options():
        now = datetime.fromtimestamp(time.time(), UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
        signed = sign_head(signing_key, report, deployment=name, signed_at=now)
        write_new_secret_file(to, json.dumps(signed.plain()).encode() + b"\n", what="to", mode=0o644)
    _show(report, as_json=as_json)


def ledger_signature(store: Path, signature: Path | None, signer: Path | None) -> NotedLedger:
    """Check a signed head; give what it says of the ledger.

    Raises
    ------
    BadOption
        If one of the two files is not given, or is not what it should be.
    RunFailed
        If the head is not what the signer signed, or is about another deployment.
    """
    from meanstream.streaming.store.database import StoreError
    from meanstream.streaming.store.ledger_signature import BadSignatureError, noted_by_signer

    if signature is None or signer is None:
        given, missing = ("signature", "signer") if signer is None else ("signer", "signature")
        raise BadOption(f"{missing} must be given with {given}: a head and who signed it")
    try:
        with refusing_options():
            try:
                return noted_by_signer(signature, signer, store)
            except BadSignatureError as error:
                raise RunFailed(str(error)) from None
    except StoreError as error:
        raise BadOption(str(error)) from None


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
    from meanstream.streaming.own_paths import (
        own_files_of_store,
        require_own_path_beside_no_store,
        require_own_paths_apart,
    )
    from meanstream.streaming.store.database import CopyFailedError
    from meanstream.streaming.store.state_store import DamagedStoreError, StoreError
    from meanstream.streaming.store.store_backup import back_up_store

    with refusing_options():
        require_own_paths_apart({"to": to}, own_files_of_store(store))
        require_own_path_beside_no_store("to", to)
    try:
        report = back_up_store(store, to)
    except (DamagedStoreError, CopyFailedError) as error:
        raise RunFailed(str(error)) from None
    except StoreError as error:
        raise BadOption(str(error)) from None
    _show(report, as_json=as_json)


def _show(report: LedgerReport, *, as_json: bool) -> None:
    found = {"rows": report.rows, "agents": report.agents, "head": report.head.hex()}
    if as_json:
        print_options_json(found)
    else:
        sys.stdout.writelines(f"{name:<7} {value}\n" for name, value in found.items())


def _noted(rows: int | None, head: str | None) -> NotedLedger:
    from meanstream.operators.validation import require
    from meanstream.streaming.store.store_audit import NotedLedger

    with refusing_options():
        require(rows is None or rows >= 0, "rows", "be at least 0", rows)
    try:
        digest = None if head is None else bytes.fromhex(head)
    except ValueError:
        digest = b""
    if digest is not None and len(digest) != 32:
        raise BadOption(f"head must be 64 hexadecimal digits, got {head!r}")
    return NotedLedger(rows=rows, head=digest)

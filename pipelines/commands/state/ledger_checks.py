"""What `meanstream ledger` does: audits a chain, signs its head, exports rows, copies a store."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from meanstream.operators.validation import require
from meanstream.pipelines.options.base import print_options_json
from meanstream.pipelines.options.option_errors import BadOption, RunFailed, refusing_options
from meanstream.streaming.own_paths import (
    own_files_of_store,
    require_no_store_file,
    require_own_paths_apart,
    stores_at,
)
from meanstream.streaming.store.database import CopyFailedError
from meanstream.streaming.store.ledger_signature import (
    BadSignatureError,
    deployment_of_ledger,
    noted_by_signer,
    sign_head,
)
from meanstream.streaming.store.secret_source import write_new_secret_file
from meanstream.streaming.store.state_store import DamagedStoreError, StoreError
from meanstream.streaming.store.store_audit import (
    LedgerReport,
    NotedLedger,
    OtherLedgerError,
    audit_ledger,
    back_up_store,
    export_ledger,
)


def verify_ledger(
    *,
    store: Path,
    head: str | None,
    rows: int | None,
    signature: Path | None,
    signer: Path | None,
    as_json: bool,
) -> None:
    """Recompute the hash chain of all releases and compare it with every row.

    Print rows, agents and the head.
    """
    with refusing_options():
        stores = stores_at(store)

    if len(stores) > 1:
        if any(given is not None for given in (head, rows, signature, signer)):
            rule = "be one store with --head, --rows or --signature"
            raise BadOption(f"store must {rule}, got the folder {str(store)!r}")

        _verify_shards(stores, as_json=as_json)
        return

    (store,) = stores
    noted = _noted(rows, head)
    if signature is not None or signer is not None:
        if (rows, head) != (None, None):
            raise BadOption("signature must be given without rows and head, since it contains both")
        noted = ledger_signature(store, signature, signer)

    _show(_audited(store, noted), as_json=as_json)


def _audited(store: Path, noted: NotedLedger | None = None) -> LedgerReport:
    try:
        return audit_ledger(store, noted)
    except (DamagedStoreError, OtherLedgerError) as error:
        raise RunFailed(str(error)) from None
    except StoreError as error:
        raise BadOption(str(error)) from None


def _verify_shards(stores: Sequence[Path], *, as_json: bool) -> None:
    """Verify the chain of each shard, and print a line for each."""
    facts = [{"store": str(path), **_facts(_audited(path))} for path in stores]
    if as_json:
        print_options_json({"stores": facts})
    else:
        lines = (" ".join(f"{name} {value}" for name, value in shard.items()) for shard in facts)
        sys.stdout.writelines(f"{line}\n" for line in lines)


def sign_ledger(*, store: Path, signing_key: Path, to: Path, as_json: bool) -> None:
    """Verify a ledger and sign its head, so that others can check its beginning and its owner."""
    with refusing_options():
        require_own_paths_apart(
            {"to": to}, own_files_of_store(store) | {"the signing key": signing_key}
        )
        require_no_store_file("to", to)

    try:
        report = audit_ledger(store)
        name = deployment_of_ledger(store)
    except DamagedStoreError as error:
        raise RunFailed(str(error)) from None
    except StoreError as error:
        raise BadOption(str(error)) from None

    with refusing_options():
        now = (
            datetime.fromtimestamp(time.time(), UTC)
            .isoformat(timespec="seconds")
            .replace("+00:00", "Z")
        )
        signed = sign_head(signing_key, report, deployment=name, signed_at=now)
        write_new_secret_file(
            to, json.dumps(signed.plain()).encode() + b"\n", what="to", mode=0o644
        )

    _show(report, as_json=as_json)


def ledger_signature(store: Path, signature: Path | None, signer: Path | None) -> NotedLedger:
    """Check a signed head; give what it says of the ledger."""
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


def back_up_ledger(*, store: Path, to: Path, as_json: bool) -> None:
    """Copy a store with its ledger at one commit, verify the copy, and print its rows, agents and head."""
    with refusing_options():
        require_own_paths_apart({"to": to}, own_files_of_store(store))
        require_no_store_file("to", to)

    try:
        report = back_up_store(store, to)
    except (DamagedStoreError, CopyFailedError) as error:
        raise RunFailed(str(error)) from None
    except StoreError as error:
        raise BadOption(str(error)) from None

    _show(report, as_json=as_json)


def export_rows(*, store: Path, to: Path, rows: int | None, as_json: bool) -> None:
    """Write a ledger as JSON lines, and print its rows, agents and head."""
    with refusing_options():
        require(rows is None or rows >= 0, "rows", "be at least 0", rows)
        require_own_paths_apart({"to": to}, own_files_of_store(store))
        require_no_store_file("to", to)

        try:
            report = export_ledger(store, to, rows=rows)
        except (DamagedStoreError, CopyFailedError) as error:
            raise RunFailed(str(error)) from None
        except StoreError as error:
            raise BadOption(str(error)) from None

    _show(report, as_json=as_json)


def _facts(report: LedgerReport) -> dict[str, Any]:
    return {"rows": report.rows, "agents": report.agents, "head": report.head.hex()}


def _show(report: LedgerReport, *, as_json: bool) -> None:
    facts = _facts(report)
    if as_json:
        print_options_json(facts)
    else:
        sys.stdout.writelines(f"{name:<7} {value}\n" for name, value in facts.items())


def _noted(rows: int | None, head: str | None) -> NotedLedger:
    with refusing_options():
        require(rows is None or rows >= 0, "rows", "be at least 0", rows)

    try:
        digest = None if head is None else bytes.fromhex(head)
    except ValueError:
        digest = b""

    if digest is not None and len(digest) != 32:
        raise BadOption(f"head must be 64 hexadecimal digits, got {head!r}")
    return NotedLedger(rows=rows, head=digest)

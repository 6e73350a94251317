"""Signed heads: anyone who has the signer's public key knows that a ledger began like this, and whose it is."""

from __future__ import annotations

import json
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from meanstream.streaming.store.secret_source import warn_if_secret_shared, write_new_secret_file
from meanstream.streaming.store.state_store import Store
from meanstream.streaming.store.store_audit import LedgerReport, NotedLedger

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import (
        Ed25519PrivateKey,
        Ed25519PublicKey,
    )

VERSION = 1
"""Of the file of a signed head."""
PUBLIC_SUFFIX = ".pub"
"""Of the public half of a key, next to the private one."""

_ABOUT = b"meanstream ledger head\n"  # nothing else that such a key may ever sign begins like this
_MOST_BYTES = 1 << 16


class BadSignatureError(ValueError):
    """A head is not what the signer has signed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SignedHead:
    """Public: what a signer says of a ledger.

    Attributes
    ----------
    version : int
        Of this record.
    deployment : str or None
        Name of the deployment, which the ledger's store keeps.
    rows : int
        Number of rows that the head stands for.
    head : str
        Value of the chain there, 64 hexadecimal digits.
    signed_at : str
        When, by the signer's clock; UTC.
    signature : str
        Ed25519, of all the rest; 128 hexadecimal digits.
    """

    version: int
    deployment: str | None
    rows: int
    head: str
    signed_at: str
    signature: str

    def plain(self) -> dict[str, Any]:
        """Give it as plain values."""
        return {field.name: getattr(self, field.name) for field in fields(self)}


def make_signing_key(path: Path) -> Path:
    """Write a new private key into a file that only its owner can read, and its public half next to it, both as PEM.

    **Privacy.** The key says who has signed a ledger; it has nothing to do with the noise, and is never logged.
    """
    from cryptography.hazmat.primitives import serialization as forms
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    # The public half stands beside, and may be given away.
    key = Ed25519PrivateKey.generate()
    private = key.private_bytes(forms.Encoding.PEM, forms.PrivateFormat.PKCS8, forms.NoEncryption())
    public = key.public_key().public_bytes(
        forms.Encoding.PEM, forms.PublicFormat.SubjectPublicKeyInfo
    )
    beside = path.with_name(path.name + PUBLIC_SUFFIX)
    write_new_secret_file(beside, public, what="public key", mode=0o644)

    # Both files, or none of them.
    try:
        write_new_secret_file(path, private, what="signing key")
    except ValueError:
        beside.unlink()
        raise

    return beside


def sign_head(
    key: Path, report: LedgerReport, *, deployment: str | None, signed_at: str
) -> SignedHead:
    """Sign where a ledger ends.

    Examples
    --------
    >>> import tempfile
    >>> key = Path(tempfile.mkdtemp()) / "signing.key"
    >>> public = make_signing_key(key)
    >>> signed = sign_head(key, LedgerReport(3, 1, bytes(32)), deployment="flights", signed_at="2026-01-31T00:00:00Z")
    >>> signed.rows, len(signed.signature), public.name
    (3, 128, 'signing.key.pub')
    """
    # What is signed: how far the ledger goes, of which deployment, when.
    values: dict[str, Any] = {
        "version": VERSION,
        "deployment": deployment,
        "rows": report.rows,
        "head": report.head.hex(),
        "signed_at": signed_at,
    }

    return SignedHead(**values, signature=_private_key(key).sign(_signed_bytes(values)).hex())


def _check(signed: SignedHead, signer: Path) -> None:
    """Compare a signed head with its signature."""
    from cryptography.exceptions import InvalidSignature

    values = signed.plain()
    signature = values.pop("signature")
    key = _public_key(signer)
    try:
        key.verify(bytes.fromhex(signature), _signed_bytes(values))
    except InvalidSignature:
        raise BadSignatureError(
            f"signature must be of the key in {str(signer)!r}, got another one"
        ) from None


def noted_by_signer(signature: Path, signer: Path, store: Path) -> NotedLedger:
    """Give what a signer noted of a store's ledger, for `audit_ledger` to compare."""
    # A signature says something of one deployment only.
    signed = _read(signature)
    _check(signed, signer)
    name = deployment_of_ledger(store)
    if name != signed.deployment:
        raise BadSignatureError(
            f"signature must be about deployment {name!r}, got one about {signed.deployment!r}"
        )

    return NotedLedger(rows=signed.rows, head=bytes.fromhex(signed.head))


def deployment_of_ledger(store: Path) -> str | None:
    """Tell the name of the deployment whose ledger a store holds.

    Stores of before there were names have none.
    """
    with Store.read(store) as opened:
        name = (opened.settings() or {}).get("name")

    if name is None:
        return None
    return str(name)


def _read(path: Path) -> SignedHead:
    """Read the file of a signed head, which anyone may have written."""
    rule = f"signature must be a signed head of version {VERSION}, got"
    try:
        with path.open("rb") as file:
            # Anyone may have written the file: it is read to a limit.
            text = file.read(_MOST_BYTES + 1)

        plain = json.loads(text) if len(text) <= _MOST_BYTES else None
    except OSError as error:
        raise ValueError(
            f"signature must be in a readable file, got {str(path)!r} ({error.strerror})"
        ) from None
    except (ValueError, RecursionError):
        plain = None

    if not isinstance(plain, dict) or plain.keys() != {field.name for field in fields(SignedHead)}:
        raise ValueError(f"{rule} something else in {str(path)!r}")

    # Each field has a kind; true is no number here.
    kinds: dict[str, Any] = dict.fromkeys(("head", "signed_at", "signature"), str)
    kinds |= {"version": int, "rows": int, "deployment": str | None}
    wrong = [
        name
        for name, kind in kinds.items()
        if not isinstance(plain[name], kind) or plain[name] is True
    ]
    long = {"head": 64, "signature": 128}
    wrong += [name for name, n in long.items() if name not in wrong and not _is_hex(plain[name], n)]

    if wrong or plain["version"] != VERSION or plain["rows"] < 0:
        raise ValueError(f"{rule} another {(wrong or ['version or rows'])[0]} in {str(path)!r}")
    return SignedHead(**plain)


def _is_hex(text: str, digits: int) -> bool:
    return len(text) == digits and set(text) <= set("0123456789abcdef")


def _signed_bytes(values: dict[str, Any]) -> bytes:
    return _ABOUT + json.dumps(values, sort_keys=True, separators=(",", ":")).encode("ascii")


def _private_key(path: Path) -> Ed25519PrivateKey:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    key = _pem(path, "signing_key", lambda data: load_pem_private_key(data, password=None))
    if not isinstance(key, Ed25519PrivateKey):
        raise ValueError(
            f"signing_key must be an Ed25519 key (PEM, without a password), got another in {str(path)!r}"
        )

    warn_if_secret_shared(path, "signing key")
    return key


def _public_key(path: Path) -> Ed25519PublicKey:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
    from cryptography.hazmat.primitives.serialization import load_pem_public_key

    key = _pem(path, "signer", load_pem_public_key)
    if not isinstance(key, Ed25519PublicKey):
        raise ValueError(f"signer must be a public Ed25519 key (PEM), got another in {str(path)!r}")
    return key


def _pem(path: Path, option: str, load: Any) -> Any:
    """Read a key; what is in the file is in no message."""
    from cryptography.exceptions import UnsupportedAlgorithm

    try:
        with path.open("rb") as file:
            pem = file.read(_MOST_BYTES)
    except OSError as error:
        raise ValueError(
            f"{option} must be a readable file, got {str(path)!r} ({error.strerror})"
        ) from None

    try:
        return load(pem)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        raise ValueError(
            f"{option} must be an Ed25519 key (PEM), got something else in {str(path)!r}"
        ) from None

"""What made a durable state: settings and secret, recognized again without telling the secret; and whose it is.

A store, a shard of a pipeline and whatever else is kept begin with this; opened under others they
are refused.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from meanstream.operators.noise.keyed import canonical
from meanstream.streaming.store.database import StoreError

SIDE = "side"
"""The setting that tells kinds of stores apart; a store of agents has none."""
OF_AGENTS = "agents"
OF_USERS = "users in rounds"
OF_STATISTICIAN = "a statistician in rounds"
OF_PAIRS = "agents that query each other"
OF_SITE = "a federated site"

_KINDS = {None: OF_AGENTS, "users": OF_USERS, "statistician": OF_STATISTICIAN, "pairs": OF_PAIRS}


def store_kind(settings: Mapping[str, Any]) -> str:
    """Tell whose a store is.

    Examples
    --------
    >>> store_kind({"epsilon": 1.0}), store_kind({"side": "users", "epsilon": 1.0})
    ('agents', 'users in rounds')
    """
    side = settings.get(SIDE)
    return _KINDS.get(side, str(side))


def require_store_kind(
    path: Path, settings: Mapping[str, Any], *kinds: str, with_pairs: str = ""
) -> None:
    """Refuse a store of another kind, before anything is made of its settings.

    `with_pairs` says what can be done with a store of agents that query each other instead.
    """
    kind = store_kind(settings)
    if kind in kinds:
        return

    way_out = f": {with_pairs}" if with_pairs and kind == OF_PAIRS else ""
    raise StoreError(
        f"store must be one of {' or of '.join(kinds)}, got {str(path)!r}, one of {kind}{way_out}"
    )


_SALT_BYTES = 16


class OtherIdentityError(ValueError):
    """A state was made with other settings or another secret.

    The message is one line that names what differs.
    """


def new_identity_name() -> str:
    """Make a name for a deployment that was not given one: 64 random bits."""
    return secrets.token_hex(8)


def identity_fingerprint(secret: bytes, salt: bytes) -> bytes:
    """Recognize a secret without telling it: 16 bytes that another salt makes others."""
    return hmac.new(secret, b"meanstream store" + salt, hashlib.sha256).digest()[:16]


def make_identity(
    settings: Mapping[str, Any], secret: bytes, *, salt: bytes | None = None
) -> dict[str, Any]:
    """Give what a state begins with, as plain data.

    Examples
    --------
    >>> made = make_identity({"name": "flights", "shards": 4}, b"sixteen bytes or more", salt=bytes(16))
    >>> require_same_identity(made, {"name": "flights", "shards": 8}, b"sixteen bytes or more")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    meanstream.streaming.store.store_identity.OtherIdentityError: shards must be 4 as in the state that...
    """
    salt = secrets.token_bytes(_SALT_BYTES) if salt is None else salt
    return {
        "settings": dict(settings),
        "salt": salt.hex(),
        "secret": identity_fingerprint(secret, salt).hex(),
    }


def identity_made_with(identity: Mapping[str, Any], secret: bytes) -> bool:
    """Say whether a state was made with a secret."""
    return hmac.compare_digest(
        identity_fingerprint(secret, bytes.fromhex(identity["salt"])).hex(), identity["secret"]
    )


def identity_repeated_salt(settings: Mapping[str, Any], secret: bytes) -> bytes:
    """Give the same salt on every retry; who lacks the secret cannot tell it from a random one."""
    return hmac.new(
        secret, b"meanstream salt" + canonical(dict(settings)), hashlib.sha256
    ).digest()[:_SALT_BYTES]


def _require_same_histogram(
    saved: Mapping[str, Any], settings: Mapping[str, Any], what: str
) -> None:
    """Name what was requested, and not the part of the budget that follows from it."""
    had, has = (bool(settings_of.get("histogram_share")) for settings_of in (saved, settings))
    if had and not has:
        raise OtherIdentityError(
            f"quantiles or exceeds must be given, since the {what} began with one of them, got none"
        )

    if has and not had:
        asked = "exceeds" if settings.get("exceeds") else "quantiles"
        raise OtherIdentityError(
            f"{asked} must be left out, since the {what} began without quantiles and exceeds, and has no share of its "
            "budget for them"
        )


def _as_json(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Give settings as a store reads them back: thresholds are a list there."""
    return {
        name: list(value) if isinstance(value, tuple) else value for name, value in settings.items()
    }


def require_same_identity(
    identity: Mapping[str, Any], settings: Mapping[str, Any], secret: bytes, *, what: str = "state"
) -> None:
    """Compare with what a state began with, before anything of it is read."""
    saved, settings = _as_json(identity["settings"]), _as_json(settings)
    _require_same_histogram(saved, settings, what)

    # What one side lacks may follow from another setting that differs: an edition from the
    # estimator.
    for name in sorted(
        saved.keys() | settings.keys(),
        key=lambda name: (name not in saved or name not in settings, name),
    ):
        if saved.get(name) != settings.get(name):
            raise OtherIdentityError(
                f"{name} must be {saved.get(name)!r} as in the {what} that is continued, got {settings.get(name)!r}"
            )

    if not identity_made_with(identity, secret):
        raise OtherIdentityError(f"secret must be the one that the {what} began with, got another")

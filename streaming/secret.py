"""The secret that keys the noise: where it comes from, and how a store recognizes it."""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from operators.noise import KeyedNoise

SECRET_VARIABLE = "MEANSTREAM_SECRET"  # noqa: S105 - names, not secrets
SECRET_FILE_VARIABLE = "MEANSTREAM_SECRET_FILE"  # noqa: S105
MIN_BYTES = 16


def secret_path(store: Path) -> Path:
    """Where the secret of a store lies unless another place is named."""
    return store.with_name(store.name + ".secret")


def is_named(environment: Mapping[str, str]) -> bool:
    """Say whether the environment names a secret; otherwise it lies beside the store."""
    return bool(environment.get(SECRET_VARIABLE) or environment.get(SECRET_FILE_VARIABLE))


def load_secret(store: Path, *, environment: Mapping[str, str], create: bool = True) -> bytes:
    """Find the secret: `MEANSTREAM_SECRET`, else the file `MEANSTREAM_SECRET_FILE`, else a file beside the store.

    The last is made of 32 random bytes, readable by its owner only, when there is no store yet. Keep it as long as
    the store: without it a stream cannot be continued, because repeated noise could not be recognized. Whoever has
    the secret and the releases knows the noise, hence the sums.

    Parameters
    ----------
    store : Path
        The store's file.
    environment : mapping
        Usually `os.environ`.
    create : bool
        Whether the file beside the store may be made.

    Raises
    ------
    ValueError
        If the secret is shorter than 16 bytes, or a named or needed file is missing.
    """
    if text := environment.get(SECRET_VARIABLE):
        return _long_enough(text.encode(), SECRET_VARIABLE)
    named = environment.get(SECRET_FILE_VARIABLE)
    path = Path(named) if named else secret_path(store)
    try:
        return _long_enough(path.read_bytes().strip(), str(path))
    except FileNotFoundError:
        if named or not create or store.exists():
            raise ValueError(f"secret must be in a readable file, got no {str(path)!r}") from None
    except OSError as error:
        raise ValueError(f"secret must be in a readable file, got {str(path)!r} ({error.strerror})") from None
    return _make_secret(path)


def fingerprint(secret: bytes, salt: bytes) -> bytes:
    """Recognize a secret without telling it."""
    return hmac.new(secret, b"meanstream store" + salt, hashlib.sha256).digest()[:16]


def derived_key(secret: bytes, purpose: str) -> bytes:
    """Key for something else than noise, such as the hash of ids."""
    return hmac.new(secret, b"meanstream " + purpose.encode(), hashlib.sha256).digest()


def deployment_noise(secret: bytes, settings: Mapping[str, Any]) -> KeyedNoise:
    """Keyed noise of a deployment of agents.

    **Privacy.** The settings are part of the key. Otherwise a second run over the same data with another epsilon
    would scale the same draws, and two releases would solve for the sum.
    """
    canonical = json.dumps(dict(settings), sort_keys=True, separators=(",", ":"), default=str)
    deployment = hashlib.sha256(canonical.encode()).hexdigest()
    return KeyedNoise(secret, deployment=deployment, purpose="agents")


def _long_enough(secret: bytes, where: str) -> bytes:
    if len(secret) < MIN_BYTES:
        raise ValueError(f"secret must be at least {MIN_BYTES} bytes long, got {len(secret)} in {where}")
    return secret


def _make_secret(path: Path) -> bytes:
    """Write a new secret, whole or not at all."""
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(secrets.token_hex(32).encode() + b"\n")
                file.flush()
                os.fsync(file.fileno())
        except OSError:
            path.unlink()
            raise
    except OSError as error:
        raise ValueError(f"secret must be in a writable folder, got {str(path)!r} ({error.strerror})") from None
    return path.read_bytes().strip()

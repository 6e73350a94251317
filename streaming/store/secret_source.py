"""The secret that keys the noise: where it comes from, and how a store recognizes it."""

from __future__ import annotations

import hashlib
import hmac
import logging
import os
import secrets
import stat
from collections.abc import Mapping
from pathlib import Path

from meanstream.operators.noise.key_strength import require_strong_key
from meanstream.operators.noise.keyed import KeyedNoise
from meanstream.streaming.store.database import new_file

SECRET_VARIABLE = "MEANSTREAM_SECRET"  # noqa: S105 - names, not secrets
SECRET_FILE_VARIABLE = "MEANSTREAM_SECRET_FILE"  # noqa: S105
SECRET_SUFFIX = ".secret"  # noqa: S105
_MOST_BYTES = 1 << 20  # of a file that is meant, and no device without an end

_log = logging.getLogger("meanstream.secret")


def secret_path(store: Path) -> Path:
    """Where the secret of a store lies unless another place is named."""
    return store.with_name(store.name + SECRET_SUFFIX)


def is_named_secret(environment: Mapping[str, str]) -> bool:
    """Say whether the environment names a secret; otherwise it lies next to the store."""
    return SECRET_VARIABLE in environment or SECRET_FILE_VARIABLE in environment


def load_secret(store: Path, *, environment: Mapping[str, str], create: bool = True) -> bytes:
    """Find the secret: `MEANSTREAM_SECRET`, else the file `MEANSTREAM_SECRET_FILE`, else a file next to the store.

    The last is made of 32 random bytes, readable by its owner only, when there is no store yet.
    Keep it as long as the store: without it a stream cannot be continued, because repeated noise
    could not be recognized. Anyone who has the secret and the releases knows the noise, hence the
    sums.
    """
    if (text := environment.get(SECRET_VARIABLE)) is not None:
        return require_secret_key(os.fsencode(text), SECRET_VARIABLE)
    named = environment.get(SECRET_FILE_VARIABLE)
    if named == "":
        raise ValueError(f"secret must be in a readable file, got an empty {SECRET_FILE_VARIABLE}")

    path = Path(named) if named else secret_path(store)
    if not named and create and not os.path.exists(path) and not os.path.exists(store):
        make_secret(path)

    return read_secret(path)


def read_secret(path: Path) -> bytes:
    """Read a key from a file; a good one that others may read is a warning."""
    try:
        with path.open("rb") as file:
            key = file.read(_MOST_BYTES + 1)
    except FileNotFoundError:
        raise ValueError(f"secret must be in a readable file, got no {str(path)!r}") from None
    except OSError as error:
        raise ValueError(
            f"secret must be in a readable file, got {str(path)!r} ({error.strerror})"
        ) from None

    if len(key) > _MOST_BYTES:
        raise ValueError(f"secret must be at most {_MOST_BYTES} bytes, got more in {str(path)!r}")
    key = require_secret_key(key, str(path))
    warn_if_secret_shared(path, "secret")

    return key


def require_secret_key(key: bytes, where: str) -> bytes:
    """Give the key back if it can be 128 random bits or more.

    **Privacy.** Anyone who guesses the key knows the noise. A phrase can be guessed, with a release to try it on.
    """
    key = key.strip()
    require_strong_key(key, where)
    return key


def warn_if_secret_shared(path: Path, what: str) -> None:
    """Warn of a private file that others than its owner may read."""
    mode = stat.S_IMODE(path.stat().st_mode)
    if mode & 0o077:
        shown = {"file": str(path), "mode": f"{mode:04o}"}
        _log.warning("%s can be read by others than its owner", what, extra=shown)


def key_derived_from_secret(secret: bytes, purpose: str) -> bytes:
    """Key for something else than noise, such as the hash of ids."""
    return hmac.new(secret, b"meanstream " + purpose.encode(), hashlib.sha256).digest()


def noise_from_secret(secret: bytes, name: str | None) -> KeyedNoise:
    """Keyed noise of a deployment of agents, on whichever host.

    The secret is one that `load_secret` has judged.

    `Agents` and `PairwiseStream` take a key of their own from it, of all their settings.

    **Privacy.** The name is part of the key. Otherwise two columns of one source, or two jobs, would meet the same
    draws, and equal releases would tell that their sums are equal.
    """
    if name is None:
        raise ValueError(
            "name must be given, since it separates deployments with one secret, got None"
        )

    return KeyedNoise.of_judged_key(secret, deployment=name, purpose="deployment")


def make_secret(path: Path) -> None:
    """Write a new key of 256 random bits into a new file that its owner can read, whole or not at all."""
    write_new_secret_file(path, secrets.token_hex(32).encode() + b"\n", what="secret")


def write_new_secret_file(path: Path, content: bytes, *, what: str, mode: int = 0o600) -> None:
    """Write a file that is not there yet, whole or not at all.

    By default only its owner can read it.
    """
    with new_file(path, what, mode=mode, refused=ValueError, failed=ValueError) as file:
        file.write(content)

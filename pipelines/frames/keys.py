"""The key of the noise of what is computed from a frame."""

from __future__ import annotations

import os
import secrets

from meanstream.streaming.store.secret_source import require_secret_key

NAME = "frame"
"""Of a deployment whose key no one keeps."""


def frame_key(secret: str | bytes | None, name: str | None) -> tuple[bytes, str]:
    """Give a key and a name of the deployment.

    Those that were given, or random bits that no one keeps.
    """
    if secret is None:
        return secrets.token_hex(32).encode(), name or NAME
    if name is None:
        raise ValueError(
            "name must be given with secret, since it separates deployments with one key, got None"
        )

    # Not the key itself: an error is no place for it.
    if not isinstance(secret, str | bytes):
        raise ValueError(f"secret must be text or bytes, got {type(secret).__name__}")

    try:
        return require_secret_key(os.fsencode(secret), "secret"), name
    except UnicodeEncodeError:
        raise ValueError("secret must be text that UTF-8 can hold, got another") from None

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

    return require_secret_key(os.fsencode(secret), "secret"), name

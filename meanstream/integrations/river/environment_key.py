"""The key of the noise of river's models, from the environment."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

from meanstream.operators.noise.keyed import KeyedNoise
from meanstream.streaming.store.secret_source import (
    SECRET_FILE_VARIABLE,
    SECRET_VARIABLE,
    is_named_secret,
    load_secret,
    noise_from_secret,
)


def environment_noise(name: str) -> KeyedNoise:
    """Give the keyed source of a deployment, with the key of the environment.

    Parameters
    ----------
    name : str
        Name of the deployment: one for each stream of values.

    Raises
    ------
    ValueError
        If `MEANSTREAM_SECRET` and `MEANSTREAM_SECRET_FILE` name no key.

    Notes
    -----
    **Privacy.** Anyone who has the key and the releases knows the noise. `meanstream secret new FILE` makes a key.
    """
    return noise_from_secret(environment_key(), name)


def environment_key() -> bytes:
    """Read the key of the noise from the environment."""
    if not is_named_secret(os.environ):
        raise ValueError(
            f"the key of the noise must be in {SECRET_VARIABLE} or in the file {SECRET_FILE_VARIABLE}"
        )

    return load_secret(Path(), environment=os.environ, create=False)


def noise_of_environment(deployment: str, purpose: str) -> KeyedNoise:
    """Make a keyed source again, with the key of the environment."""
    return KeyedNoise.of_judged_key(environment_key(), deployment=deployment, purpose=purpose)


def key_digest(noise: KeyedNoise) -> int:
    """Recognize a key, without saying anything about it."""
    zero = np.zeros(1, np.int64)
    return int(noise.derived("river state", {}).version_of(zero, zero)[0])

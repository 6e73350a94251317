"""Where a worker finds the secret: a place that travels with the pipeline, never the secret itself."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from streaming.secret import MIN_BYTES, SECRET_FILE_VARIABLE, SECRET_VARIABLE


@dataclass(frozen=True, slots=True, kw_only=True)
class SecretPlace:
    """A file, or a variable of the environment, on every worker of the users' side.

    Parameters
    ----------
    file : str, optional
        Path of a file that holds the secret.
    variable : str, optional
        Name of a variable that holds it. With neither, the variable `MEANSTREAM_SECRET`, else the file named by
        `MEANSTREAM_SECRET_FILE`.

    Notes
    -----
    **Privacy.** Whoever reads a pipeline's graph, or the messages between its steps, does not learn the secret: it is
    read where reports are made. Every worker must find the same one, or a retried bundle would report twice.

    Examples
    --------
    >>> SecretPlace(file="/run/secrets/meanstream")
    SecretPlace(file='/run/secrets/meanstream', variable=None)
    """

    file: str | None = None
    variable: str | None = None

    def __post_init__(self) -> None:
        if self.file is not None and self.variable is not None:
            raise ValueError("secret must be in a file or in a variable, got both")

    def load(self) -> bytes:
        """Read the secret, once per process.

        Raises
        ------
        ValueError
            If there is none, or it is shorter than 16 bytes. It is not shown.
        """
        if self.file is not None:
            return _from_file(self.file)
        if self.variable is not None:
            return _from_variable(self.variable)
        named = os.environ.get(SECRET_FILE_VARIABLE)
        if not os.environ.get(SECRET_VARIABLE) and named:
            return _from_file(named)
        return _from_variable(SECRET_VARIABLE)


@lru_cache(maxsize=16)
def _from_file(path: str) -> bytes:
    try:
        return _long_enough(Path(path).read_bytes().strip(), path)
    except OSError as error:
        raise ValueError(f"secret must be in a readable file, got {path!r} ({error.strerror})") from None


def _from_variable(name: str) -> bytes:
    text = os.environ.get(name)
    if not text:
        raise ValueError(f"secret must be in the environment of every worker, got no {name}")
    return _long_enough(text.encode(), name)


def _long_enough(secret: bytes, where: str) -> bytes:
    if len(secret) < MIN_BYTES:
        raise ValueError(f"secret must be at least {MIN_BYTES} bytes long, got {len(secret)} in {where}")
    return secret

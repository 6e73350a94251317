"""Where a worker finds the secret.

A place that travels with the pipeline, never the secret itself.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Protocol

from meanstream.operators.validation import require
from meanstream.streaming.store.secret_source import (
    SECRET_FILE_VARIABLE,
    SECRET_VARIABLE,
    read_secret,
    require_secret_key,
)

RESOURCE = r"projects/[a-z0-9:.-]+/secrets/[A-Za-z0-9_-]+/versions/[1-9][0-9]*"
"""A numbered version: `latest` would become another secret while a pipeline runs, and noise would
be drawn again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SecretLocation:
    """A file, a variable of the environment, or a version in Secret Manager, that every worker can read.

    Parameters
    ----------
    file : str, optional
        Path of a file that holds the secret.
    variable : str, optional
        Name of a variable that holds it.
    resource : str, optional
        `projects/PROJECT/secrets/NAME/versions/NUMBER` in Google's Secret Manager, which the
        workers' service account may access. With none of the three, the variable
        `MEANSTREAM_SECRET`, else the file named by `MEANSTREAM_SECRET_FILE`.

    Notes
    -----
    **Privacy.** Anyone who reads a pipeline's graph, or the messages between its steps, does not
    learn the secret: it is read where reports are made. Every worker must find the same one, or a
    retried bundle would report twice.

    Examples
    --------
    >>> SecretLocation(file="/run/secrets/meanstream")
    SecretLocation(file='/run/secrets/meanstream', variable=None, resource=None)
    >>> SecretLocation(resource="projects/p/secrets/noise/versions/latest")
    Traceback (most recent call last):
    ValueError: secret must be a numbered version, projects/PROJECT/secrets/NAME/versions/NUMBER, got \
'projects/p/secrets/noise/versions/latest'
    """

    file: str | None = None
    variable: str | None = None
    resource: str | None = None

    def __post_init__(self) -> None:
        given = [place for place in (self.file, self.variable, self.resource) if place is not None]
        if len(given) > 1:
            raise ValueError(
                "secret must be in a file or in a variable or in Secret Manager, got more than one"
            )

        rule = "be a numbered version, projects/PROJECT/secrets/NAME/versions/NUMBER"
        require(
            self.resource is None or bool(re.fullmatch(RESOURCE, self.resource)),
            "secret",
            rule,
            self.resource,
        )

    def load(self) -> bytes:
        """Read the secret, once per process.

        Raises
        ------
        ValueError
            If there is none, or it is no random key of 128 bits. It is not shown.
        """
        if self.file is not None:
            return _from_file(self.file)
        if self.variable is not None:
            return _from_variable(self.variable)
        if self.resource is not None:
            return _from_secret_manager(self.resource)

        named = os.environ.get(SECRET_FILE_VARIABLE)
        if SECRET_VARIABLE not in os.environ and named:
            return _from_file(named)
        return _from_variable(SECRET_VARIABLE)


class Named(Protocol):
    """Settings that have the name of a deployment."""

    @property
    def name(self) -> str | None:
        """The name."""
        ...


def require_beam_secret_named(settings: Named) -> None:
    """Refuse settings without a name: a pipeline has no store that would keep one."""
    rule = "be given on Beam: it is part of the key of the noise and of every release's id"
    require(settings.name is not None, "name", rule, settings.name)


@lru_cache(maxsize=16)
def _from_file(path: str) -> bytes:
    return read_secret(Path(path))


@lru_cache(maxsize=16)
def _from_secret_manager(resource: str) -> bytes:
    from apache_beam.utils.secret import GcpSecret

    try:
        found = GcpSecret(resource).get_secret_bytes()
    except RuntimeError as error:
        why = type(
            error.__context__
        ).__name__  # its text may be long, and name whom it was refused to
        raise ValueError(
            f"secret must be readable in Secret Manager, got {resource!r} ({why})"
        ) from None

    return require_secret_key(found, resource)


def _from_variable(name: str) -> bytes:
    text = os.environ.get(name)
    if text is None:
        raise ValueError(f"secret must be in the environment of every worker, got no {name}")
    return _of_text(text, name)


@lru_cache(maxsize=16)
def _of_text(text: str, name: str) -> bytes:
    return require_secret_key(os.fsencode(text), name)

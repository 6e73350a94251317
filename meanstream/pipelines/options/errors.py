"""How a command ends that cannot do what it is asked to: in one line, with an exit code of its own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


class BadOption(Exception):  # noqa: N818 - it is what the user gave, not a fault of the program
    """An option that breaks a rule: the command ends with this one line and exit code 2, before any data is read."""


@contextmanager
def refusing_options() -> Iterator[None]:
    """Turn the `ValueError` of a validator into a one-line refusal; wrap configuration only, never the work itself."""
    try:
        yield
    except ValueError as error:
        raise BadOption(str(error)) from None


class RunFailed(Exception):  # noqa: N818 - the run failed, not the program
    """A run cannot go on: the command ends with this one line and exit code 1. Another run continues."""

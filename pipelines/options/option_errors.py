"""How a command ends that cannot do what it is asked to.

In one line, with an exit code of its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from meanstream.pipelines.own_errors import describe_own_error, is_own_error_raised


class BadOption(Exception):  # noqa: N818 - it is what the user gave, not a fault of the program
    """An option that breaks a rule.

    The command ends with this one line and exit code 2, before any data is read.
    """


@contextmanager
def refusing_options() -> Iterator[None]:
    """Turn the `ValueError` of a validator into a one-line refusal.

    Wrap configuration only, never the work itself.
    """
    try:
        yield
    except ValueError as error:
        raise BadOption(_own_text(error)) from None


def _own_text(error: Exception) -> str:
    """Say what one of our errors says.

    **Privacy.** The text of a foreign error may show what stands in a file, and names no option.
    """
    if isinstance(error, BadOption) or is_own_error_raised(error):
        return str(error)

    said = describe_own_error(error)
    return (
        f"options must be such that they can be read, got {said['error']} in {said.get('at', 'C')}"
    )


class Refusals:
    """Collects what is refused, so that a command names all of it in one line.

    Examples
    --------
    >>> refusals = Refusals()
    >>> for size in (-1, -2):
    ...     with refusals.collecting():
    ...         raise BadOption(f"size must be positive, got {size}")
    >>> refusals.end()
    Traceback (most recent call last):
    meanstream.pipelines.options.option_errors.BadOption: size must be positive, got -1; size must be positive, got -2
    """

    def __init__(self) -> None:
        self._lines: list[str] = []

    @contextmanager
    def collecting(self) -> Iterator[None]:
        """Note the refusal of a validator, and go on."""
        try:
            yield
        except (ValueError, BadOption) as error:
            if (text := _own_text(error)) not in self._lines:
                self._lines.append(text)

    def end(self) -> None:
        """Refuse what was noted, if anything was."""
        if self._lines:
            raise BadOption("; ".join(self._lines))


class RunFailed(Exception):  # noqa: N818 - the run failed, not the program
    """A run cannot go on: the command ends with this one line and exit code 1.

    Another run continues.
    """

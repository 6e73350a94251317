"""A bar for work of many pieces that takes long.

On a terminal or in a notebook, and nowhere else.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from typing import TypeVar

T = TypeVar("T")
PATIENCE = 1.0
"""Seconds before which nothing is shown."""


def tracked_work(work: Sequence[T], what: str) -> Iterator[T]:
    """Give pieces of work one by one; show how many are done, if that takes long and someone looks.

    Released to anyone who sees the terminal: how many pieces there are and how many are done.

    Examples
    --------
    >>> list(tracked_work(range(3), "counting"))
    [0, 1, 2]
    """
    if len(work) < 2 or not _watched():
        yield from work
        return

    begun = time.monotonic()
    bar = None
    try:
        for done, piece in enumerate(work):
            if bar is None and done and time.monotonic() - begun >= PATIENCE:
                from rich.console import Console
                from rich.progress import Progress

                # What goes to standard output stays there, whatever it is.
                bar = Progress(
                    console=Console(stderr=True),
                    transient=True,
                    redirect_stdout=False,
                    redirect_stderr=False,
                )
                task = bar.add_task(what, total=len(work))
                bar.start()

            if bar is not None:
                bar.update(task, completed=done)

            yield piece
    finally:
        if bar is not None:
            bar.stop()


def _watched() -> bool:
    """Tell whether there is a terminal, or a notebook that can show a bar."""
    if "ipykernel" in sys.modules:
        return find_spec("ipywidgets") is not None
    return sys.stderr is not None and sys.stderr.isatty()

"""When Python looks for cycles.

Not while a run imports its modules, and never at those modules again.
"""

from __future__ import annotations

import gc

YOUNG_OBJECTS = 50_000
"""New containers between two looks for cycles: an engine makes a million at once, of which none is
in a cycle."""


def pause_collection() -> None:
    """Look for no cycles until `resume_collection`.

    Imports make 400,000 containers that all stay.
    """
    gc.disable()


def resume_collection() -> None:
    """Look for cycles among what is made from now on.

    What is there stays to the end of the process.
    """
    if not gc.get_freeze_count():
        gc.freeze()  # no collection, nor the last one, looks at it

    gc.set_threshold(YOUNG_OBJECTS)
    gc.enable()

"""Pages of reference, made of the code while the site is built: nothing of them is written by hand.

A page says `<!-- generated: NAME -->`; what `generated.py` or `commands.py` beside this file writes
under that name takes its place. `<!-- included: FILE -->` takes a file of the repository.
"""

from __future__ import annotations

import re
from typing import Any

from _site import commands, generated
from _site.links import ROOT, TAKEN, links_for_site

WRITTEN = {
    "commands": commands.commands,
    "configuration": commands.configuration,
    "hosts": commands.hosts,
    "events": generated.events,
    "metrics": generated.metrics,
    "python": generated.python,
    "beam": generated.beam,
    "river": generated.river,
    "estimators": generated.estimators,
    "counters": generated.counters,
    "collaborations": generated.collaborations,
}
"""What a page can ask for."""
_ASKED = re.compile(r"^<!-- generated: (\w+) -->$", re.MULTILINE)
_INCLUDED = re.compile(r"^<!-- included: ([\w.]+) -->$", re.MULTILINE)


def _read(_: Any, name: str, source: list[str]) -> None:
    folder = (ROOT / "docs" / name).parent
    source[0] = _ASKED.sub(lambda found: WRITTEN[found[1]](), source[0])
    source[0] = _INCLUDED.sub(
        lambda found: links_for_site(_file(found[1]), ROOT, folder), source[0]
    )


def _file(name: str) -> str:
    if name not in TAKEN:
        raise KeyError(f"{name} must be one of {', '.join(TAKEN)}")
    return (ROOT / name).read_text(encoding="utf-8")


def setup(app: Any) -> dict[str, Any]:
    """Fill the pages when they are read."""
    app.connect("source-read", _read, priority=400)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}

"""`--private-figures`.

What only the operator of a run may know, in a file of its own that no one else can read.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from meanstream.operators.validation import require
from meanstream.pipelines.commands.command_outputs import writing_output
from meanstream.streaming.events.times import iso_time

if TYPE_CHECKING:
    from meanstream.streaming.engine.engine_stats import EngineStats
    from meanstream.streaming.rounds.rounds_stats import RoundsStats


def check_private_figures(path: Path | None) -> None:
    """Refuse a file that is there, or could not be made."""
    if path is not None:
        require(
            path.suffix == ".json" and path.parent.is_dir(),
            "private_figures",
            "be a .json file in a folder",
            str(path),
        )
        require(not os.path.lexists(path), "private_figures", "be a new file", str(path))


def write_private_figures(path: Path | None, figures: dict[str, Any]) -> None:
    """Write a new file for the operator alone; nothing, where none was requested."""
    if path is None:
        return
    data = json.dumps({"trust": "private", **figures}, indent=2).encode() + b"\n"
    with writing_output("private_figures", path):
        number = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            with os.fdopen(number, "wb") as file:
                file.write(data)
        except OSError:
            path.unlink()
            raise


def private_agents_figures(stats: EngineStats) -> dict[str, Any]:
    """Private: say of a run of agents what depends on values."""
    return {"clipped": stats.clipped, "median_half_width": stats.median_half_width}


def private_rounds_figures(stats: RoundsStats) -> dict[str, Any]:
    """Private: say of a run of rounds what tells how many samples users send, and when."""
    return {
        "events": stats.events,
        "accepted": stats.accepted,
        "rejected": dict(sorted(stats.rejected.items())),
        "letters_unwritten": stats.letters_unwritten,
        "clipped": stats.clipped,
        "users_seen": stats.agents,
        "users_full": stats.full,  # as many as --max-users allows
        "open_windows": stats.open_windows,
        "refusals": stats.refusals,
        "input_lag": stats.input_lag,
        "event_time": iso_time(stats.event_time),
    }

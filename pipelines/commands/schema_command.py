"""`meanstream schema`: the JSON Schema of an event type, or of a file of options."""

from __future__ import annotations

import json
import sys
from typing import Annotated, Any

import typer

from meanstream.pipelines.options.option_errors import refusing_options


def schema(
    name: Annotated[
        str,
        typer.Argument(
            help="Event: sample | release | estimate | population | dead_letter | budget | ..., or file of options: "
            "run-agents | run-agent-side | run-collaborate | run-rounds."
        ),
    ],
) -> None:
    """Print the JSON Schema of an event type or of an options file.

    \b
    Examples:
      meanstream schema release
      meanstream schema run-agents > agents.schema.json
    """  # noqa: D301 - click reads the escape
    from meanstream.streaming.events import wire as events

    with refusing_options():
        described = (
            _schema_of_options(name) if name.startswith("run-") else events.wire_event_schema(name)
        )

    sys.stdout.write(json.dumps(described, indent=2) + "\n")


def _schema_of_options(name: str) -> dict[str, Any]:
    from meanstream.operators.validation import closest_valid
    from meanstream.pipelines.commands.run.command import app
    from meanstream.pipelines.options.declaration import schema_of_options

    kinds = {f"run-{info.name}": info.callback.taken.kind for info in app.registered_commands}  # type: ignore[union-attr]
    if name not in kinds:
        raise ValueError(
            f"name must be one of a file of options, got {name!r}{closest_valid(name, [*kinds])}"
        )

    return schema_of_options(kinds[name])

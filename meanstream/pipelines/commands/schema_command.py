"""`meanstream schema`: the JSON Schema of an event type."""

from __future__ import annotations

import json
import sys
from typing import Annotated

import typer

from meanstream.pipelines.options.option_errors import refusing_options


def schema(
    name: Annotated[
        str, typer.Argument(help="Event: sample | release | estimate | population | dead_letter | budget | ...")
    ],
) -> None:
    """Print the JSON Schema of an event type.

    Example: meanstream schema release
    """
    from meanstream.streaming.events import wire as events

    with refusing_options():
        text = json.dumps(events.wire_event_schema(name), indent=2)
    sys.stdout.write(text + "\n")

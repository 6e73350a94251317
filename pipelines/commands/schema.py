"""`meanstream schema`: the JSON Schema of an event type."""

from __future__ import annotations

import json
import sys
from typing import Annotated

import typer

from pipelines.commands.options import refusing


def schema(
    name: Annotated[str, typer.Argument(help="sample | release | estimate | population | dead_letter | budget | ...")],
) -> None:
    """Print the JSON Schema of an event type.

    Example: meanstream schema release
    """
    from streaming import events

    with refusing():
        text = json.dumps(events.schema(name), indent=2)
    sys.stdout.write(text + "\n")

"""`meanstream init`: a commented file of options to begin with."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from meanstream.pipelines.options.option_errors import BadOption

KINDS = ("agents", "agent-side", "collaborate", "rounds")


def init(
    context: typer.Context,
    kind: Annotated[
        str, typer.Argument(help=f"{' | '.join(KINDS)}: the `run` command of the options.")
    ],
    file: Annotated[str, typer.Argument(help="New file, or - for standard output.")] = "-",
) -> None:
    """Write a configuration file with all options of a run.

    \b
    Example:
      meanstream init agents agents.yaml
      meanstream run agents --config agents.yaml --print-config
    """  # noqa: D301 - click reads the escape
    from meanstream.operators.validation import closest_valid
    from meanstream.pipelines.commands.run.command import app
    from meanstream.pipelines.options.help_text import options_to_begin_with
    from meanstream.pipelines.options.typer_commands import prepare_commands

    if kind not in KINDS:
        raise BadOption(
            f"kind must be one of {', '.join(KINDS)}, got {kind!r}{closest_valid(kind, KINDS)}"
        )

    prepare_commands(app, kind)
    made: Any = typer.main.get_command(app)
    text = options_to_begin_with(made.commands[kind], context, f"run {kind}")
    if file == "-":
        sys.stdout.write(text)
        return

    try:
        with Path(file).open("x", encoding="utf-8") as made:
            made.write(text)
    except FileExistsError:
        raise BadOption(f"file must be a new file, got {file!r}, which exists") from None
    except OSError as error:
        raise BadOption(f"file must be writable, got {file!r} ({error.strerror})") from None

    sys.stderr.write(
        f"{file!r} has the options of `meanstream run {kind}`: fill in the required ones\n"
    )

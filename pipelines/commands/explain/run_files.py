"""Configuration files of runs, read as their commands would read them, without the environment."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from meanstream.pipelines.options.typer_commands import prepare_commands, takes_options

if TYPE_CHECKING:
    from meanstream.pipelines.options.agents_options import AgentsOptions
    from meanstream.pipelines.options.rounds_options import RoundsOptions

_READERS = typer.Typer(help="Options of a configuration; not a command.")


@_READERS.command("agents")
@takes_options("agents_options:AgentsOptions")
def _agents(_: AgentsOptions) -> None:
    """Have the options of agents."""


@_READERS.command("rounds")
@takes_options("rounds_options:RoundsOptions")
def _rounds(_: RoundsOptions) -> None:
    """Have the options of rounds."""


def read_run_file(path: Path) -> AgentsOptions | RoundsOptions:
    """Read the options of a configuration file.

    Raises
    ------
    BadOption
        If it is no configuration of agents or rounds.
    """
    from meanstream.pipelines.options.agents_options import AgentsOptions
    from meanstream.pipelines.options.rounds_options import RoundsOptions

    prepare_commands(_READERS)
    commands: Any = typer.main.get_command(_READERS)
    kind = "rounds" if _is_of_rounds(path) else "agents"
    with commands.commands[kind].make_context(kind, ["--config", str(path)]) as context:
        given = {
            name: value
            for name, value in context.params.items()
            if name not in ("print_config", "help_all")
        }

    if kind == "rounds":
        return RoundsOptions(**given)
    return AgentsOptions(**given)


def _is_of_rounds(path: Path) -> bool:
    """Tell by an option that only rounds have.

    What is no configuration is refused where it is read.
    """
    import yaml

    from meanstream.streaming.strict_yaml import read_strict_yaml_file

    try:
        entries = read_strict_yaml_file(path)
    except (OSError, ValueError, yaml.YAMLError):
        return False

    return isinstance(entries, dict) and not {"user", "window", "estimator"}.isdisjoint(
        map(str, entries)
    )

"""The commands and the keys of a configuration file, as Typer knows them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import typer

from meanstream.pipelines.beam.commands.run_on_dataflow import options_not_on_dataflow
from meanstream.pipelines.commands import main
from meanstream.pipelines.commands.init_command import KINDS
from meanstream.pipelines.options.agents_options import AgentsOptions
from meanstream.pipelines.options.declaration import declared_of_command
from meanstream.pipelines.options.help_text import required_options, with_environment_and_headings
from meanstream.pipelines.options.rounds_options import RoundsOptions

OPTIONS = {"agents": AgentsOptions, "rounds": RoundsOptions}


def every_command(
    group: Any = None, names: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Give every command with its words, in the order of the help."""
    command = (
        with_environment_and_headings(typer.main.get_command(main.app)) if group is None else group
    )
    parts = getattr(command, "commands", None)
    if parts is None or (command.callback is not None and command.invoke_without_command):
        yield names, command
    for name, part in sorted((parts or {}).items()):
        yield from every_command(part, (*names, name))


def commands() -> str:
    """Every command with its options, under their headings."""
    return "\n".join(_command(names, command) for names, command in every_command())


def _command(names: tuple[str, ...], command: Any) -> str:
    said, _, example = command.help.partition("\n\n\b\n")
    example = re.sub(r"^Examples?:\n", "", example)
    words = [p.name.upper() for p in command.params if p.param_type_name == "argument"]
    lines = [f"## meanstream {' '.join(names)}", "", _plain(said), ""]
    if example:
        lines += ["```", *(line.removeprefix("  ") for line in example.splitlines()), "```", ""]
    if words:
        lines += [f"Takes {', '.join(f'`{word}`' for word in words)}.", ""]
    context, found = typer.Context(command), dict[str, list[str]]()
    for option in command.params:
        record = option.get_help_record(context)
        if option.param_type_name == "option" and record is not None:
            found.setdefault(option.rich_help_panel or "Options", []).append(
                _row(option, *record, command)
            )
    for heading, rows in found.items():
        lines += [f"| {heading} | |", "|---|---|", *rows, ""]
    return "\n".join(lines)


def _row(option: Any, names: str, text: str, command: Any) -> str:
    required = option.name in required_options(command)
    return f"| `{names.replace('|', '&#124;')}` | {_cell(text)}{' **Required.**' if required else ''} |"


def _cell(text: str) -> str:
    return _plain(text).replace("|", "\\|")


def _plain(text: str) -> str:
    r"""Let a star, an angle or a bracket be one.

    >>> _plain("[default: *]\n\n<x>")
    '\\[default: \\*\\]\n\n\\<x\\>'
    """
    return re.sub(r"([*<>_\[\]])", r"\\\1", text)


def configuration() -> str:
    """Every key of a YAML file, with its default: what `meanstream init` writes."""
    written = dict(every_command())
    lines = []
    for kind in KINDS:
        command = written["run", kind]
        lines += [f"## run {kind}", "", "| key | default | meaning |", "|---|---|---|"]
        for option in command.params:
            if option.param_type_name != "option" or option.envvar is None or option.hidden:
                continue
            required = option.name in required_options(command)
            default = "required" if required else _default(option.default)
            if option.envvar != f"MEANSTREAM_{option.name.upper()}":
                raise ValueError(
                    f"the page says how variables are called, got {option.envvar} of {option.name}"
                )
            lines.append(f"| `{option.name}` | {default} | {_cell(option.help or '')} |")
        lines.append("")
    return "\n".join(lines)


def hosts() -> str:
    """Every option of a run, and whether the engine, a runner of Beam and Dataflow have it."""
    written, lines = dict(every_command()), []
    for kind, options in OPTIONS.items():
        refused = options_not_on_dataflow(options)
        lines += [f"## Engine and Beam: run {kind}", ""]
        lines += ["| option | engine | FnApi, Prism, Flink | Dataflow |", "|---|---|---|---|"]
        for option in written["run", kind].params:
            name = option.name
            if option.param_type_name != "option" or option.envvar is None or option.hidden:
                continue
            host = declared_of_command(written["run", kind])[name].host
            has = host != "runner", host != "engine", name not in refused
            lines.append(
                f"| `--{name.replace('_', '-')}` | {' | '.join('yes' if one else '-' for one in has)} |"
            )
        lines.append("")
    return "\n".join(lines)


def _default(value: Any) -> str:
    if value is None or value == ():
        return ""
    return f"`{str(value).lower() if isinstance(value, bool) else value}`"

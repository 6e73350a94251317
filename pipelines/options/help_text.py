"""Options as people see them.

Help under headings, what is in force and where from, and a file to begin with.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any

import typer

from meanstream.pipelines.options.declaration import HEADINGS, declared_of_command

PREFIX = "MEANSTREAM_"
"""Of the environment: every option has a variable of its name."""
_NO_OPTIONS = frozenset(
    PREFIX + name for name in ("SECRET", "SECRET_FILE", "SERVERS", "SERVERS_REQUIRED")
)
_OF_A_SERVICE = re.compile(
    PREFIX + r"(\w+_)?(SERVICE_(HOST|PORT(_\w+)?)|PORT(_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)?)"
)
GENERAL = "Options"
_HIDDEN = re.compile(
    r"(//|%2f%2f)(?:[^\s&?]|\?(?!\w+=))*(?:@|%40)|((?:pass|pwd|secret|token|key|jaas|credential)[^=\s&]*=)\S.*",
    re.IGNORECASE,
)
"""A user and a password before a host, whatever is in them and however they are written; what is
called a secret."""
_ENDS = ("help", "help_all", "version", "print_config")
_ALL = f"{__name__}.all"
"""Key of a context in which the help shows all options."""
_WIDTH = 100


def with_environment_and_headings(command: Any) -> Any:
    """Let every option of a command and its parts be given by `MEANSTREAM_NAME`, and show help under headings."""
    # Every option has its variable, unless it is declared to have none.
    declared = declared_of_command(command)
    typed = _typed_options(command)
    for parameter in _options(command):
        if parameter.name not in declared or declared[parameter.name].environment:
            parameter.envvar = f"{PREFIX}{parameter.name.upper()}"
            parameter.show_envvar = False

        # Options of a store are given by files, and not shown here.
        if typed is not None and parameter.name not in (*typed, *_ENDS):
            parameter.hidden = True
            parameter.add_to_parser = _is_not_typed

    if not hasattr(command, "commands"):
        command.format_options = partial(_format_options, command)

    for part in getattr(command, "commands", {}).values():
        part.short_help = _summary(part)
        with_environment_and_headings(part)

    return command


def _summary(command: Any) -> str:
    """First paragraph of a command's help: all of it stands in the list of commands."""
    text = command.short_help or command.help or ""
    return " ".join(text.strip().partition("\n\n")[0].split())


def _typed_options(command: Any) -> Sequence[str] | None:
    """Give the options of the command line, where a command has others, too."""
    typed: Sequence[str] | None = getattr(getattr(command.callback, "taken", None), "typed", None)
    return typed


def _is_not_typed(_parser: Any, _context: Any) -> None:
    """Keep an option from the command line: a file or the environment has it."""


def show_all_options(context: typer.Context, asked: bool) -> None:
    """Print the help with all options and end."""
    if asked:
        context.meta[_ALL] = True
        typer.echo(context.get_help())
        raise typer.Exit


def _options(command: Any) -> list[Any]:
    return [parameter for parameter in command.params if parameter.param_type_name == "option"]


def required_options(command: Any) -> frozenset[str]:
    """Give the options that a command cannot do without: none, if they may be those of a store."""
    if _typed_options(command) is not None:
        return frozenset()
    return frozenset(
        name for name, option in declared_of_command(command).items() if option.required
    )


def _by_heading(command: Any, context: Any = None) -> Iterator[tuple[str, list[Any]]]:
    """Give options under their headings, in the order of the engine's data: in, private, out."""
    by_heading: dict[str, list[Any]] = {}
    every = (
        _options(command)
        if context is None
        else [*_options(command), command.get_help_option(context)]
    )

    # Headings in the order of the engine's data; others after them.
    for parameter in every:
        by_heading.setdefault(getattr(parameter, "rich_help_panel", None) or GENERAL, []).append(
            parameter
        )

    for heading in [
        *(heading_found for heading_found in HEADINGS if heading_found in by_heading),
        *(heading_found for heading_found in by_heading if heading_found not in HEADINGS),
    ]:
        yield heading, by_heading[heading]


def _format_options(command: Any, context: Any, formatter: Any) -> None:
    """Write the part of the help that lists options; those that must be given say so."""
    # What must be given says so; what is rarely needed is shown on request only.
    required = required_options(command)
    shown_first = _shown_first(command, context)
    arguments = [
        p.get_help_record(context) for p in command.params if p.param_type_name == "argument"
    ]

    if any(arguments):
        with formatter.section("Arguments"):
            formatter.write_dl([record for record in arguments if record])

    for heading, parameters in _by_heading(command, context):
        several = [p for p in parameters if shown_first is None or p.name in shown_first]
        records = [(p.name in required, p.get_help_record(context)) for p in several]
        shown = [
            (names, f"{text}  [required]" if must else text)
            for must, (names, text) in filter(_is_shown, records)
        ]

        if shown:
            with formatter.section(heading):
                formatter.write_dl(shown)

    if any(getattr(p, "envvar", None) for p in _options(command)):
        formatter.write_paragraph()
        formatter.write_text(
            f"Every option is also read from {PREFIX}NAME; the command line wins, YAML comes last."
        )

    if shown_first is not None:
        formatter.write_text(
            f"All {_number_of_options(command)} options: {context.command_path} --help-all"
        )


def _shown_first(command: Any, context: Any) -> set[str] | None:
    """Give the options of a help that is not asked for all; None where all are shown."""
    if context.meta.get(_ALL) or not any(option.name == "help_all" for option in command.params):
        return None

    # A command without declared beginnings shows everything.
    names = {name for name, option in declared_of_command(command).items() if option.first}

    if names:
        return {*names, "help", "help_all"}
    return None


def _number_of_options(command: Any) -> int:
    return sum(not option.hidden and option.name not in _ENDS for option in _options(command))


def _is_shown(record: tuple[bool, Any]) -> bool:
    return record[1] is not None


def options_in_force(context: Any) -> str:
    """Write every option with its value and where it comes from, as YAML that `--config` takes.

    **Privacy.** No secret: a key is never an option's value, and what looks like a password is left out.
    """
    command = context.command
    config = context.params.get("config")

    # As YAML that the same command takes, with the origin of each value.
    lines = [f"# {context.command_path}: values in force, and their origin"]
    for heading, parameters in _by_heading(command):
        several = [
            p for p in parameters if p.name not in (*_ENDS, "config") and p.name in context.params
        ]
        if several:
            lines.append(f"# -- {heading}")

        for parameter in several:
            value = context.params[parameter.name]
            source = _source(context.get_parameter_source(parameter.name), parameter, config)
            empty = value is None or value in ([], ())
            lines.append(f"{'# ' if empty else ''}{_entry(parameter.name, value)}  # {source}")

    # The key is named by its place and never shown.
    lines.append(f"# key of the noise: {_key(context.params, os.environ)}")
    lines += [f"# {line}" for line in unknown_variables(context, os.environ)]

    return "\n".join(lines) + "\n"


def unknown_variables(context: Any, environment: Mapping[str, str]) -> list[str]:
    """Say of each variable that looks like an option and is none of a command that it is ignored, and what it may mean.

    The values are not looked at. Those that the product reads otherwise, and those that Kubernetes
    makes of a service called meanstream, are known.
    """
    from difflib import get_close_matches

    # Variables that look like options and are none would be ignored in silence.
    own = {p.envvar for p in _options(context.command) if p.envvar}
    beside = getattr(getattr(context.parent, "command", None), "commands", {})
    lines = []
    for name in sorted(name for name in environment if name.startswith(PREFIX)):
        if name in own or name in _NO_OPTIONS or _OF_A_SERVICE.fullmatch(name):
            continue
        option = name.removeprefix(PREFIX).lower()
        others = [
            part
            for part, command in beside.items()
            if option in getattr(command.callback, "taken", _Nothing).declared
        ]
        near = get_close_matches(
            name.removeprefix(PREFIX),
            [command.removeprefix(PREFIX) for command in sorted(own)],
            n=1,
        )

        # Another command may have it; else the nearest name helps.
        hint = (
            f": one of {', '.join(others)}"
            if others
            else f": did you mean {PREFIX}{near[0]}?"
            if near
            else ""
        )

        shown = name if name.isidentifier() else repr(name)
        lines.append(
            f"{shown} is in the environment and no option of this command, which ignores it{hint}"
        )

    return lines


class _Nothing:
    """A command without a class of options."""

    declared: Mapping[str, Any] = MappingProxyType({})


def _source(source: Any, parameter: Any, config: Any) -> str:
    name = getattr(source, "name", "DEFAULT")
    variable = f"environment ({parameter.envvar})"
    return {"COMMANDLINE": "command line", "ENVIRONMENT": variable, "DEFAULT_MAP": str(config)}.get(
        name, "default"
    )


def _key(given: Mapping[str, Any], environment: Mapping[str, str]) -> str:
    # A file before a variable, a variable before the file beside the store.
    if given.get("secret_file") is not None:
        return "the file of secret_file"
    if environment.get(f"{PREFIX}SECRET"):
        return f"the variable {PREFIX}SECRET (not shown)"

    if environment.get(f"{PREFIX}SECRET_FILE"):
        return f"the file of {PREFIX}SECRET_FILE"
    return "a file next to the store"


def without_passwords(text: str) -> str:
    """Leave out of an option's value what looks like a password.

    Examples
    --------
    >>> without_passwords("kafka://me:word@host:9092/topic?sasl.password=word")
    'kafka://...host:9092/topic?sasl.password=...'
    """
    return _HIDDEN.sub(r"\1\2...", text)


def _entry(name: str, value: Any) -> str:
    """Write one entry of YAML on one line."""
    import yaml

    plain = (
        value if isinstance(value, bool | int | float | list | tuple | type(None)) else str(value)
    )
    if isinstance(plain, list | tuple):
        plain = [without_passwords(str(element)) for element in plain]

    # A text may be an address with a password in it.
    if isinstance(plain, str):
        plain = without_passwords(plain)

    if plain is None or plain == []:
        return f"{name}:"
    text = yaml.safe_dump({name: plain}, default_flow_style=None, width=2**31, allow_unicode=True)

    if text.startswith("{"):
        return text.strip().removeprefix("{").removesuffix("}")
    return text.strip()


def options_to_begin_with(command: Any, context: Any, name: str) -> str:
    """Write a commented file for `--config`.

    What must be given is open, everything else stands at its default.
    """
    # Required options stand open; all others show their defaults.
    required = required_options(command)
    lines = [
        f"# Options of `meanstream {name} --config THIS_FILE`; `--print-config` shows the values in force.",
        "# Fill in the required options. The others show their defaults: remove the # to change one.",
    ]

    for heading, parameters in _by_heading(command):
        several = [p for p in parameters if p.name not in (*_ENDS, "config")]
        lines += ["", f"# ---- {heading} ----"] if several else []
        for parameter in several:
            lines += ["", *_wrapped(parameter.help or "")]
            if parameter.name in required:
                lines.append(f"{parameter.name}:  # required")
            else:
                lines.append(f"# {_entry(parameter.name, parameter.get_default(context))}")

    return "\n".join(lines) + "\n"


def _wrapped(text: str) -> list[str]:
    import textwrap

    return textwrap.wrap(text, _WIDTH, initial_indent="# ", subsequent_indent="# ")

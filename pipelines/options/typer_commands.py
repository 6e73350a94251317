"""How a command takes a class of options: its fields become parameters that Typer reads."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Sequence
from dataclasses import MISSING, dataclass, fields
from functools import cached_property
from importlib import import_module
from typing import Annotated, Any, get_type_hints

import typer

from meanstream.pipelines.options.declaration import (
    OPERATION,
    Declared,
    cli_option,
    declared_options,
)
from meanstream.pipelines.options.help_text import options_in_force, show_all_options

FEW = 15
"""Options that a help shows without being asked for all."""
_PRINT_CONFIG = Annotated[
    bool,
    cli_option(
        "Print every option with its value and origin (command line, environment, YAML, default), and exit.",
        OPERATION,
        "--print-config",
        environment=False,
        shows=False,
    ),
]
_HELP_ALL = Annotated[
    bool,
    cli_option(
        "Show all options and exit.",
        None,
        "--help-all",
        environment=False,
        shows=False,
        is_eager=True,
        expose_value=False,
        callback=show_all_options,
    ),
]


@dataclass(frozen=True, kw_only=True)
class Taken:
    """The options that a command takes."""

    options: type[Any] | str
    """A class, or MODULE:CLASS, imported where it is needed; a bare module is of this folder."""
    typed: Sequence[str] | None = None
    """Options of the command line, if others are read from a file and the environment only."""
    also: Sequence[str] = ()
    """Classes whose options a file may have for another command: they mean nothing to this one."""

    @cached_property
    def kind(self) -> type[Any]:
        """The class."""
        if isinstance(self.options, str):
            return _imported(self.options)
        return self.options

    @cached_property
    def declared(self) -> dict[str, Declared]:
        """Its options."""
        return declared_options(self.kind)

    @property
    def of_others(self) -> frozenset[str]:
        """Options of other commands that a file may have."""
        return frozenset(name for kind in self.also for name in declared_options(_imported(kind)))

    def signature(self) -> inspect.Signature:
        """Give the parameters of a command that takes them, first those that a help shows first."""
        kinds = inspect.Parameter
        hints = get_type_hints(self.kind, include_extras=True)
        defaults = {
            field.name: field.default for field in fields(self.kind) if field.default is not MISSING
        }
        defaults.pop("said", None)

        names = sorted(
            defaults, key=lambda name: name in self.declared and not self.declared[name].first
        )
        parameters = [
            kinds("context", kinds.POSITIONAL_OR_KEYWORD, annotation=typer.Context),
            *(
                kinds(name, kinds.KEYWORD_ONLY, default=defaults[name], annotation=hints[name])
                for name in names
            ),
        ]

        if self.typed is None:
            parameters.append(
                kinds("print_config", kinds.KEYWORD_ONLY, default=False, annotation=_PRINT_CONFIG)
            )

        if len(names if self.typed is None else self.typed) > FEW:
            parameters.append(
                kinds("help_all", kinds.KEYWORD_ONLY, default=False, annotation=_HELP_ALL)
            )

        return inspect.Signature(parameters)

    def filled(self, context: typer.Context, given: dict[str, Any]) -> Any:
        """Make the class of the values that the command line, the environment or a file gave, or of defaults."""
        if any(field.name == "said" for field in fields(self.kind)):
            given["said"] = frozenset(name for name in given if _is_said(context, name))

        return self.kind(**given)


def _imported(name: str) -> type[Any]:
    """Import a class of options, of this folder or by the full name of its module."""
    module, _, kind = name.partition(":")
    path = module if "." in module else f"{__package__}.{module}"
    options: type[Any] = getattr(import_module(path), kind)
    return options


def _is_said(context: typer.Context, name: str) -> bool:
    return getattr(context.get_parameter_source(name), "name", "DEFAULT") != "DEFAULT"


def takes_options(
    options: type[Any] | str,
    *,
    typed: Sequence[str] | None = None,
    also: Sequence[str] = (),
    beforehand: Callable[[typer.Context, Any], None] | None = None,
) -> Callable[[Callable[[Any], None]], Callable[..., None]]:
    """Give a command the fields of a class as its options: see `Taken`, and `prepare_commands`.

    `beforehand` is called before it, with how it was called.
    """
    taken = Taken(options=options, typed=typed, also=also)

    def decorate(command: Callable[[Any], None]) -> Callable[..., None]:
        def call(context: typer.Context, *, print_config: bool = False, **given: Any) -> None:
            if print_config:
                sys.stdout.write(options_in_force(context))
                return

            given.pop("help_all", None)
            filled = taken.filled(context, given)
            if beforehand is not None:
                beforehand(context, filled)

            command(filled)

        call.__signature__ = inspect.Signature()  # type: ignore[attr-defined]
        call.__annotations__ = {}
        call.taken = taken  # type: ignore[attr-defined]
        call.__doc__ = command.__doc__
        call.__name__ = command.__name__

        return call

    return decorate


def prepare_commands(group: typer.Typer, named: str | None = None) -> None:
    """Give commands of a group the parameters of their options: to one that is named, if it is there, or to all.

    For the list of commands, which `--help` shows, none is needed.
    """
    if named == "--help":
        return
    every = {info.name: info.callback for info in group.registered_commands}
    for callback in [every[named]] if named in every else every.values():
        taken: Taken | None = getattr(callback, "taken", None)
        if (
            callback is not None
            and taken is not None
            and not inspect.signature(callback).parameters
        ):
            signature = taken.signature()
            callback.__signature__ = signature  # type: ignore[attr-defined]
            callback.__annotations__ = {p.name: p.annotation for p in signature.parameters.values()}

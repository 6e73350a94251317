"""How an option is declared.

Once, in the annotation of its field; whatever shows or takes options reads it there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, get_type_hints

from typer.models import OptionInfo

if TYPE_CHECKING:
    from collections.abc import Callable

INPUT = "Input"
PRIVACY = "Privacy"
COLLABORATION = "Collaboration"
OUTPUT = "Output"
OPERATION = "Operation"
ESTIMATION = "Estimation"
SIDES = "Two sides, two runners"
HEADINGS = (INPUT, PRIVACY, ESTIMATION, COLLABORATION, OUTPUT, OPERATION, SIDES)
"""In the order of the engine's data: in, private, out."""
ASKED = (INPUT, PRIVACY, ESTIMATION, COLLABORATION)
"""Under these an option says what is read and how; under "Output", where something is shown."""


class Declared(OptionInfo):
    """The declaration of an option; its name, type and default are those of its field."""

    def __init__(
        self,
        *names: str,
        unit: str = "",
        first: bool = False,
        required: bool = False,
        shows: bool | None = None,
        host: Literal["both", "engine", "runner"] = "both",
        environment: bool = True,
        **typers: Any,
    ) -> None:
        first_name: Any = (
            names[0] if names else ...
        )  # in an annotation Typer takes it from the default
        typers = {"metavar": f"<{unit}>" if unit else None, **typers}
        super().__init__(default=first_name, param_decls=names[1:] or None, **typers)
        heading = self.rich_help_panel

        if shows is None and heading not in (*ASKED, OUTPUT):
            raise TypeError(f"shows must be said of an option under {heading}: {self.help}")
        self.unit = unit
        self.first = first
        self.required = required
        self.shows = heading == OUTPUT if shows is None else shows
        self.host = host
        self.environment = environment

    def __get_pydantic_json_schema__(
        self, core_schema: Any, handler: Callable[[Any], dict[str, Any]]
    ) -> Any:
        """Describe a key of a configuration file, where a text may be written as a number or as numbers in a list."""
        schema = handler(core_schema)
        branches = schema.pop("anyOf", [schema])
        kinds = [branch.get("type") for branch in branches]
        numbers = ["number", "array"] if "string" in kinds else []
        item = (
            {"type": "number"}
            if numbers
            else next((one["items"] for one in branches if "items" in one), None)
        )
        described = {"description": self.help, "group": self.rich_help_panel, "unit": self.unit}

        schema_of_key = {
            "type": [*dict.fromkeys([*kinds, *numbers])],
            "items": item,
            "default": schema.get("default"),
        }

        return {
            name: value
            for name, value in {**schema_of_key, **described}.items()
            if value not in (None, "")
        }


def cli_option(help_text: str, heading: str | None = None, *names: str, **declared: Any) -> Any:
    """Declare an option.

    Parameters
    ----------
    help_text : str
        A noun phrase: its meaning, with its default where that depends on something.
    heading : str, optional
        It stands under this in the help.
    *names : str
        As they are typed, if not by the name of the field.
    **declared
        `unit`: of the value, shown in its place; `first`: shown before `--help-all` is asked for;
        `required`: a run cannot do without it; `shows`: whether it says where something is written
        or what is shown, where its heading does not say so; `host`: "engine" or "runner" if no
        other has it; `environment=False`: the variable of its name is read elsewhere; all that
        `typer.Option` takes.
    """
    return Declared(*names, help=help_text, rich_help_panel=heading, **declared)


def declared_options(owner: Any) -> dict[str, Declared]:
    """Give the options of a class of options, or of a function that is a command, in their order."""
    hints = get_type_hints(owner, include_extras=True)
    found = ((name, getattr(hint, "__metadata__", ())) for name, hint in hints.items())
    return {
        name: option
        for name, several in found
        for option in several
        if isinstance(option, Declared)
    }


def schema_of_options(owner: Any) -> dict[str, Any]:
    """Give the JSON Schema of a file of options."""
    from pydantic import TypeAdapter

    declared = {
        name: option for name, option in declared_options(owner).items() if name != "config"
    }
    properties = TypeAdapter(owner).json_schema()["properties"]
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": owner.__name__,
        "type": "object",
        "additionalProperties": False,
        "properties": {name: properties[name] for name in declared},
    }


def options_of_host(owner: Any, host: str) -> frozenset[str]:
    """Give the options that the engine ("engine") or Beam's runners ("runner") have alone."""
    return frozenset(
        name for name, option in declared_options(owner).items() if option.host == host
    )


def declared_of_command(command: Any) -> dict[str, Declared]:
    """Give the declarations of a command's options, by the name of their parameter."""
    if command.callback is None:
        return {}
    return declared_options(command.callback)

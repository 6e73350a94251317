"""What every command shares: options from a YAML file, options of a dataclass, JSON output."""

from __future__ import annotations

import inspect
import json
import math
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Annotated, Any, TypeVar, get_type_hints

import typer

from meanstream.pipelines.options.option_errors import BadOption
from meanstream.pipelines.options.typed import is_typed_number

T = TypeVar("T")


def _load_config(context: typer.Context, path: Path | None) -> Path | None:
    """Make the file's entries the defaults of the command's options; the command line still overrides them."""
    if path is None:
        return None
    import yaml

    from meanstream.operators.validation import closest_valid
    from meanstream.streaming.strict_yaml import DuplicateKeyError, read_strict_yaml_file

    try:
        entries = read_strict_yaml_file(path)
    except OSError as error:
        raise BadOption(f"config must be a readable file, got {str(path)!r} ({error.strerror})") from None
    except DuplicateKeyError as error:
        raise BadOption(f"config must have each option once, got {str(error)!r} twice in {str(path)!r}") from None
    except (yaml.YAMLError, UnicodeDecodeError):
        raise BadOption(f"config must be YAML, got {str(path)!r}") from None
    if not isinstance(entries, dict):
        raise BadOption(f"config must map option names to values, got {type(entries).__name__} in {str(path)!r}")
    names = {str(p.name): p for p in context.command.params if p.name not in ("config", "help")}
    defaults: dict[str, Any] = {}
    for key, value in entries.items():
        name = _parameter_name(str(key), names)
        if name not in names:
            options = sorted(p.opts[0].lstrip("-") for p in names.values())
            raise BadOption(f"config has no option {key!r}{closest_valid(str(key), options)}")
        if name in defaults:
            raise BadOption(f"config must have each option once, got {str(key)!r} twice in {str(path)!r}")
        defaults[name] = _checked(names[name], value)
    context.default_map = {**(context.default_map or {}), **defaults}
    return path


def _checked(parameter: Any, value: Any) -> Any:
    """Refuse an entry that is of another kind than its option, before it is made text of."""
    option = parameter.name
    if getattr(parameter, "is_flag", False):
        if value is not None and not isinstance(value, bool):
            raise BadOption(f"{option} must be true or false, got {value!r}")
        return value
    several = value if isinstance(value, list) else [value]
    if any(isinstance(one, bool) or not isinstance(one, str | int | float | None) for one in several):
        rule = "a decimal number" if is_typed_number(parameter) else "text or a number"
        raise BadOption(f"{option} must be {rule}, got {value!r}")
    if isinstance(value, list) and not parameter.multiple:
        if is_typed_number(parameter) or not all(isinstance(one, int | float) for one in value):
            raise BadOption(f"{option} must be one value, got {value!r}")
        return str(value)
    return value


def _parameter_name(key: str, names: dict[str, Any]) -> str:
    """Find the parameter behind an option's name as it is written on the command line or with underscores."""
    for name, parameter in names.items():
        if key.replace("_", "-") in {option.lstrip("-") for option in parameter.opts}:
            return name
    return key.replace("-", "_")


ConfigOption = Annotated[
    Path | None,
    typer.Option(
        "--config",
        callback=_load_config,
        is_eager=True,
        help="YAML file of options; the environment and the command line take precedence.",
        rich_help_panel="Operation",
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Output as one JSON object.", rich_help_panel="Output")]


_PRINT_CONFIG = typer.Option(
    "--print-config",
    help="Print every option with its value and origin (command line, environment, YAML, default), and exit.",
    rich_help_panel="Operation",
)


def takes_options(
    options: type[T], *, required: Sequence[str] = (), beforehand: Callable[[typer.Context, T], None] | None = None
) -> Callable[[Callable[[T], None]], Callable[..., None]]:
    """Give a command the fields of a dataclass as its options, some of which its help calls required.

    `beforehand` is called before it, with how it was called.
    """
    hints = get_type_hints(options, include_extras=True)

    def decorate(command: Callable[[T], None]) -> Callable[..., None]:
        def call(context: typer.Context, *, print_config: bool, **given: Any) -> None:
            if print_config:
                from meanstream.pipelines.options.shown import options_in_force

                sys.stdout.write(options_in_force(context))
                return
            taken = options(**given)
            if beforehand is not None:
                beforehand(context, taken)
            command(taken)

        parameters = [
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=hints[name])
            for name, default in _in_order_of_help(options).items()
        ]
        kinds = inspect.Parameter
        hinted = Annotated[bool, _PRINT_CONFIG]
        parameters.append(kinds("print_config", kinds.KEYWORD_ONLY, default=False, annotation=hinted))
        parameters.insert(0, kinds("context", kinds.POSITIONAL_OR_KEYWORD, annotation=typer.Context))
        call.required_options = tuple(required)  # type: ignore[attr-defined]
        call.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        call.__annotations__ = {p.name: p.annotation for p in parameters}
        call.__doc__ = command.__doc__
        call.__name__ = command.__name__
        return call

    return decorate


def _in_order_of_help(options: Any) -> dict[str, Any]:
    """Give the default of each option: those that `HELP_ORDER` names first."""
    defaults = {field.name: field.default for field in fields(options) if field.default is not MISSING}
    first = getattr(options, "HELP_ORDER", "").split()
    return {name: defaults[name] for name in dict.fromkeys([*first, *defaults])}


def print_options_json(result: dict[str, Any]) -> None:
    """Print one JSON object; non-finite numbers become null, as JSON has none."""
    sys.stdout.write(json.dumps(_finite(result), allow_nan=False) + "\n")


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(k): _finite(v) for k, v in value.items()}
    if hasattr(value, "tolist"):
        return _finite(value.tolist())
    if isinstance(value, list | tuple):
        return [_finite(v) for v in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def option_environment(secret_file: Path | None) -> Mapping[str, str]:
    """Take the environment, in which a file named on the command line wins."""
    from meanstream.streaming.store.secret_source import SECRET_FILE_VARIABLE, SECRET_VARIABLE

    if secret_file is None:
        return os.environ
    others = {k: v for k, v in os.environ.items() if k != SECRET_VARIABLE}
    return {**others, SECRET_FILE_VARIABLE: str(secret_file)}


OPTION_OF = {"estimates": "sink", "means": "sink"}
"""Option that names the sink of a role, where it is not the role's own name."""


def option_location(source: str | None) -> str:
    """Give the place of the samples.

    Raises
    ------
    BadOption
        If none was said.
    """
    if source is None:
        raise BadOption("source must be given")
    return source


def require_given(options: object, *names: str) -> None:
    """Refuse options that have no default and were left out, all of them in one line.

    Raises
    ------
    ValueError
        If there are any.
    """
    missing = [name for name in names if getattr(options, name) is None]
    if missing:
        listed = " and ".join(filter(None, (", ".join(missing[:-1]), missing[-1])))
        flags = " ".join(f"--{name.replace('_', '-')} ..." for name in missing)
        raise ValueError(f"{listed} must be given, got None: add {flags}")


def given_option(name: str, value: T | None) -> T:
    """Give the value of an option that has no default.

    Raises
    ------
    ValueError
        If it was left out.
    """
    if value is None:
        raise ValueError(f"{name} must be given, got None: add --{name.replace('_', '-')} ...")
    return value

"""What every command shares: options from a YAML file, JSON output, options that must be given."""

from __future__ import annotations

import json
import math
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from meanstream.pipelines.options.declaration import OPERATION, OUTPUT, cli_option
from meanstream.pipelines.options.option_errors import BadOption
from meanstream.pipelines.options.parsing import is_typed_number

if TYPE_CHECKING:
    from pydantic import ConfigDict

T = TypeVar("T")


def _load_config(context: typer.Context, path: Path | None) -> Path | None:
    """Make the file's entries the defaults of the command's options.

    The command line still overrides them.
    """
    if path is None:
        return None
    import yaml

    from meanstream.operators.validation import closest_valid
    from meanstream.streaming.strict_yaml import DuplicateKeyError, read_strict_yaml_file

    try:
        entries = read_strict_yaml_file(path)
    except OSError as error:
        raise BadOption(
            f"config must be a readable file, got {str(path)!r} ({error.strerror})"
        ) from None
    except DuplicateKeyError as error:
        raise BadOption(
            f"config must have each option once, got {str(error)!r} twice in {str(path)!r}"
        ) from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        mark = getattr(error, "problem_mark", None)
        line = "" if mark is None else f", which is none at line {mark.line + 1}"
        raise BadOption(f"config must be YAML, got {str(path)!r}{line}") from None

    if not isinstance(entries, dict):
        raise BadOption(
            f"config must map option names to values, got {type(entries).__name__} in {str(path)!r}"
        )

    names = {
        str(p.name): p
        for p in context.command.params
        if p.name not in ("config", "help", "help_all")
    }
    taken = getattr(context.command.callback, "taken", None)
    defaults: dict[str, Any] = {}

    for key, value in entries.items():
        name = _parameter_name(str(key), names)
        if name not in names and taken is not None and name in taken.of_others:
            continue

        if name not in names:
            options = sorted(p.opts[0].lstrip("-") for p in names.values())
            raise BadOption(f"config has no option {key!r}{closest_valid(str(key), options)}")

        if name in defaults:
            raise BadOption(
                f"config must have each option once, got {str(key)!r} twice in {str(path)!r}"
            )

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
    if any(
        isinstance(element, bool) or not isinstance(element, str | int | float | None)
        for element in several
    ):
        rule = "a decimal number" if is_typed_number(parameter) else "text or a number"
        raise BadOption(f"{option} must be {rule}, got {value!r}")

    if isinstance(value, list) and not parameter.multiple:
        if is_typed_number(parameter) or not all(
            isinstance(element, int | float) for element in value
        ):
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
    cli_option(
        "YAML file of options; the environment and the command line take precedence.",
        OPERATION,
        "--config",
        callback=_load_config,
        is_eager=True,
        first=True,
        shows=False,
    ),
]
JsonOption = Annotated[bool, cli_option("Output as one JSON object.", OUTPUT, "--json")]
DEFERRED: ConfigDict = {"defer_build": True, "extra": "forbid", "coerce_numbers_to_str": True}
"""Of classes of options: `--help` needs no validator."""


def print_options_json(result: dict[str, Any]) -> None:
    """Print one JSON object."""
    sys.stdout.write(options_json(result) + "\n")


def options_json(result: Mapping[str, Any]) -> str:
    """Write one JSON object; non-finite numbers become null, as JSON has none."""
    return json.dumps(_finite(dict(result)), allow_nan=False)


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

"""What every command shares: options from a YAML file, one-line refusals, JSON output."""

from __future__ import annotations

import inspect
import json
import math
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Annotated, Any, TypeVar, get_type_hints

import typer

T = TypeVar("T")


class BadOption(Exception):  # noqa: N818 - it is what the user gave, not a fault of the program
    """An option that breaks a rule: the command ends with this one line and exit code 2, before any data is read."""


@contextmanager
def refusing() -> Iterator[None]:
    """Turn the `ValueError` of a validator into a one-line refusal; wrap configuration only, never the work itself."""
    try:
        yield
    except ValueError as error:
        raise BadOption(str(error)) from None


def _load_config(context: typer.Context, path: Path | None) -> Path | None:
    """Make the file's entries the defaults of the command's options; the command line still overrides them."""
    if path is None:
        return None
    import yaml

    from operators.validation import closest

    try:
        entries = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise BadOption(f"config must be a readable file, got {str(path)!r} ({error.strerror})") from None
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
            raise BadOption(f"config has no option {key!r}{closest(str(key), options)}")
        defaults[name] = value
    context.default_map = {**(context.default_map or {}), **defaults}
    return path


def _parameter_name(key: str, names: dict[str, Any]) -> str:
    """Find the parameter behind an option's name as it is written on the command line or with underscores."""
    for name, parameter in names.items():
        if key.replace("_", "-") in {option.lstrip("-") for option in parameter.opts}:
            return name
    return key.replace("-", "_")


ConfigOption = Annotated[
    Path | None,
    typer.Option(
        "--config", callback=_load_config, is_eager=True, help="YAML file of option values; the command line wins."
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print the result as one JSON object.")]


def takes(options: type[T]) -> Callable[[Callable[[T], None]], Callable[..., None]]:
    """Give a command the fields of a dataclass as its options."""
    hints = get_type_hints(options, include_extras=True)

    def decorate(command: Callable[[T], None]) -> Callable[..., None]:
        def call(**given: Any) -> None:
            command(options(**given))

        parameters = [
            inspect.Parameter(f.name, inspect.Parameter.KEYWORD_ONLY, default=f.default, annotation=hints[f.name])
            for f in fields(options)  # type: ignore[arg-type]
            if f.default is not MISSING
        ]
        call.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        call.__annotations__ = {p.name: p.annotation for p in parameters}
        call.__doc__ = command.__doc__
        call.__name__ = command.__name__
        return call

    return decorate


def print_json(result: dict[str, Any]) -> None:
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


def environment_of(secret_file: Path | None) -> Mapping[str, str]:
    """Take the environment, in which a file named on the command line wins."""
    from streaming.secret import SECRET_FILE_VARIABLE, SECRET_VARIABLE

    if secret_file is None:
        return os.environ
    others = {k: v for k, v in os.environ.items() if k != SECRET_VARIABLE}
    return {**others, SECRET_FILE_VARIABLE: str(secret_file)}

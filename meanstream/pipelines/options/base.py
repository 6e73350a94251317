"""What every command shares: options from a YAML file, one-line refusals, JSON output."""

from __future__ import annotations

import inspect
import json
import math
import os
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields
from functools import partial
from pathlib import Path
from typing import Annotated, Any, TypeVar, get_type_hints

import typer

from meanstream.pipelines.options.errors import BadOption

T = TypeVar("T")
LARGEST = 2**63 - 1
"""Of whole numbers: what arrays and files hold."""
LONGEST_NAME = 255
"""Bytes of a name in a path: no file system here takes more."""
SHOWN_AND_DONE = ("help", "version")
"""Options that end a command: typed twice they mean nothing else."""
_NUMBER = re.compile(r"\s*[-+]?((\d+(\.\d*)?|\.\d+)(e[-+]?\d+)?|inf|infinity|nan)\s*", re.ASCII | re.IGNORECASE)


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
        rule = "a decimal number" if _is_number(parameter) else "text or a number"
        raise BadOption(f"{option} must be {rule}, got {value!r}")
    if isinstance(value, list) and not parameter.multiple:
        if _is_number(parameter) or not all(isinstance(one, int | float) for one in value):
            raise BadOption(f"{option} must be one value, got {value!r}")
        return str(value)
    return value


def _is_number(parameter: Any) -> bool:
    """Tell by the annotation, or by the type's name, as Typer comes with a click of its own or uses the package."""
    descriptor = getattr(parameter, "type_descriptor", None)
    kind = str(descriptor.annotation) if descriptor is not None else type(parameter.type).__name__.lower()
    return re.search(r"(^|\W)(int|float)", kind) is not None


def _names_a_file(parameter: Any, value: Any) -> bool:
    if not isinstance(value, str):
        return False
    if "/" in value and "://" not in value and value[0] != "-":
        return True
    descriptor = getattr(parameter, "type_descriptor", None)
    return "Path" in (str(descriptor.annotation) if descriptor is not None else type(parameter.type).__name__)


def refusing_in_one_line(command: Any) -> Any:
    """Let whatever an option of a command and its parts refuses name the value, and numbers be decimal ones.

    An option that is typed twice is refused: which one is meant is unknown.
    """
    command.make_parser = partial(_once_each, command.make_parser)
    for parameter in command.params:
        parameter.process_value = partial(_process, parameter, parameter.process_value)
    for part in getattr(command, "commands", {}).values():
        refusing_in_one_line(part)
    return command


def _once_each(make_parser: Callable[[Any], Any], context: Any) -> Any:
    """Make a parser that takes each option once, but for those of several values."""
    parser = make_parser(context)
    parse = parser.parse_args

    def parse_args(args: list[str]) -> Any:
        values, rest, order = parse(args)
        for one in order:
            times = sum(other is one for other in order)
            if times > 1 and not (getattr(one, "multiple", False) or one.name in SHOWN_AND_DONE):
                name, last = one.opts[0].lstrip("-").replace("-", "_"), values.get(one.name)
                raise BadOption(f"{name} must be given once, got it {times} times, at last {last!r}")
        return values, rest, order

    parser.parse_args = parse_args
    return parser


def _process(parameter: Any, process: Callable[[Any, Any], Any], context: Any, value: Any) -> Any:
    """Give an option its value; refuse in one line what nobody could use."""
    for text in value if isinstance(value, list | tuple) else [value]:
        if isinstance(text, str):
            _check_text(parameter, text)
    try:
        found = process(context, value)
    except typer.BadParameter as error:
        if value is None:
            raise
        raise BadOption(f"{parameter.name} must {_rule_in(error.format_message())}, got {value!r}") from None
    for number in found if isinstance(found, list | tuple) else [found]:
        if isinstance(number, int) and abs(number) > LARGEST:
            raise BadOption(f"{parameter.name} must be at most {LARGEST} in size, got {number!r}")
    return found


def _check_text(parameter: Any, text: str) -> None:
    """Refuse what no file or line can hold, and `1_0` or digits of other scripts, which Python reads as numbers."""
    name = parameter.name
    if "\0" in text:
        raise BadOption(f"{name} must hold no NUL character, got {text!r}")
    if not _encodes(text):
        raise BadOption(f"{name} must be text without halves of characters, got {text!r}")
    if _is_number(parameter) and not _NUMBER.fullmatch(text):
        raise BadOption(f"{name} must be a decimal number, got {text!r}")
    if _names_a_file(parameter, text) and any(len(os.fsencode(part)) > LONGEST_NAME for part in text.split("/")):
        raise BadOption(f"{name} must have names of at most {LONGEST_NAME} bytes, got {text!r}")


def _encodes(text: str) -> bool:
    """Say whether a file or a line could be named by a text."""
    try:
        os.fsencode(text)
    except UnicodeEncodeError:
        return False
    return True


def _rule_in(message: str) -> str:
    """Find the rule in what Typer, or the package click, says of a value.

    Examples
    --------
    >>> _rule_in("Invalid value for '--runs': Input should be a valid integer, unable to parse string as an integer.")
    'be a valid integer'
    >>> _rule_in("Invalid value for '--runs': 0 is not in the range x>=1.")
    'be another value: 0 is not in the range x>=1'
    """
    _, _, said = message.rpartition("': ")
    found = re.fullmatch(r"Input should (be [^,]+).*", said.rstrip("."), re.DOTALL)
    return found[1] if found else f"be another value: {said.rstrip('.')}"


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


def takes_options(options: type[T]) -> Callable[[Callable[[T], None]], Callable[..., None]]:
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
    from meanstream.streaming.store.secret import SECRET_FILE_VARIABLE, SECRET_VARIABLE

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


def given_option(name: str, value: T | None) -> T:
    """Give the value of an option that has no default.

    Raises
    ------
    ValueError
        If it was left out.
    """
    if value is None:
        raise ValueError(f"{name} must be given, got None")
    return value

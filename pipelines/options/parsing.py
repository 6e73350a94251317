"""What was typed: what no option could use is refused in one line, and a refused value is shown as it was typed."""

from __future__ import annotations

import ast
import math
import os
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import typer

from meanstream.pipelines.options.near_names import near_option
from meanstream.pipelines.options.option_errors import BadOption

# Typer comes with a click of its own, or uses the package, by its version.
_USAGE_ERROR: Any = next(
    kind for kind in typer.BadParameter.__mro__ if kind.__name__ == "UsageError"
)

LARGEST = 2**63 - 1
"""Of whole numbers: what arrays and files hold."""
LONGEST_NAME = 255
LONGEST_PATH = 4095
"""Bytes of a name in a path, and of a path: no file system here takes more."""
SHOWN_AND_DONE = ("help", "version")
"""Options that end a command: typed twice they mean nothing else."""
_NUMBER = re.compile(
    r"\s*[-+]?((\d+(\.\d*)?|\.\d+)(e[-+]?\d+)?|inf|infinity|nan)\s*", re.ASCII | re.IGNORECASE
)
_SHOWN = re.compile(r"""(?<=, got )('(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|[-+]?[\w.]+(?:[-+]\d+)?)""")
_BESIDE = re.compile(r"\b(\w+) \(([-+.\w]+)\)")
"""The value of another option in the rule, as in `below upper (1.0)`."""


class TypedValues:
    """The texts that a command's options were given, so that a refusal shows them as they were typed.

    Validators see numbers and paths, which have lost their spelling: `-0` became 0, a folder its
    last slash.

    Examples
    --------
    >>> typed = TypedValues()
    >>> typed.note("runs", "-0")
    >>> typed.shown_in("runs must be at least 1, got 0"), typed.shown_in("runs must be at least 1, got 7")
    ('runs must be at least 1, got -0', 'runs must be at least 1, got 7')
    """

    def __init__(self) -> None:
        self._texts: dict[str, list[str]] = {}

    def note(self, name: str, text: str) -> None:
        """Remember what an option was given."""
        self._texts.setdefault(name, []).append(text)

    def option_of(self, place: str) -> str | None:
        """Give the option in whose value a path stands."""
        return next(
            (name for name, texts in self._texts.items() if any(place in text for text in texts)),
            None,
        )

    def shown_in(self, message: str) -> str:
        """Spell the value that a refusal shows as it was typed."""
        # Of the named option, or of any that was given.
        named = self._texts.get(message.partition(" ")[0])
        texts = named or [text for several in self._texts.values() for text in several]
        message = _BESIDE.sub(
            lambda found: f"{found[1]} ({_spelled(found[2], self._texts.get(found[1], []))})",
            message,
        )

        return _SHOWN.sub(lambda found: _spelled(found[0], texts), message)


def _spelled(shown: str, texts: list[str]) -> str:
    quoted = shown[0] in "'\""
    meant = ast.literal_eval(shown) if quoted else shown

    # The same text, or one that means the same number or path.
    same = [text for text in texts if text == meant] or [
        text for text in texts if _means(text, meant)
    ]

    if not same:
        return shown

    if quoted:
        return repr(same[0])
    return same[0].strip()


def _means(text: str, value: str) -> bool:
    """Say whether two texts are one number or one path."""
    # Two spellings of one number are the same value.
    try:
        first_number = float(text)
        second_number = float(value)
    except ValueError:
        return bool(text) and str(Path(text)) == value

    return first_number == second_number or (math.isnan(first_number) and math.isnan(second_number))


def is_typed_number(parameter: Any) -> bool:
    """Tell by the annotation, or by the type's name, as Typer comes with a click of its own or uses the package."""
    descriptor = getattr(parameter, "type_descriptor", None)
    kind = (
        str(descriptor.annotation)
        if descriptor is not None
        else type(parameter.type).__name__.lower()
    )

    return re.search(r"(^|\W)(int|float)", kind) is not None


def _names_a_file(parameter: Any, value: Any) -> bool:
    if not isinstance(value, str):
        return False
    if "/" in value and "://" not in value and value[0] != "-":
        return True

    descriptor = getattr(parameter, "type_descriptor", None)
    return "Path" in (
        str(descriptor.annotation) if descriptor is not None else type(parameter.type).__name__
    )


def refusing_typed_in_one_line(command: Any) -> Any:
    """Let whatever an option of a command and its parts refuses name the value, and numbers be decimal ones.

    An option that is typed twice is refused: which one is meant is unknown. What is typed is noted
    in the `TypedValues` with which the command is called, as `obj`.
    """
    # The parsers of Typer name neither the value nor the option as it was typed.
    command.make_parser = partial(_once_each, command.make_parser)
    for parameter in command.params:
        parameter.process_value = partial(_process, parameter, parameter.process_value)

    for part in getattr(command, "commands", {}).values():
        refusing_typed_in_one_line(part)

    return command


def _once_each(make_parser: Callable[[Any], Any], context: Any) -> Any:
    """Make a parser that takes each option once, but for those of several values."""
    parser = make_parser(context)
    parse = parser.parse_args

    def parse_args(args: list[str]) -> Any:
        words = list(args)
        try:
            values, arguments, order = parse(args)
        except _USAGE_ERROR as error:
            # An unknown option is answered with the nearest one.
            unknown = str(getattr(error, "option_name", ""))
            _refuse_argument(context, unknown, words)
            _refuse_untyped(context, unknown)

            if hasattr(error, "possibilities"):
                error.possibilities = []
                error.message += _near_option(context, unknown)

            raise

        # An option that is given twice would have one value ignored.
        for option in order:
            times = sum(other is option for other in order)
            if times > 1 and not (
                getattr(option, "multiple", False) or option.name in SHOWN_AND_DONE
            ):
                name = option.opts[0].lstrip("-").replace("-", "_")
                last = values.get(option.name)
                raise BadOption(
                    f"{name} must be given once, got it {times} times, at last {last!r}"
                )

        return values, arguments, order

    parser.parse_args = parse_args
    return parser


def _near_option(context: Any, unknown: str) -> str:
    """End of a message that names the option which may be meant."""
    names = [
        name
        for parameter in context.command.params
        if not parameter.hidden
        for name in parameter.opts
    ]
    return near_option(unknown, [*names, "--help"])


def _refuse_argument(context: Any, unknown: str, given: list[str]) -> None:
    """Refuse `-1` where a command takes an argument.

    It is meant as a value, and no option has one letter.
    """
    argument = next(
        (one.name for one in context.command.params if one.param_type_name == "argument"), None
    )
    if argument is not None and unknown.startswith("-") and not unknown.startswith("--"):
        text = next((one for one in given if one.startswith(unknown)), unknown)
        raise BadOption(f"{argument} must not begin with '-', got {text!r}") from None


def _refuse_untyped(context: Any, unknown: str) -> None:
    """Say where an option of a run is read, by a command that is about a run."""
    name = unknown.removeprefix("--no-").removeprefix("--").replace("-", "_")
    hidden = next(
        (
            parameter
            for parameter in context.command.params
            if parameter.hidden and parameter.name == name
        ),
        None,
    )
    if hidden is not None:
        raise BadOption(
            f"{name} must come from --config here, or from {hidden.envvar}, got {unknown!r}"
        ) from None


def _process(parameter: Any, process: Callable[[Any, Any], Any], context: Any, value: Any) -> Any:
    """Give an option its value; refuse in one line what nobody could use."""
    if _is_converted(parameter, context, value):
        return value

    for text in value if isinstance(value, list | tuple) else [value]:
        if isinstance(text, str):
            context.find_root().obj.note(parameter.name, text)
            _check_text(parameter, text)

    try:
        converted = process(context, value)
    except typer.BadParameter as error:
        if value is None:
            raise
        raise BadOption(
            f"{parameter.name} must {_rule_in(error.format_message())}, got {value!r}"
        ) from None

    for number in converted if isinstance(converted, list | tuple) else [converted]:
        if isinstance(number, int) and abs(number) > LARGEST:
            raise BadOption(f"{parameter.name} must be at most {LARGEST} in size, got {number!r}")

    return converted


def _is_converted(parameter: Any, context: Any, value: Any) -> bool:
    """Say whether a default has its type already.

    Making what converts it takes half a millisecond, for 70 options.
    """
    source = getattr(context.get_parameter_source(parameter.name), "name", None)
    if source != "DEFAULT" or parameter.required or parameter.callback is not None:
        return False
    if value is None:
        return not (parameter.multiple or parameter.nargs == -1)

    kind = getattr(getattr(parameter, "type_descriptor", None), "annotation", None)
    return kind in (str, int, float, bool) and type(value) is kind


def _check_text(parameter: Any, text: str) -> None:
    """Refuse what no file or line can hold, and `1_0` or digits of other scripts, which Python reads as numbers."""
    name = parameter.name
    if "\0" in text:
        raise BadOption(f"{name} must hold no NUL character, got {text!r}")
    if not _encodes(text):
        raise BadOption(f"{name} must be text without halves of characters, got {text!r}")
    if is_typed_number(parameter) and not _NUMBER.fullmatch(text):
        raise BadOption(f"{name} must be a decimal number, got {text!r}")

    if _names_a_file(parameter, text):
        _check_path(name, text)


def _check_path(name: str, text: str) -> None:
    """Refuse what no file can be called."""
    if not text:
        raise BadOption(f"{name} must be the name of a file or folder, got ''")
    if any(len(os.fsencode(component)) > LONGEST_NAME for component in text.split("/")):
        raise BadOption(f"{name} must have names of at most {LONGEST_NAME} bytes, got {text!r}")
    if len(os.fsencode(text)) > LONGEST_PATH:
        raise BadOption(f"{name} must be a path of at most {LONGEST_PATH} bytes, got {text!r}")


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
    match = re.fullmatch(r"Input should (be [^,]+).*", said.rstrip("."), re.DOTALL)

    if match:
        return match[1]
    return f"be another value: {said.rstrip('.')}"

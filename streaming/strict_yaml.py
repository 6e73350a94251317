"""YAML that says one thing.

A key once, numbers as people write them, and nothing that is guessed.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

MOST_BYTES = 1 << 20
"""Of a file: who reads more has named something else, perhaps a device without an end."""


class DuplicateKeyError(yaml.YAMLError):
    """A key stands twice in a mapping; the message is the key."""


class _StrictLoader(yaml.SafeLoader):
    """Knows null, true, false and decimal numbers; everything else is text.

    YAML 1.1 reads `1:30` as 90, `yes` as true, `010` as 8, `1_0` as 10 and `2013-01-01` as a date.
    """

    yaml_implicit_resolvers: dict[str, Any] = {}  # noqa: RUF012 - of the base class, which shares its own

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        """Let an alias stand for a text or a number alone: lists of lists of aliases have no end."""
        is_alias = self.check_event(yaml.AliasEvent)
        node: yaml.Node | None = super().compose_node(parent, index)

        if is_alias and node is not None and not isinstance(node, yaml.ScalarNode):
            raise yaml.constructor.ConstructorError(
                None, None, "an alias must be of a text or a number", node.start_mark
            )

        return node

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """Refuse a key that stands twice: which of its values is meant is unknown."""
        seen: set[str] = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode):
                if key.value in seen:
                    raise DuplicateKeyError(key.value)
                seen.add(key.value)

        return super().construct_mapping(node, deep)


def _integer(loader: yaml.SafeLoader, node: yaml.ScalarNode) -> int:
    return int(_decimal(loader, node, _INTEGER))


def _real(loader: yaml.SafeLoader, node: yaml.ScalarNode) -> float:
    return float(_decimal(loader, node, _REAL))


def _decimal(loader: yaml.SafeLoader, node: yaml.ScalarNode, form: re.Pattern[str]) -> str:
    text = str(loader.construct_scalar(node))
    if not form.fullmatch(text):
        raise yaml.constructor.ConstructorError(
            None, None, "a number must be decimal", node.start_mark
        )

    return text


_INTEGER = re.compile(r"[-+]?(0|[1-9][0-9]{0,300})")
_REAL = re.compile(r"[-+]?(\.[0-9]+|(0|[1-9][0-9]*)(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
for _tag, _form, _first in (
    ("null", re.compile(r"~|null|Null|NULL|"), ["~", "n", "N", ""]),
    ("bool", re.compile(r"true|True|TRUE|false|False|FALSE"), list("tTfF")),
    ("int", re.compile(rf"(?:{_INTEGER.pattern})\Z"), list("-+0123456789")),
    ("float", re.compile(rf"(?:{_REAL.pattern})\Z"), list("-+.0123456789")),
):
    _StrictLoader.add_implicit_resolver(
        f"tag:yaml.org,2002:{_tag}", re.compile(rf"(?:{_form.pattern})\Z"), _first
    )
_StrictLoader.add_constructor("tag:yaml.org,2002:int", _integer)
_StrictLoader.add_constructor("tag:yaml.org,2002:float", _real)


def read_strict_yaml_file(path: Path) -> Any:
    """Read a file of YAML, whatever stands there."""
    with path.open("rb") as file:
        data = file.read(MOST_BYTES + 1)

    if len(data) > MOST_BYTES:
        raise yaml.YAMLError(f"more than {MOST_BYTES} bytes")
    return read_strict_yaml(data.decode())


def read_strict_yaml(text: str) -> Any:
    """Read one document of plain values.

    Examples
    --------
    >>> read_strict_yaml("{a: 1:30, b: yes, c: 1e-6, d: 010, e: 2013-01-01, f: true, g: 1_0}")
    {'a': '1:30', 'b': 'yes', 'c': 1e-06, 'd': '010', 'e': '2013-01-01', 'f': True, 'g': '1_0'}
    >>> read_strict_yaml("{epsilon: 1, epsilon: 2}")
    Traceback (most recent call last):
    meanstream.streaming.strict_yaml.DuplicateKeyError: epsilon
    """
    try:
        return yaml.load(text, _StrictLoader)  # noqa: S506 - it is a safe loader
    except (
        RecursionError,
        TypeError,
        ValueError,
    ):  # a value that is its own part; a key that is a mapping
        raise yaml.YAMLError("plain values") from None

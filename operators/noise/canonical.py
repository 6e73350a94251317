"""One spelling for one value.

Settings as the bytes that go into a key, a digest or a fingerprint.
"""

from __future__ import annotations

import json
from dataclasses import MISSING, fields
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

UNSPELLED = "unspelled"
"""Metadata of a field: the value that keys do not spell, where the default is another now than when
keys were made."""


def canonical(value: Any) -> bytes:
    """Plain data as bytes: equal data, equal bytes.

    Numbers are distinguished by type, `1` from `1.0`: settings bring their fields to their declared
    types themselves.

    Examples
    --------
    >>> canonical({"upper": np.float64(120), "lower": -30.0})
    b'{"lower":-30.0,"upper":120.0}'
    """
    return json.dumps(value, sort_keys=True, separators=(",", ":"), default=_plain).encode()


def canonical_plain(value: Any) -> Any:
    """Give plain data as it is read from its canonical bytes: arrays are lists.

    Examples
    --------
    >>> canonical_plain({"found": np.array([0.1, 2.0])})
    {'found': [0.1, 2.0]}
    """
    return json.loads(canonical(value))


def canonical_spelling(settings: DataclassInstance) -> dict[str, Any]:
    """Give the fields of settings that are not at their defaults, as plain data.

    A field that is added later, with a default that changes nothing, therefore changes no key.

    Examples
    --------
    >>> from meanstream.operators.agents.agents_settings import AgentsSettings
    >>> canonical_spelling(AgentsSettings(lower=np.float64(-30), upper="120", epsilon=1, horizon=40))
    {'lower': -30.0, 'upper': 120.0, 'epsilon': 1.0, 'counter': 'pm1', 'noise': 'staircase', 'spread_share': 0.1}
    """
    values = {field.name: getattr(settings, field.name) for field in fields(settings)}
    at_default = {field.name for field in fields(settings) if values[field.name] == _default(field)}
    return {name: value for name, value in values.items() if name not in at_default}


def _default(field: Any) -> Any:
    if UNSPELLED in field.metadata:
        return field.metadata[UNSPELLED]

    if field.default_factory is not MISSING:
        return field.default_factory()
    return field.default


def _plain(value: Any) -> Any:
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    raise TypeError(f"public data must be plain, got {type(value).__name__}")

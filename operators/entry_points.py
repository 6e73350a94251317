"""Estimators and collaborations that no registry has.

Entry points of other packages, and objects that callers pass.
"""

from __future__ import annotations

import importlib
from collections.abc import Container
from dataclasses import dataclass
from functools import cache
from typing import Any

from meanstream.operators.validation import require

ESTIMATORS_GROUP = "meanstream.estimators"
COLLABORATIONS_GROUP = "meanstream.collaborations"


@dataclass(frozen=True)
class PassedEntry:
    """An object that a caller passed, behind the interface of an entry point."""

    value: Any

    def load(self) -> Any:
        """Return the object."""
        return self.value


class PassedName(str):
    """Name of an object that a caller passed.

    A worker that unpickles the name gets the object with it.
    """

    _group: str

    def __new__(cls, name: str, group: str) -> PassedName:
        """Remember which group the name belongs to."""
        made = super().__new__(cls, name)
        made._group = group
        return made

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the object, not its name alone."""
        return register_passed, (self._group, str(self), _PASSED[self._group][self].value)


_PASSED: dict[str, dict[str, PassedEntry]] = {ESTIMATORS_GROUP: {}, COLLABORATIONS_GROUP: {}}


def register_passed(group: str, name: str, value: Any) -> PassedName:
    """Register an object under a name in this process; a later one of the same name replaces it."""
    _PASSED[group][name] = PassedEntry(value)
    return PassedName(name, group)


def valid_own_name(option: str, given: Any, registry: Container[str]) -> str:
    """Return the attribute `name` of an object that a caller passed, if it is free.

    Examples
    --------
    >>> valid_own_name("estimator", 3, {"plan"})
    Traceback (most recent call last):
    ValueError: estimator must be a name, or have an attribute `name` that Meanstream does not use, got None
    """
    name = getattr(given, "name", None)
    free = isinstance(name, str) and bool(name) and name not in registry
    require(
        free, option, "be a name, or have an attribute `name` that Meanstream does not use", name
    )

    return str(name)


@cache
def installed_entry_points(group: str) -> dict[str, Any]:
    """Find what installed packages register in a group, by name.

    Nothing of it is imported before it is used.
    """
    metadata = importlib.import_module("importlib.metadata")  # --help does not wait for it
    return {entry.name: entry for entry in metadata.entry_points(group=group)}


def entry_points_of(group: str) -> dict[str, Any]:
    """Return what installed packages register in a group and what callers of this process passed, by name."""
    return {**installed_entry_points(group), **_PASSED[group]}

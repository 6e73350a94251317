"""Estimators and collaborations of other packages, which register them as entry points."""

from __future__ import annotations

from functools import cache
from importlib.metadata import EntryPoint, entry_points

ESTIMATORS_GROUP, COLLABORATIONS_GROUP = "meanstream.estimators", "meanstream.collaborations"


@cache
def entry_points_of(group: str) -> dict[str, EntryPoint]:
    """Find what installed packages register in a group, by name; nothing of it is imported before it is used."""
    return {entry.name: entry for entry in entry_points(group=group)}

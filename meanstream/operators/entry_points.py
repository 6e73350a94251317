"""Estimators and collaborations of other packages, which register them as entry points."""

from __future__ import annotations

import importlib
from functools import cache
from typing import Any

ESTIMATORS_GROUP, COLLABORATIONS_GROUP = "meanstream.estimators", "meanstream.collaborations"


@cache
def entry_points_of(group: str) -> dict[str, Any]:
    """Find what installed packages register in a group, by name; nothing of it is imported before it is used."""
    metadata = importlib.import_module("importlib.metadata")  # --help does not wait for it
    return {entry.name: entry for entry in metadata.entry_points(group=group)}

"""Papers, evidence and hosts stand on the core: what the core runs of them is loaded by name."""

from __future__ import annotations

import importlib
from typing import Any


def ring_module(name: str) -> Any:
    """Import a module of a ring by its name below `meanstream`."""
    return importlib.import_module(f"meanstream.{name}")

"""Prism as a runner of tests: needed by name, and given ten tries."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from meanstream.pipelines.beam.runners import prism_runner_binary

_NEEDED = pytest.mark.skipif(prism_runner_binary() is None, reason="Prism is not there: make servers builds it")

RUNNERS = ["FnApiRunner", pytest.param("PrismRunner", marks=_NEEDED)]
"""Runners that need no cluster."""


def on_prism(test: Callable[..., Any]) -> Callable[..., Any]:
    """Mark a test that runs a pipeline on Prism."""
    return _NEEDED(test)

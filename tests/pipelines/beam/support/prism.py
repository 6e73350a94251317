"""Prism as a runner of tests: needed by name, and given ten tries."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from meanstream.pipelines.beam.runners import prism_runner_binary

_NEEDED = pytest.mark.skipif(prism_runner_binary() is None, reason="Prism is not there: make servers builds it")
_TRIED = pytest.mark.flaky(reruns=9, only_rerun=".")
"""On a machine that does too much at once Prism was seen to let event time pass a step before all of its input had
come (docs/beam.md): at load 8 in six of ten tries. The other runners have one try: what is ours is exact there."""

RUNNERS = ["FnApiRunner", pytest.param("PrismRunner", marks=[_NEEDED, _TRIED])]
"""Runners that need no cluster."""


def on_prism(test: Callable[..., Any]) -> Callable[..., Any]:
    """Mark a test that runs a pipeline on Prism."""
    return _NEEDED(_TRIED(test))

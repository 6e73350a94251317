"""Prism as a runner of tests: what a test may ask of it.

On a machine that does too much at once Prism (2.77) lets event time pass a step before all of its
input has come: a shard has its turn with a part of its samples, and the rest comes too late. So
what is released by then, a window holds or a counter of a stateful step says is no property of ours
there, and FnApiRunner and Flink are asked for it. Prism is asked for what holds in any order: what
is read and written, what a step without state counts, that a pipeline and all of its coders are
taken, that an agent's releases are in turn and come once, and what a `TestStream` scripts.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from meanstream.pipelines.beam.beam_runners import prism_runner_binary

_NEEDED = pytest.mark.skipif(
    prism_runner_binary() is None, reason="Prism is not there: make servers builds it"
)

RUNNERS = ["FnApiRunner", pytest.param("PrismRunner", marks=_NEEDED)]
"""Runners that need no cluster, for what no event time decides."""


def on_prism(test: Callable[..., Any]) -> Callable[..., Any]:
    """Mark a test that runs a pipeline on Prism."""
    return _NEEDED(test)

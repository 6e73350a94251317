"""What must not be: noise that is drawn, so that whatever is executed again releases something
else.

In a module of its own, which workers import.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from meanstream.operators.records import Words
from meanstream.pipelines.beam.agents.release_agents import ReleaseShard


class FreshNoise:
    """The known-bad twin of `KeyedNoise`."""

    def bits(self, ids: Any, draw: int = 0) -> Words:
        return np.random.default_rng().integers(0, 2**64, (len(ids), 2), np.uint64)

    def version_of(self, count: Any, total: Any) -> Words:
        return np.zeros(len(count), np.uint64)

    def derived(self, purpose: str, settings: Any) -> FreshNoise:
        return self


class FreshReleaseShard(ReleaseShard):
    """The known-bad twin of `ReleaseShard`."""

    def setup(self) -> None:
        super().setup()
        self._noise = FreshNoise()  # type: ignore[assignment]

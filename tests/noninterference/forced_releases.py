"""Releases of agents as functions of public counts, whatever the values are.

Under them two worlds may differ in every value, and a byte that differs in what anyone is shown is
raw data that no release has charged.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

from meanstream.operators.agents import agents as of_agents
from meanstream.operators.agents.own_histogram import SampleHistogram
from meanstream.operators.agents.vote_of_spread import SpreadVote
from meanstream.operators.noise.keyed import KeyedNoise


@contextmanager
def forced_releases() -> Iterator[None]:
    """Force means, votes and histograms of agents that forget nothing, and the digests of their inputs."""
    noised = of_agents.Agents._noised
    version = KeyedNoise.version_of

    def forced_version(self: KeyedNoise, first: Any, second: Any) -> Any:
        nothing = np.zeros(len(np.atleast_1d(first)), np.int64)
        return version(self, nothing, nothing)

    def forced_noised(self: Any, agent: Any, index: Any, now: Any, fresh: Any) -> Any:
        middle = (now.number * (self.settings.grid.span // 2)).astype(np.int64)
        return noised(self, agent, index, now._replace(total=middle), fresh)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(KeyedNoise, "version_of", forced_version)
        patch.setattr(of_agents.Agents, "_noised", forced_noised)
        patch.setattr(SpreadVote, "cast", _vote_by_counts(SpreadVote.cast))
        patch.setattr(SampleHistogram, "cast", _histogram_by_counts(SampleHistogram.cast))
        yield


def _vote_by_counts(cast: Any) -> Any:
    """Votes with all pairs in the middle bin, as many as their public number."""

    def forced(self: Any, pairs: Any, since: Any, *rest: Any) -> Any:
        by_bin = np.zeros_like(pairs)
        by_bin[:, by_bin.shape[1] // 2] = np.rint(since)
        return cast(self, by_bin, since, *rest)

    return forced


def _histogram_by_counts(cast: Any) -> Any:
    """Histograms with all samples in the middle bin, as many as are new."""

    def forced(self: Any, rows: Any, agent: Any, *rest: Any, **named: Any) -> Any:
        column = rows["histogram_new"]
        counts = column[agent].sum(axis=1)
        by_bin = np.zeros_like(column[agent])
        by_bin[:, by_bin.shape[1] // 2] = counts
        column[agent] = by_bin
        return cast(self, rows, agent, *rest, **named)

    return forced

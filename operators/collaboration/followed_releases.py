"""Releases followed as they are made.

The variance of one sample, and what each agent's own say together.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from meanstream.operators.agents.agents import AgentsSettings
from meanstream.operators.agents.sorting import last_of_each
from meanstream.operators.collaboration.own_releases import OwnReleases
from meanstream.operators.collaboration.variance.pooled_variance import (
    PooledVariance,
    pooled_release_differences,
)
from meanstream.operators.collaboration.variance.variance_posterior import VariancePosterior
from meanstream.operators.records import ReleaseColumns, records_without_votes

_COLUMNS = ("agent", "index", "count", "total", "mean", "noise_variance", "votes")


class FollowedReleases:
    """Public: pools the differences of consecutive releases of each agent.

    Keeps what those of each say together.

    **Privacy.** It reads releases only, so what is computed from it is post-processing.

    Each agent's newest release is held by who makes them (`Agents`) or receives them
    (`NewestReleases`).

    Attributes
    ----------
    own : OwnReleases
        The newest releases of each agent that are combined.
    """

    def __init__(self, settings: AgentsSettings) -> None:
        self._counter = settings.mechanism
        self._vote = settings.vote
        self._pool = PooledVariance(settings.lower, settings.upper)
        self.own = OwnReleases(settings)
        self._votes = records_without_votes().sum(axis=0)  # everyone's

    @property
    def variance(self) -> float:
        """Pooled variance of one sample, in squared value units."""
        return self.posterior.median

    @property
    def posterior(self) -> VariancePosterior:
        """What the releases and everyone's votes say of it."""
        return self.pool().posterior()

    def pool(self) -> PooledVariance:
        """Give differences of releases and everyone's votes, which pools of other agents add to."""
        if self._vote is not None:
            self._pool.count_votes(self._votes[None], self._vote.noise.variance)

        return self._pool

    def observe(self, releases: ReleaseColumns, before: ReleaseColumns) -> None:
        """Take new releases, in the order of their making, and what their agents had released last before them."""
        if not len(releases):
            return
        self._pool.update(
            pooled_release_differences(ReleaseColumns.joined([before, releases]), self._counter)
        )

        if self._vote is not None:
            newest = releases.votes[last_of_each(releases.agent)]
            self._votes += newest.sum(axis=0) - before.votes.sum(axis=0)

        self.own.observe(releases)

    def combined(self, latest: ReleaseColumns) -> ReleaseColumns:
        """Give newest releases the mean and the noise of all that their agents have released (`OwnReleases`)."""
        return self.own.combined(latest)

    def snapshot(self) -> dict[str, Any]:
        """Give the pool as plain data.

        `own` is saved by itself, and the newest releases are in the agents' state.
        """
        return self._pool.snapshot()

    def restore(self, state: dict[str, Any], latest: ReleaseColumns) -> None:
        """Continue from a snapshot and everyone's newest release."""
        self._pool = PooledVariance.restore(state)
        self._votes = latest.votes.sum(axis=0)


class NewestReleases:
    """Public: everyone's newest release, for who is not told what an agent released before.

    **Privacy.** It holds releases only.
    """

    def __init__(self) -> None:
        self._last: dict[str, np.ndarray[Any, Any]] = {
            name: np.zeros(0, np.int64) for name in _COLUMNS
        }
        self._last["votes"] = records_without_votes()

    def replaced(self, releases: ReleaseColumns) -> ReleaseColumns:
        """Take new releases, in the order of their making.

        Give what each of their agents had released last.
        """
        if not len(releases):
            return releases
        self._reserve(int(releases.agent.max()) + 1)
        agent = releases.agent[last_of_each(releases.agent)]
        agent = agent[self._last["index"][agent] > 0]
        before = ReleaseColumns(**{name: self._last[name][agent] for name in _COLUMNS})

        for name in _COLUMNS:  # of several releases of an agent the last one stays
            self._last[name][releases.agent] = getattr(releases, name)

        return before

    def _reserve(self, needed: int) -> None:
        missing = max(needed, 2 * len(self._last["agent"])) - len(self._last["agent"])
        if needed > len(self._last["agent"]):
            for name, column in self._last.items():
                kind = np.float64 if name in ("mean", "noise_variance") else np.int64
                room = np.zeros((missing, *column.shape[1:]), kind)
                self._last[name] = np.concatenate([column.astype(kind), room])

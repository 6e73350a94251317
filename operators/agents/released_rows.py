"""What one call of `Agents` has released: public columns, collected piece by piece."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from meanstream.operators.agents.admission import Fates
from meanstream.operators.agents.agents_settings import AgentsSettings
from meanstream.operators.records import (
    Floats,
    Ints,
    ReleaseColumns,
    Words,
    records_without_votes,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseBatch:
    """What one call released.

    Public columns, the input version of each (a keyed digest) and its event time.

    `exhausted` lists the agents that made the last release of their horizon in this call. `fates`
    says of each sample that was given whether it counts
    (`meanstream.operators.agents.admission`); None if all of them do. `before` has what these
    agents, if anything, had released last before the call; only `Agents` knows it. `drift` says of
    each release, with a memory that forgets, whether the mean behind it has changed
    (`meanstream.operators.agents.released_change_tests`), and `since` the number of the release
    after which its sum begins; both are without entries otherwise.
    """

    releases: ReleaseColumns
    version: Words
    time: Floats
    exhausted: Ints
    fates: Fates | None = None
    before: ReleaseColumns = field(default_factory=lambda: ReleaseColumns.joined([]))
    drift: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    since: Ints = field(default_factory=lambda: np.zeros(0, np.int64))


@dataclass(slots=True, kw_only=True)
class ReleasedPiece:
    """One release of each of some agents; the last three with a memory that forgets alone."""

    agent: Ints
    index: Ints
    count: Ints
    total: Ints
    votes: Ints
    histogram: Ints
    version: Words
    time: Floats
    variance: Floats | None = None
    drift: Ints | None = None
    since: Ints | None = None


@dataclass(slots=True)
class PendingReleases:
    """Releases collected during one call, in pieces, and the newest before of the same agents."""

    pieces: list[ReleasedPiece] = field(default_factory=list)
    before: list[ReleaseColumns] = field(default_factory=list)

    def column(self, name: str, begun: int = 0) -> Any:
        """A column of all pieces from one on, where they have it; else without entries."""
        parts = [getattr(piece, name) for piece in self.pieces[begun:]]
        parts = [part for part in parts if part is not None]
        if parts:
            return np.concatenate(parts)
        return np.zeros(0, np.int64)

    def collect(self, settings: AgentsSettings) -> ReleaseBatch:
        """Give all of them in the order of time, agent and number."""
        width = 0 if settings.histogram is None else settings.histogram.noised.shape[0]
        none = np.zeros(0, np.int64)
        nothing = ReleasedPiece(
            agent=none,
            index=none,
            count=none,
            total=none,
            votes=records_without_votes(),
            histogram=np.zeros((0, width), np.int64),
            version=np.zeros(0, np.uint64),
            time=np.zeros(0),
        )
        self.pieces = self.pieces or [nothing]

        agent = self.column("agent")
        index = self.column("index")
        time = self.column("time")
        order = _order(time, agent, index)

        def ordered(name: str) -> Any:
            column = self.column(name)
            return column[order] if len(column) else column

        return ReleaseBatch(
            releases=released_columns(
                settings,
                agent=agent[order],
                index=index[order],
                count=ordered("count"),
                total=ordered("total"),
                votes=ordered("votes"),
                histogram=ordered("histogram"),
                variance=None if settings.kept is None else ordered("variance").astype(np.float64),
            ),
            version=ordered("version"),
            time=time[order],
            exhausted=agent[order][index[order] == settings.horizon],
            before=self._before(agent, index),
            drift=ordered("drift"),
            since=ordered("since"),
        )

    def _before(self, agent: Ints, index: Ints) -> ReleaseColumns:
        """Give what was the newest before all of these releases."""
        every = ReleaseColumns.joined(self.before)
        if not len(every):
            return every
        first_index = np.full(int(agent.max()) + 1, np.iinfo(np.int64).max)
        np.minimum.at(first_index, agent, index)

        return every.take(every.index < first_index[every.agent])


def _order(time: Floats, agent: Ints, index: Ints) -> slice | Ints:
    """Order by time, agent and number; those of one moment most often are in order."""
    if (time[:1] == time).all() and (agent[1:] > agent[:-1]).all():
        return slice(None)
    return np.lexsort((index, agent, time))


def released_columns(
    settings: AgentsSettings,
    *,
    agent: Ints,
    index: Ints,
    count: Ints,
    total: Ints,
    votes: Ints,
    histogram: Ints,
    variance: Floats | None = None,
) -> ReleaseColumns:
    """Public: noised sums as released means, each with the variance of its noise.

    That of its sum where it is given.
    """
    n = np.maximum(count, 1)
    per_sum = settings.sum_variance(np.maximum(index, 1)) if variance is None else variance
    return ReleaseColumns(
        agent=agent,
        index=index,
        count=count,
        total=total,
        votes=votes,
        histogram=histogram,
        mean=settings.grid.mean(total, n),
        noise_variance=per_sum * settings.grid.resolution**2 / n.astype(np.float64) ** 2,
        noise_terms=settings.noise_terms(index),
    )


def with_noise_terms(settings: AgentsSettings, releases: ReleaseColumns) -> ReleaseColumns:
    """Public: say of releases, from a wire or a ledger, how many draws each one's noise adds up."""
    return replace(releases, noise_terms=settings.noise_terms(releases.index))

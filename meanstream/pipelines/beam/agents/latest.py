"""Everybody's newest release in a shard of agents."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from typing import Any

import numpy as np

from meanstream.operators.agents.agents import AgentsSettings
from meanstream.operators.collaboration.own_releases import OwnReleases
from meanstream.operators.collaboration.variance.pooled import PooledVariance, pooled_release_differences
from meanstream.operators.records import VOTE_BINS, Ints, ReleaseColumns, Words, records_without_votes
from meanstream.pipelines.beam.agents.records import AgentReleases, record_agent_hash
from meanstream.pipelines.beam.packed import packed, packed_columns_of, unpacked

_LATEST = tuple(field.name for field in fields(ReleaseColumns) if field.name != "agent")
_OWN = "own "


class LatestOfShard:
    """Public: everybody's newest releases in a shard, and the pooled variance of one sample.

    Parameters
    ----------
    settings : AgentsSettings
        How the releases were made.
    encoded : bytes
        As `to_bytes` gives it; empty at first.
    """

    def __init__(self, settings: AgentsSettings, encoded: bytes = b"") -> None:
        self._settings = settings
        self._pool = PooledVariance(settings.lower, settings.upper)
        self._agent: Ints = np.zeros(0, np.int64)  # hash, increasing
        self._columns: dict[str, Any] = {name: np.zeros(0, np.int64) for name in _LATEST} | {
            "votes": records_without_votes()
        }
        self._own = OwnReleases(settings)
        self.turns = 0  # changes that were told
        if encoded:
            _, head, columns = unpacked(encoded, "latest shard")
            own = {name: columns.pop(name) for name in list(columns) if name.startswith(_OWN)}
            self._pool, self._agent = PooledVariance.restore(head["pool"]), columns.pop("agent")
            self.turns = head.get("turns", 0)  # an older version told everything each time
            self._columns = {"votes": np.zeros((len(self._agent), 2 + VOTE_BINS), np.int64), **columns}
            if own:
                own = {name.removeprefix(_OWN): column for name, column in own.items()}
                self._own = OwnReleases.of_columns(settings, own)
            else:  # of an older version, which kept the newest only
                self._own.observe(ReleaseColumns(agent=np.arange(len(self._agent)), **self._columns))

    def to_bytes(self) -> bytes:
        """Give what makes the same again."""
        own = {_OWN + name: column for name, column in self._own.columns().items()}
        head = {"pool": self._pool.snapshot(), **({"turns": self.turns} if self.turns else {})}
        return packed("latest shard", head, {**packed_columns_of(self.latest()), **own})

    def observe(self, batches: Sequence[AgentReleases], words: Callable[[list[str]], Words]) -> None:
        """Take releases in, each once, in any order; of an agent's, the newest stays."""
        if not batches:
            return
        hashes = [record_agent_hash(words(batch.names.to_pylist()))[batch.releases.agent] for batch in batches]
        fresh = {name: np.concatenate([getattr(b.releases, name) for b in batches]) for name in _LATEST}
        known, place = np.unique(np.concatenate([self._agent, *hashes]), return_inverse=True)
        old, new = place[: len(self._agent)], place[len(self._agent) :]
        last = np.zeros(len(known), np.int64)
        last[old] = self._columns["index"]
        later = np.flatnonzero(fresh["index"] > last[new])
        order = later[np.lexsort((fresh["index"][later], new[later]))]
        twice = (new[order[1:]] == new[order[:-1]]) & (fresh["index"][order[1:]] == fresh["index"][order[:-1]])
        order = order[np.concatenate([np.ones(min(len(order), 1), np.bool_), ~twice])]
        agent = np.concatenate([old, new[order]])
        both: dict[str, Any] = {name: np.concatenate([self._columns[name], fresh[name][order]]) for name in _LATEST}
        alike = np.repeat([batch.alike for batch in batches], [len(batch) for batch in batches])
        told = np.concatenate([np.ones(len(old), np.bool_), alike[order]])
        releases = ReleaseColumns(agent=agent, **both)
        self._pool.update(pooled_release_differences(releases.take(told), self._settings.mechanism))
        self._own = self._own.renumbered(len(known), old)
        self._own.observe(releases.take(told & (np.arange(len(told)) >= len(old))))
        newest = np.zeros(len(known), np.int64)
        newest[agent] = np.arange(len(agent))  # of several releases of an agent the last one stays
        self._agent, self._columns = known, {name: column[newest] for name, column in both.items()}

    def changed(
        self, batches: Sequence[AgentReleases], words: Callable[[list[str]], Words]
    ) -> tuple[ReleaseColumns, ReleaseColumns] | None:
        """Take releases in; give what the fit reads of the agents with new ones, before and now; None where nobody has.

        The first time of all agents.
        """
        before = self.combined()
        self.observe(batches, words)
        now = self.combined()
        place = np.searchsorted(now.agent, before.agent)
        fresh = np.ones(len(now), np.bool_)
        if self.turns:
            fresh[place] = now.index[place] != before.index
            if not fresh.any():
                return None
            before = before.take(fresh[place])
        else:
            before = before.take(np.zeros(len(before), np.bool_))
        self.turns += 1
        return before, now.take(fresh)

    def latest(self) -> ReleaseColumns:
        """Give everybody's newest release; an agent's number is its hash."""
        return ReleaseColumns(agent=self._agent, **self._columns)

    def combined(self) -> ReleaseColumns:
        """Give the newest release with the mean and the noise of all that its agent has released (`OwnReleases`)."""
        latest = self.latest()
        numbered = replace(latest, agent=np.arange(len(latest)))
        return replace(self._own.combined(numbered), agent=latest.agent)

    @property
    def pool(self) -> PooledVariance:
        """What the releases so far tell of the variance of one sample."""
        pool = PooledVariance.restore(self._pool.snapshot())  # ours will go on
        if self._settings.vote is not None:
            pool.count_votes(self._columns["votes"], self._settings.vote.noise.variance)
        return pool

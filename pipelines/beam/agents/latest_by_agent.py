"""Everyone's newest release in a shard of agents."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from typing import Any

import numpy as np

from meanstream.operators.agents.agents import AgentsSettings
from meanstream.operators.agents.released_rows import with_noise_terms
from meanstream.operators.collaboration.own_releases import OwnReleases
from meanstream.operators.collaboration.variance.pooled_variance import (
    PooledVariance,
    pooled_release_differences,
)
from meanstream.operators.records import VOTE_BINS, Ints, ReleaseColumns, Words
from meanstream.pipelines.beam.agents.agents_elements import (
    AgentReleases,
    numbered_anew,
    record_agent_hash,
)
from meanstream.pipelines.beam.element_types.packed import (
    LATEST,
    packed,
    packed_columns_of,
    packed_narrow,
    unpacked,
)
from meanstream.pipelines.beam.keyed_state.journal import PART, StateJournal
from meanstream.streaming.store.state_snapshot import Columns

_LATEST = tuple(
    field.name
    for field in fields(ReleaseColumns)
    if field.name not in ("agent", "covariates", "noise_terms")
)
_REALS = ("mean", "noise_variance")
_OWN = "own "


class LatestOfShard:
    """Public: everyone's newest releases in a shard, and the pooled variance of one sample.

    Parameters
    ----------
    settings : AgentsSettings
        How the releases were made.
    encoded : bytes
        As `to_bytes` gives it; empty at first.
    changes : sequence of bytes
        As `save` has added them to it since, in their order.
    """

    def __init__(
        self, settings: AgentsSettings, encoded: bytes = b"", changes: Sequence[bytes] = ()
    ) -> None:
        self._settings = settings
        self._pool = PooledVariance(settings.lower, settings.upper)
        self._agent: Ints = np.zeros(0, np.int64)  # hash, increasing
        self._columns: dict[str, Any] = {
            name: np.zeros(0, np.float64 if name in _REALS else np.int64) for name in _LATEST
        } | self._nothing(0)
        self._own = OwnReleases(settings)
        self._changed: list[Ints] = []
        self.turns = 0  # changes that were told

        if encoded:
            self._read(*unpacked(encoded, LATEST))

        for change in changes:
            part = LatestOfShard(settings)
            part._read(*unpacked(change, "latest shard change"))
            self._put(part)
            self.turns = part.turns

    def _read(self, head: dict[str, Any], columns: Columns) -> None:
        reals = {name for name in columns if name in _REALS or columns[name].dtype.kind == "f"}
        whole: dict[str, Any] = {
            name: column.astype(np.float64 if name in reals else np.int64)
            for name, column in columns.items()
        }
        own = {
            name.removeprefix(_OWN): whole.pop(name) for name in columns if name.startswith(_OWN)
        }
        self._pool = PooledVariance.restore(head["pool"])
        self._agent = whole.pop("agent")
        self.turns = head.get("turns", 0)
        self._columns = {**self._nothing(len(self._agent)), **whole}
        self._own = OwnReleases.of_columns(self._settings, own)

    def _nothing(self, n: int) -> Columns:
        """Give votes and histograms of agents that have neither."""
        histogram = self._settings.histogram
        bins = 0 if histogram is None else 2 + histogram.bins
        return {
            "votes": np.zeros((n, 2 + VOTE_BINS), np.int64),
            "histogram": np.zeros((n, bins), np.int64),
        }

    def to_bytes(self) -> bytes:
        """Give what makes the same again."""
        return self._packed(LATEST)

    def _packed(self, kind: str) -> bytes:
        own = {_OWN + name: column for name, column in self._own.columns().items()}
        head = {"pool": self._pool.snapshot(), **({"turns": self.turns} if self.turns else {})}
        return packed(kind, head, packed_narrow({**packed_columns_of(self.latest()), **own}))

    def save(self, journal: StateJournal) -> None:
        """Write what has changed since it was read, or written."""
        change = None
        if PART * max(map(len, self._changed), default=0) <= len(self._agent):
            changed = np.unique(np.concatenate([np.zeros(0, np.int64), *self._changed]))
            few = PART * len(changed) <= len(self._agent)
            change = self._part(changed)._packed("latest shard change") if few else None

        journal.save(change, self.to_bytes)
        self._changed = []

    def _part(self, agent: Ints) -> LatestOfShard:
        """Take those of some agents out who are known; what that observes is pooled here."""
        place = np.searchsorted(self._agent, agent)
        place = place[np.append(self._agent, -1)[place] == agent]
        part = LatestOfShard(self._settings)
        part._pool = self._pool
        part._agent = self._agent[place]
        part.turns = self.turns
        part._columns = {name: column[place] for name, column in self._columns.items()}

        if self._own.combines:
            own = {name: column[place] for name, column in self._own.columns().items()}
            part._own = OwnReleases.of_columns(self._settings, own)

        return part

    def _put(self, part: LatestOfShard) -> None:
        """Put a part in place of what is known of its agents."""
        place = np.searchsorted(self._agent, part._agent)
        fresh = np.flatnonzero(np.append(self._agent, -1)[place] != part._agent)
        self._agent = np.insert(self._agent, place[fresh], part._agent[fresh])
        at = np.searchsorted(self._agent, part._agent)

        def together(here: Columns, there: Columns) -> Columns:
            both = {
                n: np.insert(column, place[fresh], there[n][fresh], axis=0)
                for n, column in here.items()
            }

            for name, column in both.items():
                column[at] = there[name]

            return both

        self._pool, self._columns = part._pool, together(self._columns, part._columns)
        if self._own.combines:
            own = together(self._own.columns(), part._own.columns())
            self._own = OwnReleases.of_columns(self._settings, own)

    def observe(
        self, batches: Sequence[AgentReleases], words: Callable[[list[str]], Words]
    ) -> None:
        """Take releases in, each once, in any order; of an agent's, the newest stays."""
        if not batches:
            return
        numbered = [numbered_anew(batch.releases.agent, len(batch.names)) for batch in batches]
        hashes = [
            record_agent_hash(batch.hashes(words))[used]
            for batch, (used, _) in zip(batches, numbered, strict=True)
        ]

        fresh = {
            name: np.concatenate([getattr(b.releases, name) for b in batches]) for name in _LATEST
        }
        known, place = np.unique(np.concatenate([self._agent, *hashes]), return_inverse=True)
        old, *rest = np.split(place, np.cumsum([len(self._agent), *map(len, hashes[:-1])]))
        new = np.concatenate(
            [of_names[at] for of_names, (_, at) in zip(rest, numbered, strict=True)]
        )

        last = np.zeros(len(known), np.int64)
        last[old] = self._columns["index"]
        later = np.flatnonzero(fresh["index"] > last[new])
        order = later[np.lexsort((fresh["index"][later], new[later]))]
        twice = (new[order[1:]] == new[order[:-1]]) & (
            fresh["index"][order[1:]] == fresh["index"][order[:-1]]
        )
        order = order[np.concatenate([np.ones(min(len(order), 1), np.bool_), ~twice])]
        agent = np.concatenate([old, new[order]])

        both: dict[str, Any] = {
            name: np.concatenate([self._columns[name], fresh[name][order]]) for name in _LATEST
        }

        alike = np.repeat([batch.alike for batch in batches], [len(batch) for batch in batches])
        told = np.concatenate([np.ones(len(old), np.bool_), alike[order]])
        releases = with_noise_terms(self._settings, ReleaseColumns(agent=agent, **both))
        self._pool.update(pooled_release_differences(releases.take(told), self._settings.mechanism))
        self._own = self._own.renumbered(len(known), old)
        self._own.observe(releases.take(told & (np.arange(len(told)) >= len(old))))
        newest = np.zeros(len(known), np.int64)
        newest[agent] = np.arange(len(agent))  # of several releases of an agent the last one stays
        self._agent = known
        self._columns = {name: column[newest] for name, column in both.items()}

    def changed(
        self, batches: Sequence[AgentReleases], words: Callable[[list[str]], Words]
    ) -> tuple[ReleaseColumns, ReleaseColumns] | None:
        """Take releases in; give what the fit reads of the agents with new ones, before and now.

        None where no one has.

        The first time of all agents.
        """
        if not self.turns:
            # In the first turn all agents are new.
            self.observe(batches, words)
            self.turns = 1
            self._changed = [self._agent]
            now = self.combined()

            return now.take(np.zeros(0, np.int64)), now

        # Only agents with new releases are looked at.
        hashes = [record_agent_hash(batch.hashes(words)) for batch in batches]
        part = self._part(np.unique(np.concatenate([np.zeros(0, np.int64), *hashes])))
        before = part.combined()
        part.observe(batches, words)
        now = part.combined()

        # An agent counts as changed if its newest release is another one.
        place = np.searchsorted(now.agent, before.agent)
        fresh = np.ones(len(now), np.bool_)
        fresh[place] = now.index[place] != before.index

        if not fresh.any():
            return None
        self._put(part)
        self._changed.append(now.agent[fresh])
        self.turns += 1

        return before.take(fresh[place]), now.take(fresh)

    @property
    def agents(self) -> Ints:
        """Hashes of all who have released, increasing."""
        return self._agent

    def latest(self) -> ReleaseColumns:
        """Give everyone's newest release; an agent's number is its hash."""
        return with_noise_terms(self._settings, ReleaseColumns(agent=self._agent, **self._columns))

    def combined(self) -> ReleaseColumns:
        """Give newest releases with mean and noise of all that their agents have released."""
        latest = self.latest()

        # Agents are numbered for the combination, and have their hashes again after it.
        numbered = replace(latest, agent=np.arange(len(latest)))
        return replace(self._own.combined(numbered), agent=latest.agent)

    @property
    def pool(self) -> PooledVariance:
        """What the releases so far tell of the variance of one sample."""
        pool = PooledVariance.restore(self._pool.snapshot())  # ours will go on
        if self._settings.vote is not None:
            pool.count_votes(self._columns["votes"], self._settings.vote.noise.variance)

        return pool

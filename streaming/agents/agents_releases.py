"""Releases as ledger rows and as events."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Self

import msgspec
import numpy as np

from meanstream.operators.agents.agents import AgentsSettings, ReleaseBatch
from meanstream.operators.agents.released_change_tests import MOVED, NOTHING
from meanstream.operators.collaboration.followed_releases import FollowedReleases
from meanstream.operators.noise.distributions import NoiseDistribution
from meanstream.operators.records import (
    VOTE_BINS,
    Bools,
    Floats,
    Ints,
    ReleaseColumns,
)
from meanstream.streaming.events.encode import (
    Column,
    EventLines,
    ObjectColumn,
    encode_columns_as_lines,
)
from meanstream.streaming.events.times import iso_times
from meanstream.streaming.events.wire import (
    BudgetEvent,
    DriftEvent,
    Refusal,
    Release,
    release_ids,
)
from meanstream.streaming.store.ledger_reader import LedgerReader
from meanstream.streaming.store.spend_ledger import LedgerRows
from meanstream.streaming.store.state_store import Store


@dataclass(frozen=True, slots=True)
class DriftsOfReleases:
    """Public: whose releases show that their mean has changed, or may have.

    **Privacy.** It follows from charged releases; what a refused one shows is left out, since no
    one sees that release.

    Attributes
    ----------
    agent, index : int array
        Who, and the number of the release.
    time : float array
        Its event time.
    moved : bool array
        Whether it is a change; a warning otherwise.
    since : int array
        Number of the release after which the agent's sums begin.
    """

    agent: Ints
    index: Ints
    time: Floats
    moved: Bools
    since: Ints

    @classmethod
    def of(cls, batches: Sequence[ReleaseBatch], refused: Sequence[int]) -> Self:
        """Find them."""
        with_drift = [
            batch for batch in batches if len(batch.drift)
        ]  # all that have releases, where there is a memory
        none = np.zeros(0, np.int64)
        drift = np.concatenate([none, *(batch.drift for batch in with_drift)])
        shown = drift != NOTHING

        if with_drift:
            shown[list(refused)] = False

        return cls(
            agent=np.concatenate([none, *(batch.releases.agent for batch in with_drift)])[shown],
            index=np.concatenate([none, *(batch.releases.index for batch in with_drift)])[shown],
            time=np.concatenate([np.zeros(0), *(batch.time for batch in with_drift)])[shown],
            moved=drift[shown] == MOVED,
            since=np.concatenate([none, *(batch.since for batch in with_drift)])[shown],
        )

    @property
    def drifts(self) -> int:
        """Number of changes."""
        return int(np.count_nonzero(self.moved))

    @property
    def warnings(self) -> int:
        """Number of warnings."""
        return len(self.moved) - self.drifts

    def lines(self, names: Sequence[str]) -> EventLines:
        """Write them as events."""
        columns = {
            "agent": [names[a] for a in self.agent.tolist()],
            "time": iso_times(self.time),
            "index": self.index.tolist(),
            "found": ["drift" if moved else "warning" for moved in self.moved.tolist()],
            "since": self.since.tolist(),
        }

        return encode_columns_as_lines(DriftEvent, columns, {})


class _Votes(msgspec.Struct):
    number: int
    pairs: int
    counts: list[int]


class _Counts(msgspec.Struct):
    number: int
    samples: int
    counts: list[int]


class _Said(msgspec.Struct):
    n: int
    total: int
    mean: float
    noise_variance: float
    votes: _Votes | None = None
    histogram: _Counts | None = None


_SAID = msgspec.json.Decoder(_Said)


def release_rows(
    batches: Sequence[ReleaseBatch], names: Sequence[str], settings: AgentsSettings
) -> LedgerRows:
    """Write releases as they will leave the process."""
    releases = ReleaseColumns.joined([batch.releases for batch in batches])
    time: Floats = np.concatenate([np.zeros(0), *(batch.time for batch in batches)])
    version = np.concatenate([np.zeros(0, np.uint64), *(batch.version for batch in batches)])
    agent = releases.agent
    index = releases.index

    fields: dict[str, Column] = {
        "release_id": lambda some: release_ids(
            names, agent[some].tolist(), index[some].tolist(), deployment=settings.name
        ),
        "agent": lambda some: [names[a] for a in agent[some].tolist()],
        "index": index,
        "time": lambda some: iso_times(time[some]),
        "n": releases.count,
        "total": releases.total,
        "mean": releases.mean,
        "noise_variance": releases.noise_variance,
    }

    if settings.vote is not None:
        fields["votes"] = _counts_column("pairs", releases.votes, settings.vote.noise)

    if settings.histogram is not None:
        fields["histogram"] = _counts_column(
            "samples", releases.histogram, settings.histogram.noise
        )

    return LedgerRows(
        agent=agent.tolist(),
        release_index=index.tolist(),
        input_version=version.view(np.int64).tolist(),
        time=time.tolist(),
        output=encode_columns_as_lines(Release, fields, _privacy(settings)).lines,
    )


def _counts_column(counted: str, told: Ints, noise: NoiseDistribution) -> ObjectColumn:
    """Give votes as `SpreadVotes` has them, or histograms as `SampleCounts` has them."""
    width = max(told.shape[1], 2)  # of no releases there may be no columns
    told = told.reshape(-1, width)
    fields = {"number": told[:, 0], counted: told[:, 1], "counts": told[:, 2:]}
    return ObjectColumn(fields, {"noise_variance": float(noise.variance)})


def releases_of_ledger(ledger: LedgerReader) -> Iterator[ReleaseColumns]:
    """Public: the releases that a ledger of agents has charged, in their order and in blocks."""
    for block in ledger.verified():
        rows = block.rows
        said = [_SAID.decode(output) for output in rows.output]
        votes = [
            (0,) * (2 + VOTE_BINS)
            if (v := release.votes) is None
            else (v.number, v.pairs, *v.counts)
            for release in said
        ]

        histograms = [
            () if (h := release.histogram) is None else (h.number, h.samples, *h.counts)
            for release in said
        ]
        yield ReleaseColumns(
            agent=np.array(rows.agent, np.int64),
            index=np.array(rows.release_index, np.int64),
            count=np.array([release.n for release in said], np.int64),
            total=np.array([release.total for release in said], np.int64),
            mean=np.array([release.mean for release in said], np.float64),
            noise_variance=np.array([release.noise_variance for release in said], np.float64),
            votes=np.array(votes, np.int64).reshape(-1, 2 + VOTE_BINS),
            histogram=np.array(histograms, np.int64).reshape(len(said), -1 if said else 0),
        )


OWN_RELEASES = "own releases"
"""Kind of the chunks of what each agent has released."""


def restore_own_releases(store: Store, followed: FollowedReleases) -> None:
    """Go on with what each agent has released."""
    for chunk, columns in store.chunks(OWN_RELEASES):
        followed.own.restore(chunk, columns)


def release_budget_lines(
    batches: Sequence[ReleaseBatch], names: Sequence[str], settings: AgentsSettings
) -> EventLines:
    """Tell which agents made the last release of their horizon, and when."""
    last = [batch.releases.index == settings.most_releases for batch in batches]
    agents = [
        a
        for batch, is_last in zip(batches, last, strict=True)
        for a in batch.releases.agent[is_last].tolist()
    ]
    times = [
        t
        for batch, is_last in zip(batches, last, strict=True)
        for t in batch.time[is_last].tolist()
    ]
    privacy = {"epsilon": float(settings.epsilon), "delta": float(settings.delta)}

    columns: dict[str, Any] = {
        "agent": [names[a] for a in agents],
        "time": iso_times(np.array(times, np.float64)),
    }

    return encode_columns_as_lines(
        BudgetEvent, columns, {"spent": settings.horizon, "horizon": settings.horizon, **privacy}
    )


def release_refusal_lines(
    rows: LedgerRows, refused: Sequence[int], names: Sequence[str], settings: AgentsSettings
) -> EventLines:
    """Tell that releases were refused, what was spent and what remains."""
    agent = [rows.agent[i] for i in refused]
    spent = [rows.release_index[i] for i in refused]
    horizon = settings.most_releases
    columns: dict[str, Any] = {
        "release_id": release_ids(names, agent, spent, deployment=settings.name),
        "agent": [names[a] for a in agent],
        "time": iso_times(np.array([rows.time[i] for i in refused])),
        "spent": spent,
        "remaining": [None if horizon is None else horizon - s for s in spent],
    }

    return encode_columns_as_lines(Refusal, columns, {"asked": 1})


def _privacy(settings: AgentsSettings) -> dict[str, Any]:
    return {
        "epsilon": float(settings.epsilon),
        "delta": float(settings.delta),
        "mode": settings.mode,
    }

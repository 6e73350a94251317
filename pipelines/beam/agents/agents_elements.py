"""What moves between the steps of agents on Beam.

Batches as arrays, on either side of the privacy boundary.

`AgentSamples`, `OwnBatch` and `EstimateBatch` are private; `AgentReleases` are public.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, fields, replace
from itertools import zip_longest

import numpy as np
import pyarrow as pa

from meanstream.operators.agents.agents import AgentsSettings, ReleaseBatch
from meanstream.operators.agents.own_histogram import HistogramColumns
from meanstream.operators.collaboration.registry import FittedPopulation, ReleaseSummary
from meanstream.operators.collaboration.shares.shares_prior import SharesPrior
from meanstream.operators.collaboration.variance.pooled_variance import PooledVariance
from meanstream.operators.collaboration.variance.variance_posterior import VariancePosterior
from meanstream.operators.records import (
    AnyInts,
    Bools,
    Floats,
    Ints,
    OwnSamples,
    ReleaseColumns,
    Words,
)
from meanstream.operators.validation import require
from meanstream.pipelines.beam.agents.newest_histograms import newest_histograms_together
from meanstream.pipelines.beam.element_types.packed import pack_narrow
from meanstream.streaming.agents.agents_releases import release_rows
from meanstream.streaming.events.encode import EventLines
from meanstream.streaming.events.wire import Release

SAMPLE_COLUMNS = ("agent", "point", "time", "key", "position", "person")


class ForShard:
    """What a shard of agents receives: packed samples or releases, a `Tick`, or whom to forget."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Packed(ForShard):
    """Bytes of `AgentSamples` (private) or of `AgentReleases`.

    A shard keeps them as they are, and reads them once.
    """

    encoded: bytes


@dataclass(frozen=True, slots=True)
class ForgetAgent(ForShard):
    """An element among the samples that erases what the state of a job holds of an agent.

    See `ReleaseMeans`.

    Parameters
    ----------
    agent : str
        Its name.

    **Privacy.** Sums, counters, histograms and waiting samples leave the state. Releases were
    public and stay so, and what they spent stays spent: an agent that has released can send nothing
    more. The name of one that has not goes, too. Hashes of persons stay. Estimates that were
    written, and checkpoints of before, hold what they held.

    Examples
    --------
    >>> ForgetAgent("N24211").agent
    'N24211'
    """

    agent: str

    def __post_init__(self) -> None:
        require(isinstance(self.agent, str) and bool(self.agent), "agent", "be a name", self.agent)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class AgentSamples:
    """Private: samples of the agents of a shard, one entry per sample.

    Attributes
    ----------
    names : pyarrow array of strings
        The agents that occur.
    agent : int array (n,)
        Place in `names`.
    point : int array (n,)
        The value on the grid of its bounds (`AgentsSettings.grid`): clipped, and no longer than it
        needs to be.
    time : float array (n,)
        Event time, seconds since the epoch.
    key : uint64 array (n,)
        Hash of each sample's id; 0 where it has none. Empty where no sample has one.
    position : int array (n,)
        Where the sample stood in its source: the order among equal times.
    person : uint64 array (n,)
        Hash of whose sample it is within its agent. Empty where persons are not distinguished.
    """

    names: pa.Array
    agent: AnyInts
    point: AnyInts
    time: Floats
    key: Words
    position: Ints
    person: Words = field(default_factory=lambda: np.zeros(0, np.uint64))

    def __len__(self) -> int:
        return len(self.agent)

    def columns(self) -> dict[str, np.ndarray]:
        """Give everything but the names."""
        return {name: getattr(self, name) for name in SAMPLE_COLUMNS}

    def take(self, which: Bools) -> AgentSamples:
        """Select samples; the names stay."""
        columns = {
            name: column[which] if len(column) else column
            for name, column in self.columns().items()
        }

        return AgentSamples(names=self.names, **columns)


def samples_with_own_names(samples: AgentSamples) -> AgentSamples:
    """Private: drop the names that no longer occur."""
    used, place = numbered_anew(samples.agent, len(samples.names))
    return replace(samples, names=samples.names.take(pa.array(used)), agent=pack_narrow(place))


def numbered_anew(agent: AnyInts, many: int) -> tuple[Ints, Ints]:
    """Give which of so many agents occur, and the place of each entry's agent among them.

    Examples
    --------
    >>> used, place = numbered_anew(np.array([4, 2, 4]), 5)
    >>> used.tolist(), place.tolist()
    ([2, 4], [1, 0, 1])
    """
    if 8 * len(agent) < many:  # of few sorting is cheaper
        used, place = np.unique(agent, return_inverse=True)
        return used.astype(np.int64), place

    occurs = np.zeros(many, np.bool_)
    occurs[agent] = True
    return np.flatnonzero(occurs), (np.cumsum(occurs) - 1)[agent]


def without_agent(samples: AgentSamples, agent: str) -> AgentSamples:
    """Private: leave out an agent, and its name."""
    which = np.flatnonzero(np.array(samples.names.to_pylist()) == agent)

    if len(which):
        return samples_with_own_names(samples.take(~np.isin(samples.agent, which)))
    return samples


@dataclass(frozen=True, slots=True)
class Tick(ForShard):
    """Public: a shard is to answer up to the end of a window, in which it has samples.

    Attributes
    ----------
    number : int
        Of the window.
    newest : float
        Event time of the newest sample in it, seconds since the epoch.
    shards : bytes
        Where it is for what waits for all shards: which have it, as `tick_bits` writes them.
    """

    number: int
    newest: float
    shards: bytes = b""


@dataclass(frozen=True, slots=True)
class Ticks(ForShard):
    """Public: several ticks of a shard at once."""

    ticks: tuple[Tick, ...]


def ticks_joined(ticks: Iterable[Tick]) -> dict[int, Tick]:
    """Give one tick per window; those of samples and of releases may differ."""
    found: dict[int, Tick] = {}
    for tick in ticks:
        joined = tick
        other = found.get(tick.number)
        if other is not None:
            bits = bytes(a | b for a, b in zip_longest(tick.shards, other.shards, fillvalue=0))
            joined = Tick(tick.number, max(tick.newest, other.newest), bits)

        found[tick.number] = joined

    return found


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class AgentReleases:
    """Public: releases as they were made; all that leaves the private side.

    Attributes
    ----------
    names : pyarrow array of strings
        The agents that occur.
    number : int
        Of the window at whose end they were made.
    releases : ReleaseColumns
        `agent` is a place in `names`.
    time : float array (n,)
        Event time at which each became due, seconds since the epoch.
    alike : bool
        Whether they were made as the settings of anyone who reads them say: only such tell of the
        variance of a sample.
    words : uint64 array (m, 2)
        Hash of each name, where anyone who made them knows it; else of no rows.
    """

    names: pa.Array
    number: int
    releases: ReleaseColumns
    time: Floats
    alike: bool = True
    words: Words = field(default_factory=lambda: np.zeros((0, 2), np.uint64))

    def __len__(self) -> int:
        return len(self.time)

    def hashes(self, words: Callable[[list[str]], Words]) -> Words:
        """Give the hash of each name; of a batch without them as it is made here."""
        if len(self.words) == len(self.names):
            return self.words
        return words(self.names.to_pylist())

    def lines(self, settings: AgentsSettings) -> EventLines:
        """Write them as the engine does, one JSON object each."""
        none = np.zeros(0, np.int64)
        version = np.zeros(len(self), np.uint64)  # it stays in the ledger
        batch = ReleaseBatch(
            releases=self.releases, version=version, time=self.time, exhausted=none
        )

        return EventLines(Release, release_rows([batch], self.names.to_pylist(), settings).output)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class OwnBatch:
    """Private: what agents know of themselves, each for its owner.

    `own.agent` is a place in `names`.

    Attributes
    ----------
    names : pyarrow array of strings (m,)
    words : uint64 array (m, 2)
        Hash of each name.
    number : int
        Of the newest window.
    own : OwnSamples
        Their samples, summed up at the end of a window: n rows.
    part : int array (n,)
        The window of each row.
    newest : float array (n,)
        Event time of the newest sample in that window.
    """

    names: pa.Array
    words: Words
    number: int
    own: OwnSamples
    part: Ints
    newest: Floats

    def __len__(self) -> int:
        return len(self.own)


@dataclass(frozen=True, slots=True, eq=False)
class EstimateBatch:
    """Private: personal estimates, one line each, addressed to their agents."""

    lines: Sequence[bytes] = ()

    def __len__(self) -> int:
        return len(self.lines)


def records_of_agents(own: OwnSamples, which: Ints, agent: Ints) -> OwnSamples:
    """Select agents and give them other numbers."""
    columns = {field.name: getattr(own, field.name)[which] for field in fields(own)}
    return OwnSamples(**{**columns, "agent": agent})


def record_agent_hash(words: Words) -> Ints:
    """Give agents numbers of 63 bits by their names, the same on every worker."""
    return np.asarray(words[:, 0] >> np.uint64(1)).astype(np.int64)


_NO_ROWS: Ints = np.zeros(0, np.int64)


@dataclass(slots=True, kw_only=True, eq=False)
class PartialReleases:
    """Public: what a fit reads of everyone's newest release.

    Of all shards, or what has changed in some.

    Attributes
    ----------
    summary : ReleaseSummary
        Of the newest release of each agent; of a change, of those who have released.
    pools : dict of int to PooledVariance
        By shard: of one sample, read off all releases so far. They are sums of floats, so they stay
        apart until all are there and can be added in one order.
    turns : dict of int to int
        By shard: how many changes it has told. A change is of one shard, or of several.
    before : ReleaseSummary or None
        Of a change: the releases that it takes the place of.
    number : int
        Of a change: the window at whose end it was told.
    histograms : HistogramColumns or None
        The newest histograms of those that a prior of shares is learned of, or, of a change, of
        those of them who have released; an agent's number is the hash of its name. None where there
        are no histograms.
    """

    summary: ReleaseSummary
    pools: dict[int, PooledVariance]
    turns: dict[int, int]
    before: ReleaseSummary | None = None
    number: int = 0
    histograms: HistogramColumns | None = None

    def take(self, changes: Iterable[PartialReleases]) -> list[PartialReleases]:
        """Take changes of shards in, each once, a shard's in their order.

        Give those whose turn has not come.

        In whatever order they come: the same, to the last bit.
        """
        taken, rest = changes_in_turn(changes, self.turns)
        for change in taken:
            if change.before is not None:
                self.summary.subtract(change.before)

            self.add(change)

        # In the order of the shards, so that equal data are equal bytes.
        self.pools = dict(sorted(self.pools.items()))
        self.turns = dict(sorted(self.turns.items()))
        return rest

    def add(self, other: PartialReleases) -> None:
        """Add what other shards have, or the same shards have now."""
        self.summary.merge(other.summary)
        self._take_histograms(other.histograms)
        self.pools |= other.pools
        self.turns |= other.turns

    def _take_histograms(self, told: HistogramColumns | None) -> None:
        known = self.histograms
        if told is not None:
            self.histograms = newest_histograms_together(
                told.take(_NO_ROWS) if known is None else known, told
            )

    def pool(self) -> PooledVariance:
        """Add up the pools, in the order of the shards."""
        first, *rest = (self.pools[shard] for shard in sorted(self.pools))
        pooled = PooledVariance.restore(first.snapshot())
        for part in rest:
            pooled.merge(part)

        return pooled


def changes_in_turn(
    changes: Iterable[PartialReleases], turns: dict[int, int]
) -> tuple[list[PartialReleases], list[PartialReleases]]:
    """Public: give changes whose turn it is, in order and each once, and those that are early.

    Their turns are noted in `turns`.
    """
    taken: list[PartialReleases] = []
    early: list[PartialReleases] = []
    in_order = sorted(changes, key=lambda one: next(iter(one.turns.items()))[::-1])
    for change in in_order:
        ahead = {turn - turns.get(shard, 0) for shard, turn in change.turns.items()}
        if ahead == {1}:
            turns |= change.turns
            taken.append(change)
        elif max(ahead) > 1:
            early.append(change)

    # One of several shards may have come before its turn in this order.
    if taken and early:
        more, early = changes_in_turn(early, turns)
        taken += more

    return taken, early


def changes_joined(changes: Iterable[PartialReleases]) -> list[PartialReleases]:
    """Public: join changes of different shards; a second one of a shard begins another."""
    joined: list[PartialReleases] = []
    for change in changes:
        (shard,) = change.turns
        wave = next((one for one in joined if shard not in one.turns), None)
        if wave is None:
            joined.append(change)
            continue

        if wave.before is None:
            wave.before = change.before
        elif change.before is not None:
            wave.before.merge(change.before)

        wave.number = max(wave.number, change.number)
        wave.add(change)

    return joined


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FittedReleases:
    """Public: the population that was fitted to everyone's newest release.

    Attributes
    ----------
    number : int
        Of the window.
    newest : float
        Event time up to which there are samples.
    agents : int
        How many have released.
    pool : VariancePosterior
        What is known of the variance of one sample.
    fitted : FittedPopulation
    shares : SharesPrior or None
        What the agents' distributions are like; None where there are no histograms.
    overtaken : int
        How many earlier windows have no population of their own: they had ended, too, when this one
        was fitted.
    shards : bytes
        Which shards have agents to answer, as `tick_bits` writes them.
    """

    number: int
    newest: float
    agents: int
    pool: VariancePosterior
    fitted: FittedPopulation
    shares: SharesPrior | None = None
    overtaken: int = 0
    shards: bytes = b""

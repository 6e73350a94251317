"""Many agents as columns.

Exact running means, noisy means released on schedule, a batch of samples at a time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from meanstream.operators.agents.agents_settings import AgentsSettings
from meanstream.operators.agents.dependence.energies import own_samples_with_energies
from meanstream.operators.agents.dependence.pairs import own_pairs
from meanstream.operators.agents.host_votes import NO_PAIRS, HostPairs, HostVotes
from meanstream.operators.agents.memory.decay import ReleasedSums
from meanstream.operators.agents.memory.kept_sums import SQUARES_BASE, SumsNow
from meanstream.operators.agents.own_histogram import HistogramColumns, histograms_of_releases
from meanstream.operators.agents.own_moments import BLOCK
from meanstream.operators.agents.pairs_by_content import ContentPairs
from meanstream.operators.agents.pairs_by_time import timed_pairs
from meanstream.operators.agents.person_limits import COUNTS, PersonCounts
from meanstream.operators.agents.release_times import Counts, Every
from meanstream.operators.agents.released_rows import (
    PendingReleases,
    ReleaseBatch,
    released_columns,
)
from meanstream.operators.agents.sorting import samples_by_agent
from meanstream.operators.agents.state import CHUNK, NEVER, AgentRows
from meanstream.operators.agents.vote_of_spread import (
    BY_CONTENT,
    BY_TIME,
    SpreadPairs,
    spread_vote_bins,
)
from meanstream.operators.noise.draw_owners import AGENT_MEANS
from meanstream.operators.noise.keyed import (
    KeyedNoise,
    NoiseIds,
    canonical_spelling,
    keyed_owner_words,
)
from meanstream.operators.records import (
    AnyInts,
    Floats,
    Ints,
    OwnSamples,
    ReleaseColumns,
    Words,
    records_without_votes,
)
from meanstream.operators.validation import require

__all__ = ["CHUNK", "Agents", "AgentsSettings", "ReleaseBatch"]

_NOT_BEGUN = np.int64(np.iinfo(np.int64).min)
"""The window before there was a sample: event time may begin before 1970, in a window of a negative
number."""
_TOGETHER = 10_000
"""Agents whose releases are computed at once."""
_MOST_BLOCKS = 64
"""Of one agent, looked at together: what is computed for each grows with their number."""
_SUMS = ("count", "total", "squares_high", "squares_low")


class Agents:
    """Every agent's running mean, and its noisy releases, which anyone may read.

    Released: on schedule, the agent's noised prefix sum and its sample count, as integers on the
    grid. One noisy stream per agent serves every reader (broadcast), so no coalition of readers
    learns more than one of them.

    Parameters
    ----------
    settings : AgentsSettings
        Bounds, privacy parameters, counter and schedule.
    noise : KeyedNoise
        The keyed source; the same key, settings, agent, release index and input give the same noise
        again. One source may serve several `Agents`: each takes a key of its own, of all its
        settings.
    votes_alone : bool
        Whether each agent votes on the spread alone, as one who holds its samples itself. By
        default all vote together (`meanstream.operators.agents.host_votes`); with a memory that
        forgets they are alone.

    Notes
    -----
    **Privacy.** Neighboring streams differ in the value of one sample (replace-one); who produced samples and when is
    public. All releases of an agent together are (epsilon, delta)-differentially private with respect to each sample,
    against everyone else together. Sums are exact integers of sensitivity `settings.grid.span`; the fresh draws are
    calibrated to the column norm of the counter's strategy matrix over its horizon. With `spread_share` some releases
    carry a vote on the spread of samples, of all agents together, and with `histogram_share` a histogram of the
    agent's samples; means, votes and histograms share the budget.
    Past the horizon nothing is released. With a `memory` that forgets there is none, and the budget is of the stream
    without end. Release times depend on counts and event times only. With
    `settings.per_person` neighboring streams differ in the values of all samples of one person within an agent: at most
    that many of them count, the first ones, and the draws are calibrated to all of them together.

    The state is columnar; an agent is its index. A batch costs a few sorts, however many agents it
    touches.

    Examples
    --------
    >>> settings = AgentsSettings(lower=0, upper=1, epsilon=1, delta=1e-6, schedule="geometric:4,2", horizon=8)
    >>> key = bytes.fromhex("9b1f6c04d2a85e73bb40c9f1e6a7250d")
    >>> agents = Agents(settings, KeyedNoise(key, deployment="doc", purpose="agents"))
    >>> agents.add_agents(["ann", "bob"])
    >>> batch = agents.update(np.tile([0, 1], 6), np.full(12, 0.5), np.arange(12.0))
    >>> batch.releases.agent.tolist(), batch.releases.count.tolist()
    ([0, 1], [4, 4])
    >>> float(agents.own().mean[0])
    0.5

    References
    ----------
    Yakimenka et al., Differentially-Private Collaborative Online Personalized Mean Estimation, Algorithm 1 and
    section IV; the broadcast form is this project's.
    """

    def __init__(
        self, settings: AgentsSettings, noise: KeyedNoise, *, votes_alone: bool = False
    ) -> None:
        self.settings = settings
        self.names: list[str] = []
        self.persons = None if settings.per_person is None else PersonCounts(settings.per_person)

        # Other settings draw other noise: what one release would have in two deployments cannot be
        # compared.
        self._noise = noise.derived("agents", canonical_spelling(settings))
        self._window = _NOT_BEGUN
        self._state = AgentRows(settings)
        self._host: HostVotes | None = None

        # With a memory that forgets, an agent's own votes bound what its samples vary by.
        if settings.vote is not None and settings.kept is None and not votes_alone:
            self._host = HostVotes(settings.vote, self._noise, self._state)

    @property
    def n_agents(self) -> int:
        """Number of agents that were ever added."""
        return len(self.names)

    def add_agents(self, names: Sequence[str], words: Words | None = None) -> None:
        """Give new agents the next indices, in the order of `names`.

        `words` are their hashes, where they are known.
        """
        if not names:
            return
        first = self.n_agents
        last = self.n_agents + len(names)
        self._state.reserve(last)
        self._state.owner[first:last] = keyed_owner_words(names) if words is None else words
        self.names.extend(names)
        self._state.touch(np.arange(first, last))

    def update(
        self, agent: Ints, value: Floats, time: Floats, person: Words | None = None
    ) -> ReleaseBatch:
        """Take a batch of samples in event-time order.

        Return what became due, exactly at its count or boundary.

        Parameters
        ----------
        agent, value, time : array of shape (n,)
            Index of the agent, its sample in the value's unit, event time in seconds
            (non-decreasing). Samples of one agent and event time come in one batch.
        person : uint64 array (n,), optional
            Hash of whose sample it is; with `settings.per_person`, and only then.
        """
        return self.update_points(agent, self.settings.grid.encode(value), time, person)

    def update_points(
        self, agent: AnyInts, point: AnyInts, time: Floats, person: Words | None = None
    ) -> ReleaseBatch:
        """Take a batch of samples that are on the grid already, as `update` does.

        Parameters
        ----------
        agent, point, time : array of shape (n,)
            As for `update`, but `settings.grid.encode(value)` in the value's place; integers may be
            of any width.
        person : uint64 array (n,), optional
            As for `update`.
        """
        # Which samples of a person count is decided before anything else sees them.
        if self.persons is None:
            require(person is None, "person", "be left out without per_person", "an array")
            return self._update(agent, point, time)

        if person is None:
            raise ValueError("person must be given with per_person, got None")
        fates = self.persons.take(self._state.owner[agent, 0], person)
        counts = fates == COUNTS

        return replace(self._update(agent[counts], point[counts], time[counts]), fates=fates)

    def _update(self, agent: AnyInts, point: AnyInts, time: Floats) -> ReleaseBatch:
        """Take samples that count."""
        pending = PendingReleases()
        times = self.settings.times
        if isinstance(times, Counts):
            self._add(agent, point, time, pending)
            return pending.collect(self.settings)

        # A batch may span windows of the schedule: each is closed before a sample of the next one
        # is added.
        window = times.turn(time)
        cuts = np.flatnonzero(np.diff(window)) + 1
        for start, stop in zip([0, *cuts], [*cuts, len(agent)], strict=True):
            if stop > start:
                self._close_windows(window[start], times, pending)
                self._add(agent[start:stop], point[start:stop], time[start:stop], pending)

        return pending.collect(self.settings)

    def advance(self, watermark: float) -> ReleaseBatch:
        """Release what is due because event time reached `watermark` (seconds).

        The schedule `every:DURATION` only.
        """
        pending = PendingReleases()
        times = self.settings.times
        if isinstance(times, Every):
            self._close_windows(np.int64(times.turn(watermark)), times, pending)

        return pending.collect(self.settings)

    def release_now(self, time: float) -> ReleaseBatch:
        """Release for everyone with samples since its last release, as at the end of a bounded stream.

        Each takes one of its agent's horizon; the agent's next release is the one that its schedule
        has then.
        """
        pending = PendingReleases()
        self._release_waiting(time, pending)
        return pending.collect(self.settings)

    def own(self, agents: Ints | None = None) -> OwnSamples:
        """Private: each agent's own samples, summed up; for that agent only.

        Where older samples weigh less, `count` is the effective number of them, and the rest is
        weighted.
        """
        index = np.arange(self.n_agents) if agents is None else np.asarray(agents, np.int64)
        count, total, high, low = (self._state.columns[name][index] for name in _SUMS)
        rows = self._state.columns
        kept = self.settings.kept
        blocks = self.settings.blocks

        # With a memory the sums are those of what it still holds.
        if kept is not None:
            own = kept.own(rows, index)
            begin = kept.begin(rows, index)
        else:
            own = self._own_of(
                index, count, total, high * float(SQUARES_BASE) + low, self._cells(index)
            )
            begin = None

            # A mean of the early half tells whether the rest was drawn from the same law.
            if blocks is not None:
                early, early_total = blocks.early_totals(rows, index)
                early_mean = self.settings.grid.mean(early_total, np.maximum(early, 1))
                own = replace(own, early_mean=np.where(early > 0, early_mean, np.nan))

        if blocks is None:
            return own
        return own_samples_with_energies(blocks, rows, own, self.settings.grid.resolution, begin)

    def _cells(self, index: Ints) -> Ints:
        """Private: own samples by cells; without columns where there is no histogram."""
        if self.settings.histogram is None:
            return np.zeros((len(index), 0), np.int64)
        return np.asarray(self._state.columns["histogram_own"][index], np.int64)

    def _own_of(
        self, index: Ints, count: Ints, total: Ints, squares: Floats, cells: Ints
    ) -> OwnSamples:
        """Give means and deviations of exact sums."""
        grid = self.settings.grid
        n = np.maximum(count, 1)

        # Squares are kept around the middle of the grid: what cancels here is small against them.
        centered = (total - count * (grid.span // 2)).astype(np.float64)
        deviations = np.maximum(squares - centered * centered / n, 0.0) * grid.resolution**2
        mean = np.where(count > 0, grid.mean(total, n), np.nan)

        return OwnSamples(
            agent=index, count=count, mean=mean, squared_deviations=deviations, cells=cells
        )

    def latest(self) -> ReleaseColumns:
        """Public: the newest release of every agent that has made one."""
        rows = self._state.columns
        return self._newest(np.flatnonzero(rows["released"][: self.n_agents]))

    def histograms(self) -> HistogramColumns:
        """Public: the noised histogram of every agent that has released one.

        Of no one where there are none.
        """
        return histograms_of_releases(self.latest())

    def own_histograms(self, agents: Ints | None = None) -> Ints:
        """Private: each agent's own samples by cells, exactly, shape (n, cells).

        For that agent only.
        """
        require(
            self.settings.histogram is not None,
            "histogram_share",
            "be more than 0 for histograms",
            0.0,
        )
        index = np.arange(self.n_agents) if agents is None else np.asarray(agents, np.int64)

        return self._cells(index)

    def seen_since(self, time: float) -> Ints:
        """Public: the agents with a sample that counts at `time` or later, in seconds of event time."""
        rows = self._state.columns
        n = self.n_agents
        return np.flatnonzero((rows["seen"][:n] >= time) & (rows["count"][:n] > 0))

    def counts(self) -> Ints:
        """Public: number of samples of each agent that count so far."""
        return self._state.columns["count"][: self.n_agents].copy()

    def spent(self) -> Ints:
        """Public: number of releases each agent has made, of `settings.most_releases`."""
        return self._state.columns["released"][: self.n_agents].copy()

    def dirty_chunks(self) -> list[int]:
        """Chunks of 1024 agents that changed since the last `mark_clean`."""
        return self._state.dirty_chunks()

    def changed(self) -> Ints:
        """Agents that changed since the last `mark_clean`."""
        return self._state.changed()

    def mark_clean(self) -> None:
        """Forget what changed: it has been saved."""
        self._state.mark_clean()

    def snapshot_chunk(self, chunk: int, *, copy: bool = True) -> dict[str, np.ndarray]:
        """Private: one chunk's state as plain arrays.

        Without a copy they change with the next samples.
        """
        return self._state.snapshot(chunk, self.n_agents, window=self._window, copy=copy)

    def restore_chunk(self, chunk: int, state: dict[str, np.ndarray]) -> None:
        """Put one chunk's state back; its agents must have been added before."""
        self._state.restore(chunk, state)
        self._window = max(self._window, np.int64(state["window"]))
        self._forget_sums()

    def rows(self, agents: Ints | slice) -> dict[str, np.ndarray]:
        """Private: the state of some agents as plain arrays, one row each.

        Of a slice they change with it.
        """
        return self._state.rows(agents, self._window)

    def put_rows(self, agents: Ints, rows: dict[str, np.ndarray]) -> None:
        """Put the state of some agents in place of what these have."""
        self._window = self._state.put_rows(agents, rows, self._window)
        self._forget_sums()

    def forget(self, agents: Ints) -> None:
        """Drop all that is private of some agents.

        Their releases stay, and they must send nothing more.

        **Privacy.** The counter's state goes, too: a further release would not continue the ones before.
        """
        self._state.forget(agents)
        self._forget_sums()

    def count_pairs(self, pairs: ContentPairs) -> None:
        """Take pairs of samples by their content, to be voted on with a later release.

        For settings whose pairs are by content: there no samples are paired by their times.
        """
        rule = "be by_content for pairs that are given"
        require(self.settings.pairs == BY_CONTENT, "pairs", rule, self.settings.pairs)

        if self._host is not None:
            bins = spread_vote_bins(pairs.difference, self.settings.grid.span)
            self._host.count(HostPairs(pairs.agent, bins, pairs.agent), pairs.number)

    def _forget_sums(self) -> None:
        if self._host is not None:
            self._host.forget_sums()

    def _add(self, agent: AnyInts, point: AnyInts, time: Floats, pending: PendingReleases) -> None:
        """Add samples to the sums.

        On the way, release at every count that the geometric schedule names.
        """
        if len(agent) == 0:
            return
        rows = self._state.columns

        # Samples by agent, in their order; prefix sums give each agent's total at any of its
        # samples.
        order, who, starts, added = samples_by_agent(agent, self.n_agents)
        ends = starts + added - 1
        sorted_point = point[order].astype(np.int64, copy=False)
        prefix = np.cumsum(sorted_point)
        before = prefix[starts] - sorted_point[starts]

        counted, paired = self._counted(
            who, sorted_point, starts=starts, added=added, prefix=prefix, time=time, order=order
        )
        squared = None if self.settings.kept is None else self._squares_before(sorted_point, starts)
        batch = _Batch(
            who, starts, rows["count"][who] + added, before, prefix, squared, order, time
        )

        # A place is an agent of the batch; each turn of the loop makes the next release of all
        # that are due.
        place = np.arange(len(who))
        begun = len(pending.agent)
        moments: list[Ints] = []

        while True:
            self._test(batch, place)
            place = place[rows["due"][who[place]] <= batch.count[place]]
            if not len(place):
                break

            # The order within one event time is not public: a release waits for its end.
            due = batch.to_the_end_of_its_time(rows, place, rows["due"][who[place]])
            a = who[place]
            now, last = batch.reached(rows, place, due)

            # What a release votes on are the pairs up to its own last sample.
            for counts in counted:
                counts.count(place, last + 1 - starts[place])

            self._release_all(a, now, pending)
            moments.append(order[last].astype(np.int64, copy=False))

        # What came after the last release waits, in the same bins, for the next one.
        for counts in counted:
            counts.count(np.arange(len(who)), added)

        if self._host is not None:
            self._host.cast(paired, moments, pending, begun)

        self._add_squares(
            who, sorted_point, starts, None if squared is None else squared[0][ends] - squared[1]
        )
        rows["count"][who] = batch.count
        rows["seen"][who] = time[order[ends]]
        rows["total"][who] += prefix[ends] - before
        self._state.touch(who)

    def _add_squares(self, who: Ints, point: Ints, starts: Ints, added: Ints | None) -> None:
        """Add squares around the middle of the grid to the sums.

        `point` is overwritten where they are not known.
        """
        rows = self._state.columns

        # The squares of a batch, if a memory has not summed them up already.
        if added is None:
            point -= self.settings.grid.span // 2
            point *= point
            added = np.add.reduceat(point, starts)

        # Two integers of 64 bits hold the sum exactly, so that no order of batches changes it.
        squares = rows["squares_low"][who] + added
        rows["squares_low"][who] = squares % SQUARES_BASE
        rows["squares_high"][who] += squares // SQUARES_BASE

    def _test(self, batch: _Batch, place: Ints) -> None:
        """Ask after each block up to the next release, with a memory, whether the own means of agents have changed."""
        rows = self._state.columns
        kept = self.settings.kept
        if kept is None:
            return

        # Tests run after each block of samples, up to the next release or the end of the batch.
        until = np.minimum(rows["due"][batch.who[place]], batch.count[place])
        while True:
            blocks = (until - rows["own_due"][batch.who[place]]) // BLOCK + 1
            some = blocks > 0
            place, until, blocks = place[some], until[some], blocks[some]
            if not len(place):
                return

            a = batch.who[place]

            # As many blocks as most agents have are tested at a time; the others come in the next
            # turns.
            many = np.arange(min(int(blocks.mean()), _MOST_BLOCKS))
            at = rows["own_due"][a, np.newaxis] + BLOCK * np.minimum(
                many, blocks[:, np.newaxis] - 1
            )
            now, _ = batch.reached(rows, place[:, np.newaxis], at)
            sums = SumsNow(now.count, now.total, rows["squares_high"][a, np.newaxis], now.squares)

            for who, moment in kept.changes.to_test(
                rows, a, sums.moment, np.minimum(blocks, len(many))
            ):
                kept.test(rows, who, moment)

    def _counted(
        self,
        who: Ints,
        point: Ints,
        *,
        starts: Ints,
        added: Ints,
        prefix: Ints,
        time: Floats,
        order: AnyInts,
    ) -> tuple[list[SpreadPairs], HostPairs]:
        """Put the pairs of a batch, and its samples, into the bins of what is voted and told of them, and into blocks.

        Pairs that the host votes on are given apart.
        """
        rows = self._state.columns
        vote = self.settings.vote
        histogram = self.settings.histogram
        counted = []
        paired = NO_PAIRS

        # Pairs within an agent's own samples, for its own long-run variance.
        if self.settings.blocks is not None:
            own = own_pairs(rows, who, point, starts, added)
            self.settings.blocks.add(
                rows, who, added=added, starts=starts, prefix=prefix, pairs=own
            )

        if vote is not None and self.settings.pairs == BY_TIME:
            pairs = timed_pairs(rows, who, point, time[order], starts, added)
            if self._host is None:
                counted.append(vote.pairs(rows, who, pairs))
            else:
                paired = self._host.of_batch(who, pairs, order)

        if histogram is not None:
            counted.append(histogram.samples(rows, who, point, starts))

        return counted, paired

    def _close_windows(self, window: np.int64, times: Every, pending: PendingReleases) -> None:
        """Release for everyone with new samples when event time has left the current window."""
        if window <= self._window:
            return

        # The first sample opens a window; there is nothing before it to release.
        if self._window != _NOT_BEGUN:
            self._release_waiting(float((self._window + 1) * times.seconds), pending)

        self._window = window

    def _release_waiting(self, time: float, pending: PendingReleases) -> None:
        """Release for everyone with new samples and releases left."""
        rows = self._state.columns
        n = self.n_agents
        waiting = (rows["count"][:n] > rows["released_count"][:n]) & (
            rows["released"][:n] < self.settings.horizon
        )
        a = np.flatnonzero(waiting)

        if len(a):
            now = _Now(
                rows["count"][a], rows["total"][a], np.full(len(a), time), rows["squares_low"][a]
            )
            begun = len(pending.agent)
            self._release_all(a, now, pending)
            self._state.touch(a)

            # Nobody has new pairs here: the host votes once for all of them together.
            if self._host is not None:
                self._host.cast(NO_PAIRS, [np.zeros(len(a), np.int64)], pending, begun)

    def _squares_before(self, point: Ints, starts: Ints) -> tuple[Ints, Ints]:
        """Sum up squares around the middle of the grid.

        To each sample, and to before each agent's first.
        """
        squares = point - self.settings.grid.span // 2
        squares *= squares
        prefix = np.cumsum(squares)
        return prefix, prefix[starts] - squares[starts]

    def _newest(self, agent: Ints) -> ReleaseColumns:
        """Public: the newest release of each of some agents that have made one."""
        # With a memory, what was released is about the samples that still counted, not about all.
        rows = self._state.columns
        forgets = self.settings.kept is not None
        return released_columns(
            self.settings,
            agent=agent,
            index=rows["released"][agent],
            count=rows["told_count" if forgets else "released_count"][agent],
            total=rows["told_total" if forgets else "released_total"][agent],
            votes=self._votes(agent),
            histogram=self._histogram(agent),
            variance=rows["told_variance"][agent] if forgets else None,
        )

    def _release_all(self, agent: Ints, now: _Now, pending: PendingReleases) -> None:
        """Release for some agents, of whom none is repeated, in parts.

        What is computed at once stays in a cache.
        """
        for first in range(0, len(agent), _TOGETHER):
            part = slice(first, first + _TOGETHER)
            self._release(agent[part], now.take(part), pending)

    def _release(self, agent: Ints, now: _Now, pending: PendingReleases) -> None:
        """Noise one sum per agent and note it; `agent` has no repetition."""
        rows = self._state.columns
        settings = self.settings
        index = rows["released"][agent] + 1
        self._state.reserve_releases(int(np.max(index, initial=0)))

        # Who follows releases subtracts what each agent said before.
        pending.before.append(self._newest(agent[index > 1]))

        # The same count and sum have the same noise on every retry; another sum has another.
        version = self._noise.version_of(now.count, now.total)
        histogram = settings.histogram

        # Histograms are released at some of the releases only, as they cost the same at each.
        if histogram is not None:
            some = np.flatnonzero(histogram.due(rows, agent, now.count))
            version[some] = histogram.version(rows, agent[some], version[some], self._noise)
            own = NoiseIds(self._state.owner[agent[some]], index[some], version[some])
            if len(some):
                histogram.cast(rows, agent[some], now.count[some], own, self._noise)

        ids = NoiseIds(owner=self._state.owner[agent], index=index, version=version)
        if settings.vote is not None and self._host is None:
            settings.vote.cast_alone(rows, agent, ids, self._noise)

        fresh = settings.fresh.sample(self._noise.bits(ids, AGENT_MEANS.at()))
        told = self._noised(agent, index, now, fresh)

        # What was released is kept exactly as it was told: a restart must not draw again.
        rows["released"][agent] = index
        rows["released_count"][agent] = now.count
        rows["released_total"][agent] = told.total

        if isinstance(settings.times, Counts):
            goes_on = index < settings.horizon
            # Many samples of one time may have passed several numbers of the schedule.
            passed = np.maximum(index, settings.times.releases_up_to(now.count))
            upcoming = settings.times.at(np.where(goes_on, passed, 0) + 1)
            rows["due"][agent] = np.where(goes_on, upcoming, NEVER)

        pending.add(
            agent=agent,
            index=index,
            count=told.count,
            total=told.total,
            votes=self._votes(agent),
            histogram=self._histogram(agent),
            version=version,
            time=now.time,
            variance=told.variance,
            drift=told.drift,
            since=told.since,
        )

    def _noised(self, agent: Ints, index: Ints, now: _Now, fresh: Floats) -> ReleasedSums:
        """Give the number of samples in a release and its noised sum.

        With a memory, its variance and the drift.
        """
        rows = self._state.columns
        settings = self.settings

        # A counter adds noise of its own to each release, some of it shared with earlier ones.
        if settings.kept is None:
            state = {name: rows["counter_" + name] for name in self._counter_state}
            noise = settings.mechanism.step(state, agent, index, fresh)
            noised = now.total + np.rint(noise).astype(np.int64)
            return ReleasedSums(now.count, noised, settings.sum_variance(index))

        turn = np.full(len(agent), self._window)
        sums = SumsNow(now.count, now.total, rows["squares_high"][agent], now.squares)
        return settings.kept.release(rows, agent, index=index, now=sums, turn=turn, fresh=fresh)

    @cached_property
    def _counter_state(self) -> list[str]:
        return list(self.settings.mechanism.init(1))

    def _votes(self, agent: Ints) -> Ints:
        """Public: the votes that each agent has cast; without entries where no one votes."""
        if self.settings.vote is None:
            return records_without_votes()
        return np.asarray(self._state.columns["vote_noised"][agent], np.int64)

    def _histogram(self, agent: Ints) -> Ints:
        """Public: the noised histogram of each agent; without columns where there are none."""
        if self.settings.histogram is None:
            return np.zeros((len(agent), 0), np.int64)
        return np.asarray(self._state.columns["histogram_noised"][agent], np.int64)


@dataclass(slots=True)
class _Now:
    """What some agents have at the moment of a release.

    All their samples, exactly, and the event time.
    """

    count: Ints
    total: Ints
    time: Floats
    squares: Ints = field(default_factory=lambda: np.zeros(0, np.int64))

    def take(self, part: slice) -> _Now:
        """Select some of the agents."""
        return _Now(self.count[part], self.total[part], self.time[part], self.squares[part])


@dataclass(frozen=True)
class _Batch:
    """Samples by agent: who, where each begins, its count at the end.

    Sums to each sample, and to before each agent; where each sample stood, and the times there.
    """

    who: Ints
    starts: Ints
    count: Ints
    before: Ints
    prefix: Ints
    squares: tuple[Ints, Ints] | None
    order: Ints
    time: Floats

    @cached_property
    def ends_of_times(self) -> Ints:
        """Places of samples that the next one is not simultaneous with."""
        time = self.time[self.order]
        return np.flatnonzero(np.append(time[1:] != time[:-1], True))

    def to_the_end_of_its_time(self, rows: dict[str, np.ndarray], place: Ints, count: Ints) -> Ints:
        """Give the count of some agents at the last sample of the time that `count` is in."""
        before = rows["count"][self.who[place]]
        last = self.starts[place] + (count - before) - 1
        agents_last = self.starts[place] + (self.count[place] - before) - 1

        next_one = np.minimum(last + 1, agents_last)
        same_time = self.time[self.order[next_one]] == self.time[self.order[last]]
        goes_on = (last < agents_last) & same_time
        if not goes_on.any():
            return count

        end = self.ends_of_times[np.searchsorted(self.ends_of_times, last)]

        return np.asarray(count + np.minimum(end, agents_last) - last, np.int64)

    def reached(self, rows: dict[str, np.ndarray], place: Ints, at: Ints) -> tuple[_Now, Ints]:
        """Give what some agents have at these counts, and which of the samples completes each."""
        a = self.who[place]
        last = self.starts[place] + (at - rows["count"][a]) - 1
        total = rows["total"][a] + self.prefix[last] - self.before[place]
        now = _Now(at, total, self.time[self.order[last]])

        if self.squares is not None:
            now.squares = rows["squares_low"][a] + self.squares[0][last] - self.squares[1][place]

        return now, last

"""Many agents as columns.

Exact running means, noisy means released on schedule, a batch of samples at a time.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from meanstream.operators.agents.admission import COUNTS, PersonCounts
from meanstream.operators.agents.agents_settings import AgentsSettings
from meanstream.operators.agents.half_life_memory import (
    TOLD_COUNT,
    TOLD_TOTAL,
    TOLD_VARIANCE,
    ReleasedSums,
)
from meanstream.operators.agents.host_votes import NO_PAIRS, HostPairs, HostVotes
from meanstream.operators.agents.own_moments import BLOCK, SumsNow
from meanstream.operators.agents.own_samples import own_samples
from meanstream.operators.agents.release_times import Counts, Every
from meanstream.operators.agents.released_rows import (
    PendingReleases,
    ReleaseBatch,
    ReleasedPiece,
    released_columns,
)
from meanstream.operators.agents.sorting import SortedSamples
from meanstream.operators.agents.state import (
    CHUNK,
    COUNT,
    COUNTER,
    NEVER,
    NOT_BEGUN,
    RELEASED,
    RELEASED_COUNT,
    RELEASED_TOTAL,
    SEEN,
    AgentRows,
)
from meanstream.operators.agents.state_columns import chunks, columns_under
from meanstream.operators.agents.vote_of_spread import (
    BY_CONTENT,
    BY_TIME,
    VOTE_NOISED,
    ContentPairs,
    SpreadPairs,
    spread_vote_bins,
    timed_pairs,
)
from meanstream.operators.noise.draw_owners import AGENT_MEANS
from meanstream.operators.noise.keyed import KeyedNoise, NoiseIds, canonical_spelling
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

_TOGETHER = 10_000
"""Agents whose releases are computed at once."""
_MOST_BLOCKS = 64
"""Of one agent, looked at together: what is computed for each grows with their number."""


class Agents(AgentRows):
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
        super().__init__(settings)
        self.settings = settings
        self.persons = None if settings.per_person is None else PersonCounts(settings.per_person)

        # Other settings draw other noise: what one release would have in two deployments cannot be
        # compared.
        self._noise = noise.derived("agents", canonical_spelling(settings))
        self._host: HostVotes | None = None
        self._nothing = PendingReleases().collect(settings)

        # With a memory that forgets, an agent's own votes bound what its samples vary by.
        if settings.vote is not None and settings.kept is None and not votes_alone:
            self._host = HostVotes(settings.vote, self._noise, self)

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
        fates = self.persons.take(self.owner[agent, 0], person)
        counts = fates == COUNTS

        return replace(self._update(agent[counts], point[counts], time[counts]), fates=fates)

    def _update(self, agent: AnyInts, point: AnyInts, time: Floats) -> ReleaseBatch:
        """Take samples that count."""
        pending = PendingReleases()
        times = self.settings.times
        if isinstance(times, Counts):
            self._add(agent, point, time, pending)
            return self._collected(pending)

        # A batch may span windows of the schedule: each is closed before a sample of the next one
        # is added.
        window = times.turn(time)
        cuts = np.flatnonzero(np.diff(window)) + 1
        for start, stop in zip([0, *cuts], [*cuts, len(agent)], strict=True):
            if stop > start:
                self._close_windows(window[start], times, pending)
                self._add(agent[start:stop], point[start:stop], time[start:stop], pending)

        return self._collected(pending)

    def advance(self, watermark: float) -> ReleaseBatch:
        """Release what is due because event time reached `watermark` (seconds).

        The schedule `every:DURATION` only.
        """
        pending = PendingReleases()
        times = self.settings.times
        if isinstance(times, Every):
            self._close_windows(np.int64(times.turn(watermark)), times, pending)

        return self._collected(pending)

    def release_now(self, time: float) -> ReleaseBatch:
        """Release for everyone with samples since its last release, as at the end of a bounded stream.

        Each takes one of its agent's horizon; the agent's next release is the one that its schedule
        has then.
        """
        pending = PendingReleases()
        self._release_waiting(time, pending)
        return self._collected(pending)

    def own(self, agents: Ints | None = None) -> OwnSamples:
        """Private: each agent's own samples, summed up; for that agent only.

        Where older samples weigh less, `count` is the effective number of them, and the rest is
        weighted.
        """
        agent = np.arange(self.n_agents) if agents is None else np.asarray(agents, np.int64)
        return own_samples(self.settings, self.columns, agent)

    def latest(self) -> ReleaseColumns:
        """Public: the newest release of every agent that has made one."""
        return self._newest(np.flatnonzero(self.spent()))

    def seen_since(self, time: float) -> Ints:
        """Public: the agents with a sample that counts at `time` or later, in seconds of event time."""
        seen = self.public(SEEN, slice(self.n_agents))
        return np.flatnonzero((seen >= time) & (self.counts() > 0))

    def counts(self) -> Ints:
        """Public: number of samples of each agent that count so far."""
        return self.public(COUNT, slice(self.n_agents)).copy()

    def spent(self) -> Ints:
        """Public: number of releases each agent has made, of `settings.most_releases`."""
        return self.public(RELEASED, slice(self.n_agents)).copy()

    def count_pairs(self, pairs: ContentPairs) -> None:
        """Take pairs of samples by their content, to be voted on with a later release.

        For settings whose pairs are by content: there no samples are paired by their times.
        """
        rule = "be by_content for pairs that are given"
        require(self.settings.pairs == BY_CONTENT, "pairs", rule, self.settings.pairs)

        if self._host is not None:
            bins = spread_vote_bins(pairs.difference, self.settings.grid.span)
            self._host.count(HostPairs(pairs.agent, bins, pairs.agent), pairs.number)

    def _add(self, agent: AnyInts, point: AnyInts, time: Floats, pending: PendingReleases) -> None:
        """Add samples to the sums.

        On the way, release at every count that the schedule names.
        """
        if len(agent) == 0:
            return
        rows = self.columns
        batch = SortedSamples(
            rows,
            agent,
            point,
            time,
            n_agents=self.n_agents,
            middle=self.settings.grid.span // 2,
        )
        counted, paired = self._counted(batch)

        # A place is an agent of the batch; each turn of the loop makes the next release of all
        # that are due.
        who = batch.who
        place = np.arange(len(who))
        begun = len(pending.pieces)
        moments: list[Ints] = []

        while True:
            self._test(batch, place)
            place = place[rows["due"][who[place]] <= batch.count[place]]
            if not len(place):
                break

            # The order within one event time is not public: a release waits for its end.
            due = batch.to_the_end_of_its_time(place, rows["due"][who[place]])
            sums, sample_index = batch.reached(
                place, due, with_squares=self.settings.kept is not None
            )

            # What a release votes on are the pairs up to its own last sample.
            for counts in counted:
                counts.count(place, sample_index + 1 - batch.starts[place])

            # What an agent said before the batch it said before its first release of it.
            self._release_all(who[place], sums, pending, follows=bool(moments))
            moments.append(batch.order[sample_index].astype(np.int64, copy=False))

        # What came after the last release waits, in the same bins, for the next one.
        for counts in counted:
            counts.count(np.arange(len(who)), batch.added)

        if self._host is not None:
            self._host.cast(paired, moments, pending, begun)

        batch.add_to(rows)
        self.touch(who)

    def _collected(self, pending: PendingReleases) -> ReleaseBatch:
        """Give what a call has released: of few samples most often nothing."""
        if pending.pieces:
            return pending.collect(self.settings)
        return self._nothing

    def _test(self, batch: SortedSamples, place: Ints) -> None:
        """Ask after each block up to the next release, with a memory, whether own means have changed."""
        rows = self.columns
        memory = self.settings.kept
        if memory is None:
            return

        # Tests run after each block of samples, up to the next release or the end of the batch.
        until = np.minimum(rows["due"][batch.who[place]], batch.count[place])
        while True:
            blocks = (until - rows["own_due"][batch.who[place]]) // BLOCK + 1
            waiting = blocks > 0
            place, until, blocks = place[waiting], until[waiting], blocks[waiting]
            if not len(place):
                return

            # As many blocks as most agents have are tested at a time; the others come in the next
            # turns.
            agent = batch.who[place]
            offsets = np.arange(min(int(blocks.mean()), _MOST_BLOCKS))
            ends = np.minimum(offsets, blocks[:, np.newaxis] - 1)
            sums, _ = batch.reached(
                place[:, np.newaxis], rows["own_due"][agent, np.newaxis] + BLOCK * ends
            )
            blocks = np.minimum(blocks, len(offsets))

            for who, moment in memory.changes.to_test(rows, agent, sums.moment, blocks):
                memory.test(rows, who, moment)

    def _counted(self, batch: SortedSamples) -> tuple[list[SpreadPairs], HostPairs]:
        """Put the pairs of a batch, and its samples, into the bins of votes and histograms, and into blocks.

        Pairs that the host votes on are given apart.
        """
        rows = self.columns
        vote = self.settings.vote
        histogram = self.settings.histogram
        counted = []
        paired = NO_PAIRS

        # Pairs within an agent's own samples, for its own long-run variance.
        if self.settings.blocks is not None:
            self.settings.blocks.add(rows, batch)

        if vote is not None and self.settings.pairs == BY_TIME:
            pairs = timed_pairs(rows, batch.who, batch.point, batch.time, batch.starts, batch.added)
            if self._host is None:
                counted.append(vote.pairs(rows, batch.who, pairs))
            else:
                paired = self._host.of_batch(batch.who, pairs, batch.order)

        if histogram is not None:
            counted.append(histogram.samples(rows, batch.who, batch.point, batch.starts))

        return counted, paired

    def _close_windows(self, window: np.int64, times: Every, pending: PendingReleases) -> None:
        """Release for everyone with new samples when event time has left the current window."""
        if window <= self.window:
            return

        # The first sample opens a window; there is nothing before it to release.
        if self.window != NOT_BEGUN:
            self._release_waiting(float((self.window + 1) * times.seconds), pending)

        self.window = window

    def _release_waiting(self, time: float, pending: PendingReleases) -> None:
        """Release for everyone with new samples and releases left."""
        rows = self.columns
        n = self.n_agents
        waiting = (rows["count"][:n] > rows["released_count"][:n]) & (
            rows["released"][:n] < self.settings.horizon
        )
        agent = np.flatnonzero(waiting)
        if not len(agent):
            return

        sums = SumsNow.of(rows, agent)._replace(time=np.full(len(agent), time))
        begun = len(pending.pieces)
        self._release_all(agent, sums, pending)
        self.touch(agent)

        # Nobody has new pairs here: the host votes once for all of them together.
        if self._host is not None:
            self._host.cast(NO_PAIRS, [np.zeros(len(agent), np.int64)], pending, begun)

    def _newest(self, agent: Ints) -> ReleaseColumns:
        """Public: the newest release of each of some agents that have made one."""
        # With a memory, what was released is about the samples that still counted, not about all.
        public = self.public
        forgets = self.settings.kept is not None
        return released_columns(
            self.settings,
            agent=agent,
            index=public(RELEASED, agent),
            count=public(TOLD_COUNT if forgets else RELEASED_COUNT, agent),
            total=public(TOLD_TOTAL if forgets else RELEASED_TOTAL, agent),
            votes=self._votes(agent),
            histogram=self._histogram(agent),
            variance=public(TOLD_VARIANCE, agent) if forgets else None,
        )

    def _release_all(
        self, agent: Ints, now: SumsNow, pending: PendingReleases, *, follows: bool = False
    ) -> None:
        """Release for some agents, of whom none is repeated.

        `follows` says that all of them have released in the same batch before.
        """
        for chunk in chunks(len(agent), _TOGETHER):
            # Who follows releases subtracts what each agent said before the batch.
            if not follows:
                goes_on = self.public(RELEASED, agent[chunk]) > 0
                pending.before.append(self._newest(agent[chunk][goes_on]))

            self._release(agent[chunk], now.take(chunk), pending)

    def _release(self, agent: Ints, now: SumsNow, pending: PendingReleases) -> None:
        """Noise one sum per agent and note it; `agent` has no repetition."""
        rows = self.columns
        settings = self.settings
        index = rows["released"][agent] + 1
        self.reserve_releases(int(index.max(initial=0)))

        # The same count and sum have the same noise on every retry; another sum has another.
        version = self._noise.version_of(now.number, now.total)
        ids = NoiseIds(owner=self.owner[agent], index=index, version=version)
        if settings.histogram is not None:
            settings.histogram.release(rows, agent, now.number, ids, self._noise)

        if settings.vote is not None and self._host is None:
            settings.vote.cast_alone(rows, agent, ids, self._noise)

        fresh = settings.fresh.sample(self._noise.bits(ids, AGENT_MEANS.at()))
        released = self._noised(agent, index, now, fresh)

        # What was released is kept exactly as it was told: a restart must not draw again.
        rows["released"][agent] = index
        rows["released_count"][agent] = now.number
        rows["released_total"][agent] = released.total
        if isinstance(settings.times, Counts):
            rows["due"][agent] = self._next_due(settings.times, index, now.number)

        piece = ReleasedPiece(
            agent=agent,
            index=index,
            count=released.count,
            total=released.total,
            votes=self._votes(agent),
            histogram=self._histogram(agent),
            version=version,
            time=now.time,
            variance=released.variance,
            drift=released.drift,
            since=released.since,
        )
        pending.pieces.append(piece)

    def _next_due(self, times: Counts, index: Ints, number: Ints) -> Ints:
        """Numbers of samples at the releases after these; `NEVER` past the horizon."""
        goes_on = index < self.settings.horizon

        # Many samples of one time may have passed several numbers of the schedule.
        passed = np.maximum(index, times.releases_up_to(number))
        upcoming = times.at(np.where(goes_on, passed, 0) + 1)
        return np.where(goes_on, upcoming, NEVER)

    def _noised(self, agent: Ints, index: Ints, now: SumsNow, fresh: Floats) -> ReleasedSums:
        """Give the number of samples in a release and its noised sum.

        With a memory, its variance and the drift.
        """
        rows = self.columns
        settings = self.settings

        # A counter adds noise of its own to each release, some of it shared with earlier ones.
        if settings.kept is None:
            noise = settings.mechanism.step(columns_under(COUNTER, rows), agent, index, fresh)
            noised = now.total + np.rint(noise).astype(np.int64)
            return ReleasedSums(now.number, noised, settings.sum_variance(index))

        turn = np.full(len(agent), self.window)
        return settings.kept.release(rows, agent, index=index, now=now, turn=turn, fresh=fresh)

    def _votes(self, agent: Ints) -> Ints:
        """Public: the votes that each agent has cast; without entries where no one votes."""
        if self.settings.vote is None:
            return records_without_votes()
        return np.asarray(self.public(VOTE_NOISED, agent), np.int64)

    def _histogram(self, agent: Ints) -> Ints:
        """Public: the noised histogram of each agent; without columns where there are none."""
        if self.settings.histogram is None:
            return np.zeros((len(agent), 0), np.int64)
        return np.asarray(self.public(self.settings.histogram.noised, agent), np.int64)

"""Many agents as columns: exact running means, noisy means released on schedule, a batch of samples at a time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from operators.agents_settings import AgentsSettings
from operators.noise import KeyedNoise, NoiseIds, owner_words
from operators.ordering import stable_order
from operators.records import AnyInts, Bools, Floats, Ints, OwnSamples, ReleaseColumns, Words
from operators.release_times import Counts, Every
from operators.validation import require

__all__ = ["CHUNK", "Agents", "AgentsSettings", "ReleaseBatch"]

CHUNK = 1024
"""Agents per snapshot chunk: a commit writes the chunks that changed."""

NEVER = np.iinfo(np.int64).max
SQUARES_BASE = np.int64(1) << 62  # sums of squares are kept exactly in two words of this base

SNAPSHOT_VERSION = 2
SINCE_VERSION_2 = frozenset({"seen"})


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseBatch:
    """What one call released: public columns, the input version of each (a keyed digest) and its event time.

    `exhausted` lists the agents that made the last release of their horizon in this call.
    """

    releases: ReleaseColumns
    version: Words
    time: Floats
    exhausted: Ints


@dataclass(slots=True)
class _Pending:
    """Releases collected during one call, in pieces."""

    agent: list[Ints] = field(default_factory=list)
    index: list[Ints] = field(default_factory=list)
    count: list[Ints] = field(default_factory=list)
    total: list[Ints] = field(default_factory=list)
    version: list[Words] = field(default_factory=list)
    time: list[Floats] = field(default_factory=list)


class Agents:
    """Every agent's running mean, and its noisy releases, which anybody may read.

    Released: on schedule, the agent's noised prefix sum and its sample count, as integers on the grid. One noisy
    stream per agent serves every reader (broadcast), so no coalition of readers learns more than one of them.

    Parameters
    ----------
    settings : AgentsSettings
        Bounds, privacy parameters, counter and schedule.
    noise : KeyedNoise
        The keyed source; the same key, agent, release index and input give the same noise again.

    Notes
    -----
    **Privacy.** Neighboring streams differ in the value of one sample (replace-one); who produced samples and when is
    public. All releases of an agent together are (epsilon, delta)-differentially private with respect to each sample,
    against everybody else together. Sums are exact integers of sensitivity `settings.grid.span`; the fresh draws are
    calibrated to the column norm of the counter's strategy matrix over its horizon. Past the horizon nothing is
    released. Release times depend on counts and event times only.

    The state is columnar; an agent is its index. A batch costs a few sorts, however many agents it touches.

    Examples
    --------
    >>> settings = AgentsSettings(lower=0, upper=1, epsilon=1, delta=1e-6, schedule="geometric:4,2", horizon=8)
    >>> agents = Agents(settings, KeyedNoise(b"a key of at least 16 bytes", deployment="doc", purpose="agents"))
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

    def __init__(self, settings: AgentsSettings, noise: KeyedNoise) -> None:
        self.settings = settings
        self.names: list[str] = []
        self._noise = noise
        self._window = np.int64(-1)
        self._rows = _empty_rows(settings, CHUNK)
        self._owner: Words = np.zeros((CHUNK, 2), np.uint64)
        self._dirty: Bools = np.zeros(1, np.bool_)

    @property
    def n_agents(self) -> int:
        """Number of agents that were ever added."""
        return len(self.names)

    def add_agents(self, names: Sequence[str]) -> None:
        """Give new agents the next indices, in the order of `names`."""
        if not names:
            return
        first, last = self.n_agents, self.n_agents + len(names)
        self._reserve(last)
        self._owner[first:last] = owner_words(names)
        self.names.extend(names)
        self._dirty[first // CHUNK : (last - 1) // CHUNK + 1] = True

    def update(self, agent: Ints, value: Floats, time: Floats) -> ReleaseBatch:
        """Take a batch of samples in event-time order; return what became due, exactly at its count or boundary.

        Parameters
        ----------
        agent, value, time : array of shape (n,)
            Index of the agent, its sample in the value's unit, event time in seconds (non-decreasing).
        """
        return self.update_points(agent, self.settings.grid.encode(value), time)

    def update_points(self, agent: AnyInts, point: AnyInts, time: Floats) -> ReleaseBatch:
        """Take a batch of samples that are on the grid already, as `update` does.

        Parameters
        ----------
        agent, point, time : array of shape (n,)
            As for `update`, but `settings.grid.encode(value)` in the value's place; integers may be of any width.
        """
        pending = _Pending()
        times = self.settings.times
        if isinstance(times, Counts):
            self._add(agent, point, time, pending)
            return self._collect(pending)
        window = np.floor_divide(time, times.seconds).astype(np.int64)
        cuts = np.flatnonzero(np.diff(window)) + 1
        for start, stop in zip([0, *cuts], [*cuts, len(agent)], strict=True):
            if stop > start:
                self._close_windows(window[start], times, pending)
                self._add(agent[start:stop], point[start:stop], time[start:stop], pending)
        return self._collect(pending)

    def advance(self, watermark: float) -> ReleaseBatch:
        """Release what is due because event time reached `watermark` (seconds): the schedule `every:DURATION` only."""
        pending = _Pending()
        times = self.settings.times
        if isinstance(times, Every):
            self._close_windows(np.int64(watermark // times.seconds), times, pending)
        return self._collect(pending)

    def release_now(self, time: float) -> ReleaseBatch:
        """Release for everybody with samples since its last release, as at the end of a bounded stream.

        Each takes one of its agent's horizon; the agent's next release is the one that its schedule has then.
        """
        pending = _Pending()
        self._release_waiting(time, pending)
        return self._collect(pending)

    def own(self, agents: Ints | None = None) -> OwnSamples:
        """Private: each agent's own samples, summed up; for that agent only."""
        index = np.arange(self.n_agents) if agents is None else np.asarray(agents, np.int64)
        rows, grid = self._rows, self.settings.grid
        count, total = rows["count"][index], rows["total"][index]
        n = np.maximum(count, 1)
        centered = (total - count * (grid.span // 2)).astype(np.float64)
        squares = rows["squares_high"][index] * float(SQUARES_BASE) + rows["squares_low"][index]
        deviations = np.maximum(squares - centered * centered / n, 0.0) * grid.resolution**2
        mean = np.where(count > 0, grid.mean(total, n), np.nan)
        return OwnSamples(agent=index, count=count, mean=mean, squared_deviations=deviations)

    def latest(self) -> ReleaseColumns:
        """Public: the newest release of every agent that has made one."""
        rows = self._rows
        agent = np.flatnonzero(rows["released"][: self.n_agents])
        return self._columns(
            agent, rows["released"][agent], rows["released_count"][agent], rows["released_total"][agent]
        )

    def seen_since(self, time: float) -> Ints:
        """Public: the agents with a sample at `time` or later, in seconds of event time."""
        return np.flatnonzero(self._rows["seen"][: self.n_agents] >= time)

    def spent(self) -> Ints:
        """Public: number of releases each agent has made, of `settings.horizon`."""
        return self._rows["released"][: self.n_agents].copy()

    def dirty_chunks(self) -> list[int]:
        """Chunks of 1024 agents that changed since the last `mark_clean`."""
        return [int(i) for i in np.flatnonzero(self._dirty)]

    def mark_clean(self) -> None:
        """Forget what changed: it has been saved."""
        self._dirty[:] = False

    def snapshot_chunk(self, chunk: int) -> dict[str, np.ndarray]:
        """Private: one chunk's state as plain arrays."""
        part = slice(chunk * CHUNK, min((chunk + 1) * CHUNK, self.n_agents))
        state = {name: column[part].copy() for name, column in self._rows.items()}
        return {"version": np.array(SNAPSHOT_VERSION), "window": np.array(self._window), **state}

    def restore_chunk(self, chunk: int, state: dict[str, np.ndarray]) -> None:
        """Put one chunk's state back; its agents must have been added before."""
        version = int(state["version"])
        require(version in (1, SNAPSHOT_VERSION), "snapshot version", f"be 1 or {SNAPSHOT_VERSION}", version)
        names = set(state) - {"version", "window"}
        expected = set(self._rows) - (SINCE_VERSION_2 if version == 1 else frozenset())
        require(names == expected, "snapshot columns", f"be {sorted(expected)}", sorted(names))
        first = chunk * CHUNK
        for name in names:
            self._rows[name][first : first + len(state[name])] = state[name]
        self._window = max(self._window, np.int64(state["window"]))

    # -- internals ---------------------------------------------------------------------------------------------

    def _reserve(self, needed: int) -> None:
        capacity = len(self._owner)
        if needed <= capacity:
            return
        grown = -(-max(needed, 2 * capacity) // CHUNK) * CHUNK
        fresh = _empty_rows(self.settings, grown)
        for name, column in self._rows.items():
            fresh[name][:capacity] = column
        self._rows = fresh
        self._owner = np.concatenate([self._owner, np.zeros((grown - capacity, 2), np.uint64)])
        self._dirty = np.concatenate([self._dirty, np.zeros(grown // CHUNK - len(self._dirty), np.bool_)])

    def _add(self, agent: AnyInts, point: AnyInts, time: Floats, pending: _Pending) -> None:
        """Add samples to the sums; on the way, release at every count that the geometric schedule names."""
        if len(agent) == 0:
            return
        rows = self._rows
        order = stable_order(agent, self.n_agents)
        sorted_agent, sorted_point = agent[order], point[order].astype(np.int64, copy=False)
        ends = np.append(np.flatnonzero(sorted_agent[1:] != sorted_agent[:-1]), len(agent) - 1)
        added = np.diff(ends, prepend=-1)
        starts, who = ends - added + 1, sorted_agent[ends].astype(np.int64)
        prefix = np.cumsum(sorted_point)
        before = prefix[starts] - sorted_point[starts]

        count = rows["count"][who] + added
        due = np.flatnonzero(rows["due"][who] <= count)
        while len(due):
            a = who[due]
            at = rows["due"][a]
            last = starts[due] + (at - rows["count"][a]) - 1  # the sample that completes the count
            total = rows["total"][a] + prefix[last] - before[due]
            self._release(a, at, total, time[order[last]], pending)
            due = due[rows["due"][a] <= count[due]]

        sorted_point -= self.settings.grid.span // 2
        sorted_point *= sorted_point
        squares = rows["squares_low"][who] + np.add.reduceat(sorted_point, starts)
        rows["squares_low"][who] = squares % SQUARES_BASE
        rows["squares_high"][who] += squares // SQUARES_BASE
        rows["count"][who] = count
        rows["seen"][who] = time[order[ends]]
        rows["total"][who] += prefix[ends] - before
        self._dirty[who // CHUNK] = True

    def _close_windows(self, window: np.int64, times: Every, pending: _Pending) -> None:
        """Release for everybody with new samples when event time has left the current window."""
        if window <= self._window:
            return
        self._release_waiting(float((self._window + 1) * times.seconds), pending)
        self._window = window

    def _release_waiting(self, time: float, pending: _Pending) -> None:
        """Release for everybody with new samples and releases left."""
        rows, n = self._rows, self.n_agents
        waiting = (rows["count"][:n] > rows["released_count"][:n]) & (rows["released"][:n] < self.settings.horizon)
        a = np.flatnonzero(waiting)
        if len(a):
            self._release(a, rows["count"][a], rows["total"][a], np.full(len(a), time), pending)
            self._dirty[a // CHUNK] = True

    def _release(self, agent: Ints, count: Ints, total: Ints, time: Floats, pending: _Pending) -> None:
        """Noise one prefix sum per agent and note it; `agent` has no repetition."""
        rows, settings = self._rows, self.settings
        index = rows["released"][agent] + 1
        version = self._noise.version_of(count, total)
        ids = NoiseIds(owner=self._owner[agent], index=index, version=version)
        fresh = settings.fresh.sample(self._noise.bits(ids))
        state = {name: rows["counter_" + name] for name in self._counter_state}
        noise = settings.mechanism.step(state, agent, index, fresh)
        noised = total + np.rint(noise).astype(np.int64)
        rows["released"][agent], rows["released_count"][agent], rows["released_total"][agent] = index, count, noised
        if isinstance(settings.times, Counts):
            upcoming = settings.times.times(settings.horizon + 1)[index]
            rows["due"][agent] = np.where(index < settings.horizon, upcoming, NEVER)
        for column, piece in zip(
            (pending.agent, pending.index, pending.count, pending.total, pending.version, pending.time),
            (agent, index, count, noised, version, time),
            strict=True,
        ):
            column.append(piece)  # type: ignore[attr-defined]

    @cached_property
    def _counter_state(self) -> list[str]:
        return list(self.settings.mechanism.init(1))

    def _collect(self, pending: _Pending) -> ReleaseBatch:
        if not pending.agent:
            none, nothing = np.zeros(0, np.int64), np.zeros(0)
            return ReleaseBatch(
                releases=self._columns(none, none, none, none),
                version=np.zeros(0, np.uint64),
                time=nothing,
                exhausted=none,
            )
        agent, index = np.concatenate(pending.agent), np.concatenate(pending.index)
        time = np.concatenate(pending.time)
        order = np.lexsort((index, agent, time))
        agent, index = agent[order], index[order]
        return ReleaseBatch(
            releases=self._columns(
                agent, index, np.concatenate(pending.count)[order], np.concatenate(pending.total)[order]
            ),
            version=np.concatenate(pending.version)[order],
            time=time[order],
            exhausted=agent[index == self.settings.horizon],
        )

    def _columns(self, agent: Ints, index: Ints, count: Ints, total: Ints) -> ReleaseColumns:
        settings = self.settings
        n = np.maximum(count, 1)
        # The published integer is rounded: a twelfth of a grid unit squared on top of the mechanism's noise.
        per_sum = settings.mechanism.noise_variance(np.maximum(index, 1)) * settings.fresh.variance + 1 / 12
        return ReleaseColumns(
            agent=agent,
            index=index,
            count=count,
            total=total,
            mean=settings.grid.mean(total, n),
            noise_variance=per_sum * settings.grid.resolution**2 / n.astype(np.float64) ** 2,
        )


def _empty_rows(settings: AgentsSettings, n: int) -> dict[str, np.ndarray]:
    """Columns of `n` agents that have seen nothing yet."""
    names = ("count", "total", "squares_low", "squares_high", "released", "released_count", "released_total")
    rows: dict[str, np.ndarray] = {name: np.zeros(n, np.int64) for name in names}
    rows["seen"] = np.full(n, -np.inf)
    times = settings.times
    first = int(times.times(1)[0]) if isinstance(times, Counts) else NEVER
    rows["due"] = np.full(n, first, np.int64)
    rows.update({"counter_" + name: column for name, column in settings.mechanism.init(n).items()})
    return rows

"""A differentially private running mean that is a river statistic, for one stream at a time."""

from __future__ import annotations

import math
import secrets
import warnings
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
from river import stats

from meanstream.operators.agents.agent_memory import FOREVER, Memory, parse_memory
from meanstream.operators.agents.half_life_memory import DecayedSums, WindowedSums
from meanstream.operators.agents.release_times import Counts, Geometric, Steady, parse_release_times
from meanstream.operators.agents.state_columns import (
    empty_columns,
)
from meanstream.operators.counters.base import ENDLESS, Counter, State
from meanstream.operators.counters.decayed import Decayed, decay_of_half_life
from meanstream.operators.counters.optimal import Optimal, optimal_counter_sampling
from meanstream.operators.counters.registry import counter_noise, make_counter
from meanstream.operators.counters.windowed import LONGEST_WINDOW, Windowed
from meanstream.operators.noise.distributions import GaussianNoise
from meanstream.operators.noise.draw_owners import PRIVATE_MEAN
from meanstream.operators.noise.fixed_point import FixedPoint
from meanstream.operators.noise.keyed import TAIL_DELTA, NoiseIds, NoiseSource
from meanstream.operators.records import Floats, Words
from meanstream.operators.validation import (
    require,
    require_between,
    require_bounds,
    require_positive,
    valid_float,
    valid_int,
)

SNAPSHOT_VERSION = 2
UNDERIVED_VERSION = 1
"""Snapshots of this version go on with the key they were made with: that of `noise` itself."""
_USUAL_COUNTER = "toeplitz"
_USUAL_HORIZON = 40
_COUNTERS = (_USUAL_COUNTER, Optimal.name)


class PrivateMean(stats.base.Univariate):
    """Mean of a stream or of a sliding window, released on a public schedule with Gaussian noise.

    Released, to anyone who can call `get`: after certain numbers of updates, the noised sum and the
    number of samples in it. Between two releases `get` repeats the last one, so it may be called,
    published and plotted at will. Before the first release it is NaN, never a guess that looks like
    data and never the raw mean; a learner behind it needs the NaN dropped.

    Parameters
    ----------
    lower, upper : float
        Declared bounds of a sample; values are clipped to them. Public: do not read them off the
        data.
    epsilon, delta : float
        Guarantee of everything this instance ever releases.
    noise : NoiseSource
        A `KeyedNoise`; it holds the secret, shows it to no one, and is shared by clones. Each set
        of parameters takes a key of its own from it, so one source may serve instances of several
        epsilons.
    schedule : str or int, default "preferred:10"
        When to release, in numbers of updates: `preferred:FIRST`, `geometric:FIRST,FACTOR`, or an
        integer n for "every n updates", which is what a sliding window wants.
    horizon : int, optional
        Largest number of releases, 40 by default: with the default schedule the 40th comes after 30
        million updates. Generous is cheap: the variance grows with its logarithm. Past it a warning
        is issued once and `get` repeats the last one. With a `memory` that forgets there is no end,
        and no horizon.
    removals : bool, default False
        Whether `revert` may be called, as `river.utils.Rolling` and `TimeRolling` do. It widens the
        noise by sqrt(2).
    counter : {"toeplitz", "optimal"}, optional
        Continual-counting mechanism, by default "toeplitz"; "optimal" has less noise, for horizons
        up to 128. A `memory` that forgets has its own.
    memory : str, default "forever"
        `half-life:N`: a sample weighs half as much after N updates more, and releases come as
        `schedule` says, at least 8 in a half-life, for ever. `window:N`: the mean of the newest N
        updates, which must be 1 to 128 times an integer `schedule`.

    Notes
    -----
    **Privacy.** (epsilon, delta)-DP for streams that differ in the value of one sample (replace-one), against anyone
    who sees all the releases of this instance. How many samples there are, when they come and when they leave is
    public.

    - A sample lies in one increment of the sum, between two releases, and the increments pass through the counter: one
      Gaussian mechanism over the whole horizon, however many releases a sample meets.
    - With a memory that forgets the budget is for the endless stream: what a sample moves the releases by has a limit.
    - With `removals` it lies in a second increment, with the opposite sign, when it leaves the window. The columns of
      the counter's matrix have no negative products, so two of them differ by at most sqrt(2) times
      the longest: that is the sensitivity used. The sample that leaves must be the one that came
      (`Rolling` and `TimeRolling` keep it).
    - Every instance has an identity of its own, 128 random bits. Clones and copies of an empty instance (`Agg` makes
      one per group) get new ones: two groups that shared one would meet the same noise, and equal
      releases would tell that their data are equal. Copying an instance that has data is refused:
      its samples would be released twice.
    - `snapshot` keeps the identity, so a stream replayed from a snapshot releases the same integers again, at no cost.
      Starting over *without* it is a second release of the same samples and costs epsilon again; so
      does a second aggregate over the same column. No one counts that here: services that must not
      forget use the engine's ledger.
    - Floats: `distributions` bounds what inversion in float64 adds to epsilon (under 1e-4 in all at
      the defaults with epsilon 1); what 128 bits miss is taken out of delta.

    Raises
    ------
    ValueError
        For parameters out of range.

    Examples
    --------
    >>> from meanstream.operators.forecast.simulated_noise import SimulationNoise
    >>> mean = PrivateMean(0.0, 10.0, epsilon=1.0, delta=1e-6, noise=SimulationNoise(seed=1))
    >>> for x in range(10_000):
    ...     mean.update(x % 10)
    >>> mean.n, round(mean.get(), 2), round(mean.noise_stddev, 3)
    (10000, 4.5, 0.009)
    """

    _fmt = ",.6f"

    def __init__(
        self,
        lower: float,
        upper: float,
        *,
        epsilon: float,
        delta: float,
        noise: NoiseSource,
        schedule: str | int = "preferred:10",
        horizon: int | None = None,
        removals: bool = False,
        counter: str | None = None,
        memory: str = FOREVER,
    ) -> None:
        self.lower = valid_float("lower", lower)
        self.upper = valid_float("upper", upper)
        self.epsilon = valid_float("epsilon", epsilon)
        self.delta = valid_float("delta", delta)
        require_bounds(self.lower, self.upper)
        require_positive(epsilon=self.epsilon)
        require_between(0, 1, delta=self.delta)

        self.noise = noise
        self.schedule = _canonical_schedule(schedule)
        parsed = parse_memory(memory)
        self.memory = str(parsed)
        self.removals = bool(removals)

        # Sums are of integers on a grid, so that no order of additions changes them.
        self._grid = FixedPoint(self.lower, self.upper)
        self.horizon: int | None = None
        self._endless: EndlessReleases | None = None

        # With a memory releases have no end; otherwise the horizon bounds them.
        if parsed.forgets:
            require(
                horizon is None,
                "horizon",
                f"be left out with memory {memory}: its releases have no end",
                horizon,
            )

            require(
                not self.removals,
                "removals",
                f"be False with memory {memory}, which forgets itself",
                removals,
            )
            self._endless = EndlessReleases.of(parsed, self.schedule)
            self._counter: Counter = self._endless.counter
            names: tuple[str, ...] = (self._counter.name,)
            self._upcoming = self._endless.due(0)
        else:
            names = _COUNTERS
            self.horizon = valid_int("horizon", _USUAL_HORIZON if horizon is None else horizon)
            self._times = _release_times(self.schedule, self.horizon)
            self._counter = self._counter_of_sums(counter or _USUAL_COUNTER, self.horizon)

        # A counter that does not fit is refused only now, when those that fit are known.
        require(counter in (None, *names), "counter", f"be one of {', '.join(names)}", counter)
        self.counter = self._counter.name
        self._fresh = self._calibrate()
        self._stream = _Stream(self._endless or self._counter)
        self._version = SNAPSHOT_VERSION

        # Settings are part of the key: other settings draw other noise.
        self._key = noise.derived("private mean", self._settings())

    @property
    def name(self) -> str:
        """Name of the statistic in the features that river makes of it."""
        return "private_mean"

    @property
    def n(self) -> int:
        """Number of samples in the last release, the effective one where older ones weigh less.

        0 before the first.
        """
        return self._stream.released_count

    def _repr_html_(self) -> str:
        """Show in a notebook what is released: the mean, its noise, and what protects it."""
        told = [
            ("private mean", f"{self.get():.6g}"),
            ("samples in it", f"{self.n:,.6g}"),
            ("noise, standard deviation", f"{self.noise_stddev:.3g}"),
            ("protected", f"every value, at ({self.epsilon:g}, {self.delta:g})"),
        ]
        rows = "".join(f"<tr><th>{name}</th><td>{value}</td></tr>" for name, value in told)

        return f"<table><tbody>{rows}</tbody></table>"

    @property
    def noise_stddev(self) -> float:
        """Standard deviation of the privacy noise in `get()`, in value units.

        Infinite before the first release.
        """
        stream = self._stream
        if stream.released_count == 0:
            return math.inf

        if self._endless is not None:
            variance = float(stream.counter["told_variance"][0])
        else:
            # Variance of the draws in this release, times that of one draw.
            per_draw = float(self._counter.noise_variance(np.array([stream.index]))[0])
            # Rounding to the grid adds a twelfth of a squared step.
            variance = per_draw * self._fresh.variance + 1.0 / 12.0

        return math.sqrt(variance) * self._grid.resolution / stream.released_count

    @property
    def releases_left(self) -> int | None:
        """Number of releases that the horizon still allows; None where there is no end."""
        if self.horizon is None:
            return None
        return self.horizon - self._stream.index

    def update(self, x: float) -> None:
        """Take in one sample, and release if the schedule says so.

        Raises
        ------
        ValueError
            If the sample is not finite; it is not shown, and nothing has changed.
        """
        # One sample changes the sum by at most the span of the grid.
        stream = self._stream
        stream.total += self._grid.encode_one(x)
        stream.count += 1
        stream.updates += 1

        # A schedule without end, a release within the horizon, or the first sample beyond it.
        if self.horizon is None:
            if stream.updates == self._upcoming:
                self._release()
        elif stream.index < self.horizon:
            if stream.updates == self._times[stream.index]:
                self._release()
        elif not stream.warned and stream.updates >= self._times[self.horizon]:
            stream.warned = True
            warnings.warn(
                f"PrivateMean has made all {self.horizon} releases of its horizon; get() stays at the last one",
                RuntimeWarning,
                stacklevel=2,
            )

    def revert(self, x: float) -> None:
        """Take a sample out again.

        Releases nothing: the next scheduled release is the first to show it.

        Raises
        ------
        ValueError
            If `removals` is False, which calibrated the noise for samples that stay, or no sample
            is left to remove.
        """
        require(
            self.removals,
            "removals",
            "be True where samples are removed, as in a sliding window",
            self.removals,
        )

        require(
            self._stream.count > 0,
            "x",
            "have been added before it is removed",
            "a removal from an empty window",
        )
        self._stream.total -= self._grid.encode_one(x)
        self._stream.count -= 1

    def get(self) -> float:
        """Return the last released mean, in value units; NaN before the first release."""
        stream = self._stream
        if stream.released_count == 0:
            return math.nan
        return float(self._grid.mean(stream.released_total, stream.released_count))

    def snapshot(self) -> dict[str, Any]:
        """Return everything as plain data. Private: it holds the raw sum (but no secret)."""
        return {
            "version": self._version,
            "key": self._key_digest(),
            **self._settings(),
            **self._stream.to_plain(),
        }

    @classmethod
    def restore(cls, snapshot: dict[str, Any], *, noise: NoiseSource) -> Self:
        """Return the instance of a snapshot; what follows releases what the original would have.

        Restore it once: two instances that go on from one snapshot with different data are two
        releases.

        Raises
        ------
        ValueError
            If the snapshot's version is unknown or `noise` has another key.
        """
        version = snapshot.get("version")
        known = (UNDERIVED_VERSION, SNAPSHOT_VERSION)

        # Snapshots of an older version go on with their own key.
        require(version in known, "snapshot version", f"be {known[0]} or {known[1]}", version)
        counter = snapshot.get("mechanism", _USUAL_COUNTER)
        memory = snapshot.get("memory", FOREVER)
        mean = cls(
            noise=noise,
            counter=counter,
            memory=memory,
            **{name: snapshot[name] for name in _SETTINGS},
        )

        # Before keys were derived from settings, the source was the key.
        if version == UNDERIVED_VERSION:
            mean._version = version
            mean._key = noise

        # Another secret would draw other noise for releases that were made: a second look at the
        # same data.
        require(
            mean._key_digest() == snapshot["key"], "noise", "have the key of the snapshot", noise
        )
        mean._stream = _Stream.from_plain(mean._endless or mean._counter, snapshot)

        if mean._endless is not None:
            # The schedule goes on where the snapshot was.
            mean._upcoming = mean._endless.due(mean._stream.index)

        return mean

    def _counter_of_sums(self, counter: str, horizon: int) -> Counter:
        """Make the counter of sums that keep everything."""
        require(counter in _COUNTERS, "counter", f"be one of {', '.join(_COUNTERS)}", counter)
        # What a window's sums vary by does not grow with the number of updates.
        by_schedule = counter == Optimal.name and not self.removals
        sampling = (
            optimal_counter_sampling(np.array(self._times[:horizon]), self.epsilon)
            if by_schedule
            else ()
        )

        return make_counter(counter, horizon=horizon, sampling=sampling)

    def _calibrate(self) -> GaussianNoise:
        # Each release takes one draw of 128 bits; what they miss comes out of delta.
        draws = self._counter.reach
        delta = self.delta - draws * TAIL_DELTA
        require(
            delta > 0,
            "delta",
            f"exceed {draws} * 2**-64, what 128 bits per draw can miss",
            self.delta,
        )

        # A sample that is removed has changed the sum twice.
        sensitivity = self._grid.span * (math.sqrt(2.0) if self.removals else 1.0)
        noise = counter_noise(
            self._counter, epsilon=self.epsilon, delta=delta, sensitivity=sensitivity
        )
        assert isinstance(noise, GaussianNoise)  # noqa: S101 - the default shape of the draws

        return noise

    def _release(self) -> None:
        stream = self._stream

        # Noise is a function of index, count and sum: a retry draws the same.
        index = np.array([stream.index + 1])
        count = np.array([stream.count])
        total = np.array([stream.total])
        ids = NoiseIds(stream.owner, index, self._key.version_of(count, total))
        fresh = self._fresh.sample(self._key.bits(ids, PRIVATE_MEAN.at()))
        stream.index += 1

        if self._endless is not None:
            stream.released_count, stream.released_total = self._endless.release(
                stream.counter,
                stream.index,
                count=stream.count,
                total=stream.total,
                noise=self._fresh,
                fresh=fresh,
            )
            self._upcoming = self._endless.due(stream.index)

            return

        # The counter adds the noise of this release to what it shares with earlier ones.
        noise = self._counter.step(stream.counter, np.array([0]), index, fresh)
        stream.released_count = stream.count
        stream.released_total = stream.total + int(np.rint(noise[0]))

    def _settings(self) -> dict[str, Any]:
        # The usual counter has no entry: streams from before there was another go on with their
        # key.
        named = {} if self.counter == _USUAL_COUNTER else {"mechanism": self.counter}
        named |= {} if self._endless is None else {"memory": self.memory}
        return {**{name: getattr(self, name) for name in _SETTINGS}, **named}

    def _key_digest(self) -> int:
        zero = np.zeros(1, dtype=np.int64)
        return int(self._key.version_of(zero, zero)[0])


_SETTINGS = ("lower", "upper", "epsilon", "delta", "schedule", "horizon", "removals")
_PLAIN = ("count", "total", "updates", "index", "released_count", "released_total", "warned")


def _new_owner() -> Words:
    return np.frombuffer(secrets.token_bytes(16), dtype="<u8").reshape(1, 2).astype(np.uint64)


@dataclass(slots=True)
class _Stream:
    """What one instance has seen and released, and who it is."""

    mechanism: Counter | EndlessReleases
    owner: Words = field(default_factory=_new_owner)
    count: int = 0
    total: int = 0
    updates: int = 0
    index: int = 0
    released_count: int = 0
    released_total: int = 0
    warned: bool = False
    counter: State = field(init=False)

    def __post_init__(self) -> None:
        self.counter = self.mechanism.init(1)

    def to_plain(self) -> dict[str, Any]:
        plain = {name: getattr(self, name) for name in _PLAIN}
        return {
            **plain,
            "owner": self.owner.astype("<u8").tobytes().hex(),
            "counter": {name: values[0].tolist() for name, values in self.counter.items()},
        }

    @classmethod
    def from_plain(cls, mechanism: Counter | EndlessReleases, plain: dict[str, Any]) -> Self:
        owner = (
            np.frombuffer(bytes.fromhex(plain["owner"]), dtype="<u8")
            .reshape(1, 2)
            .astype(np.uint64)
        )
        stream = cls(mechanism, owner, **{name: plain[name] for name in _PLAIN})

        for name, values in stream.counter.items():
            values[0] = plain["counter"][name]

        return stream

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        # river copies prototypes: per group in `Agg`, with a model in `clone`. An empty stream gets
        # a new identity; one with samples would release them a second time.
        if self.updates:
            raise TypeError(
                "a PrivateMean that has samples cannot be copied: the copy would release them a second time; "
                "use clone() for an empty one, or snapshot() and restore()"
            )

        return type(self)(self.mechanism)


def _canonical_schedule(schedule: str | int) -> str | int:
    """Give one text to all that name the same schedule; it is part of the key."""
    if isinstance(schedule, str):
        return str(parse_release_times(schedule))
    return valid_int("schedule", schedule)


def _release_times(schedule: str | int, horizon: int) -> tuple[int, ...]:
    """Numbers of updates at the releases, and at the first one past the horizon."""
    if isinstance(schedule, int):
        require(schedule >= 1, "schedule", "be at least 1 update", schedule)
        return tuple(range(schedule, schedule * (horizon + 2), schedule))

    parsed = parse_release_times(schedule)
    if not isinstance(parsed, Counts):
        raise ValueError(f"schedule must be of counts or a number of updates, got {schedule!r}")
    return tuple(parsed.times(horizon + 1).tolist())


_ROW = np.zeros(1, np.int64)


@dataclass(frozen=True, slots=True)
class EndlessReleases:
    """The schedule and the noise of one mean that forgets.

    Parameters
    ----------
    times : Counts
        Numbers of updates at the releases.
    counter : Decayed or Windowed
        Noise of its sums.
    """

    times: Counts
    counter: Decayed | Windowed

    @classmethod
    def of(cls, memory: Memory, schedule: str | int) -> Self:
        """Make them for a memory in updates, and a schedule in updates.

        Examples
        --------
        >>> from meanstream.operators.agents.agent_memory import parse_memory
        >>> EndlessReleases.of(parse_memory("half-life:80"), "preferred:10").times.times(9).tolist()
        [10, 15, 20, 30, 40, 50, 60, 70, 80]
        """
        require(
            memory.samples is not None,
            "memory",
            "be forever, half-life:UPDATES or window:UPDATES",
            str(memory),
        )
        length = int(memory.samples or 0)

        if isinstance(schedule, str):
            rule = "be a number of updates with memory window:UPDATES"
            require(memory.kind != "window", "schedule", rule, schedule)
            times = memory.times(parse_release_times(schedule))
            counter = memory.counter(times)
            assert isinstance(times, Steady)  # noqa: S101 - of samples it is
            assert isinstance(counter, Decayed)  # noqa: S101 - no window has come here

            return cls(times, counter)

        require(schedule >= 1, "schedule", "be at least 1 update", schedule)
        times = Steady(
            Geometric(schedule, 3.0), schedule
        )  # its second release would be two gaps later

        if memory.kind == "window":
            rule = f"be 1 to {LONGEST_WINDOW} times the schedule of {schedule} updates"
            require(
                length % schedule == 0 and length <= LONGEST_WINDOW * schedule,
                "memory",
                rule,
                str(memory),
            )

            return cls(times, Windowed(ENDLESS, window=length // schedule))

        decay = decay_of_half_life(schedule, length)
        require(decay > 0, "memory", f"not forget all within {schedule} updates", str(memory))
        return cls(times, Decayed(ENDLESS, decay=decay))

    def due(self, index: int) -> int:
        """Give the number of updates at the release after that many."""
        return int(self.times.at(np.array([index + 1]))[0])

    def init(self, n_rows: int) -> State:
        """State before the first release.

        Noise, what it is of, and samples and sum at the last release.
        """
        nothing = {"marked": np.zeros((n_rows, 2), np.int64), "told_variance": np.zeros(n_rows)}
        return {**empty_columns(self._sums(GaussianNoise(1.0)).columns, n_rows), **nothing}

    def release(
        self,
        state: State,
        index: int,
        *,
        count: int,
        total: int,
        noise: GaussianNoise,
        fresh: Floats,
    ) -> tuple[int, int]:
        """Release once; give the effective number of samples and their noised sum.

        Parameters
        ----------
        state : State
            Of one row; changed in place.
        index : int
            Number of this release, from 1.
        count, total : int
            All samples so far, and their exact sum in grid units.
        noise : GaussianNoise
            Of one draw.
        fresh : float array, shape (1,)
            The draw.
        """
        added = np.array([count, total]) - state["marked"][0]
        released = self._sums(noise).release(
            state, _ROW, index=np.array([index]), count=added[:1], total=added[1:], fresh=fresh
        )
        state["marked"][0] = count, total
        state["told_variance"][:] = released.variance

        return int(released.count[0]), int(released.total[0])

    def _sums(self, noise: GaussianNoise) -> DecayedSums | WindowedSums:
        if isinstance(self.counter, Decayed):
            return DecayedSums(self.counter, noise)
        return WindowedSums(self.counter, noise)

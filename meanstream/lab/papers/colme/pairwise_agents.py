"""Many agents that ask each other one at a time, as in Algorithm 1.

The state of every pair, some steps at once.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from meanstream.lab.papers.colme.pairwise_settings import (
    PAIRWISE_SCHEDULES,
    PairwiseQueries,
    PairwiseSettings,
    schedule_same_class,
)
from meanstream.lab.papers.colme.pairwise_statistic import Received, pair_class_sums, pair_statistic
from meanstream.lab.papers.colme.same_mean import (
    same_mean_known,
    same_mean_significance,
    same_mean_welch,
)
from meanstream.lab.papers.colme.variance_trackers import ReleasedVariance, scheme_sample_variance
from meanstream.operators.counters.registry import State
from meanstream.operators.records import Bools, Floats, Ints
from meanstream.operators.validation import require


class OwnPrefix(NamedTuple):
    """Sums and means of all samples up to each step: row s is after step s, column a is agent a.

    `time` has a single column, and so has the `variance` of the mean if all agents have one known
    variance. `square` is None where variances are known.
    """

    time: Ints
    total: Floats
    mean: Floats
    square: Floats | None
    variance: Floats


class OwnSamples:
    """Running sums of every agent's samples.

    Parameters
    ----------
    columns : int
        Agents of all runs.
    known : float array (columns,), optional
        Variance of one sample of each; without it the variance is estimated.
    half_width : float, optional
        As of `scheme_sample_variance`.

    Examples
    --------
    >>> own = OwnSamples(2, np.array([1.0, 1.0]))
    >>> prefix = own.take(0, np.array([[1.0, 5.0], [3.0, 5.0]]))
    >>> prefix.mean.tolist(), prefix.variance.tolist(), own.state["total"].tolist()
    ([[1.0, 5.0], [2.0, 5.0]], [[1.0], [0.5]], [4.0, 10.0])
    """

    def __init__(
        self, columns: int, known: Floats | None = None, half_width: float | None = None
    ) -> None:
        if known is not None and (known == known[0]).all():
            known = known[:1]  # computed once for all

        self.known = known
        self._half_width = half_width
        self.state: State = {
            name: np.zeros(columns) for name in ("total", "mean", "spread", "square")
        }

    def take(self, before: int, values: Floats) -> OwnPrefix:
        """Take a sample of every agent at each step, shape (steps, columns), after `before` steps."""
        time = before + np.arange(1, len(values) + 1)[:, np.newaxis]
        total = self._running("total", values)
        earlier = self.state["mean"]
        mean = total / time
        self.state["mean"] = mean[-1].copy()

        if self.known is not None:
            return OwnPrefix(time, total, mean, None, self.known / time)
        moved = (values - np.concatenate([earlier[np.newaxis], mean[:-1]])) * (values - mean)
        spread = self._running("spread", moved)
        square = self._running("square", values**2)

        return OwnPrefix(time, total, mean, square, self._estimated(time, spread))

    def variance(self, time: int) -> Floats:
        """Return the variance of every agent's mean of `time` samples.

        Known, or estimated from its own.
        """
        if self.known is None:
            return self._estimated(np.asarray(time), self.state["spread"])
        return np.broadcast_to(self.known / max(time, 1), self.state["mean"].shape)

    def _estimated(self, time: Ints, spread: Floats) -> Floats:
        return scheme_sample_variance(time, spread, half_width=self._half_width) / np.maximum(
            time, 1
        )

    def _running(self, name: str, values: Floats) -> Floats:
        """Add rows up, one after the other: NumPy's own running sum walks down each column."""
        sums = np.empty(values.shape)
        last = self.state[name]
        for row, value in zip(sums, values, strict=True):
            last = np.add(last, value, out=row)

        self.state[name] = last.copy()
        return sums


__all__ = ["PairwiseAgents", "PairwiseSettings", "schedule_same_class"]

SNAPSHOT_VERSION = 2
PAIRS_AT_ONCE = 32_768
"""Pairs that exchange or are tested at once: few enough for the cache, enough to hide the cost of a
NumPy call."""


class PairwiseAgents:
    """All pairs of Algorithm 1 (Private-ColME), vectorized over runs and agents.

    Released: to agent a, and to no one else, the noisy mean of the agent b that it asks.
    Reproduction and small federations only: the state is M x M, and see **Privacy**.

    Parameters
    ----------
    settings : PairwiseSettings
    sample_variance : float array, shape (runs, agents), optional
        Known variance of one sample of every agent.
    classes : bool array, shape (agents - 1, runs * agents), optional
        For the oracle test: whether each pair is in one class; see `schedule_same_class`.

    Notes
    -----
    **Privacy.** Neighboring streams differ in the value of one sample (replace-one). The counter protects a sample
    against one querier. A coalition of c queriers averages the noise of its pairs away: at (1, 1e-6) against one, 15
    together reach epsilon 3.4 and 199 reach 15.6. Broadcast releases (`agents`) do not have this loss. Under
    restricted_round_robin the choice of whom to ask depends on raw data and is seen by the asked. The arithmetic is in
    floats and the caller brings the noise: what a deployment sends must be noised integers on a grid.

    Under round robin with the lazy test an agent-step costs O(1), and steps of one round are taken
    together: no pair exchanges twice in a round. Estimates add up 1/Var[T] and T/Var[T] over the
    class, O(agents) each.

    Examples
    --------
    >>> from meanstream.operators.counters.registry import make_counter
    >>> settings = PairwiseSettings(
    ...     agents=3, runs=1, counter=make_counter("pm1", horizon=4), fresh_variance=1.0)
    >>> agents = PairwiseAgents(settings, sample_variance=np.ones((1, 3)))
    >>> agents.step(np.array([[1.0, 2.0, 6.0]]), np.zeros((1, 3)))
    >>> agents.estimate()[0].round(3).tolist()
    [[1.333, 1.667, 6.0]]

    References
    ----------
    Yakimenka, Weng, Lin, Rosnes, Kliewer, "Differentially-private collaborative online personalized mean estimation",
    Algorithm 1.
    """

    def __init__(
        self,
        settings: PairwiseSettings,
        *,
        sample_variance: Floats | None = None,
        classes: Bools | None = None,
    ) -> None:
        known = settings.variance == "known"
        oracle = settings.test == "oracle"
        require(
            (sample_variance is not None) == known,
            "sample_variance",
            "be given if variance is known",
            settings.variance,
        )

        require(
            classes is not None or not oracle,
            "classes",
            "be given for the oracle test",
            settings.test,
        )

        self.settings = settings
        self._schedule = PAIRWISE_SCHEDULES[settings.schedule](
            settings.agents, settings.runs, settings.partners
        )
        variance = None if sample_variance is None else np.ravel(sample_variance).astype(np.float64)
        self._own = OwnSamples(self._schedule.columns, variance, settings.half_width)
        ratio = settings.fresh_variance / settings.design_variance
        self._statistic = pair_statistic(
            settings.weights, settings.counter, others=self._schedule.others, noise_ratio=ratio
        )
        self._scheme = settings.scheme
        self._init(classes)

    def _init(self, classes: Bools | None) -> None:
        others = self._schedule.others
        columns = self._schedule.columns
        clocks = self._schedule.clocks
        pairs = others * columns
        self.time = 0
        self._tested = 0

        self._state: dict[str, State] = {
            "own": self._own.state,
            "pair": {
                "value": np.zeros(pairs),
                "precision": np.zeros(pairs),
                "accepted": np.ones(pairs, dtype=np.bool_),
            },
            "clock": {
                "releases": np.zeros(clocks, dtype=np.int64),
                "time": np.zeros(clocks, dtype=np.int64),
            },
            "schedule": self._schedule.init(),
            "counter": self.settings.counter.init(pairs),
            "statistic": self._statistic.init(pairs, clocks),
            "variance": {} if self._scheme is None else self._scheme.init(pairs),
        }

        if classes is not None and self.settings.test == "oracle":
            self._state["pair"]["accepted"][:] = classes.ravel()

    def step(self, values: Floats, fresh: Floats, variance_fresh: Floats | None = None) -> None:
        """Take one sample of every agent and let every agent ask one other, test and update its class.

        Parameters
        ----------
        values : float array, shape (runs, agents)
            The samples.
        fresh : float array, shape (runs, agents)
            Noise of the p-sum that each agent's query creates, of variance `fresh_variance`; entry
            [r, a] is used by the agent that a asks.
        variance_fresh : float array, shape (runs, agents), optional
            The same for the released sample variance, of variance `(2L)^2 fresh_variance`; for
            variance released.
        """
        second = None if variance_fresh is None else variance_fresh[np.newaxis]
        self.steps(values[np.newaxis], fresh[np.newaxis], second)

    def steps(
        self,
        values: Floats,
        fresh: Floats,
        variance_fresh: Floats | None = None,
        lost: Bools | None = None,
    ) -> None:
        """Take several steps, one after the other.

        Arrays as of `step`, of shape (steps, runs, agents). `lost` says which agents' queries stay
        without an answer: the release is made, its noise is spent, and it does not arrive. That is
        for known variances, lazy tests and the newest release alone.
        """
        simple = (self.settings.variance, self.settings.test, self.settings.weights)
        rule = "be left out unless variance is known, test lazy and weights last"
        require(lost is None or simple == ("known", "lazy", "last"), "lost", rule, simple)
        released = self.settings.variance == "released"
        require(
            (variance_fresh is not None) == released,
            "variance_fresh",
            "be given if variance is released",
            released,
        )

        most = max(1, PAIRS_AT_ONCE // self._schedule.columns)
        done = 0
        by_step = (len(values), self._schedule.columns)
        second = None if variance_fresh is None else variance_fresh.reshape(by_step)
        lost = None if lost is None else lost.reshape(by_step)
        values, fresh = values.reshape(by_step), fresh.reshape(by_step)

        while done < len(values):
            part = slice(done, done + min(most, self._schedule.independent_steps(self.time + 1)))
            self._step(
                values[part],
                fresh[part],
                None if second is None else second[part],
                None if lost is None else lost[part],
            )
            done = part.stop

    def _step(
        self, values: Floats, fresh: Floats, variance_fresh: Floats | None, lost: Bools | None
    ) -> None:
        """Take steps in which no pair exchanges twice, and no test decides who asks: a row each."""
        pair = self._state["pair"]
        first = self.time + 1
        own = self._own.take(self.time, values)
        self.time += len(values)
        asked = self._schedule.ask(first, pair["accepted"], self._state["schedule"], len(values))
        second = None if variance_fresh is None else variance_fresh[:, asked.asker]
        value, variance = self._query(asked, own, fresh[:, asked.asker], second)
        lost = None if lost is None else lost[:, asked.asker]
        asked.put(pair["value"], value, lost)
        asked.put(pair["precision"], 1 / variance, lost)

        if self.settings.test == "lazy":
            own_variance = (
                own.variance if own.variance.shape[1] == 1 else own.variance[:, asked.asker]
            )
            difference = own.mean[:, asked.asker] - value
            accepted = self._accept(difference, own_variance, variance, own.time, own.time)
            asked.put(pair["accepted"], accepted, lost)

        if self.settings.test == "eager" and self.settings.schedule != "round_robin":
            self._test_everybody()

    def estimate(self, members: Bools | None = None) -> tuple[Floats, Floats]:
        """Return every agent's estimate and its variance by equation (4), shapes (runs, agents).

        Private: an estimate mixes in the agent's own raw mean and is for that agent only. With
        `members` (shape of `classes`) the same releases are combined over these classes instead of
        the agent's own.
        """
        members = self.accepted if members is None else members
        sums = pair_class_sums(self._state["pair"], members)
        own = self._own.variance(self.time)
        mean = self._own.state["mean"]
        shape = (self.settings.runs, self.settings.agents)

        if self.time == 0:
            return np.full(shape, np.nan), np.full(shape, np.inf)
        alone = np.isinf(own)  # no variance yet: the own mean is all there is
        precision = 1 / np.where(alone, 1.0, own)
        total = precision + sums["precision"]
        value = np.where(alone, mean, (precision * mean + sums["value"]) / total)

        return value.reshape(shape), np.where(alone, own, 1 / total).reshape(shape)

    @property
    def own_mean(self) -> Floats:
        """Private: every agent's raw mean, shape (runs, agents)."""
        return self._own.state["mean"].reshape(self.settings.runs, self.settings.agents)

    @property
    def own_variance(self) -> Floats:
        """Private: the variance of that mean, known or estimated from its own samples, shape (runs, agents)."""
        return self._own.variance(self.time).reshape(self.settings.runs, self.settings.agents)

    @property
    def accepted(self) -> Bools:
        """Private: every agent's class by pair, (agents - 1, runs * agents), as `schedule_same_class` orders it."""
        if self.settings.test == "eager":
            self._test_everybody()

        accepted: Bools = self._state["pair"]["accepted"].reshape(
            self._schedule.others, self._schedule.columns
        )
        return accepted

    def snapshot(self) -> dict[str, object]:
        """Return the whole state as plain data: numbers and copies of arrays. It is private."""
        arrays = {
            f"{part}.{name}": a.copy()
            for part, state in self._state.items()
            for name, a in state.items()
        }

        return {"version": SNAPSHOT_VERSION, "time": self.time, **arrays}

    def restore(self, snapshot: dict[str, object]) -> None:
        """Continue from a snapshot taken under the same settings.

        What follows is as if there had been no cut.
        """
        require(
            snapshot.get("version") == SNAPSHOT_VERSION,
            "version",
            f"be {SNAPSHOT_VERSION}",
            snapshot.get("version"),
        )

        for part, state in self._state.items():
            for name, array in state.items():
                saved = np.asarray(snapshot[f"{part}.{name}"])
                require(
                    saved.shape == array.shape,
                    f"{part}.{name}",
                    f"have shape {array.shape}",
                    saved.shape,
                )
                array[...] = saved

        self.time = int(str(snapshot["time"]))
        self._tested = 0

    def _query(
        self, asked: PairwiseQueries, own: OwnPrefix, fresh: Floats, variance_fresh: Floats | None
    ) -> tuple[Floats, Floats]:
        """Let the asked agents release.

        Return T and its variance of every pair that exchanged something.
        """
        clock = self._state["clock"]
        shape = fresh.shape
        release = clock["releases"][asked.clock] + 1
        times = np.repeat(own.time, len(release) // len(fresh))
        clock["releases"][asked.clock] = release
        clock["time"][asked.clock] = times
        counted = np.repeat(release, fresh.size // len(release))
        noise = self.settings.counter.step(
            self._state["counter"], asked.rows, counted, fresh.ravel()
        ).reshape(shape)

        if self.settings.whole:
            mean = np.rint(own.total.take(asked.target).reshape(shape) + noise) / own.time
        else:
            mean = noise / own.time
            mean += own.mean.take(asked.target).reshape(shape)

        received = Received(asked.rows, asked.clock, release, times, mean)
        value, factors = self._statistic.add(self._state["statistic"], received)
        estimate = self._own.known
        if estimate is None:
            estimate = self._estimate_variance(asked, own, counted, own.time * mean, variance_fresh)
        elif len(estimate) > 1:
            estimate = np.broadcast_to(estimate, own.mean.shape).take(asked.target).reshape(shape)

        return value, factors.variance(estimate, self.settings.fresh_variance)

    def _estimate_variance(
        self,
        asked: PairwiseQueries,
        own: OwnPrefix,
        release: Ints,
        totals: Floats,
        variance_fresh: Floats | None,
    ) -> Floats:
        """Return what the askers believe of the variances of the asked, from the noisy prefix sums `totals`."""
        state = self._state["variance"]
        times = np.broadcast_to(own.time, totals.shape).ravel()
        if isinstance(self._scheme, ReleasedVariance):
            assert variance_fresh is not None  # noqa: S101 - refused in steps
            assert own.square is not None  # noqa: S101 - kept where variances are not known
            estimate = self._scheme.step(
                state,
                asked.index,
                release,
                times,
                raw_totals=own.total.take(asked.target),
                raw_squares=own.square.take(asked.target),
                totals=totals.ravel(),
                fresh=variance_fresh.ravel(),
            )
        else:
            assert self._scheme is not None  # noqa: S101 - variances are not known here
            estimate = self._scheme.step(state, asked.index, release, times, totals.ravel())

        return estimate.reshape(totals.shape)

    def _accept(
        self, difference: Floats, own: Floats, variance: Floats, time: Ints | int, counts: Ints
    ) -> Bools:
        significance = same_mean_significance(time, self.settings.significance)
        if self._own.known is not None:
            return same_mean_known(difference, own + variance, significance)
        return same_mean_welch(difference, own, time, variance, counts, significance)

    def _test_everybody(self) -> None:
        """Re-test all pairs; those without a release have an infinite variance and stay accepted."""
        if self._tested == self.time:
            return
        others = self._schedule.others
        columns = self._schedule.columns
        pair = {name: array.reshape(others, columns) for name, array in self._state["pair"].items()}
        last = self._state["clock"]["time"].reshape(others, -1)
        mean = self._own.state["mean"]
        own = self._own.variance(self.time)
        rows = max(1, PAIRS_AT_ONCE // columns)

        for first in range(0, others, rows):
            block = slice(first, first + rows)
            with np.errstate(divide="ignore"):
                variance = 1 / pair["precision"][block]

            counts = np.where(last[block] > 0, last[block], self.time)
            pair["accepted"][block] = self._accept(
                mean - pair["value"][block], own, variance, self.time, counts
            )

        self._tested = self.time

"""Many agents that ask each other one at a time, as in Algorithm 1: the state of every pair, one time step a batch."""

from __future__ import annotations

import numpy as np

from meanstream.operators.collaboration.same_mean import same_mean_known, same_mean_significance, same_mean_welch
from meanstream.operators.collaboration.variance.variance_schemes import scheme_sample_variance as own_sample_variance
from meanstream.operators.collaboration.variance.variance_trackers import ReleasedVariance
from meanstream.operators.counters.registry import State
from meanstream.operators.papers.colme.pairwise_schedule import PAIRWISE_SCHEDULES, PairwiseQueries, schedule_same_class
from meanstream.operators.papers.colme.pairwise_settings import PairwiseSettings
from meanstream.operators.papers.colme.pairwise_statistic import Exchanged, Received, pair_class_sums, pair_statistic
from meanstream.operators.records import Bools, Floats, Ints
from meanstream.operators.validation import require

__all__ = ["PairwiseAgents", "PairwiseSettings", "schedule_same_class"]

SNAPSHOT_VERSION = 1
_BLOCK = 8
"""Others of every agent that are tested at once: few enough to stay in the cache."""


class PairwiseAgents:
    """All pairs of Algorithm 1 (Private-ColME), vectorized over runs and agents.

    Released: to agent a, and to no one else, the noisy mean of the agent b that it asks. Reproduction and small
    federations only: the state is M x M, and see **Privacy**.

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

    Under round robin with the lazy test an agent-step costs O(1): running sums of 1/Var[T] and T/Var[T] over the class
    change by the one pair that was queried; they are added up again once per round, so that rounding does not pile up.

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
        self, settings: PairwiseSettings, *, sample_variance: Floats | None = None, classes: Bools | None = None
    ) -> None:
        known, oracle = settings.variance == "known", settings.test == "oracle"
        require(
            (sample_variance is not None) == known,
            "sample_variance",
            "be given if variance is known",
            settings.variance,
        )
        require(classes is not None or not oracle, "classes", "be given for the oracle test", settings.test)
        self.settings = settings
        self._known = None if sample_variance is None else np.ravel(sample_variance).astype(np.float64)
        self._schedule = PAIRWISE_SCHEDULES[settings.schedule](settings.agents, settings.runs)
        ratio = settings.fresh_variance / settings.design_variance
        self._statistic = pair_statistic(
            settings.weights, settings.counter, others=settings.agents - 1, noise_ratio=ratio
        )
        self._scheme = settings.scheme
        self._init(classes)

    def _init(self, classes: Bools | None) -> None:
        others, columns, clocks = self._schedule.others, self._schedule.columns, self._schedule.clocks
        pairs = others * columns
        self.time = 0
        self.exchanged: Exchanged | None = None  # what left at the last step, if sums are whole
        self._tested = 0
        self._state: dict[str, State] = {
            "own": {name: np.zeros(columns) for name in ("total", "mean", "spread", "square")},
            "pair": {
                "value": np.zeros(pairs),
                "precision": np.zeros(pairs),
                "accepted": np.ones(pairs, dtype=np.bool_),
            },
            "sums": {"precision": np.zeros(columns), "value": np.zeros(columns)},
            "clock": {"releases": np.zeros(clocks, dtype=np.int64), "time": np.zeros(clocks, dtype=np.int64)},
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
            Noise of the p-sum that each agent's query creates, of variance `fresh_variance`; entry [r, a] is used by
            the agent that a asks.
        variance_fresh : float array, shape (runs, agents), optional
            The same for the released sample variance, of variance `(2L)^2 fresh_variance`; for variance released.
        """
        released = self.settings.variance == "released"
        require(
            (variance_fresh is not None) == released, "variance_fresh", "be given if variance is released", released
        )
        self.time += 1
        self._receive(values.ravel())
        pair, sums = self._state["pair"], self._state["sums"]
        asked = self._schedule.ask(self.time, pair["accepted"], self._state["schedule"])
        rows, asker = asked.rows, asked.asker
        value, variance = self._query(asked, fresh.ravel()[asker], _entries(variance_fresh, asker))
        lazy = self.settings.test == "lazy"
        kept = pair["accepted"][rows]
        before = pair["precision"][rows] * kept
        sums["precision"][asker] -= before
        sums["value"][asker] -= before * pair["value"][rows]
        if lazy:
            kept = self._accept(
                self._state["own"]["mean"][asker] - value, self._own_variance()[asker], variance, self.time
            )
            pair["accepted"][rows] = kept
        pair["value"][rows] = value
        pair["precision"][rows] = precision = 1 / variance
        precision = precision * kept
        sums["precision"][asker] += precision
        sums["value"][asker] += precision * value
        if self.settings.test == "eager" and self.settings.schedule != "round_robin":
            self._test_everybody()
        elif self.settings.test != "eager" and self.time % self._schedule.others == 0:
            self._add_up()

    def learn(self, values: Floats) -> None:
        """Take one sample of every agent; no one asks, as past the horizon, and no class changes by the lazy test."""
        self.time += 1
        self._receive(values.ravel())

    def estimate(self, members: Bools | None = None) -> tuple[Floats, Floats]:
        """Return every agent's estimate and its variance by equation (4), shapes (runs, agents).

        Private: an estimate mixes in the agent's own raw mean and is for that agent only. With `members` (shape of
        `classes`) the same releases are combined over these classes instead of the agent's own.
        """
        if members is None and self.settings.test == "eager":
            self._test_everybody()
        sums = self._state["sums"] if members is None else pair_class_sums(self._state["pair"], members)
        own, mean = self._own_variance(), self._state["own"]["mean"]
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
        return self._state["own"]["mean"].reshape(self.settings.runs, self.settings.agents)

    @property
    def own_variance(self) -> Floats:
        """Private: the variance of that mean, known or estimated from its own samples, shape (runs, agents)."""
        return self._own_variance().reshape(self.settings.runs, self.settings.agents)

    @property
    def accepted(self) -> Bools:
        """Private: every agent's class by pair, (agents - 1, runs * agents), as `schedule_same_class` orders it."""
        if self.settings.test == "eager":
            self._test_everybody()
        accepted: Bools = self._state["pair"]["accepted"].reshape(self._schedule.others, self._schedule.columns)
        return accepted

    def snapshot(self) -> dict[str, object]:
        """Return the whole state as plain data: numbers and copies of arrays. It is private."""
        arrays = {f"{part}.{name}": a.copy() for part, state in self._state.items() for name, a in state.items()}
        return {"version": SNAPSHOT_VERSION, "time": self.time, **arrays}

    def restore(self, snapshot: dict[str, object]) -> None:
        """Continue from a snapshot taken under the same settings; what follows is as if there had been no cut."""
        require(
            snapshot.get("version") == SNAPSHOT_VERSION, "version", f"be {SNAPSHOT_VERSION}", snapshot.get("version")
        )
        for part, state in self._state.items():
            for name, array in state.items():
                saved = np.asarray(snapshot[f"{part}.{name}"])
                require(saved.shape == array.shape, f"{part}.{name}", f"have shape {array.shape}", saved.shape)
                array[...] = saved
        self.time = int(str(snapshot["time"]))
        self._tested = 0

    def _receive(self, values: Floats) -> None:
        own = self._state["own"]
        own["total"] += values
        mean = own["total"] / self.time
        if self._scheme is not None:
            own["spread"] += (values - own["mean"]) * (values - mean)
            own["square"] += values**2
        own["mean"][:] = mean

    def _own_variance(self) -> Floats:
        """Variance of every agent's raw mean: known, or estimated from its own samples."""
        if self._known is not None:
            variance: Floats = self._known / max(self.time, 1)
            return variance
        count = np.asarray(self.time)
        own = own_sample_variance(count, self._state["own"]["spread"], half_width=self.settings.half_width)
        return own / max(self.time, 1)

    def _query(self, asked: PairwiseQueries, fresh: Floats, variance_fresh: Floats | None) -> tuple[Floats, Floats]:
        """Let the asked agents release; return T and its variance of every pair that exchanged something."""
        clock, own, time = self._state["clock"], self._state["own"], self.time
        release = clock["releases"][asked.clock] + 1
        clock["releases"][asked.clock] = release
        clock["time"][asked.clock] = time
        counted = np.broadcast_to(release, asked.index.shape)
        noise = self.settings.counter.step(self._state["counter"], asked.index, counted, fresh)
        mean = own["mean"][asked.target] + noise / time
        if self.settings.whole:
            total = np.rint(own["total"][asked.target] + noise)
            mean = total / time
            self.exchanged = Exchanged(np.arange(len(mean))[asked.asker], asked.target, counted, total.astype(np.int64))
        received = Received(asked.rows, asked.clock, release, time, mean)
        value, factors = self._statistic.add(self._state["statistic"], received)
        if self._known is not None:
            return value, factors.variance(self._known[asked.target], self.settings.fresh_variance)
        estimate = self._estimate_variance(asked, counted, time * mean, variance_fresh)
        return value, factors.variance(estimate, self.settings.fresh_variance)

    def _estimate_variance(
        self, asked: PairwiseQueries, release: Ints, totals: Floats, variance_fresh: Floats | None
    ) -> Floats:
        """Return what the askers believe of the variances of the asked, from the noisy prefix sums `totals`."""
        state, own = self._state["variance"], self._state["own"]
        times = np.full(len(release), self.time)
        if isinstance(self._scheme, ReleasedVariance):
            assert variance_fresh is not None  # noqa: S101 - refused in step
            return self._scheme.step(
                state,
                asked.index,
                release,
                times,
                raw_totals=own["total"][asked.target],
                raw_squares=own["square"][asked.target],
                totals=totals,
                fresh=variance_fresh,
            )
        assert self._scheme is not None  # noqa: S101 - variances are not known here
        return self._scheme.step(state, asked.index, release, times, totals)

    def _accept(self, difference: Floats, own: Floats, variance: Floats, counts: Ints | int) -> Bools:
        significance = same_mean_significance(self.time, self.settings.significance)
        if self._known is not None:
            return same_mean_known(difference, own + variance, significance)
        return same_mean_welch(difference, own, self.time, variance, counts, significance)

    def _test_everybody(self) -> None:
        """Re-test all pairs; those without a release have an infinite variance and stay accepted."""
        if self._tested == self.time:
            return
        others, columns = self._schedule.others, self._schedule.columns
        pair = {name: array.reshape(others, columns) for name, array in self._state["pair"].items()}
        last = self._state["clock"]["time"].reshape(others, -1)
        mean, own = self._state["own"]["mean"], self._own_variance()
        for first in range(0, others, _BLOCK):
            block = slice(first, first + _BLOCK)
            with np.errstate(divide="ignore"):
                variance = 1 / pair["precision"][block]
            counts = np.where(last[block] > 0, last[block], self.time)
            pair["accepted"][block] = self._accept(mean - pair["value"][block], own, variance, counts)
        self._tested = self.time
        self._add_up()

    def _add_up(self) -> None:
        accepted = self._state["pair"]["accepted"].reshape(self._schedule.others, -1)
        self._state["sums"] = pair_class_sums(self._state["pair"], accepted)


def _entries(values: Floats | None, asker: Ints | slice) -> Floats | None:
    return None if values is None else values.ravel()[asker]

"""The statistic T of the releases that one agent got of another, and its variance, kept up release by release.

The factors of the variance depend on release times alone, so under a common schedule they are one
row for all pairs.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

import numpy as np

from meanstream.lab.papers.colme.statistic import (
    FactorTracker,
    VarianceFactors,
    statistic_release_covariance,
    weights_gain,
    weights_gls_table,
)
from meanstream.operators.counters.registry import Counter, State
from meanstream.operators.records import Bools, Floats, Ints
from meanstream.operators.validation import require


class Received(NamedTuple):
    """One release of each queried pair.

    `rows` are the pairs, `clock` the rows of what depends on times alone, `release` the number of
    the release and `time` the number of samples behind it, both by clock row. `mean` are the noisy
    means, shape (pairs,) or, where several steps are taken together, (steps, pairs of each step); a
    step has a clock row, or each pair its own.
    """

    rows: Ints | slice
    clock: Ints
    release: Ints
    time: Ints
    mean: Floats

    def aligned(self, by_clock: Floats) -> Floats:
        """Shape numbers by clock row so that they meet the means."""
        return by_clock.reshape(*self.mean.shape[:-1], -1)


class PairStatistic(Protocol):
    """How T is kept: `init` makes the state of that many pairs and clock rows, `add` takes one release of each pair."""

    def init(self, pairs: int, clocks: int) -> State:
        """Return the state before the first release."""
        ...

    def add(self, state: State, received: Received) -> tuple[Floats, VarianceFactors]:
        """Return T of each pair, and factors of its variance that meet it."""
        ...


class _RunningWeights:
    """T with the weights last, mean_of_means or windowed: a recursion of one number per pair."""

    def __init__(self, counter: Counter, weights: str) -> None:
        self.weights = weights
        self.tracker = FactorTracker(counter, weights)

    def init(self, pairs: int, clocks: int) -> State:
        """Nothing received yet."""
        factors = {f"factor_{name}": array for name, array in self.tracker.init(clocks).items()}

        if self.weights == "last":
            return factors
        return factors | {"value": np.zeros(pairs)}

    def add(self, state: State, received: Received) -> tuple[Floats, VarianceFactors]:
        """Move T by its gain towards the new noisy mean."""
        rows, clock, release, time, mean = received
        own = {
            name.removeprefix("factor_"): array for name, array in state.items() if name != "value"
        }
        factors = VarianceFactors(
            *map(received.aligned, self.tracker.step(own, clock, release, time))
        )

        if self.weights == "last":
            return mean, factors
        value = state["value"][rows].reshape(mean.shape)
        value = value + received.aligned(weights_gain(self.weights, release)) * (mean - value)
        state["value"][rows] = value.ravel()

        return value, factors


class _LeastSquares:
    """T is the generalized least-squares mean of all noisy means.

    All pairs of a clock row share the weights.

    Needs common release times: `times(clock)` are those of a clock row. The weights assume
    `noise_ratio` = variance of one draw / variance of one sample; T is unbiased, and its factors
    exact, for any other.
    """

    def __init__(
        self, counter: Counter, noise_ratio: float, first_times: Ints, period: int
    ) -> None:
        self.counter = counter
        self.noise_ratio = noise_ratio
        self.first_times = first_times
        self.period = period
        self._weights: dict[int, Floats] = {}

    def init(self, pairs: int, clocks: int) -> State:
        """Room for every release of every pair."""
        return {"means": np.zeros((clocks, self.counter.horizon, pairs // clocks))}

    def add(self, state: State, received: Received) -> tuple[Floats, VarianceFactors]:
        """Weight the releases so far; one clock row at a time."""
        means = received.mean.reshape(len(received.clock), -1)
        one_by_one = zip(received.release.tolist(), received.clock.tolist(), means, strict=True)
        values, data, noise = zip(*(self._add_row(state, *row) for row in one_by_one), strict=True)
        factors = VarianceFactors(*(received.aligned(np.array(factor)) for factor in (data, noise)))

        return np.stack(values).reshape(received.mean.shape), factors

    def _add_row(self, state: State, k: int, row: int, mean: Floats) -> tuple[Floats, float, float]:
        state["means"][row, k - 1] = mean
        times = self.first_times[row] + self.period * np.arange(k)
        per_sample = self._table(row)[k - 1, :k] / times
        value: Floats = self._table(row)[k - 1, :k] @ state["means"][row, :k]
        later = np.cumsum(per_sample[::-1])[::-1]
        data = np.diff(times, prepend=0) @ later**2
        noise = per_sample @ self.counter.matrix(k)

        return value, float(data), float(noise @ noise)

    def _table(self, row: int) -> Floats:
        if row not in self._weights:
            times = self.first_times[row] + self.period * np.arange(self.counter.horizon)
            covariance = statistic_release_covariance(
                times, sample_variance=1.0, counter=self.counter, fresh_variance=self.noise_ratio
            )
            self._weights[row] = weights_gls_table(covariance)

        return self._weights[row]


def pair_class_sums(pairs: State, members: Bools) -> State:
    """Add up 1/Var[T] and T/Var[T] over the members of every agent's class, shape (others, columns)."""
    pair = {name: array.reshape(members.shape) for name, array in pairs.items()}
    weight = pair["precision"] * members
    precision = weight.sum(axis=0)
    weight *= pair["value"]

    return {"precision": precision, "value": weight.sum(axis=0)}


def pair_statistic(
    weights: str, counter: Counter, *, others: int, noise_ratio: float
) -> PairStatistic:
    """Return how T is kept for the named weights.

    Gls for the release times of a round robin over `others`.

    Examples
    --------
    >>> from meanstream.operators.counters.registry import make_counter
    >>> kind = pair_statistic("mean_of_means", make_counter("pm1", horizon=9), others=1, noise_ratio=1.0)
    >>> state, one = kind.init(1, 1), np.array([0])
    >>> add = lambda k: kind.add(state, Received(one, one, np.array([k]), np.array([k]), np.array([4.0 * k])))
    >>> [add(k)[0].item() for k in (1, 2)]
    [4.0, 6.0]
    """
    require(weights != "gls" or noise_ratio > 0, "noise_ratio", "be positive for gls", noise_ratio)
    if weights == "gls":
        return _LeastSquares(counter, noise_ratio, np.arange(1, others + 1), others)
    return _RunningWeights(counter, weights)

"""Private: what every agent of Algorithm 1 knows of its own samples, after each of some steps."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from meanstream.lab.papers.colme.variance_schemes import scheme_sample_variance
from meanstream.operators.counters.registry import State
from meanstream.operators.records import Floats, Ints


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

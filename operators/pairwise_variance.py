"""What agent a believes of the variance of agent b's samples: released beside the means, or read off the releases.

Each scheme is a sum over the partial sums (p-sums) in use of a few numbers per p-sum: PM-I keeps all p-sums, so their
running totals do; PM-II joins them, so they are kept by level.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import hyp1f1

from operators.counter_base import State, lowest_bit
from operators.records import Floats, Ints

Rows = Ints | slice


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """One release of each asked agent, as the asked agent sees it.

    Attributes
    ----------
    rows, index, clock : the pairs and the rows of what depends on time alone (see `Asked`)
    release : int array
        Number of the release, by clock row.
    time : int
        Number of samples behind it.
    total, square : float arrays
        The asked agent's sum of samples and sum of squared samples.
    mean : float array
        The noisy mean that it releases.
    fresh, variance_fresh : float arrays
        The draws on the new p-sum and on its sample variance.
    """

    rows: Rows
    index: Ints
    clock: Ints
    release: Ints
    time: int
    total: Floats
    square: Floats
    mean: Floats
    fresh: Floats
    variance_fresh: Floats | None


class VarianceScheme:
    """Sch-Var-1 (`released`), Sch-Var-2 (`from_releases`) and its Bayesian repair, over PM-I or PM-II.

    Parameters
    ----------
    scheme : {"released", "from_releases", "bayesian"}
    levels : int
        1 for PM-I; for PM-II the number of levels of p-sums.
    fresh_variance : float
        Variance of the noise of one p-sum.
    corrected : bool
        For from_releases: the estimator that is unbiased for intervals of any lengths, instead of equation (16).

    Notes
    -----
    **Privacy.** `released` discloses noisy sample variances beside the noisy means: each gets half of the budget, and
    the variance's draw has `(2L)^2` times the variance of the mean's (its sensitivity is 4L^2/n instead of 2L/n). The
    other two read what is released anyway.

    References
    ----------
    Yakimenka et al., section V: equations (6) to (8), (16) and (19).
    """

    def __init__(self, scheme: str, *, levels: int, fresh_variance: float, corrected: bool) -> None:
        self.scheme = scheme
        self.levels = levels
        self.fresh_variance = fresh_variance
        self.corrected = corrected

    def init(self, pairs: int, clocks: int) -> State:
        """Nothing is known of anybody."""
        state: State = {"inverse": np.zeros((self.levels, clocks)), "first": np.zeros((self.levels, pairs))}
        state |= {"second": np.zeros((self.levels, pairs)), "last_time": np.zeros(clocks)}
        state |= {"last_total": np.zeros(pairs), "last_square": np.zeros(pairs)}
        if self.levels > 1:
            state |= {f"start_{name}": np.zeros((self.levels, pairs)) for name in ("total", "square")}
            state["start_time"] = np.zeros((self.levels, clocks))
        return state

    def add(self, state: State, query: Query) -> Floats:
        """Take one release and return the estimate V; infinite where there is none, or a negative one."""
        level = lowest_bit(query.release) if self.levels > 1 else np.zeros_like(query.release)
        length = query.time - self._start(state, "time", query.clock, query.clock, level, query.time)
        total = query.total - self._start(state, "total", query.rows, query.index, level, query.total)
        square = query.square - self._start(state, "square", query.rows, query.index, level, query.square)
        noisy = total + query.fresh
        if self.scheme == "released":
            assert query.variance_fresh is not None  # noqa: S101 - PairwiseAgents.step refuses it
            first = square - total**2 / length + (length - 1) / length * query.variance_fresh + noisy**2 / length
            second = np.zeros_like(first)
        else:
            first, second = noisy**2 / length, noisy / np.sqrt(length)
        inverses = self._summed(state["inverse"], query.clock, query.clock, level, query.release, 1 / length)
        firsts = self._summed(state["first"], query.rows, query.index, level, query.release, first)
        seconds = self._summed(state["second"], query.rows, query.index, level, query.release, second)
        in_use = np.bitwise_count(query.release) if self.levels > 1 else query.release
        with np.errstate(divide="ignore", invalid="ignore"):
            estimate = self._estimate(in_use.astype(np.float64), query, inverses, firsts, seconds)
        return np.where(estimate >= 0, estimate, np.inf)

    def _estimate(self, k: Floats, query: Query, inverses: Floats, first: Floats, second: Floats) -> Floats:
        """Equations (8), (16) or (19) from the sums over the k p-sums in use; NaN where undefined."""
        t, s2 = query.time, self.fresh_variance
        around_mean = first - t * query.mean**2 - s2 * (inverses - k / t)
        if self.scheme == "released":
            return around_mean / (t - 1) if t > 1 else np.full_like(first, np.nan)
        if self.scheme == "from_releases" and self.corrected:
            return np.where(k > 1, around_mean / (k - 1), np.nan)
        noise = np.broadcast_to(s2 * inverses / k, first.shape)
        raw = np.where(k > 1, (first - second**2 / k) / (k - 1), np.nan)
        estimate: Floats = raw - noise
        if self.scheme == "bayesian":
            negative = np.flatnonzero(estimate < 0)
            kappa = np.broadcast_to(k, first.shape)[negative]
            estimate[negative] = bayesian_variance(raw[negative], noise[negative], kappa)
        return estimate

    def _start(self, state: State, name: str, rows: Rows, index: Ints, level: Ints, now: Floats | int) -> Floats:  # noqa: PLR0917
        """Return what `name` was where the new p-sum starts, and remember it for the p-sums to come."""
        start: Floats = state[f"last_{name}"][rows].copy()
        if self.levels > 1:
            begun = state[f"start_{name}"]
            joined = np.broadcast_to(level > 0, start.shape)
            below = np.broadcast_to(np.maximum(level - 1, 0), start.shape)
            start = np.where(joined, begun[below, index], start)
            begun[np.broadcast_to(level, start.shape), index] = start
        state[f"last_{name}"][rows] = now
        return start

    def _summed(self, kept: Floats, rows: Rows, index: Ints, level: Ints, release: Ints, new: Floats) -> Floats:  # noqa: PLR0917
        """Add the new p-sum's number and return the sum over the p-sums in use."""
        if self.levels == 1:
            kept[0, rows] += new
            return kept[0, rows]
        kept[np.broadcast_to(level, index.shape), index] = new
        used = (release >> np.arange(self.levels)[:, np.newaxis]) & 1
        total: Floats = (kept[:, index] * used).sum(axis=0)
        return total


def bayesian_variance(raw: Floats, noise: Floats, releases: Floats) -> Floats:
    """Posterior mean of a variance whose unbiased estimate `raw - noise` is negative.

    Parameters
    ----------
    raw, noise : float arrays
        Sample variance of the scaled noisy p-sums, and the noise's share of its expectation.
    releases : float array
        Number kappa of p-sums.

    Notes
    -----
    Equation (19) is a ratio of two lower incomplete gamma functions, which underflow beyond kappa = 100. With
    `h = 1F1(1; s + 1; x)`, s = (kappa + 2)/2 and x = (kappa - 1) raw / (2 noise), it is
    `noise (s/(s - 1) (1/h + x/s) - 1)`.

    Examples
    --------
    >>> bayesian_variance(np.array([0.5]), np.array([1.0]), np.array([200.0])).round(4).item()
    0.0192

    References
    ----------
    Yakimenka et al., equation (19).
    """
    s = (releases + 2) / 2
    x = (releases - 1) * raw / (2 * noise)
    h = hyp1f1(1.0, s + 1, x)
    estimate: Floats = noise * (s / (s - 1) * (1 / h + x / s) - 1)
    return estimate

"""The variance schemes of the paper, one release at a time.

O(1) memory and time per stream, O(log) for PM-II. Each class is a frozen configuration; its state
is a dict of plain arrays with one row per stream or pair, made by `init`, mutated by `step`,
snapshotted by copying. An estimate that cannot be used (too few terms, or negative because of the
noise) is infinite: its weight is 0 and every test accepts it. Estimates from noisy sums are public
in, public out, without further privacy cost.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from meanstream.operators.counters.base import Counter, State, counter_lowest_bit
from meanstream.operators.counters.pm2 import Pm2
from meanstream.operators.records import Floats, Ints
from meanstream.operators.validation import require


def scheme_sample_variance(
    count: Ints, squared_deviations: Floats, *, half_width: float | None = None
) -> Floats:
    """Return each agent's own sample variance. **Private**.

    It is made of raw samples and stays with its owner.

    Parameters
    ----------
    count : int array
        Number of samples.
    squared_deviations : float array
        Sum of squared deviations from the sample mean.
    half_width : float, optional
        Half the length L of the declared interval. Samples that are all equal (discrete data) say
        little about the variance: it is then taken as `L**2 / count`, as if one more sample had
        been off by L. Without it, infinite.

    Returns
    -------
    float array
        Infinite for fewer than two samples; never zero or NaN.

    Examples
    --------
    >>> import numpy as np
    >>> scheme_sample_variance(np.array([1, 3, 4]), np.array([0.0, 6.0, 0.0]), half_width=2.0).tolist()
    [inf, 3.0, 1.0]
    """
    n = np.asarray(count, dtype=np.float64)
    constant = np.inf if half_width is None else half_width**2 / np.maximum(n, 1.0)
    variance = np.where(
        squared_deviations > 0, squared_deviations / np.maximum(n - 1.0, 1.0), constant
    )

    return np.where(n >= 2, variance, np.inf)


def scheme_usable(variance: Floats) -> Floats:
    """Return the estimates with negative and undefined ones set to infinity.

    Examples
    --------
    >>> import numpy as np
    >>> scheme_usable(np.array([0.5, -0.1, np.nan])).tolist()
    [0.5, inf, inf]
    """
    return np.where(variance >= 0, variance, np.inf)


def scheme_released_from_terms(
    terms: Floats, noisy_total: Floats, time: Floats, correction: Floats
) -> Floats:
    """Return equation (8) from its sums.

    Over the partial sums, of all samples, and the expected noise.
    """
    variance = (terms - noisy_total**2 / time - correction) / np.maximum(time - 1, 1)
    return scheme_usable(np.where(time > 1, variance, np.inf))


PRIORS = {"bayesian": 2.0, "jeffreys": 1.0, "uniform": -2.0}
"""What is added to kappa in the shape `(kappa + ...) / 2`: by equation (19), and by footnote 3 with
the Jeffreys prior and with the uniform one. The Jeffreys shape is also that of the posterior mean
under the prior that equation (19) itself has, since the mean takes one degree of freedom."""
VARIANCES = ("known", "released", "from_releases", *PRIORS)


def printed_variance_parts(
    n: Floats, squares: Floats, roots: Floats, reciprocals: Floats, fresh_variance: Floats | float
) -> tuple[Floats, Floats]:
    """Return `V'` and `K s2` of equation (19) from the sums of 1, G^2/d, G/sqrt(d) and 1/d.

    NaN for one partial sum.
    """
    spread = (squares - roots**2 / np.maximum(n, 1)) / np.where(n > 1, n - 1, np.nan)
    return spread, fresh_variance * reciprocals / np.maximum(n, 1)


def bayesian_variance_from_parts(
    n: Floats, spread: Floats, noise: Floats, *, added: float
) -> Floats:
    """Return equation (19) from the number of partial sums, `V'` and `K s2`.

    Its shape is `(n + added) / 2`; infinite up to 1, where the posterior has no mean.

    Notes
    -----
    With shape `a = (n + 2) / 2` as printed, and `x = (n - 1) V' / (2 K s2)`, Kummer's
    `gamma(a, x) = x^a e^{-x} M(1, a + 1, x) / a` turns the ratio of incomplete gamma functions, which underflow from a
    hundred releases on, into `K s2 (a + x M) / ((a - 1) M)`. It is used for `V' < K s2`, so `x < a + 1`: M's series
    converges.
    """
    variance = np.asarray(spread - noise, dtype=np.float64)
    shape = np.broadcast_to((n + added) / 2, variance.shape)
    negative = (variance < 0) & (shape > 1)
    if np.any(negative):
        shape = shape[negative]
        level = np.broadcast_to(noise, variance.shape)[negative]
        degrees = shape - 0.5 * (added + 1)
        x = np.maximum(degrees * np.broadcast_to(spread, variance.shape)[negative] / level, 0.0)
        kummer = _kummer(shape, x)
        variance = variance.copy()
        variance[negative] = level * ((shape / kummer + x) / (shape - 1) - 1)

    return scheme_usable(variance)


def corrected_variance_from_terms(
    *,
    n: Floats,
    squares: Floats,
    noise: Floats,
    total: Floats,
    time: Floats,
    total_noise: Floats,
    fresh_variance: Floats | float,
) -> Floats:
    """Return the unbiased variance from the sums of 1, G^2/d and v/d, the last prefix sum, its time and its `v`.

    It is `V = [sum_i (G_i - d_i T)^2 / d_i - s2 (sum_i v_i / d_i - v / t)] / (k - 1)` with the noisy
    mean `T`, the variance `v_i` of the noise in the difference `G_i` of two prefix sums, and `v` of
    that in the last one: equation (16) with Lemma 7 repaired.
    """
    expected = fresh_variance * (noise - total_noise / time)
    return scheme_usable((squares - total**2 / time - expected) / np.where(n > 1, n - 1, np.nan))


def _kummer(shape: Floats, x: Floats) -> Floats:
    """Return `M(1, shape + 1, x) = sum_j x^j / ((shape + 1) ... (shape + j))` for x < shape + 1."""
    total = np.ones_like(x)
    term = np.ones_like(x)
    j = 0
    # More steps than an entry needs do not change its bits: so it depends on no other. A NaN ends
    # no one's series.
    while np.any(term > total * (math.ulp(1.0) / 4)):
        j += 1
        term = term * x / (shape + j)
        total = total + term

    return total


@dataclass(frozen=True)
class FromReleases:
    """The variance read off noisy prefix sums: unbiased for any release times, for every counter.

    Parameters
    ----------
    counter : Counter
        What made the noise.
    fresh_variance : float
        Variance of one fresh draw.

    Notes
    -----
    It reads public releases only.

    Examples
    --------
    >>> import numpy as np
    >>> from meanstream.operators.counters.pm1 import Pm1
    >>> scheme = FromReleases(Pm1(2), 0.5)
    >>> state, row = scheme.init(1), np.array([0])
    >>> [scheme.step(state, row, np.array([k]), np.array([t]), np.array([y])).round(6).item()
    ...  for k, t, y in ((1, 1, 1.0), (2, 4, 8.0))]
    [inf, 0.916667]
    """

    counter: Counter
    fresh_variance: float

    def init(self, n_rows: int) -> State:
        """Return the state of `n_rows` streams before their first release."""
        return {name: np.zeros(n_rows) for name in ("time", "total", "squares", "noise")}

    def step(self, state: State, rows: Ints, release: Ints, times: Ints, totals: Floats) -> Floats:
        """Return the estimates after these releases and update the state in place.

        Parameters
        ----------
        state : State
            From `init`.
        rows, release, times : int array, shape (m,)
            Distinct rows, the number of the release within each, from 1, and its number of samples.
        totals : float array, shape (m,)
            The noisy prefix sums: released mean times number of samples.
        """
        length = times - state["time"][rows]
        state["squares"][rows] += (totals - state["total"][rows]) ** 2 / length
        state["noise"][rows] += self.counter.increment_variance(release) / length
        state["time"][rows] = times
        state["total"][rows] = totals

        return corrected_variance_from_terms(
            n=release.astype(np.float64),
            squares=state["squares"][rows],
            noise=state["noise"][rows],
            total=totals,
            time=times.astype(np.float64),
            total_noise=self.counter.noise_variance(release),
            fresh_variance=self.fresh_variance,
        )


@dataclass(frozen=True)
class PrintedFromReleases:
    """The variance read off noisy partial sums as printed, equation (16), for the counters of the paper.

    Parameters
    ----------
    counter : Counter
        PM-I or PM-II. For PM-II there is no estimate at powers of two, where a prefix sum is one
        partial sum.
    fresh_variance : float
        Variance of the noise in one partial sum.

    Notes
    -----
    It reads public releases only.

    Examples
    --------
    >>> import numpy as np
    >>> from meanstream.operators.counters.pm1 import Pm1
    >>> scheme = PrintedFromReleases(Pm1(3), 0.4)
    >>> state, row = scheme.init(1), np.array([0])
    >>> [scheme.step(state, row, np.array([k]), np.array([4 * k]), np.array([y])).round(6).item()
    ...  for k, y in ((1, 2.0), (2, 6.0), (3, 12.0))]
    [inf, 0.4, 0.9]
    """

    counter: Counter
    fresh_variance: float

    def __post_init__(self) -> None:
        require(
            self.counter.name in ("pm1", "pm2"),
            "counter",
            "be pm1 or pm2 for equation (16)",
            self.counter.name,
        )

    def init(self, n_rows: int) -> State:
        """Return the state of `n_rows` streams before their first release."""
        return _init_parts(self.counter, n_rows, channels=2, terms=4)

    def step(self, state: State, rows: Ints, release: Ints, times: Ints, totals: Floats) -> Floats:
        """Return the estimates after these releases and update the state in place, like `FromReleases.step`."""
        n, spread, noise = self._parts(state, rows, release, times, totals)
        return self._finish(n, spread, noise)

    def _parts(
        self, state: State, rows: Ints, release: Ints, times: Ints, totals: Floats
    ) -> tuple[Floats, Floats, Floats]:
        part = _new_part(self.counter, state, rows, release, np.stack([times, totals], axis=-1))
        length = part[:, 0]
        value = part[:, 1]
        terms = np.stack(
            [np.ones_like(length), value**2 / length, value / np.sqrt(length), 1 / length], axis=-1
        )
        n, squares, roots, reciprocals = _add_terms(self.counter, state, rows, release, terms).T

        return n, *printed_variance_parts(n, squares, roots, reciprocals, self.fresh_variance)

    def _finish(self, n: Floats, spread: Floats, noise: Floats) -> Floats:  # noqa: ARG002
        return scheme_usable(spread - noise)


@dataclass(frozen=True)
class Bayesian(PrintedFromReleases):
    """Equation (19) wherever (16) is negative, with a prior of `PRIORS`."""

    prior: str = "bayesian"

    def _finish(self, n: Floats, spread: Floats, noise: Floats) -> Floats:
        return bayesian_variance_from_parts(n, spread, noise, added=PRIORS[self.prior])


@dataclass(frozen=True)
class ReleasedVariance:
    """The variance that the agent itself releases with its noisy mean (Sch-Var-1), equations (6) to (8).

    Parameters
    ----------
    counter : Counter
        The counter of the means; the variances use another of the same kind, with draws of their
        own.
    fresh_variance, variance_fresh_stddev : float
        Variance of one draw for the means, standard deviation of one draw for the variances, for
        half of epsilon and delta each: a sum changes by at most 2 L, a sum of squared deviations by
        at most 4 L^2.

    Notes
    -----
    **Privacy.** The state holds raw sums: it is private and stays with the agent; the estimate is released. For PM-I
    and PM-II the draw of a partial sum of `d` samples is scaled by `(d - 1) / d`, as its sensitivity is. The Toeplitz
    counter mixes draws across partial sums, so there all are scaled by 1.
    """

    counter: Counter
    fresh_variance: float
    variance_fresh_stddev: float

    def init(self, n_rows: int) -> State:
        """Return the state of `n_rows` streams before their first release."""
        parts = _init_parts(self.counter, n_rows, channels=4, terms=2)
        mixed = self.counter.init(n_rows) if self._mixes else {}
        return parts | {f"mixed_{name}": values for name, values in mixed.items()}

    def _part_of_draw(self, length: Floats) -> Floats:
        """Return what the draw of each partial sum is scaled by."""
        return (length - 1) / length

    def _noised(self, squares: Floats, draw: Floats) -> Floats:
        """Return sums of squared deviations with their noise, if each partial sum has its own."""
        if self._mixes:
            return squares
        return squares + draw

    @property
    def _mixes(self) -> bool:
        return self.counter.name not in ("pm1", "pm2")

    def step(
        self,
        state: State,
        rows: Ints,
        release: Ints,
        times: Ints,
        *,
        raw_totals: Floats,
        raw_squares: Floats,
        totals: Floats,
        fresh: Floats,
    ) -> Floats:
        """Return the variances to release and update the state in place.

        Parameters
        ----------
        state, rows, release, times
            As in `FromReleases.step`.
        raw_totals, raw_squares : float array, shape (m,)
            Raw prefix sums of the samples and of their squares: private.
        totals : float array, shape (m,)
            The noisy prefix sums.
        fresh : float array, shape (m,)
            One draw of variance 1 per row, independent of the draws of the means.
        """
        prefix = np.stack([times, raw_totals, raw_squares, totals], axis=-1)
        length, raw, squares, noisy = _new_part(self.counter, state, rows, release, prefix).T
        draw = self.variance_fresh_stddev * fresh
        term = (
            self._noised(squares - raw**2 / length, self._part_of_draw(length) * draw)
            + noisy**2 / length
        )

        noise = (
            np.ones_like(length) if not self._mixes else self.counter.increment_variance(release)
        )
        terms, reciprocals = _add_terms(
            self.counter, state, rows, release, np.stack([term, noise / length], axis=-1)
        ).T

        if self._mixes:
            mixed = {
                name.removeprefix("mixed_"): v
                for name, v in state.items()
                if name.startswith("mixed_")
            }
            terms = terms + self.counter.step(mixed, rows, release, draw)

        expected = self.fresh_variance * (
            reciprocals - self.counter.noise_variance(release) / times
        )
        return scheme_released_from_terms(terms, totals, times.astype(np.float64), expected)


def _init_parts(counter: Counter, n_rows: int, *, channels: int, terms: int) -> State:
    """Return the partial sums and their terms.

    One slot per level for PM-II, running totals otherwise.
    """
    slots = counter.horizon.bit_length() if isinstance(counter, Pm2) else 1
    return {"parts": np.zeros((n_rows, slots, channels)), "terms": np.zeros((n_rows, slots, terms))}


def _new_part(counter: Counter, state: State, rows: Ints, release: Ints, prefix: Floats) -> Floats:
    """Return the partial sum that each release creates, from prefix sums of shape (m, channels)."""
    parts = state["parts"][rows]
    if not isinstance(counter, Pm2):
        state["parts"][rows, 0] = prefix
        new: Floats = prefix - parts[:, 0]
        return new

    level = counter_lowest_bit(release)
    parts[np.arange(parts.shape[1]) <= level[:, np.newaxis]] = 0.0  # joined into the new one
    new = prefix - parts.sum(axis=1)
    parts[np.arange(len(rows)), level] = new
    state["parts"][rows] = parts

    return new


def _add_terms(counter: Counter, state: State, rows: Ints, release: Ints, terms: Floats) -> Floats:
    """Return the sum of the terms over the partial sums in use, shape (m, terms), counting the new ones."""
    held = state["terms"][rows]
    if isinstance(counter, Pm2):
        level = counter_lowest_bit(release)
        held[np.arange(held.shape[1]) <= level[:, np.newaxis]] = 0.0
        held[np.arange(len(rows)), level] = terms
    else:
        held[:, 0] += terms

    state["terms"][rows] = held
    total: Floats = held.sum(axis=1)
    return total

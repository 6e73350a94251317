"""The long-run variance of an agent's own samples, which may depend on each other.

A posterior over AR(1) curves.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri, stdtrit

from meanstream.operators.collaboration.variance.variance_posterior import VariancePosterior
from meanstream.operators.records import ENERGIES, Floats, Ints, OwnSamples

RHO = np.array([0.0, -0.8, -0.6, -0.3, 0.2, 0.35, 0.5, 0.65, 0.78, 0.87, 0.93, 0.965, 0.985])
"""Correlations of neighboring samples that are tried; 0, independence, is the first."""
SLOW = np.array([0.03, 0.1, 0.3])
"""Shares of the variance that are slow where the rest is noise of measurement, white."""
SLOWEST = np.flatnonzero(RHO >= 0.78)
"""Correlations of the slow part: at lower ones it is hardly slower than the noise."""
FARTHER = 0.7
"""How fast the prior falls with the ratio of both variances, in powers of it."""
OWN_PRIOR_LOG_SPREAD = 0.6
UNLIKE = 0.1
UNLIKE_LOG_SPREAD = 2.5
"""Spread of an agent's log variance about the pool's, and the share of agents that are unlike it,
and their spread."""
DEPENDENT_VARIANCE = 0.09
"""Variance of the pairs' excess over the variance of a sample, where samples depend."""
LEAST_DEGREES = 3.0
_TOGETHER = 1 << 11
"""Agents at a time: what is computed of them stays in the processor's cache."""
_STEP = 1 / 256
_COARSE = 8
_LEAST = 1e-12
_MOST_LOG = np.float32(40.0)
_LEAST_SPREAD = 1e-6
_LEVELS = 64
_NODES = 2048
_NOMINAL = float(ndtri(0.975))
_Floats32 = NDArray[np.float32]


class LongRunVariance(NamedTuple):
    """Private: of some agents, what each agent's own samples say of its long-run variance.

    Attributes
    ----------
    independent : float array (n,)
        Probability that its samples do not depend on each other.
    mean, log : float array (n,)
        Mean of the long-run variance, and of its logarithm, over the median of the pool.
    degrees : float array (n,)
        Degrees of freedom that the mean is worth.
    """

    independent: _Floats32
    mean: Floats
    log: _Floats32
    degrees: _Floats32


def long_run_ratio() -> Floats:
    """Give the long-run variance over that of one sample, for each curve.

    AR(1) processes of each correlation come first, then white noise with a slow part: of each share
    in `SLOW`, one of each correlation of `SLOWEST`.

    Examples
    --------
    >>> long_run_ratio()[[0, 6]].tolist()  # of correlations 0 and 0.5
    [1.0, 3.0]
    >>> len(long_run_ratio())
    28
    """
    return _with_noise((1 + RHO) / (1 - RHO))


def _with_noise(of_ar: Floats) -> Floats:
    """Values of AR(1) curves, and those of white noise with a slow part: they mix by the share of either."""
    slow = [(1 - share) + share * of_ar[SLOWEST] for share in SLOW]
    return np.concatenate([of_ar, *slow])


@cache
def long_run_expected(log: int) -> Floats:
    """Give what energies are expected to be over the variance of one sample, shape (28, 6), for blocks of `2**log`.

    Examples
    --------
    >>> long_run_expected(4)[0].tolist()  # independent samples
    [1.0, 1.0, 1.0, 1.0, 1.0, 1.0]
    """

    def scaled(length: float) -> Floats:
        """Give the variance of means of that many samples, times their number."""
        ratio = (1 + RHO) / (1 - RHO)
        return np.asarray(ratio - 2 * RHO * (1 - RHO**length) / (length * (1 - RHO) ** 2))

    block = 2.0**log
    lengths = block * 2.0 ** np.arange(ENERGIES - 2)
    between = 1 - scaled(block) / block - (1 - RHO) / 2
    fine = between / (0.5 - 1 / block) if log >= 2 else np.ones(len(RHO))
    long = [2 * scaled(length) - scaled(2 * length) for length in lengths]

    return _with_noise(np.stack([1 - RHO, fine, *long], axis=1))


def long_run_variance(pool: VariancePosterior, own: OwnSamples, some: Ints) -> LongRunVariance:
    """Private: read each agent's long-run variance off its own samples, given what is public of everyone's.

    Parameters
    ----------
    pool : VariancePosterior
        With a long run, if that is known.
    own : OwnSamples
        With energies.
    some : int array, shape (m,)
        Places of the agents to look at: those with energies, and with samples that are not all
        equal.

    Notes
    -----
    Energies are sums of squares of nearly independent differences: normal, with expectations that follow from the
    variance of one sample and from how samples depend. That is taken for an AR(1) process of one of 13 correlations,
    or for one of the five slowest under white noise of measurement, which hides it from neighbors;
    a curve of expectations stands for other processes of the same shape, since short stretches count as few degrees
    of freedom. That pairs of samples differ as independent ones do is evidence of independence with all its degrees.

    What an agent gets depends on its own samples and on the pool alone, to the last bit: computed
    in 32 bits, in a fixed order.

    References
    ----------
    Flegal, Jones (2010), "Batch means and spectral variance estimators in Markov chain Monte Carlo", on why few long
    batches, and their degrees of freedom, make intervals that cover.
    """
    unit = pool.median
    columns = np.empty((4, len(some)), np.float32)
    table = _PublicFactor.of(pool, unit)
    log = own.block_log[some]
    order = np.argsort(log.astype(np.uint8), kind="stable")
    starts = np.searchsorted(log[order], np.arange(_LEVELS + 1))

    for level in np.flatnonzero(np.diff(starts)).tolist():
        expected = long_run_expected(level)
        for start in range(starts[level], starts[level + 1], _TOGETHER):
            rows = order[start : min(start + _TOGETHER, starts[level + 1])]
            few = np.repeat(rows, 2) if len(rows) == 1 else rows
            columns[:, few] = _of_level(own, some[few], expected, table, unit)

    return LongRunVariance(columns[0], unit * columns[1].astype(np.float64), columns[2], columns[3])


@dataclass(frozen=True, slots=True)
class _PublicFactor:
    """The public part of the prior.

    Log density of the log variance, in a table; and prior log odds of correlations.
    """

    low: float
    values: Any
    log_prior: Floats

    @classmethod
    def of(cls, pool: VariancePosterior, unit: float) -> _PublicFactor:
        everyone = pool if pool.long_run is None else pool.long_run
        log_variance = np.log(everyone.variance / unit)
        weight = everyone.weight
        mean = float(weight @ log_variance)

        low = np.log(_LEAST)
        high = max(16.0, float(log_variance.max()) + 4.0)
        x = np.arange(low, high, _COARSE * _STEP)[:, None]
        near = (
            np.exp(-0.5 * ((x - log_variance) / OWN_PRIOR_LOG_SPREAD) ** 2)
            @ weight
            / OWN_PRIOR_LOG_SPREAD
        )
        far = np.exp(-0.5 * ((x[:, 0] - mean) / UNLIKE_LOG_SPREAD) ** 2) / UNLIKE_LOG_SPREAD

        ratio = long_run_ratio()[1:]
        rest = np.maximum(ratio, 1 / ratio) ** -FARTHER
        share = np.concatenate([[pool.independent], (1 - pool.independent) * rest / rest.sum()])
        values = np.log((1 - UNLIKE) * near + UNLIKE * far)
        values = np.interp(np.arange(low, x[-1, 0], _STEP), x[:, 0], values).astype(np.float32)

        return cls(float(low), values, np.log(np.maximum(share, 1e-30)).astype(np.float32)[:, None])

    def read(self, log_variance: _Floats32) -> _Floats32:
        """Read the table at the nearest node: it changes little from one to the next."""
        node = log_variance * np.float32(1 / _STEP)
        node += np.float32(0.5 - self.low / _STEP)
        return np.asarray(self.values.take(node.astype(np.int32), mode="clip"), np.float32)


def _of_level(
    own: OwnSamples, part: Ints, expected: Floats, table: _PublicFactor, unit: float
) -> _Floats32:
    """Give independence, mean, mean logarithm and degrees of agents whose blocks are of one length, shape (4, m)."""
    degrees = own.energy_degrees[part].T.astype(np.float32, order="C")
    weighted = own.energies[part].T.astype(np.float32, order="C")
    weighted *= degrees
    number = np.add.reduce(degrees, axis=0)
    # Shape (28, m) from here. Sums run along columns, in one order for any number of agents but
    # one.
    logs = np.einsum("kj,jn->kn", (1 / (unit * expected)).astype(np.float32), weighted)
    logs /= number
    np.maximum(logs, np.float32(_LEAST), out=logs)
    np.log(logs, out=logs)

    weights = np.einsum("kj,jn->kn", np.log(expected).astype(np.float32), degrees)
    weights += number * logs
    weights *= np.float32(-0.5)
    logs += np.log(long_run_ratio()).astype(np.float32)[:, None]
    weights += table.read(logs)
    weights += table.log_prior
    weights[0] -= _evidence(own, part)

    return _moments(logs, weights, number)


def _evidence(own: OwnSamples, part: Ints) -> _Floats32:
    """Give the log odds of dependence by what pairs of samples differ by, against the variance of a sample."""
    count = own.count[part].astype(np.float64)
    excess = (own.energies[part, 0] * (count - 1) / own.squared_deviations[part] - 1).astype(
        np.float32
    )
    number = count.astype(np.float32)
    wider = 1 + np.float32(DEPENDENT_VARIANCE / 2) * number  # of both variances the ratio
    excess *= excess
    excess *= number * (1 - 1 / wider)

    return np.asarray(np.float32(0.25) * excess - np.float32(0.5) * np.log(wider), np.float32)


def _moments(logs: _Floats32, weights: _Floats32, number: _Floats32) -> _Floats32:
    """Average over the correlations."""
    weights -= np.maximum.reduce(weights, axis=0)
    np.exp(weights, out=weights)
    total = np.add.reduce(weights, axis=0)
    independent = weights[0] / total
    log = np.einsum("kn,kn->n", weights, logs)

    variance = np.exp(np.minimum(logs, _MOST_LOG, out=logs), out=logs)
    weights *= variance
    mean = np.add.reduce(weights, axis=0)
    square = np.einsum("kn,kn->n", weights, variance)
    mean, square, log = mean / total, square / total, log / total
    spread = square * (1 + 2 / number) / np.square(mean) - 1
    degrees = 2 / np.clip(spread, np.float32(_LEAST_SPREAD), np.float32(2 / LEAST_DEGREES))

    return np.stack([independent, mean, log, degrees])


@cache
def _quantiles() -> _Floats32:
    """Give squared ratios of the 95 % quantiles of Student's t and the normal law, by the reciprocal of the degrees."""
    nodes = np.linspace(0.0, 1 / LEAST_DEGREES, _NODES + 1)
    return np.asarray((stdtrit(1 / np.maximum(nodes, 1e-9), 0.975) / _NOMINAL) ** 2, np.float32)


def _wider(degrees: _Floats32) -> _Floats32:
    """Give the squared ratio of the 95 % quantiles of Student's t and of the normal distribution, within .1 %."""
    node = np.float32(_NODES * LEAST_DEGREES) / degrees + np.float32(0.5)
    return _quantiles().take(node.astype(np.int32), mode="clip")


def variances_of_own(
    pool: VariancePosterior, own: OwnSamples, short: Floats
) -> tuple[Floats, Floats]:
    """Private: each agent's variance of one sample for its interval, and for its value.

    Parameters
    ----------
    pool : VariancePosterior
        Public: what is known of the variance of one sample, and of the long run.
    own : OwnSamples
    short : float array, shape (len(own),)
        Each agent's variance of one sample if samples do not depend (`variance_posterior_of_own`).

    Notes
    -----
    With q the probability of independence, m the mean of the long-run variance and d its degrees of freedom, the
    interval's is `q short + (1 - q) m (t_d / 1.96)^2`. The value's is the geometric mean of both, and never more than
    `short`. Of fewer than 16 samples, and of samples that are all equal, both are `short`.

    Neither is less than `(1 + r)^2 short`, where r is the correlation of neighbors that pairs of samples show, at most
    0. Pairs and blocks leave the newest samples out: an agent whose samples were all alike until the newest one would
    seem to know its mean exactly. Only samples that swing from one to the next make a mean that precise; of AR(1)
    processes it is `(1 + r) / (1 - r)`, which is more.
    """
    interval = short.copy()
    value = short.copy()
    if not own.energies.shape[1]:
        return interval, value

    dependent = np.flatnonzero((own.energy_degrees[:, 0] > 0) & (own.squared_deviations > 0))
    if not len(dependent):
        return interval, value
    long_run = long_run_variance(pool, own, dependent)
    usual = short[dependent]
    unit = pool.median
    q = long_run.independent

    # Half the mean squared difference of pairs is `1 - r` times the variance of the samples.
    of_samples = own.squared_deviations[dependent] / (own.count[dependent] - 1)
    correlation = 1 - own.energies[dependent, 0] / of_samples
    least = np.clip(1 + correlation, 0.0, 1.0) ** 2 * usual

    long = np.maximum(long_run.mean * _wider(long_run.degrees), least)
    interval[dependent] = q * usual + (1 - q) * long

    log = np.log((usual / unit).astype(np.float32))
    geometric = unit * np.exp(q * log + (1 - q) * long_run.log).astype(np.float64)
    value[dependent] = np.minimum(usual, np.maximum(geometric, least))

    return interval, value

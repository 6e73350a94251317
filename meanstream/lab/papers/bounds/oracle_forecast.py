"""Expected squared error of the collaboration when the classes are known, for each schedule of releases."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy.special import gammaln

from meanstream.operators.agents.release_times import Counts
from meanstream.operators.records import Floats, Ints

VarianceTable = Callable[[Ints], Floats]
"""From release times, shape (..., n), to the variance of the statistic after each of them."""

_NEGLIGIBLE = 1e-13


def oracle_round_robin(
    t: Ints, *, agents: int, classes: int, sample_variance: float, table: VarianceTable
) -> Floats:
    """Return the mean squared error with known classes under round robin, by its exact integral.

    Parameters
    ----------
    t : int array, shape (k,)
        Times, at least 1.
    agents, classes : int
        M agents, each placed in one of the classes with equal probability.
    sample_variance : float
        Variance of one sample, the same for all.
    table : callable
        From release times (..., n) to the variance of the statistic after each, as
        `statistic_variance_table` gives it.

    Examples
    --------
    >>> import numpy as np
    >>> from functools import partial
    >>> from meanstream.operators.counters.pm1 import Pm1
    >>> from meanstream.lab.papers.colme.statistic import statistic_variance_table
    >>> noise = {"counter": Pm1(151), "fresh_variance": 84.233}
    >>> table = partial(statistic_variance_table, name="last", sample_variance=0.25, **noise)
    >>> oracle_round_robin(np.array([30000]), agents=200, classes=3, sample_variance=0.25, table=table).round(9)
    array([3.3e-07])

    References
    ----------
    Yakimenka et al., Proposition 3, whose sum over placements is this integral.
    """
    variances = table(oracle_round_robin_times(agents, int(np.max(t))))
    return np.array(
        [
            oracle_expected_reciprocal(
                time / sample_variance,
                oracle_round_robin_precision(time, agents, variances),
                1.0 / classes,
            )
            for time in np.asarray(t).tolist()
        ]
    )


def oracle_restricted_round_robin(
    t: Ints, *, agents: int, classes: int, sample_variance: float, table: VarianceTable
) -> Floats:
    """Return the mean squared error with known classes when only one's own class is queried (Remark 3).

    Parameters are those of `oracle_round_robin`. Class sizes of negligible probability are left
    out, and the others' probabilities renormalized.
    """
    t = np.asarray(t)
    size = np.arange(1, agents + 1)
    probability = _class_size_probability(agents, classes)
    kept = probability > _NEGLIGIBLE
    errors = [_error_in_class(t, int(n), sample_variance, table) for n in size[kept]]

    return np.asarray(np.average(np.array(errors), axis=0, weights=probability[kept]))


def oracle_broadcast(
    t: Ints,
    *,
    agents: int,
    classes: int,
    sample_variance: float,
    table: VarianceTable,
    schedule: Counts,
) -> Floats:
    """Return the mean squared error with known classes when everyone publishes at the schedule's times.

    Parameters are those of `oracle_round_robin`, and the schedule in numbers of samples.
    """
    heard = schedule.releases_up_to(np.asarray(t))
    variances = table(schedule.times(max(int(np.max(heard)), 1)))
    precision = np.where(heard > 0, 1.0 / variances[np.maximum(heard - 1, 0)], 0.0)
    pairs = zip(np.asarray(t).tolist(), precision.tolist(), strict=True)

    return np.array(
        [
            oracle_expected_reciprocal(
                time / sample_variance, np.full(agents - 1, r), 1.0 / classes
            )
            for time, r in pairs
        ]
    )


def oracle_expected_reciprocal(own: float, precision: Floats, probability: float) -> float:
    """Return `E[1 / (own + sum_b B_b precision_b)]` for independent Bernoulli `B_b`, to 12 digits.

    Parameters
    ----------
    own : float
        Positive precision that is always there (the agent's own samples).
    precision : float array, shape (n,)
        Precisions that count with the given probability; 0 for agents not heard of yet.
    probability : float
        Probability of each, in [0, 1].

    Notes
    -----
    `E[1/S] = int_0^inf E[e^{-s S}] ds`, and the expectation is a product. With `s = e^v` the trapezoidal rule with
    step 0.25 errs by `|Gamma(1 + 8 pi i)|`, below 1e-16.

    Examples
    --------
    >>> import numpy as np
    >>> round(oracle_expected_reciprocal(1.0, np.array([1.0]), 0.5), 12)
    0.75
    """
    if probability == 1.0:
        return float(1.0 / (own + precision.sum()))
    ratio = precision / own
    low = np.log(_NEGLIGIBLE / (1.0 + ratio.sum()))  # left of it the integrand is e^v
    v = np.arange(low, np.log(40.0), 0.25)
    u = np.exp(v)
    exponent = np.log1p(probability * np.expm1(-np.multiply.outer(u, ratio))).sum(axis=1)

    return float(0.25 * np.sum(np.exp(v - u + exponent)) / own)


def oracle_round_robin_times(agents: int, steps: int) -> Ints:
    """Return when each of the others is queried, shape (agents - 1, n).

    `l + (i - 1)(agents - 1)`, past `steps` too.
    """
    period = agents - 1
    rounds = 1 + (steps - 1) // period
    return np.arange(1, period + 1)[:, np.newaxis] + period * np.arange(rounds)


def oracle_round_robin_precision(t: int, agents: int, table: Floats) -> Floats:
    """Return `1/Var[T_b]` of the others at time `t`, in query order, from their variance tables (agents - 1, n)."""
    rounds, position = divmod(t - 1, agents - 1)
    releases = rounds + (np.arange(agents - 1) <= position)
    last = table[np.arange(agents - 1), np.maximum(releases - 1, 0)]
    return np.where(releases > 0, 1.0 / last, 0.0)


def _class_size_probability(agents: int, classes: int) -> Floats:
    """Return the probability of each class size 1..M of a given agent."""
    others = np.arange(agents)
    if classes == 1:
        return np.asarray(others == agents - 1, dtype=np.float64)
    choose = gammaln(agents) - gammaln(others + 1) - gammaln(agents - others)
    probability: Floats = np.exp(
        choose - others * np.log(classes) + (agents - 1 - others) * np.log1p(-1.0 / classes)
    )

    return probability


def _error_in_class(t: Ints, size: int, sample_variance: float, table: VarianceTable) -> Floats:
    """Return the error when a class of this size asks its own members in turn."""
    own = t / sample_variance
    if size == 1:
        return np.asarray(1.0 / own)
    variances = table(oracle_round_robin_times(size, int(np.max(t))))
    others = np.array(
        [oracle_round_robin_precision(time, size, variances).sum() for time in t.tolist()]
    )

    return np.asarray(1.0 / (own + others))

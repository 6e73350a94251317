"""Expected squared errors without a simulation.

Learning alone, with all data public, with known classes under noise.

Everything here is a function of public parameters. `forecast_agents_table` is what
`meanstream theory agents` prints.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.polynomial.hermite_e import hermegauss
from scipy.special import gammaln, ndtr, ndtri

from meanstream.lab.papers.colme.consensus import consensus_worth, hashed_classes
from meanstream.lab.papers.colme.statistic import statistic_variance_table
from meanstream.operators.agents.release_times import (
    Counts,
    parse_release_times,
    require_samples_counted,
)
from meanstream.operators.counters.optimal import Optimal, optimal_counter_sampling
from meanstream.operators.counters.registry import counter_noise_variance, make_counter
from meanstream.operators.records import Floats, Ints
from meanstream.operators.validation import (
    require,
    require_between,
    require_least,
    require_positive,
)

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
    precision = _broadcast_precision(t, table, schedule)
    pairs = zip(np.asarray(t).tolist(), precision.tolist(), strict=True)

    return np.array(
        [
            oracle_expected_reciprocal(
                time / sample_variance, np.full(agents - 1, r), 1.0 / classes
            )
            for time, r in pairs
        ]
    )


def consensus_with_known_classes(
    t: Ints,
    *,
    agents: int,
    classes: int,
    sample_variance: float,
    table: VarianceTable,
    schedule: Counts,
) -> Floats:
    """Return the mean squared error of consensus on the partners' graph with known classes.

    Parameters are those of `oracle_broadcast`. Without one's own release the others' mixture has
    the variance `V sum_b (W^8)_ab^2 / (1 - (W^8)_aa)^2`, b other than a. It is averaged over agents
    of fixed placements, by a public hash.
    """
    placements = range(max(_PLACED // agents, 1))
    labels = [hashed_classes(agents, classes, placement) for placement in placements]
    worth = np.concatenate([consensus_worth(label) for label in labels])

    own = np.asarray(t) / sample_variance
    heard = np.multiply.outer(_broadcast_precision(t, table, schedule), worth)

    return np.asarray((1.0 / (own[:, np.newaxis] + heard)).mean(axis=1))


_PLACED = 2_000
"""Agents that the error of consensus is averaged over, at least."""


def _broadcast_precision(t: Ints, table: VarianceTable, schedule: Counts) -> Floats:
    """Return 1 / Var[T] of the newest release at each time, 0 before the first."""
    heard = schedule.releases_up_to(np.asarray(t))
    variances = table(schedule.times(max(int(np.max(heard)), 1)))
    return np.asarray(np.where(heard > 0, 1.0 / variances[np.maximum(heard - 1, 0)], 0.0))


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
    own_precision = t / sample_variance
    if size == 1:
        return np.asarray(1.0 / own_precision)
    variances = table(oracle_round_robin_times(size, int(np.max(t))))
    others = np.array(
        [oracle_round_robin_precision(time, size, variances).sum() for time in t.tolist()]
    )

    return np.asarray(1.0 / (own_precision + others))


SIGNIFICANCE = 0.05
"""The tests at time t run at this over ln(t + 1)."""
_NODES = 24
"""Of the integral over the agent's own mean."""
_NEVER = 1e-12
"""Chance of acceptance that counts as none."""


def error_with_tests(
    t: Ints, *, agents: int, means: Floats, sample_variance: float, table: VarianceTable
) -> Floats:
    """Approximate the mean squared error of Algorithm 1 under round robin with known variances and lazy tests.

    Parameters
    ----------
    t : int array, shape (k,)
        Times, at least 1.
    agents : int
        M agents, each placed in one of the classes with equal probability.
    means : float array, shape (classes,)
        Means of the classes.
    sample_variance : float
    table : callable
        As for `oracle_round_robin`.

    Notes
    -----
    Statistics are taken as normal. Given the agent's own mean, the others are accepted independently; their number and
    sum enter by mean and variance (a first-order expansion). Own means of earlier times, at which others were tested,
    are the present one plus independent noise, since means of a growing sample are a reversed martingale.

    Examples
    --------
    >>> from functools import partial
    >>> from meanstream.lab.papers.colme.statistic import statistic_variance_table
    >>> from meanstream.operators.counters.pm1 import Pm1
    >>> noise = {"counter": Pm1(51), "fresh_variance": 84.233}
    >>> table = partial(statistic_variance_table, name="last", sample_variance=0.25, **noise)
    >>> means, t = np.array([0.2, 0.4, 0.8]), np.array([100, 1000, 10000])
    >>> error_with_tests(t, agents=200, means=means, sample_variance=0.25, table=table).round(7).tolist()
    [0.0070302, 1.29e-05, 1.1e-06]

    References
    ----------
    Yakimenka et al., Theorem 1 and section III-C1.
    """
    variances = table(oracle_round_robin_times(agents, int(np.max(t))))
    errors = []
    for time in np.asarray(t).tolist():
        precision = oracle_round_robin_precision(time, agents, variances)
        queried = np.flatnonzero(precision)
        # The last time at which each was queried: it was tested then.
        when = time - (time - 1 - queried) % (agents - 1)
        found = [
            _error(mean, means, time, when, 1.0 / precision[queried], sample_variance)
            for mean in means.tolist()
        ]
        errors.append(float(np.mean(found)))

    return np.array(errors)


def _error(  # noqa: PLR0917 - private
    own: float, means: Floats, t: int, when: Ints, variance: Floats, sample_variance: float
) -> float:
    """Integrate the squared error of an agent with this mean over its own sample mean."""
    nodes, weights = hermegauss(_NODES)
    x = nodes[:, None, None] * np.sqrt(sample_variance / t)
    distance = (means - own)[None, :, None]
    # T and the own mean at the time of the test, less the present one, are independent.
    earlier = sample_variance * (1.0 / when - 1.0 / t)
    spread = np.sqrt(variance + earlier)

    reach = ndtri(1.0 - SIGNIFICANCE / (2.0 * np.log(when + 1.0))) * np.sqrt(
        sample_variance / when + variance
    )
    low = (x - reach - distance) / spread
    high = (x + reach - distance) / spread
    accepted = ndtr(high) - ndtr(low)
    accepted[accepted < _NEVER] = 0.0
    scale = np.where(accepted > 0.0, accepted, np.inf) * np.sqrt(2.0 * np.pi)

    density_low = np.exp(-0.5 * low**2)
    density_high = np.exp(-0.5 * high**2)
    slope = (density_low - density_high) / scale
    curve = 1.0 + (low * density_low - high * density_high) / scale - slope**2
    # Of T given that the sum of it and the noise of the own mean is in the window.
    share = variance / spread**2
    mean = distance + share * spread * slope
    left = share**2 * spread**2 * np.clip(curve, 0.0, None) + share * earlier

    weight = 1.0 / variance
    own_weight = t / sample_variance
    # One of several classes, each as likely.
    chance = accepted / len(means)
    total = own_weight + (chance * weight).sum(axis=(1, 2))
    bias = (own_weight * x[:, 0, 0] + (chance * weight * mean).sum(axis=(1, 2))) / total
    offset = mean - bias[:, None, None]
    inside = (chance * weight * offset).sum(axis=1)
    second = (chance * weight**2 * (left + offset**2)).sum(axis=1) - inside**2
    squared = bias**2 + second.sum(axis=1) / total**2

    return float(weights @ squared / weights.sum())


def better_together_from(gain: Callable[[Ints], Floats], steps: int) -> int | None:
    """Find the time from which on agents err less together than alone, up to a number of steps.

    None if they err more at the last step. The last loss on a coarse grid of times is narrowed by
    bisection, so that the answer does not depend on the grid.

    Parameters
    ----------
    gain : callable
        From times, ascending, to the error alone less the error together.
    steps : int
        At least 2.

    Examples
    --------
    >>> [better_together_from(lambda t: t - 379.5, steps) for steps in (500, 30_000, 300)]
    [380, 380, None]
    """
    grid = np.unique(np.geomspace(2, steps, _TIMES).round().astype(np.int64))
    losses = np.flatnonzero(gain(grid) <= 0)

    if not len(losses):
        return 2
    if losses[-1] == len(grid) - 1:
        return None

    worse, better = grid[losses[-1] : losses[-1] + 2].tolist()
    while better - worse > 1:
        middle = (worse + better) // 2
        if gain(np.array([middle]))[0] > 0:
            better = middle
        else:
            worse = middle

    return int(better)


_TIMES = 100
"""At which the errors of working together and alone are compared first."""
SCHEDULES = ("round_robin", "restricted_round_robin", "broadcast")


def forecast_agents_alone(t: Ints, sample_variance: Floats | float) -> Floats:
    """Return the mean squared error of agents that learn alone, at each time.

    Parameters
    ----------
    t : int array, shape (k,)
        Numbers of samples per agent.
    sample_variance : float or float array, shape (agents,)
        Variance of one sample.

    Examples
    --------
    >>> import numpy as np
    >>> forecast_agents_alone(np.array([1000, 5000]), 0.25).tolist()
    [0.00025, 5e-05]

    References
    ----------
    Yakimenka et al., Proposition 1.
    """
    return np.asarray(np.mean(sample_variance) / np.asarray(t, dtype=np.float64))


def forecast_agents_random_classes(
    t: Ints, sample_variance: float, *, agents: int, classes: int
) -> Floats:
    """Return `forecast_agents_ideal` averaged over placements of the agents in equally likely classes.

    The size less one is binomial, and `E[1/(1 + K)] = (1 - (1 - p)^M) / (M p)` for K of M - 1
    trials.

    Examples
    --------
    >>> import numpy as np
    >>> forecast_agents_random_classes(np.array([1000]), 0.25, agents=200, classes=3).round(12).tolist()
    [3.75e-06]
    """
    p = 1.0 / classes
    return forecast_agents_alone(t, sample_variance) * (1 - (1 - p) ** agents) / (agents * p)


def forecast_agents_table(
    *,
    agents: int,
    checkpoints: Sequence[int],
    classes: int,
    stddev: float,
    half_width: float,
    epsilon: float,
    delta: float,
    counter: str = "pm1",
    weights: str = "last",
    schedule: str = "round_robin",
    noise: str = "gaussian",
    calibration: str = "classical",
    composition: str = "basic",
    levels: int | None = None,
    horizon: int | None = None,
    means: Sequence[float] | None = None,
) -> dict[str, Any]:
    """Return Propositions 1 to 3 and the variance of the statistic as plain data for JSON.

    Parameters
    ----------
    agents, classes : int
        At least 2 agents, each in one of the classes with equal probability.
    checkpoints : sequence of int
        Times at which the errors are computed; the largest is the length of the run.
    stddev, half_width : float
        Standard deviation of one sample and half the length of the interval that calibrates the
        noise.
    epsilon, delta, noise, calibration, composition
        As in `meanstream.operators.counters.registry.counter_noise_variance`; the defaults are the
        paper's.
    counter, weights : str
        Names of the counter and of the weighting.
    schedule : str
        "round_robin", "restricted_round_robin", or "broadcast:preferred:FIRST" (or
        ...:geometric:FIRST,FACTOR).
    levels, horizon : int, optional
        Divisor of the budget for PM-II; number of releases that the counter is calibrated for, by
        default the largest that the schedule can need.
    means : sequence of float, optional
        Means of the classes; under round robin `tested` and `better_together_from` are then
        computed.

    Returns
    -------
    dict
        `checkpoints, local, ideal, oracle` (lists of the same length), `statistic_variance` and
        `releases` of the agent that is queried first (of any agent under broadcast; null and 0
        before its first release), `fresh_variance`, `horizon`; under broadcast `consensus`, the
        error of consensus with known classes; with means, `tested`, the
        error with the tests, and the time from which it is below `local` for good (Theorem 1; null
        if not within the longest time).

    Examples
    --------
    >>> table = forecast_agents_table(
    ...     agents=200, checkpoints=[1000, 30000], classes=3, stddev=0.5, half_width=0.75**0.5, epsilon=1, delta=1e-6)
    >>> [f"{x:.3g}" for x in table["oracle"]]
    ['1.16e-05', '3.3e-07']
    """
    require_least(2, agents=agents)
    require_least(1, classes=classes)
    require(
        bool(checkpoints) and min(checkpoints) >= 1,
        "checkpoints",
        "be times from 1 on",
        list(checkpoints),
    )
    require_positive(stddev=stddev, half_width=half_width, epsilon=epsilon)
    require_between(0, 1, delta=delta)

    steps = max(checkpoints)
    horizon = horizon or _releases_needed(schedule, agents, steps)
    sampling = (
        optimal_counter_sampling(_broadcast_times(schedule).times(horizon), epsilon)
        if counter == Optimal.name
        else ()
    )
    mechanism = make_counter(counter, horizon=horizon, levels=levels, sampling=sampling)

    draw = counter_noise_variance(
        mechanism,
        epsilon=epsilon,
        delta=delta,
        sensitivity=2 * half_width,
        noise=noise,
        calibration=calibration,
        composition=composition,
    )
    table = partial(
        statistic_variance_table,
        name=weights,
        sample_variance=stddev**2,
        counter=mechanism,
        fresh_variance=draw,
    )

    t = np.asarray(checkpoints, dtype=np.int64)
    ask = {"agents": agents, "classes": classes, "sample_variance": stddev**2, "table": table}
    errors = _oracle(schedule)(t, **ask)
    releases, variance = _first_agent(t, schedule, agents, table)
    tested: dict[str, Any] = {}
    if schedule not in SCHEDULES:
        mixed = consensus_with_known_classes(
            t,
            schedule=_broadcast_times(schedule),
            **ask,  # type: ignore[arg-type]
        )
        tested["consensus"] = mixed.tolist()

    if means is not None and schedule == "round_robin":
        tested = _tested(
            t, agents=agents, means=np.array(means), sample_variance=stddev**2, table=table
        )

    return {
        "checkpoints": t.tolist(),
        "local": forecast_agents_alone(t, stddev**2).tolist(),
        "ideal": forecast_agents_random_classes(
            t, stddev**2, agents=agents, classes=classes
        ).tolist(),
        "oracle": errors.tolist(),
        "statistic_variance": variance,
        "releases": releases.tolist(),
        "fresh_variance": draw,
        "horizon": horizon,
        **tested,
    }


def _tested(
    t: Ints, *, agents: int, means: Floats, sample_variance: float, table: VarianceTable
) -> dict[str, Any]:
    """Return the error with the tests, and from which time on it is below that of learning alone."""
    ask = {"agents": agents, "means": means, "sample_variance": sample_variance, "table": table}

    def errors(times: Ints) -> Floats:
        return error_with_tests(times, **ask)  # type: ignore[arg-type]

    def gain(times: Ints) -> Floats:
        return forecast_agents_alone(times, sample_variance) - errors(times)

    return {
        "tested": errors(t).tolist(),
        "better_together_from": better_together_from(gain, max(int(t.max()), 2)),
    }


def _oracle(schedule: str) -> Callable[..., Floats]:
    """Return the oracle's error under the named schedule."""
    if schedule == "round_robin":
        return oracle_round_robin
    if schedule == "restricted_round_robin":
        return oracle_restricted_round_robin

    return partial(oracle_broadcast, schedule=_broadcast_times(schedule))


def _broadcast_times(schedule: str) -> Counts:
    """Return the times of `broadcast:KIND:...`."""
    kind, _, rest = schedule.partition(":")
    require(kind == "broadcast", "schedule", f"be one of {', '.join(SCHEDULES)}", schedule)
    return require_samples_counted(parse_release_times(rest), schedule, "broadcast:preferred:FIRST")


def _releases_needed(schedule: str, agents: int, steps: int) -> int:
    """Return the largest number of releases from one agent to one reader within the steps."""
    if schedule == "round_robin":
        return 1 + (steps - 1) // (agents - 1)
    if schedule == "restricted_round_robin":
        return steps  # a class of two: the other one is queried at every step

    return max(int(_broadcast_times(schedule).releases_up_to(np.array([steps]))[0]), 1)


def _first_agent(
    t: Ints, schedule: str, agents: int, table: VarianceTable
) -> tuple[Ints, list[float | None]]:
    """Return the releases and the variance of the statistic of the agent that is queried first, at each time.

    Under the restricted round robin it is queried at every step: the only other member of a class
    of two.
    """
    if schedule in ("round_robin", "restricted_round_robin"):
        period = agents - 1 if schedule == "round_robin" else 1
        releases = 1 + (t - 1) // period
        times = 1 + period * np.arange(int(releases.max()))
    else:
        releases = _broadcast_times(schedule).releases_up_to(t)
        times = _broadcast_times(schedule).times(max(int(releases.max()), 1))

    variances = table(times)
    return releases, [float(variances[k - 1]) if k > 0 else None for k in releases.tolist()]
